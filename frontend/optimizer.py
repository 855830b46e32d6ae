"""Optimizers: hyperparameters, the update rule of one parameter, and what drives them."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import backend
from .link import Link
from .link.walk import all_params
from .optimizer_hooks import GradientClipping as GradientClipping
from .optimizer_hooks import GradientHardClipping as GradientHardClipping
from .optimizer_hooks import GradientNoise as GradientNoise
from .optimizer_hooks import Lasso as Lasso
from .optimizer_hooks import WeightDecay as WeightDecay
from .parameter import Parameter
from .serializer import Deserializer

__all__ = ["GradientMethod", "Hyperparameter", "HyperparameterProxy", "Optimizer", "UpdateRule"]

LARGEST_LOSS_SCALE = 65504  # the largest float16


class Hyperparameter:
    """A set of hyperparameters; what it lacks is looked up in its parent.

    Args:
        parent: Where missing entries are looked up, normally the optimizer's for an update rule's.

    >>> common = kusari.optimizer.Hyperparameter()
    >>> common.lr = 0.1
    >>> own = kusari.optimizer.Hyperparameter(common)
    >>> own.momentum = 0.9
    >>> own.lr, own
    (0.1, Hyperparameter(lr=0.1, momentum=0.9))
    """

    def __init__(self, parent: Hyperparameter | None = None) -> None:
        self._parent = parent

    def __getattr__(self, name: str) -> Any:
        parent = self.__dict__.get("_parent")
        if parent is None or name.startswith("__"):
            raise AttributeError(f"there is no hyperparameter {name!r}; there are: {', '.join(self.get_dict()) or 'none'}")
        return getattr(parent, name)

    def __repr__(self) -> str:
        return f"Hyperparameter({', '.join(f'{name}={value}' for name, value in sorted(self.get_dict().items()))})"

    @property
    def parent(self) -> Hyperparameter | None:
        """Where missing entries are looked up."""
        return self._parent

    def get_dict(self) -> dict[str, Any]:
        """Return all entries, inherited ones too, as a dictionary."""
        parent = self.__dict__.get("_parent")
        found = {} if parent is None else parent.get_dict()
        found.update(self.__dict__)
        found.pop("_parent", None)
        return found


class HyperparameterProxy:
    """A class attribute that stands for the entry ``attr_name`` of the instance's ``hyperparam``."""

    def __init__(self, attr_name: str) -> None:
        self._name = attr_name
        self.__doc__ = f"Alias to ``self.hyperparam.{attr_name}``"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else getattr(instance.hyperparam, self._name)

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance.hyperparam, self._name, value)


