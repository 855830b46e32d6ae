"""Optimizers: what drives the update rules of a model's parameters."""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from kusari.ir import SCALAR, Symbol

from . import optimizer_hooks
from . import tape as _tape
from .callsite import user_stacklevel
from .configuration import config
from .hyperparameter import Hyperparameter, HyperparameterProxy
from .lazy_array import LazyArray
from .link import Link
from .link.base import not_initialized
from .link.namespace import entries_of
from .link.tree import unregistered
from .link.walk import all_params
from .pytorch_keywords import answer_keywords, explain
from .pytorch_names import OPTIMIZER, answer
from .rehearsal import rehearse
from .serializer import Deserializer
from .update_rule import Hooks, UpdateRule

__all__ = ["GradientMethod", "Hyperparameter", "HyperparameterProxy", "Optimizer", "UpdateRule"]

_MOVED = ("GradientClipping", "GradientHardClipping", "GradientNoise", "Lasso", "WeightDecay")

_NO_LOSS = ("{} returned {}: the loss must be a Variable of one element. To get at more than the loss, let the "
            "function store it (self.y = y) or report it (kusari.report)")
_CALLED = ("update() takes a function that returns the loss, and its arguments: optimizer.update(model.loss, x, t). "
           "After loss.backward() it takes nothing")
_MODEL = ("the loss function is the model itself. Wrap the model in L.Classifier, or give a function that returns the "
          "loss: optimizer.update(model.loss, x, t), StandardUpdater(..., loss_func=model.loss)")
LARGEST_LOSS_SCALE = 65504  # the largest float16


