"""Multi-node optimizers: an optimizer whose gradients are means over the ranks of a communicator."""
from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..optimizer import GradientMethod
from ..rehearsal import rehearse
from ..serializer import Deserializer
from .communicators.gradients import members
from .consistency import require_consistent

__all__ = ["create_multi_node_optimizer"]


def create_multi_node_optimizer(actual_optimizer: Any, communicator: Any, double_buffering: bool = False,
                                zero_fill: bool = True) -> Any:
    """Make an optimizer that updates with the means of gradients over all ranks.

    The first update broadcasts the parameters of rank 0 and changes nothing else, and so does the one after parameters
    have been added or initialized; an optimizer that was loaded on all ranks skips that. The first update that
    changes parameters compares these, the states and the hyperparameters of all ranks.

    Args:
        actual_optimizer: An optimizer; every attribute but `update` and `setup` is its own.
        communicator: A communicator.
        double_buffering: Add up the gradients of one update while the next ones are computed; updates then take the
            gradients of the iteration before.
        zero_fill: Take missing gradients of initialized parameters for zero. Otherwise they are left out, and have to
            be missing on every rank.

    >>> import kusari
    >>> from kusari import distributed
    >>> comm = distributed.create_communicator("naive")
    >>> optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.SGD(0.5), comm).setup(L.Linear(2, 1))
    >>> optimizer.lr
    0.5
    """
    kind = _DoubleBufferingOptimizer if double_buffering else _MultiNodeOptimizer
    return kind(actual_optimizer, communicator, zero_fill)


