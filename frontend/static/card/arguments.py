"""The arrays of one call on a card: copied to fixed addresses, run, and returned as arrays of the caller's."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from kusari.ir import TensorType
from kusari.runtime.card.kernels import cupy
from kusari.runtime.python_rows import RunError, part_of

from ..arrays.aliasing import View
from ..arrays.bindings import StateBinding
from ..arrays.overlap import Spans
from ..compile.compile import Compiled
from ..errors import Stale
from ..replay.arguments import FrameArguments, require_apart
from ..replay.bind import ALONE, Copied, Token
from ..replay.undo import undoing

if TYPE_CHECKING:
    from .place import CardPlace


class CardArguments(FrameArguments):
    """One frame of a graph that is compiled for a card; its parameters are those of ``Arguments``.

    Inputs ``bound`` are read where they lie, which is the same place in most runs.

    Invariant: kernels work on the arrays of parameters and states themselves, and on copies of inputs. A result that
    owns its array is the caller's, until a caller still holds one when the next run begins; from then on callers
    get copies, so that addresses stay what they are.
    """

    __slots__ = ("_place", "_bindings", "_known", "_ready", "_states", "_device", "_undo", "_checked", "apart",
                 "copied_out", "views", "_bound")

    def __init__(self, place: CardPlace, compiled: Compiled, bindings: Sequence[Any],
                 fixed: Mapping[int, Any] | None = None, returned: Sequence[int] | None = None,
                 apart: Collection[int] = (), views: Mapping[int, tuple[int, View]] | None = None,
                 ready: Callable[[], None] | None = None, bound: Collection[int] = (),
                 given_apart: bool = False) -> None:
        super().__init__(compiled, fixed, returned, apart, views)
        self._place, self._bindings = place, bindings
        self._device = cupy().cuda.Device(place.device)
        self._known: list[Any] = [None] * len(bindings)
        written = compiled.executable.written
        self._states = [b for v, b in zip(compiled.plan.graph.params, bindings, strict=True)
                        if isinstance(b, StateBinding) and v in written]
        self.apart, self.views = apart, views or {}
        self._ready, self._bound = ready, bound
        self.copied_out: set[int] = set()
        self._undo = undoing(compiled, self.frame, self._first) if self.frame.runs_python else None
        self._checked = False  # whether arrays that are written share no memory with others that are bound

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on one array per input that is not fixed; returns the outputs, or those at ``returned``.

        Raises ``Stale`` before anything has run where a parameter or a state is no longer what was traced, and
        ``MemoryError`` where the card has no memory left.
        """
        with self._device:
            self.frame.enter()
            self._bind_params()
            if self._states:
                spans = Spans(b.array() for b in self._states)
                if any(self._place.holds(x) and spans.touch(x) for x in arrays):
                    raise Stale("an argument shares memory with a persistent array")
            frame = self.frame
            for i, x in zip(self._free, arrays, strict=True):
                if i in self._bound:
                    frame.bind(i, x)
                elif isinstance(self.compiled.plan.externals[i].type, TensorType):
                    frame.put(i, x)
            if self._ready is not None:
                self._ready()
            self._own()
            results = _Results(self, dict(zip(self._free, arrays, strict=True)))
            self._run_frame()
            return [results.get(j) for j in self.returned]

    def _bind_params(self) -> None:
        externals = self.compiled.plan.externals
        for k, binding in enumerate(self._bindings):
            now = binding.array()
            index = self._first + k
            kind = externals[index].tensor
            if now is self._known[k] and now.shape == kind.shape:
                continue
            if not self._place.holds(now) or now.shape != kind.shape or now.dtype != kind.dtype:
                got = f"{getattr(now, 'dtype', now.__class__)}{getattr(now, 'shape', '')}"
                raise Stale(f"expected {kind!r} on {self._place}, got {got} on {getattr(now, 'device', 'the host')}")
            self.frame.bind(index, now)
            self._known[k] = now
            self._checked = False
        if not self._checked:
            self._require_apart()
            self._checked = True

    def _require_apart(self) -> None:
        """Raise ``Stale`` where an array that the schedule writes to shares memory with another that is bound."""
        written = self.compiled.executable.written
        try:
            require_apart([(a, v in written) for a, v in zip(
                self._known, self.compiled.plan.externals[self._first:], strict=False)])
        except Stale:
            self._known = [None] * len(self._known)
            raise

    def _own(self) -> None:
        """Give outputs arrays of their own."""
        bound = self.frame.bound
        for i in self._results.owned:
            x = bound[i]
            if x is not None and getrefcount(x) > ALONE and i not in self.copied_out:
                self.copied_out.add(i)
                x = None
            if x is None:
                self.frame.fresh(i)

    def _run_frame(self) -> None:
        if self._undo is None:
            self.frame.run()
            return
        back = self._undo()
        try:
            self.frame.run()
        except RunError as error:
            back(error)
            raise

    @property
    def places(self) -> Sequence[Any]:
        """The places of the outputs."""
        return self._results.places

    def fast_path(self, *_: Any) -> None:
        """Nothing runs faster than ``run``."""

    def close(self) -> None:
        """Release the frame's memory at once: nothing runs here any more."""
        self._known.clear()
        self.frame.close()

    def bound(self, number: int) -> Any:
        """Return the array of param ``number`` in the last run."""
        return self._known[number]


class _Results:
    """The outputs of one run as arrays of the caller's, who has ``given`` inputs.

    Invariant: memory for copies is there before the run, so that nothing fails behind it.
    """

    def __init__(self, arguments: CardArguments, given: Mapping[int, Any]) -> None:
        self._arguments, self._given = arguments, given
        self._taken: set[int] = set()  # externals that the caller has as they are
        self._roots: dict[int, Any] = {}  # outputs with others as views
        views = arguments.views
        wanted = dict.fromkeys([views[j][0] if j in views else j for j in arguments.returned])
        copied = [(j, self._copied(j)) for j in wanted]
        self._room = {j: arguments.frame.room(*kind) for j, kind in copied if kind is not None}

    def _copied(self, j: int) -> tuple[tuple[int, ...], Any] | None:
        """The shape and dtype of an output that the caller gets as a copy, else None."""
        own, result = self._arguments, self._arguments.places[j]
        if isinstance(result, Token):
            return None
        if isinstance(result, Copied):
            return result.array.shape, result.array.dtype
        if not result.owned:
            return (result.shape, result.whole.dtype) if j in own.apart else None
        if result.whole.shape == result.shape and result.index not in own.copied_out | self._taken:
            self._taken.add(result.index)
            return None
        return result.shape, result.whole.dtype

    def get(self, j: int) -> Any:
        """Return an output."""
        views = self._arguments.views
        if j in views:
            at, show = views[j]
            if at not in self._roots:
                self._roots[at] = self._whole(at)
            return show(self._roots[at])
        return self._roots[j] if j in self._roots else self._whole(j)

    def _whole(self, j: int) -> Any:
        frame, result = self._arguments.frame, self._arguments.places[j]
        if isinstance(result, Token):
            return frame.tokens[result.value]
        if isinstance(result, Copied):
            found = result.array
        else:
            found = self._given.get(result.index)
            found = part_of(frame.bound[result.index] if found is None else found, result.offset, result.shape)
        room = self._room.get(j)
        if room is None:
            return found
        room[...] = found
        return room