def __getattr__(name: str) -> Any:
    """Return a hook, which had its place here before Chainer 4."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"chainer.optimizer.{name} is deprecated from v4. Use chainer.optimizer_hooks.{name} instead.",
                  DeprecationWarning, stacklevel=2)
    return getattr(optimizer_hooks, name)


def _explain_call(error: TypeError, lossfun: Any, args: tuple[Any, ...], kwds: dict[str, Any]) -> None:
    """Add to the error of a loss function what it should have been, where it cannot be called so."""
    explain(error)
    if type(error) is not TypeError:
        return
    if not callable(lossfun):
        error.args = f"{error}: {_CALLED}",
    elif isinstance(lossfun, Link) and type(lossfun).__call__ is Link.__call__ and hasattr(lossfun, "forward"):
        try:  # more arguments than forward takes; it cannot have been entered
            inspect.signature(lossfun.forward).bind_partial(  # pyright: ignore[reportAttributeAccessIssue]
                *args, **kwds)
        except (TypeError, ValueError):
            error.args = f"{error}: {_MODEL}",


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

    _hooks: Hooks | None = None
    _loss_scale: float | None = None
    _loss_scaling_is_dynamic = False
    _loss_scaling_growth = 2.0
    _loss_scaling_overflowed = False
    _gradients_are_finite = True
    _resumed = False  # whether it has been loaded, after updates, and has made none since

    def setup(self, link: Link) -> Any:
        """Set the target, and the counters to 0; returns the optimizer.

        Raises:
            TypeError: ``link`` is not a link.
            RuntimeError: ``Link.__init__()`` has not been called.
        """
        if not isinstance(link, Link):
            raise TypeError(f"optimization target must be a link, but is of {type(link)}")
        for each in link.links():
            if "_params" not in entries_of(each):
                raise not_initialized(each)
        if not all_params(link) and (lost := unregistered(link, named=True)):
            warnings.warn(f"{type(link).__name__} has no parameters to update; {lost[0]}", stacklevel=user_stacklevel())
        self.target = link
        self.t = 0
        self.epoch = 0
        self._hooks = Hooks()
        return self

    def update(self, lossfun: Callable[..., Any] | None = None, *args: Any, **kwds: Any) -> None:
        """Update the parameters, from ``lossfun(*args, **kwds)`` or from gradients computed before."""
        raise NotImplementedError(f"{type(self).__name__} must override update()")

    def new_epoch(self, auto: bool = False) -> None:
        """Count an epoch; ``auto`` says that an updater does it.

        Raises:
            RuntimeError: Both an updater and other code count.
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

    def _set_up_hooks(self) -> Hooks:
        if self._hooks is None:
            raise RuntimeError("Optimizer is not set up. Call `setup` method.")
        return self._hooks

    def add_hook(self, hook: Callable[..., None], name: str | None = None, timing: str = "auto") -> None:
        """Add a hook, called as ``hook(optimizer)``, or per parameter if it has ``call_for_each_param``.

        Args:
            hook: The hook.
            name: Its name; by default its attribute ``name``.
            timing: ``'pre'`` or ``'post'`` the update, or ``'auto'`` for the hook's ``timing``.
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
        """Call one hook: with each rule and parameter if it has ``call_for_each_param``, else with the optimizer."""
        if getattr(hook, "call_for_each_param", False):
            for param in all_params(self.target):
                hook(param.update_rule, param)
        else:
            hook(self)

    def serialize(self, serializer: Any) -> None:
        """Save or load the counters and the states of the update rules; the target is saved by itself."""
        self.t = serializer("t", self.t)
        self.epoch = serializer("epoch", self.epoch)
        if isinstance(serializer, Deserializer):
            self._resumed = bool(self.t)
        if self.target is None:
            raise RuntimeError("Optimizer is not set up. Call `setup` method before saving or loading it.")
        for path, param in self.target.namedparams():
            if param.update_rule is not None:
                param.update_rule.serialize(serializer[path])

    # Loss scaling, against underflow of float16 gradients

    def loss_scaling(self, interval: int = 1000, scale: float | None = None) -> None:
        """Scale losses before backward, and gradients back before updates.

        A dynamic scale starts at 1 and is doubled by every update, up to 65504, until some gradient is not finite.
        Then, and whenever that happens again, the update is skipped and the scale halved (not below 1), and from then
        on the scale is doubled in the course of ``interval`` updates, little by little. A fixed scale stays as it is,
        and gradients are not checked to be finite.

        Args:
            interval: With dynamic scaling, the number of updates in which the scale doubles after an overflow.
            scale: A fixed scale; None for dynamic scaling.

        Raises:
            ValueError: ``interval`` is below 1, or ``scale`` is not positive.
        """
        if scale is not None:
            self.set_loss_scale(scale)
            return
        if interval < 1:
            raise ValueError(f"interval must be greater than or equal to 1. Actual: {interval}")
        self._loss_scaling_is_dynamic = True
        self._loss_scaling_growth = 2.0 ** (1.0 / interval)
        self._loss_scaling_overflowed = False
        self._loss_scale = 1.0

    def set_loss_scale(self, loss_scale: float) -> None:
        """Set the factor of losses; it stays as it is, unless dynamic scaling is on already, which goes on from it.

        Raises:
            ValueError: It is not positive.
        """
        if loss_scale <= 0:
            raise ValueError(f"loss_scale must be a positive number. Actual: {loss_scale}")
        self._loss_scale = loss_scale

    def check_nan_in_grads(self) -> None:
        """With dynamic loss scaling, note (and warn) whether some gradient is not finite."""
        self._gradients_are_finite = True
        if self._loss_scaling_is_dynamic:
            self._note_finite(lambda param: param.grad is None or bool(param.xp.isfinite(param.grad).all()))

    def _note_finite(self, finite: Callable[[Any], bool]) -> None:
        """Warn of each parameter whose gradient is not ``finite``, and note whether there was one."""
        for path, param in self.target.namedparams(include_uninit=False):
            if not finite(param):
                self._gradients_are_finite = False
                warnings.warn(
                    f"Non finite number found in param.grad of {path} "
                    f"(iteration: {self.t}, loss_scale: {self._loss_scale})",
                    stacklevel=3,
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
            self._loss_scaling_overflowed = True
            return
        growth = self._loss_scaling_growth if self._loss_scaling_overflowed else 2
        self._loss_scale = min(self._loss_scale * growth, LARGEST_LOSS_SCALE)


class GradientMethod(Optimizer):
    """Base class of optimizers that use one gradient per update, with an update rule for each parameter.

    Attributes:
        hyperparam: The defaults of the update rules' hyperparameters.
    """

    _use_cleargrads = True
    _compiled: Any = None
    _patience: Any = None
    # Makes gradients their means over several processes: see static/step/reduction.py.
    _reducer: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.hyperparam = Hyperparameter()
        self._use_fp32_update = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is compiled, which updates this optimizer and no copy of it."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_compiled", "_steps")}

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.hyperparam.get_dict().items())
        return f"{type(self).__name__}({settings})"

    def create_update_rule(self) -> UpdateRule:
        """Return a new update rule; every optimizer overrides this."""
        raise NotImplementedError(f"{type(self).__name__} must override create_update_rule()")

    def setup(self, link: Link) -> Any:
        """Set the target and give each of its parameters an update rule; returns the optimizer.

        Raises:
            TypeError: ``link`` is not a link, or a hyperparameter is a link or an iterator.
        """
        for name, value in self.hyperparam.get_dict().items():
            if isinstance(value, (Link, Iterator)):
                raise TypeError(f"the hyperparameter {name!r} of {type(self).__name__} is of {type(value)}: a model is "
                                "given to setup(), which finds its parameters")
        super().setup(link)
        self.__dict__.pop("_steps", None)  # those of another link would keep it alive
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

        The first one after the optimizer was loaded is made twice if static functions are traced in it, so that
        compiled code makes it, as in a training without interruption: see `kusari.rehearsal`.
        """
        target = self.target
        if target is None:
            raise RuntimeError("Optimizer is not set up. Call `setup` method.")
        if lossfun is None and _tape.updates and _tape.updated(self, sys._getframe(1)):
            self._finish_step()
            return
        if self._resumed:
            self._resumed = False
            if lossfun is not None:
                rehearse(self, lambda: self.update(lossfun, *args, **kwds), (lossfun, args, kwds))
                return
        if lossfun is not None:
            try:
                call = _tape.static_call(lossfun)
                if call is not None:
                    static, first = call
                    if static.run_step(self, first, args, kwds):
                        self._finish_step()
                        return
                loss = lossfun(*args, **kwds)
            except TypeError as error:
                _explain_call(error, lossfun, args, kwds)
                raise
            if self._use_cleargrads:
                target.cleargrads()
            else:
                for param in target.params():
                    param.zerograd()
            if not hasattr(loss, "backward"):
                raise TypeError(_NO_LOSS.format(getattr(lossfun, "__qualname__", type(lossfun).__name__), type(loss)))
            loss.backward(loss_scale=self._loss_scale)
            del loss
        if self._reducer is not None:
            self._reducer(target)
        if config.use_static_graph and self._update_compiled():
            return
        self.reallocate_cleared_grads()
        self.check_nan_in_grads()
        self.call_hooks("pre")
        self._update_and_finish()

    def _finish_step(self) -> None:
        """Do what follows a step that was one schedule."""
        if self._hooks is None or self._hooks.post:
            self.call_hooks("post")
        self.update_loss_scale()

    def _update_and_finish(self) -> None:
        """Do the part of an update that follows the hooks before it."""
        self.t += 1
        if self.is_safe_to_update():
            self.update_params()
        self.reallocate_cleared_grads()
        self.call_hooks("post")
        self.update_loss_scale()

    def _update_compiled(self) -> bool:
        """Update by compiled code where static functions computed the gradients; returns whether it did."""
        compiled = self._compiled
        if compiled is not None and compiled.usual():
            self._finish_step()
            return True
        if compiled is None or not compiled.still_holds():
            if _tape.look is not None:
                _tape.look(self, sys._getframe(2))
            compiled = self._compiled = self._compile_update()
            if compiled is None:
                return False
        grads = [param._grad for param in compiled.program.params]
        for grad in grads:
            if grad is None or type(grad) is LazyArray:
                self.reallocate_cleared_grads()
                grads = [param.grad for param in compiled.program.params]
                break
        if not compiled.with_hooks:
            self.check_nan_in_grads()
            self.call_hooks("pre")
            grads = [param.grad for param in compiled.program.params]
            if any([grad is None for grad in grads]) or not compiled.still_holds():  # hooks may change anything
                self._update_and_finish()
                return True
        if not compiled(grads):
            if compiled.with_hooks:
                return False
            self._update_and_finish()
            return True
        if self._hooks is not None and (not compiled.with_hooks or self._hooks.post):
            self.call_hooks("post")
        self.update_loss_scale()
        return True

    def _compile_update(self) -> Any:
        params = all_params(self.target)
        if not params or not all(param.is_static for param in params):
            return None
        return _tape.compiled_update(self)

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
        """Call one hook; gradients that it clears are zero afterwards."""
        super().call_hook(hook)
        self.reallocate_cleared_grads()

    def use_cleargrads(self, use: bool = True) -> None:
        """Choose whether :meth:`update` clears gradients (the default) or fills them with zeros (deprecated)."""
        warnings.warn("GradientMethod.use_cleargrads is deprecated.", DeprecationWarning, stacklevel=2)
        self._use_cleargrads = use

    def use_fp32_update(self, flag: bool = True) -> None:
        """Keep float32 copies of float16 parameters, and update those."""
        self._use_fp32_update = flag
        if self.target is not None:
            for param in self.target.params():
                if param.update_rule is not None:
                    param.update_rule.use_fp32_update(flag)


answer(Optimizer, OPTIMIZER)
answer_keywords(GradientMethod)


def bias_corrected(rate: float, beta1: float, beta2: float, t: Any, what: str) -> Any:
    """Return the learning rate of step ``t`` (a number or a symbol) of Adam-like methods: their averages start at 0."""
    if isinstance(t, Symbol):
        return rate * SCALAR.sqrt(SCALAR.subtract(1.0, beta2**t)) / SCALAR.subtract(1.0, beta1**t)
    if t == 0:
        raise RuntimeError(
            f"Can't determine the learning rate of {what} optimizer because the update steps have not been started."
        )
    return rate * math.sqrt(1.0 - math.pow(beta2, t)) / (1.0 - math.pow(beta1, t))