class _Hooks:
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
            name = getattr(hook, "name", None) or getattr(hook, "__name__", type(hook).__name__)
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
        parent_hyperparam: Where hyperparameters come from that the rule does not set itself.

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
    computes_in_float32 = False
    """Whether float16 operands of `update_exprs` are widened first."""

    update_exprs: Callable[..., dict[str, Any]] | None = None
    """``update_exprs(self, xp, hyper, param, grad, **state)`` returns the new values of ``'param'`` and of the states.

    It is elementwise: ``xp`` has NumPy's functions; ``hyper`` has the numbers of `hyper_values` as attributes.
    """

    def __init__(self, parent_hyperparam: Hyperparameter | None = None) -> None:
        self._state: dict[str, Any] | None = None
        self.enabled = True
        self.hyperparam = Hyperparameter(parent_hyperparam)
        self.t = 0
        self._use_fp32_update = False
        self._fp32_param: Parameter | None = None
        self._hooks = _Hooks()

    @property
    def state(self) -> dict[str, Any] | None:
        """The state arrays by name; None before the first update."""
        return self._state

    def add_hook(self, hook: Callable[..., None], name: str | None = None, timing: str = "auto") -> None:
        """Add a hook, called as ``hook(rule, param)``.

        Args:
            hook: The hook.
            name: What to call it; by default its attribute ``name``.
            timing: ``'pre'`` or ``'post'`` the update, or ``'auto'`` for what the hook's ``timing`` says.
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
        if self._use_fp32_update and param.dtype == np.float16:
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
        if not param.is_initialized:
            self._update(param)
            return
        array, master = param.data, self._fp32_param
        if master is None or (isinstance(array, np.ndarray) and (master.data.astype(array.dtype) != array).any()):
            # First update, or somebody (a snapshot, say) has changed the parameter since the last one.
            self._fp32_param = master = Parameter(array.astype(np.float32), name=param.name)
        grad = param.grad
        master.grad = None if grad is None else grad.astype(np.float32)
        master._loss_scale = param._loss_scale
        self._update(master)
        array[...] = master.data

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
        """Change the parameter, with ``update_core_cpu`` or ``update_core_gpu``."""
        if isinstance(param._array, np.ndarray) or param._array is None:
            self.update_core_cpu(param)
        else:
            with param.device.create_context():
                self.update_core_gpu(param)

    def update_core_cpu(self, param: Parameter) -> None:
        """Change a parameter that is on the CPU."""
        self._apply_exprs(param)

    def update_core_gpu(self, param: Parameter) -> None:
        """Change a parameter that is on a GPU."""
        self._apply_exprs(param)

    def _apply_exprs(self, param: Parameter) -> None:
        if self.update_exprs is None:
            raise NotImplementedError(f"{type(self).__name__} must override update_exprs, update_core or update_core_cpu/gpu")
        array, grad = param._array, param.grad
        if array is None or grad is None:
            return
        state = self._state or {}
        operands = [array, grad, *state.values()]
        if self.computes_in_float32 and array.dtype == np.float16:
            operands = [operand.astype(np.float32) for operand in operands]
        hyper = SimpleNamespace(**self.hyper_values())
        xp = backend.get_array_module(array)
        new = self.update_exprs(xp, hyper, operands[0], operands[1], **dict(zip(state, operands[2:], strict=True)))
        for name, value in new.items():
            (array if name == "param" else state[name])[...] = value

    @classmethod
    def has_exprs(cls) -> bool:
        """Whether `update_exprs` is the whole truth: no class below the one that states it changes the update."""
        for base in cls.__mro__:
            if "update_exprs" in vars(base):
                return base.update_exprs is not None
            if any(name in vars(base) for name in ("update", "update_core", "update_core_cpu", "update_core_gpu")):
                return False
        return False

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
        probe._state = {}
        probe.init_state(Parameter(np.zeros((1,), np.float32)))
        return tuple(probe._state)


class Optimizer:
    """Base class of optimizers: it has a target link, counters and hooks.

    Attributes:
        target: The link whose parameters are optimized, once set up.
        t: Number of updates.
        epoch: Number of epochs, counted by :meth:`new_epoch`.
        use_auto_new_epoch: Whether an updater calls :meth:`new_epoch`.
    """

    target: Any = None
    t = 0
    epoch = 0
    use_auto_new_epoch = False

    _hooks: _Hooks | None = None
    _loss_scale: float | None = None
    _loss_scaling_is_dynamic = False
    _loss_scaling_interval = 1000
    _loss_scaling_good_updates = 0
    _gradients_are_finite = True

    def setup(self, link: Link) -> Any:
        """Set the target, and the counters to 0; returns the optimizer.

        Raises:
            TypeError: ``link`` is not a link.
        """
        if not isinstance(link, Link):
            raise TypeError(f"optimization target must be a link, but is of {type(link)}")
        self.target = link
        self.t = 0
        self.epoch = 0
        self._hooks = _Hooks()
        return self

    def update(self, lossfun: Callable[..., Any] | None = None, *args: Any, **kwds: Any) -> None:
        """Update the parameters, from ``lossfun(*args, **kwds)`` or from gradients computed before."""
        raise NotImplementedError(f"{type(self).__name__} must override update()")

    def new_epoch(self, auto: bool = False) -> None:
        """Count an epoch; ``auto`` says that an updater does it.

        Raises:
            RuntimeError: Both an updater and somebody else count.
        """
        if auto and not self.use_auto_new_epoch:
            raise RuntimeError(
                "invalid new_epoch call with auto=True.\nFix the updater to set optimizer.use_auto_new_epoch = True."
            )
        if not auto and self.use_auto_new_epoch:
            raise RuntimeError(
                "duplicated new_epoch with the updater.\n"
                "Pass auto_new_epoch=False to the updater or stop calling new_epoch outside the updater."
            )
        self.epoch += 1

    def _set_up_hooks(self) -> _Hooks:
        if self._hooks is None:
            raise RuntimeError("Optimizer is not set up. Call `setup` method.")
        return self._hooks

    def add_hook(self, hook: Callable[..., None], name: str | None = None, timing: str = "auto") -> None:
        """Add a hook, called as ``hook(optimizer)``, or per parameter if it has ``call_for_each_param``.

        Args:
            hook: The hook.
            name: What to call it; by default its attribute ``name``.
            timing: ``'pre'`` or ``'post'`` the update, or ``'auto'`` for what the hook's ``timing`` says.
        """
        self._set_up_hooks().add(hook, name, timing)

    def remove_hook(self, name: str) -> None:
        """Remove the hook of this name."""
        self._set_up_hooks().remove(name)

    def call_hooks(self, timing: str = "pre") -> None:
        """Call the hooks of this timing."""
        hooks = self._set_up_hooks()
        for hook in (hooks.pre if timing == "pre" else hooks.post).values():
            self.call_hook(hook)

    def call_hook(self, hook: Any) -> None:
        """Call one hook with the optimizer."""
        hook(self)

    def serialize(self, serializer: Any) -> None:
        """Save or load the counters and the states of the update rules; the target is saved by itself."""
        self.t = serializer("t", self.t)
        self.epoch = serializer("epoch", self.epoch)
        if self.target is None:
            raise RuntimeError("Optimizer is not set up. Call `setup` method before saving or loading it.")
        for path, param in self.target.namedparams():
            if param.update_rule is not None:
                param.update_rule.serialize(serializer[path])

    # Loss scaling, against underflow of float16 gradients

    def loss_scaling(self, interval: int = 1000, scale: float | None = None) -> None:
        """Scale losses before backward, and gradients back before updates.

        Args:
            interval: With dynamic scaling, the number of updates after which the scale is doubled.
            scale: A fixed scale; None for dynamic scaling, which halves it (and skips the update) on overflow.
        """
        self._loss_scaling_is_dynamic = scale is None
        self._loss_scaling_interval = interval
        self._loss_scaling_good_updates = 0
        self._loss_scale = 1.0 if scale is None else scale

    def set_loss_scale(self, loss_scale: float) -> None:
        """Scale losses by a fixed factor."""
        self.loss_scaling(scale=loss_scale)

    def check_nan_in_grads(self) -> None:
        """With loss scaling, note (and warn) whether some gradient is not finite."""
        self._gradients_are_finite = True
        if self._loss_scale is None:
            return
        for path, param in self.target.namedparams(include_uninit=False):
            if param.grad is not None and not bool(param.xp.isfinite(param.grad).all()):
                self._gradients_are_finite = False
                warnings.warn(
                    f"Non finite number found in param.grad of {path} "
                    f"(iteration: {self.t}, loss_scale: {self._loss_scale})",
                    stacklevel=2,
                )

    def is_safe_to_update(self) -> bool:
        """Whether the gradients were finite, as far as was checked."""
        return self._gradients_are_finite

    def update_loss_scale(self) -> None:
        """Adapt a dynamic loss scale to what was found in the last update."""
        if not self._loss_scaling_is_dynamic or self._loss_scale is None:
            return
        if not self._gradients_are_finite:
            self._loss_scale = max(1, self._loss_scale / 2)
            self._loss_scaling_good_updates = 0
            return
        self._loss_scaling_good_updates += 1
        if self._loss_scaling_good_updates >= self._loss_scaling_interval:
            self._loss_scale = min(self._loss_scale * 2, LARGEST_LOSS_SCALE)
            self._loss_scaling_good_updates = 0


class GradientMethod(Optimizer):
    """Base class of optimizers that use one gradient per update, with an update rule for each parameter.

    Attributes:
        hyperparam: The defaults of the update rules' hyperparameters.
    """

    _use_cleargrads = True

    def __init__(self) -> None:
        super().__init__()
        self.hyperparam = Hyperparameter()
        self._use_fp32_update = False

    def create_update_rule(self) -> UpdateRule:
        """Return a new update rule; every optimizer overrides this."""
        raise NotImplementedError(f"{type(self).__name__} must override create_update_rule()")

    def setup(self, link: Link) -> Any:
        """Set the target and give each of its parameters an update rule; returns the optimizer."""
        super().setup(link)
        for param in link.params():
            param.update_rule = self.create_update_rule()
            if self._use_fp32_update:
                param.update_rule.use_fp32_update()
        return self

    def update(self, lossfun: Callable[..., Any] | None = None, *args: Any, **kwds: Any) -> None:
        """Update the parameters.

        Args:
            lossfun: If given, ``lossfun(*args, **kwds)`` is the loss whose gradients are computed here. Otherwise the
                gradients must have been computed before.
        """
        target = self.target
        if target is None:
            raise RuntimeError("Optimizer is not set up. Call `setup` method.")
        if lossfun is not None:
            loss = lossfun(*args, **kwds)
            if self._use_cleargrads:
                target.cleargrads()
            else:
                for param in target.params():
                    param.zerograd()
            loss.backward(loss_scale=self._loss_scale)
            del loss
        self.reallocate_cleared_grads()
        self.check_nan_in_grads()
        self.call_hooks("pre")
        self.t += 1
        if self.is_safe_to_update():
            self.update_params()
        self.reallocate_cleared_grads()
        self.call_hooks("post")
        self.update_loss_scale()

    def update_params(self) -> None:
        """Update each parameter with its rule, once for each place where it stands in the target."""
        for param in all_params(self.target):
            param.update()

    def reallocate_cleared_grads(self) -> None:
        """Make cleared gradients (None) of initialized parameters zeros, so that hooks find arrays."""
        for param in all_params(self.target):
            if param._array is not None and param.grad is None:
                with param.device.create_context():
                    param.grad = param.xp.zeros_like(param._array)

    def call_hook(self, hook: Any) -> None:
        """Call one hook: with each rule and parameter if it has ``call_for_each_param``, else with the optimizer."""
        if getattr(hook, "call_for_each_param", False):
            for param in all_params(self.target):
                hook(param.update_rule, param)
        else:
            hook(self)

    def use_cleargrads(self, use: bool = True) -> None:
        """Choose whether :meth:`update` clears gradients (the default) or fills them with zeros."""
        self._use_cleargrads = use

    def use_fp32_update(self, flag: bool = True) -> None:
        """Keep float32 copies of float16 parameters, and update those."""
        self._use_fp32_update = flag
        if self.target is not None:
            for param in self.target.params():
                if param.update_rule is not None:
                    param.update_rule.use_fp32_update(flag)


def bias_corrected(rate: float, beta1: float, beta2: float, t: int, what: str) -> float:
    """Return the learning rate of step ``t`` of Adam-like methods: their averages start at 0."""
    if t == 0:
        raise RuntimeError(
            f"Can't determine the learning rate of {what} optimizer because the update steps have not been started."
        )
    return rate * math.sqrt(1.0 - math.pow(beta2, t)) / (1.0 - math.pow(beta1, t))
