"""`DaliIterator` over a stand-in with the interface of DALI's pipelines, and over DALI where it is installed."""

from __future__ import annotations

from typing import Any

import pytest

from kusari.iterators import DaliIterator
from kusari.serializers import DictionarySerializer, NpzDeserializer

pytestmark = pytest.mark.filterwarnings("ignore:DaliIterator is experimental:FutureWarning")


class Pipeline:
    """What the iterator asks of ``nvidia.dali.pipeline.Pipeline``."""

    batch_size = 3

    def __init__(self) -> None:
        self.built, self.runs = 0, 0

    def build(self) -> None:
        self.built += 1

    def epoch_size(self) -> dict[str, int]:
        return {"reader": 7}

    def run(self) -> int:
        assert self.built == 1
        self.runs += 1
        return self.runs


def state(it: Any) -> tuple[Any, ...]:
    return it.epoch, it.is_new_epoch, it.current_position, it.epoch_detail


@pytest.mark.parametrize(("repeat", "expected"), [
    (True, [(0, False, 3, 3 / 7), (0, False, 6, 6 / 7), (1, True, 2, 9 / 7), (1, False, 5, 12 / 7)]),
    (False, [(0, False, 3, 3 / 7), (0, False, 6, 6 / 7), (1, True, 0, 1.0)])])
def test_counts_epochs(repeat: bool, expected: list[tuple[Any, ...]]) -> None:
    it: Any = DaliIterator(Pipeline(), repeat)
    assert (it.batch_size, it.repeat, it.previous_epoch_detail) == (3, repeat, None)
    for i, values in enumerate(expected):
        before = it.epoch_detail if i else 0
        assert next(it) == i + 1 and state(it) == pytest.approx(values)
        assert it.previous_epoch_detail == pytest.approx(before)
    if not repeat:
        with pytest.raises(StopIteration):
            it.next()
    it.reset()
    assert (it.epoch, it.current_position, it.next()) == (0, 0, len(expected) + 1)


@pytest.mark.parametrize("batches", [0, 2, 3])
def test_position_is_saved(batches: int) -> None:
    it, target = DaliIterator(Pipeline()), {}
    for _ in range(batches):
        it.next()
    it.serialize(DictionarySerializer(target))
    other = DaliIterator(Pipeline())
    other.serialize(NpzDeserializer({name: value for name, value in target.items()}))
    assert (state(other)[:3], other.previous_epoch_detail) == (state(it)[:3], it.previous_epoch_detail)


def test_dali_itself(tmp_path: Any) -> None:
    dali: Any = pytest.importorskip("nvidia.dali")

    @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def numbers() -> Any:
        files, _ = dali.fn.readers.file(files=[str(path) for path in paths], name="reader")
        return files

    paths = [tmp_path / str(i) for i in range(3)]
    for path in paths:
        path.write_bytes(b"x")
    it = DaliIterator(numbers(), repeat=False)
    assert len(list(it)) == 2


def test_it_is_experimental() -> None:
    with pytest.warns(FutureWarning, match="DaliIterator is experimental"):
        DaliIterator(Pipeline())
