"""`UpdateRule`: how one parameter is changed, given its gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import backend
from .backends.chainerx import is_chainerx_array
from .backends.cuda import is_cupy_array
from .hyperparameter import Hyperparameter
from .parameter import Parameter
from .serializer import Deserializer
from .update_kernels import update_on_card

__all__ = ["Hooks", "UpdateRule"]


class Hooks:
    """Hooks called before and after updates, in the order in which they were added."""

    def __init__(self) -> None:
        self.pre: dict[str, Any] = {}
        self.post: dict[str, Any] = {}

    def add(self, hook: Any, name: str | None, timing: str) -> None:
        if not callable(hook):
            raise TypeError(f"hook function must be callable, but is of {type(hook)}")
        if timing not in ("pre", "post", "auto"):
            raise ValueError(f"timing must be one of ('pre', 'post', 'auto'), but is {timing!r}")
        if timing == "auto":
            timing = getattr(hook, "timing", "pre")
        if name is None:
            name = str(getattr(hook, "name", None) or getattr(hook, "__name__", type(hook).__name__))
        if name in self.pre or name in self.post:
            raise KeyError(f'hook "{name}" already exists; give add_hook() another name')
        (self.pre if timing == "pre" else self.post)[name] = hook

    def remove(self, name: str) -> None:
        if name not in self.pre and name not in self.post:
            raise KeyError(f'there is no hook "{name}"; there are: {", ".join((*self.pre, *self.post)) or "none"}')
        (self.pre if name in self.pre else self.post).pop(name)


class UpdateRule:
    """How one parameter is changed, given its gradient.

    A rule states its arithmetic once, in :meth:`update_exprs`: eager execution and the compiler both use it.  (A rule
    may instead override ``update_core``, or ``update_core_cpu`` and ``update_core_gpu``: then it is not compiled.)

    Args:
        parent_hyperparam: Where hyperparameters come from that the rule does not set itself; None is :attr:`defaults`,
            which in rules of optimizers are the optimizer's.

    Attributes:
        enabled: Whether the rule changes its parameter.
        hyperparam: The rule's hyperparameters.
        t: Number of updates made.

    >>> class Signs(kusari.UpdateRule):
    ...     def update_exprs(self, xp, hyper, param, grad):
    ...         return {"param": param - hyper.lr * xp.sign(grad)}
    >>> rule = Signs()
    >>> rule.hyperparam.lr = 0.5
    >>> p = kusari.Parameter(np.zeros(3, "float32"))
    >>> p.grad = np.array([3, -2, 0], "float32")
    >>> rule.update(p)
    >>> p.array
    array([-0.5,  0.5,  0. ], dtype=float32)
    """

    is_elementwise = False
    defaults: Hyperparameter | None = None
    """Where hyperparameters come from where no parent is given."""
    computes_in_float32 = False
    """Whether float16 operands of `update_exprs` are widened first."""

    update_exprs: Any = None
    """``update_exprs(self, xp, hyper, param, grad, **state)`` returns the new values of ``'param'`` and of the states.

    It is elementwise: ``xp`` has NumPy's functions; ``hyper`` has the numbers of `hyper_values` as attributes.
    """

    def __init__(self, parent_hyperparam: Hyperparameter | None = None) -> None:
        self._state: dict[str, Any] | None = None
        self.enabled = True
        self.hyperparam = Hyperparameter(self.defaults if parent_hyperparam is None else parent_hyperparam)
        self.t = 0
        self._use_fp32_update = False
        self._fp32_param: Parameter | None = None
        self._hooks = Hooks()

    @property
    def state(self) -> Any:
        """The state arrays by name; None before the first update."""
        return self._state

    def add_hook(self, hook: Callable[..., None], name: str | None = None, timing: str = "auto") -> None:
        """Add a hook, called as ``hook(rule, param)``.

        Args:
            hook: The hook.
            name: Its name; by default its attribute ``name``.
            timing: ``'pre'`` or ``'post'`` the update, or ``'auto'`` for the hook's ``timing``.
        """
        self._hooks.add(hook, name, timing)

    def remove_hook(self, name: str) -> None:
        """Remove the hook of this name."""
        self._hooks.remove(name)

    def use_fp32_update(self, flag: bool = True) -> None:
        """Keep a float32 copy of a float16 parameter, and update that."""
        self._use_fp32_update = flag
        if not flag:
            self._fp32_param = None

    def hyper_values(self) -> dict[str, float]:
        """Return the numbers that `update_exprs` uses, derived ones included: computed once per update."""
        return self.hyperparam.get_dict()

    def init_state(self, param: Parameter) -> None:
        """Put the initial states of ``param`` into ``self.state``; called before the first update."""

    def update(self, param: Parameter) -> None:
        """Call the hooks and change the parameter, unless the rule is disabled."""
        if not self.enabled:
            return
        self.t += 1
        if self._use_fp32_update and param.is_initialized and param.dtype == np.float16:
            self._update_in_fp32(param)
        else:
            self._update(param)

    def _update(self, param: Parameter) -> None:
        scale = param._loss_scale
        if scale is not None and param.is_initialized and param.grad is not None:
            param.grad /= scale
        self._prepare_state(param)
        for hook in self._hooks.pre.values():
            hook(self, param)
        self.update_core(param)
        for hook in self._hooks.post.values():
            hook(self, param)

    def _update_in_fp32(self, param: Parameter) -> None:
        array, master = param.data, self._fp32_of(param)
        if isinstance(array, np.ndarray) and (master.data.astype(array.dtype) != array).any():
            # Other code (a snapshot, say) has changed the parameter since the last update.
            self._fp32_param = master = Parameter(array.astype(np.float32), name=param.name)
        grad = param.grad
        wide = None if grad is None else grad.astype(np.float32)
        if wide is not None and param._loss_scale is not None:
            wide /= param._loss_scale
        master.grad = wide
        self._update(master)
        array[...] = master.data

    def _fp32_of(self, param: Parameter) -> Parameter:
        """The float32 copy of a float16 parameter, made now if there is none."""
        if self._fp32_param is None:
            self._fp32_param = Parameter(param.data.astype(np.float32), name=param.name)
        return self._fp32_param

    def _prepare_state(self, param: Parameter) -> None:
        array = param._array
        if self._state is None:
            self._state = {}
            if array is not None:
                with param.device.create_context():
                    self.init_state(param)
        elif not self._state and array is not None:
            self.init_state(param)  # the parameter was not initialized at the first update
        for name, value in self._state.items():
            if type(value) is not type(array) and hasattr(value, "dtype") and array is not None:
                self._state[name] = param.device.send(value)

    def update_core(self, param: Parameter) -> None:
        """Change the parameter, with ``update_core_cpu``, ``update_core_gpu`` or ``update_core_chainerx``."""
        if isinstance(param._array, np.ndarray) or param._array is None:
            self.update_core_cpu(param)
        elif is_chainerx_array(param._array):
            self.update_core_chainerx(param)
        else:
            with param.device.create_context():
                self.update_core_gpu(param)

    def update_core_cpu(self, param: Parameter) -> None:
        """Change a parameter that is on the CPU."""
        self._apply_exprs(param)

    def update_core_gpu(self, param: Parameter) -> None:
        """Change a parameter that is on a GPU."""
        self._apply_exprs(param)

    def update_core_chainerx(self, param: Parameter) -> None:
        """Change a parameter of ChainerX: the update runs on the NumPy or CuPy arrays behind it and the states."""
        behind = Parameter(backend.from_chx(param._array), name=param.name)
        behind.grad = backend.from_chx(param.grad)
        self._state = {name: backend.from_chx(value) if is_chainerx_array(value) else value
                       for name, value in (self._state or {}).items()}
        try:
            self.update_core(behind)
        finally:
            self._state = {name: param.device.send(value) if isinstance(value, np.ndarray) or is_cupy_array(value)
                           else value for name, value in self._state.items()}

    def _apply_exprs(self, param: Parameter) -> None:
        if self.update_exprs is None:
            raise NotImplementedError(
                f"{type(self).__name__} must override update_exprs, update_core or update_core_cpu and update_core_gpu"
            )
        array, grad = param._array, param.grad
        if array is None or grad is None:
            return
        state = self._state or {}
        operands = [array, grad, *state.values()]
        values, wide = self.hyper_values(), self.computes_in_float32 and array.dtype == np.float16
        if type(array) is not np.ndarray and is_cupy_array(array) and update_on_card(
                self, values, {"param": array, "grad": grad, **state}, wide):
            return
        if wide:
            operands = [operand.astype(np.float32) for operand in operands]
        hyper = SimpleNamespace(**values)
        xp = backend.get_array_module(array)
        new = self.update_exprs(xp, hyper, operands[0], operands[1], **dict(zip(state, operands[2:], strict=True)))
        for name, value in new.items():
            (array if name == "param" else state[name])[...] = value

    @classmethod
    def has_exprs(cls) -> bool:
        """Whether `update_exprs` is the whole truth: nothing but the class that states it changes the update."""
        base = next(c for c in cls.__mro__ if "update_exprs" in vars(c))
        names = ("update", "update_core", "update_core_cpu", "update_core_gpu")
        return base.update_exprs is not None and all(
            getattr(cls, name) in (getattr(UpdateRule, name), vars(base).get(name)) for name in names)

    def serialize(self, serializer: Any) -> None:
        """Save or load ``t`` and the states; parameters are saved with their links."""
        self.t = serializer("t", self.t)
        loading = isinstance(serializer, Deserializer)
        if self._state is None:
            if not loading:
                return
            names = self._state_names()
        else:
            names = tuple(self._state)
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[name] = serializer(name, None if loading else (self._state or {})[name])
            except KeyError:
                # A snapshot of a parameter that had not been updated has no states: they are made at the first update.
                if self.enabled and self.t > 0:
                    raise
                found[name] = None
        if loading:
            self._state = None if any(value is None for value in found.values()) or not found else found

    def _state_names(self) -> tuple[str, ...]:
        """The names of the states, found by making those of a small parameter."""
        probe = copy.copy(self)
        self._state = probe._state = {}  # of both, as init_state may be a function that fills this rule's
        probe.init_state(Parameter(np.zeros((1,), np.float32)))
        self._state = None
        return tuple(probe._state)