class _MultiNodeOptimizer:
    """An optimizer with gradients that are means over ranks; other attributes are those of ``actual_optimizer``."""

    communicator: Any
    actual_optimizer: Any
    zero_fill: bool
    target_params: list[tuple[str, bool]]

    def __init__(self, actual_optimizer: Any, communicator: Any, zero_fill: bool) -> None:
        self._set(communicator=communicator, actual_optimizer=actual_optimizer, zero_fill=zero_fill, target_params=[],
                  _begun=False, _loaded=False, _compared=False, _reducer=_Reducer(self))

    def _set(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def setup(self, link: Any) -> Any:
        """Set up the optimizer; returns this one."""
        self.actual_optimizer.setup(link)
        self._set(target_params=[], _begun=False, _loaded=False, _compared=False)
        return self

    def update(self, lossfun: Callable[..., Any] | None = None, *args: Any, **kwds: Any) -> None:
        """Compute gradients, take their means over all ranks, and update; or broadcast: see the function above."""
        if lossfun is not None and not self._begun:
            self._set(_begun=True)
            if self._all_resumed():
                rehearse(self.actual_optimizer, lambda: self.update(lossfun, *args, **kwds), (lossfun, args, kwds),
                         lambda traced: any(self.communicator.agree("update", None, lambda: traced)))
                return
        if lossfun is not None and self._is_settled():
            self._step(lossfun, args, kwds)
            return
        if lossfun is not None:
            self._compute(lossfun, args, kwds)
        if self.is_changed(self.target) and self._broadcast():
            return
        self._reduce_and_update()

    def _all_resumed(self) -> bool:
        """Whether the first update goes on from a file on all ranks, and may be made more than once."""
        optimizer = self.actual_optimizer
        resumed = getattr(optimizer, "_resumed", False) and self._loaded
        optimizer._resumed = False
        return all(self.communicator.agree("update", None, lambda: resumed))

    def _is_settled(self) -> bool:
        """Whether updates are the optimizer's own with gradients that are means, which may be compiled as a whole."""
        return self._compared and type(self.actual_optimizer).update is GradientMethod.update

    def _step(self, lossfun: Callable[..., Any], args: Any, kwds: Any) -> None:
        optimizer = self.actual_optimizer
        optimizer._reducer = self._reducer if self.communicator.size > 1 else None
        try:
            optimizer.update(lossfun, *args, **kwds)
        except _Changed:
            self._broadcast()
        finally:
            del optimizer._reducer

    def _compute(self, lossfun: Callable[..., Any], args: Any, kwds: Any) -> None:
        optimizer = self.actual_optimizer
        loss = lossfun(*args, **kwds)
        if getattr(optimizer, "_use_cleargrads", True):
            self.target.cleargrads()
        else:
            self.target.zerograds()
        loss.backward(loss_scale=optimizer._loss_scale)

    def _broadcast(self) -> bool:
        """Broadcast the parameters, unless all ranks have loaded them; returns whether it did."""
        loaded = all(self.communicator.agree("update", None, lambda: self._loaded))
        self._set(_loaded=False, _compared=False)
        if not loaded:
            self.communicator.bcast_data(self.target)
        return not loaded

    def _reduce_and_update(self) -> None:
        self.communicator.multi_node_mean_grad(self.target, self.zero_fill)
        self._compare()
        self.actual_optimizer.update(None)

    def _compare(self) -> None:
        """Compare parameters, states and hyperparameters of all ranks, once."""
        if not self._compared:
            require_consistent(self.communicator, self.actual_optimizer)
            self._set(_compared=True)

    def is_changed(self, target: Any) -> bool:
        """Whether parameters have come, gone or been initialized since the last update."""
        before = self.target_params
        now = [(name, param.array is not None) for name, param in sorted(target.namedparams())]
        self._set(target_params=now)
        return before != now

    def serialize(self, serializer: Any) -> None:
        """Save or load the optimizer."""
        self.actual_optimizer.serialize(serializer)
        if isinstance(serializer, Deserializer):
            self.note_loaded()

    def note_loaded(self) -> None:
        """Have the next update take parameters and states as they are, if this is called on all ranks."""
        self._set(_begun=False, _loaded=True, _compared=False, target_params=[])

    def __getattr__(self, name: str) -> Any:
        if name == "actual_optimizer":  # a copy under construction
            raise AttributeError(name)
        return getattr(self.actual_optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.actual_optimizer, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class _Changed(Exception):
    """Parameters have come, gone or been initialized in the computation of the loss."""


class _Reducer:
    """The means of gradients as part of an update of the optimizer itself."""

    def __init__(self, optimizer: _MultiNodeOptimizer) -> None:
        self._optimizer = optimizer

    def __call__(self, target: Any) -> None:
        """Replace gradients by their means."""
        own = self._optimizer
        if own.is_changed(target):
            raise _Changed
        own.communicator.multi_node_mean_grad(target, own.zero_fill)

    def members(self, target: Any, reached: Collection[int]) -> list[tuple[str, Any]]:
        """Return the parameters that are reduced, by name, where those in ``reached`` have gradients."""
        return [(name, p) for name, p in members(target) if self._optimizer.zero_fill or id(p) in reached]

    @property
    def on_cards(self) -> bool:
        """Whether a compiled step on a card may have the reduction in it."""
        return self._optimizer.communicator.reduction.on_cards

    def part_of_step(self, named: list[tuple[str, Any]]) -> Any:
        """Return the reduction of these, for a compiled step."""
        return self._optimizer.communicator.reduction.part_of_step(named)


class _DoubleBufferingOptimizer(_MultiNodeOptimizer):
    """An optimizer that updates with the means of the iteration before, while those of this one are added up."""

    def __init__(self, actual_optimizer: Any, communicator: Any, zero_fill: bool) -> None:
        super().__init__(actual_optimizer, communicator, zero_fill)
        self._set(_started=None)

    def _all_resumed(self) -> bool:
        self.actual_optimizer._resumed = False
        return False  # its updates are never made as a whole, and the first one changes nothing

    def _is_settled(self) -> bool:
        return False

    @property
    def needs_update(self) -> bool:
        """Whether there are gradients of an iteration before."""
        return self._started is not None

    def _compute(self, lossfun: Callable[..., Any], args: Any, kwds: Any) -> None:
        if self._started is not None:
            self._started.poll()
        super()._compute(lossfun, args, kwds)

    def _broadcast(self) -> bool:
        self.wait()
        self._set(_started=None)
        return super()._broadcast()

    def wait(self) -> None:
        """Wait for the gradients that are being added up."""
        if self._started is not None:
            self._started.finish()
            self._set(_started=None)

    def _reduce_and_update(self) -> None:
        before = self._started
        self._set(_started=self.communicator.reduction.start(self.target, self.zero_fill))
        if before is None:
            return
        before.finish()
        self._compare()
        self.actual_optimizer.update(None)
