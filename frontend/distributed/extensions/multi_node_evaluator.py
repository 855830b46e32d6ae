"""Evaluators whose results are those of all ranks."""
from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

from ... import backend
from ...configuration import no_backprop_mode
from ...dataset import convert
from ...training.extension import PRIORITY_WRITER, Extension
from ...utils.arrays import is_array

__all__ = ["GenericMultiNodeEvaluator", "create_multi_node_evaluator"]


def create_multi_node_evaluator(actual_evaluator: Any, communicator: Any) -> Any:
    """Have an evaluator report means over all ranks, and return it.

    A value that only some ranks have, as others have no examples, is the mean over those.

    Args:
        actual_evaluator: An evaluator; its ``evaluate`` is replaced.
        communicator: A communicator.
    """
    actual_evaluator._mn_original_evaluate = actual_evaluator.evaluate
    actual_evaluator._mn_communicator = communicator
    actual_evaluator.evaluate = types.MethodType(_evaluate, actual_evaluator)
    return actual_evaluator


def _evaluate(self: Any) -> dict[str, Any]:
    """Evaluate, and return the means over all ranks."""
    own = {} if _is_empty(self.get_iterator("main")) else self._mn_original_evaluate()
    mine = {name: _on_host(value) for name, value in own.items()}
    every: list[dict[str, Any]] = self._mn_communicator.allgather_obj(mine)
    names = sorted({name for each in every for name in each})
    found: dict[str, Any] = {}
    for name in names:
        values = [each[name] for each in every if name in each]
        found[name] = sum(values[1:], values[0]) / len(values)
    return found


def _is_empty(iterator: Any) -> bool:
    """Whether this rank has no examples: there were fewer than ranks."""
    dataset = getattr(iterator, "dataset", None)
    return dataset is not None and len(dataset) == 0


def _on_host(value: Any) -> Any:
    return backend.CpuDevice().send(backend.from_chx(value)) if is_array(value) else value


class GenericMultiNodeEvaluator(Extension):
    """Extension that evaluates on all ranks and aggregates all results on one of them.

    Override `calc_local` and `aggregate`. Ranks may have different numbers of batches.

    Args:
        comm: A communicator.
        iterator: An iterator over this rank's examples that stops after one pass.
        target: The model.
        device: Where batches are sent to; None leaves them.
        converter: Makes arrays of a batch.
        root: The rank that aggregates.
        progress_hook: Called with each batch of the root.
    """

    trigger = (1, "epoch")
    priority = PRIORITY_WRITER
    name = None

    @property
    def default_name(self) -> str:
        """Name when none is given."""
        return "validation"

    def __init__(self, comm: Any, iterator: Any, target: Any, device: Any = None,
                 converter: Callable[..., Any] = convert.concat_examples, root: int = 0, *,
                 progress_hook: Callable[[Any], Any] | None = None) -> None:
        if not 0 <= root < comm.size:
            raise ValueError(f"root must be a rank from 0 to {comm.size - 1}, but it is {root}")
        self.comm = comm
        self.iterator = iterator
        self._targets = {"main": target}
        self.converter = converter
        self.device = None if device is None else backend.get_device(device)
        self.root = root
        self._progress_hook = progress_hook

    def __call__(self, trainer: Any = None) -> Any:
        """Evaluate; returns what `aggregate` gives on the root, None elsewhere."""
        if hasattr(self.iterator, "reset"):
            self.iterator.reset()
            iterator = self.iterator
        else:
            iterator = copy.copy(self.iterator)
        results = list(self._results(iterator))
        return self.aggregate(results) if self.comm.rank == self.root else None

    def calc_local(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of one batch, not None; the method to override."""
        return self._targets["main"](*args, **kwargs)

    def aggregate(self, results: list[Any]) -> Any:
        """Return what becomes of the results of all batches; called on the root. The method to override."""
        return results

    def _results(self, iterator: Any) -> Iterator[Any]:
        """Yield, on the root, the results of all ranks' batches, batch by batch."""
        done, empty = False, _is_empty(iterator)
        while not done:
            try:
                if empty:
                    raise StopIteration
                batch = iterator.next()
                result = (self._local(batch),)
                if self.comm.rank == self.root and self._progress_hook is not None:
                    self._progress_hook(batch)
            except StopIteration:
                result = None
            found = self.comm.gather_obj(result, root=self.root)
            done = self.comm.bcast_obj(found is not None and all(each is None for each in found), root=self.root)
            yield from (each[0] for each in found or () if each is not None)

    def _local(self, batch: Any) -> Any:
        arrays = convert.call_converter(self.converter, batch, self.device)
        with no_backprop_mode():
            if isinstance(arrays, tuple):
                return self.calc_local(*arrays)
            return self.calc_local(**arrays) if isinstance(arrays, dict) else self.calc_local(arrays)
