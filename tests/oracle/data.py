"""Datasets, iterators, converters and initializers on random arguments."""
from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .programs import TIMES, R, arguments

INITIALIZERS = ("Uniform LeCunUniform GlorotUniform HeUniform Normal LeCunNormal GlorotNormal HeNormal Orthogonal "
                "Zero One NaN Identity").split()
CONVERTED = """
concat_examples([x, y])
concat_examples([x, x[:1]], padding=k)
concat_examples([(x, k), (y, l)])
concat_examples([(x, k), (y[:1], l)], padding=(k, None))
concat_examples([{"a": x, "b": 1.5}, {"a": y, "b": 2}])
concat_examples([k, l])
concat_examples([k, 1.5])
concat_examples([True, False])
concat_examples([(k, [1, 2]), (l, [3, 4])])
concat_examples([])
concat_examples([x, None])
concat_examples([np.float16(k), np.float16(l)])
ConcatWithAsyncTransfer()([x, y])
identity([x, y])
""".split("\n")[1:-1]
DATASETS = """
SubDataset(data, k, k + l + 1)
SubDataset(data, k, 7, order)
split_dataset(data, k)
split_dataset_n(data, k)
split_dataset_random(data, k, seed=l)
split_dataset_n_random(data, k, seed=l)
get_cross_validation_datasets(data, k + 1)
get_cross_validation_datasets_random(data, k + 1, seed=l)
ConcatenatedDataset(data, data[:l])
TupleDataset(data, data[::-1])
DictDataset(a=data, b=data[::-1])
TransformDataset(data, lambda v: v * k)
TransformDataset(TupleDataset(data, data * 2), lambda v: v[k % 2])
split_dataset(TupleDataset(data, order), l, order)
ConcatenatedDataset(TupleDataset(data, order), SubDataset(TupleDataset(data, order), 1, l + 1))
SubDataset(DictDataset(a=data, b=order), k, 8)[l - 1]
TupleDataset(data, order)[k:6:l]
TupleDataset(data, order)[-l]
DictDataset(a=data, b=order)[::-2]
""".split("\n")[1:-1]


TABULAR = """
table
table.slice[k:6:l]
table.slice[k:6, ("a",)]
table.slice[[k, l], (1, 0)]
table.slice[mask]
table.slice[:, "c"]
table.slice[::-1].slice[k:]
table.astuple().slice[k:]
table.asdict().slice[l:]
table.concat(table.slice[k:])
table.join(other)
table.slice[:, ("b",)].join(other)
table.transform(("d", "e"), lambda a, b, c: (a + b, a * k))
table.transform_batch("d", lambda a, b, c: [v * k for v in a])
table.with_converter(tuple)
table.fetch()
table.slice[k:6].convert(table.slice[k:6].fetch())
table.get_example(k)
table.keys
table.asdict().keys
table.astuple().mode.__name__
tabular.from_data({"a": data, "b": order}).slice[k:]
tabular.from_data([data, ("b", order)]).slice[k:, (0,)]
tabular.from_data((("p", "q"), lambda i: ([int(j) for j in i], [-int(j) for j in i])), size=8).slice[k:]
tabular.DelegateDataset(table).slice[l:]
tabular.from_data(data).slice[k:].fetch()
""".split("\n")[1:-1]


def data(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Datasets, iterators, converters and initializers."""
    def batches(kind: str, seed: int) -> Any:
        r = R(seed)
        iterator = getattr(lib.iterators, kind)(
            list(range(int(r.randint(1, 8)))), int(r.randint(1, 6)), repeat=bool(r.randint(2)),
            shuffle=(None, True, False)[r.randint(3)])
        found = []
        try:
            for _ in range(7):
                found.append([iterator.next(), iterator.epoch, iterator.is_new_epoch, iterator.epoch_detail,
                              iterator.previous_epoch_detail])
        except StopIteration:
            found.append("stopped")
        finally:
            iterator.finalize()
        return found

    def filled(kind: str, seed: int) -> Any:
        r = R(seed)
        array = np.zeros(tuple(r.randint(1, 5, r.randint(1, 4)).tolist()), "fde"[r.randint(3)])
        getattr(lib.initializers, kind)()(array)
        return array
    for kind in ("SerialIterator", "MultithreadIterator"):
        for seed in range(TIMES):
            yield f"{kind} {seed}", lambda kind=kind, seed=seed: batches(kind, seed)
    for kind in INITIALIZERS:
        for seed in range(TIMES):
            yield f"{kind} {seed}", lambda kind=kind, seed=seed: filled(kind, seed)
    for texts, where in ((CONVERTED, lib.dataset), (DATASETS, lib.datasets)):
        for text in texts:
            for seed in range(TIMES // 2):
                drawn = {**vars(where.convert if where is lib.dataset else where), **arguments(seed)}
                yield f"{text} {seed}", lambda text=text, drawn=drawn: eval(text, drawn)
    tabular = lib.dataset.tabular
    for text in TABULAR:
        for seed in range(TIMES // 2):
            drawn = arguments(seed)
            scope = {**drawn, "tabular": tabular, "mask": np.arange(8) % (drawn["k"] + 1) == 0,
                     "table": tabular.from_data({"a": drawn["data"], "b": drawn["order"], "c": drawn["data"] / 2.}),
                     "other": tabular.from_data({"z": drawn["order"] * 3})}
            yield f"{text} {seed}", lambda text=text, scope=scope: eval(text, scope)
