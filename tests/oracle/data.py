"""Datasets, iterators, converters and initializers on random arguments."""
from __future__ import annotations

import pickle
import types
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .programs import TIMES, R, arguments

INITIALIZERS = """
Uniform() LeCunUniform() GlorotUniform() HeUniform() Normal() LeCunNormal() GlorotNormal() HeNormal() Orthogonal()
Zero() One() NaN() Identity() Uniform(p) Normal(p) Orthogonal(p) Identity(p) Constant(p) LeCunUniform(p)
GlorotUniform(p) HeUniform(p,rng=R) LeCunNormal(p,rng=R) GlorotNormal(p) HeNormal(p,fan_option="fan_out")
HeNormal(fan_option="fan_out") Orthogonal(p,mode="embedding") Orthogonal(mode="projection") Normal(rng=R)
Orthogonal(p,rng=R) UpsamplingDeconvFilter(dtype=None) DownsamplingConvFilter(interpolation="linear")
""".split()
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
concat_examples([x, y], padding=0)
concat_examples([x, x[:0]], padding=k + 0.5)
concat_examples([{"a": x}, {"a": x[:1]}], padding={"a": l})
concat_examples([np.array(k), np.array(l)])
concat_examples([np.int8(k), np.int8(l)])
concat_examples([x, o])
concat_examples([k, 2 ** 40])
concat_examples([x.tolist(), y.tolist()])
concat_examples(x)
concat_examples([x, y], device=-1)
to_device(None, x)
to_device(-1, x)
converter()(lambda batch, device: len(batch))([x, y], None)
ConcatWithAsyncTransfer()([x, y])
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
TupleDataset(data, order)[[l, k]]
TupleDataset(data, order)[np.array([k, -l])]
TupleDataset(data, order)[order > 3]
ConcatenatedDataset(data, data[:l])[::-l]
TransformDataset(data, lambda v: v + l)[k::l]
SubDataset(data, k, 7)[-1]
SubDataset(data, k, 7)[::-1]
SubDataset(SubDataset(data, 1, 8), k, 5, order[:7])
split_dataset(data, k, order[::-1].copy())
get_cross_validation_datasets(data, l + 1, order)
split_dataset_n(data, l + 1, order)
TextDataset(texts)
TextDataset([texts, texts], filter_func=lambda a, b: len(a) > 3)
TextDataset(texts)[k]
PickleDataset(pickled)
PickleDataset(pickled)[k]
ImageDataset(images, root=folder)
ImageDataset(images, root=folder, dtype="d")
LabeledImageDataset([(n, k) for n in images], root=folder)
LabeledImageDataset(pairs, root=folder, label_dtype="f")
ZippedImageDataset(zipped)
MultiZippedImageDataset([zipped, zipped])
LabeledZippedImageDataset(zipped, pairs)
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


def files(folder: str) -> dict[str, Any]:
    """Write the files that datasets are read from."""
    from PIL import Image
    names = [f"{i}.png" for i in range(4)]
    for i, name in enumerate(names):
        shape = (2, 3) if i % 2 else (3, 2, 3)
        Image.fromarray(R(i).randint(0, 256, shape).astype("uint8")).save(f"{folder}/{name}")
    with zipfile.ZipFile(f"{folder}/images.zip", "w") as file:
        for name in names:
            file.write(f"{folder}/{name}", name)
    with open(f"{folder}/texts.txt", "w") as text:
        text.write("one\nthree\n\nlast line")
    with open(f"{folder}/pairs.txt", "w") as text:
        text.write("".join(f"{name} {i * 3}\n" for i, name in enumerate(names)))
    with open(f"{folder}/pickled", "wb") as pickled:
        for value in (1, "two", [3.0]):
            pickle.dump(value, pickled)
    return {"folder": folder, "images": names, "texts": f"{folder}/texts.txt", "zipped": f"{folder}/images.zip",
            "pairs": f"{folder}/pairs.txt",
            "pickled": open(f"{folder}/pickled", "rb")}


def data(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Datasets, iterators, converters and initializers."""
    def batches(kind: str, seed: int) -> Any:
        r = R(seed)
        make = getattr(lib.iterators, kind.partition(" ")[0])
        n, size, repeat = int(r.randint(1, 8)), int(r.randint(1, 6)), bool(r.randint(2))
        sampler = eval(kind.partition(" ")[2] or "None", {"s": lib.iterators, "R": R(seed), "np": np})
        order = {"order_sampler": sampler} if sampler else {"shuffle": (None, True, False)[r.randint(3)]}
        iterator = make(list(range(n)), size, repeat=repeat, **order)
        found = []

        def state() -> list[Any]:
            return [iterator.epoch, iterator.is_new_epoch, iterator.epoch_detail, iterator.previous_epoch_detail]
        try:
            for i in range(9):
                found.append([iterator.next(), state()])
                if i == 4 and seed % 2 and "Serial" in kind:
                    iterator.reset()
            saved: dict[str, Any] = {}  # only to the end, as Chainer draws once more behind it
            iterator.serialize(lib.serializers.DictionarySerializer(saved))
            found.append({key: value for key, value in saved.items() if "/" not in key})  # more is saved here
        except StopIteration:
            found.append(["stopped", state()])
        finally:
            iterator.finalize()
        return found

    def filled(text: str, seed: int) -> Any:
        r = R(seed)
        shape = tuple(r.randint(1, 5, r.randint(1, 5)).tolist())
        n, m = shape[0], shape[-1]
        shape = (n, n) if text.startswith("Identity") else (n, (1, n)[m % 2], m, m) if "Filter" in text else shape
        array = np.zeros(shape, "fde"[r.randint(3)])
        scope = {**vars(lib.initializers), "p": r.uniform(0.1, 2), "R": R(seed + 1)}
        eval(text, scope)(array)
        return [array, lib.initializers.generate_array(eval(text, {**scope, "R": R(seed + 1)}), array.shape, np, "f")]
    for kind in ("SerialIterator", "MultithreadIterator", "MultiprocessIterator",
                 "SerialIterator s.ShuffleOrderSampler(R)", "SerialIterator lambda order, at: np.arange(3)[::-1]",
                 "MultithreadIterator s.ShuffleOrderSampler(R)"):
        for seed in range(TIMES if "process" not in kind else 4):
            yield f"{kind} {seed}", lambda kind=kind, seed=seed: batches(kind, seed)
    for text in INITIALIZERS:
        for seed in range(TIMES):
            yield f"{text} {seed}", lambda text=text, seed=seed: filled(text, seed)
    for texts, where in ((CONVERTED, lib.dataset), (DATASETS, lib.datasets)):
        for text in texts:
            for seed in range(TIMES // 2):
                drawn = {**vars(where.convert if where is lib.dataset else where), **arguments(seed), **lib.files,
                         "converter": lib.dataset.converter}
                yield f"{text} {seed}", lambda text=text, drawn=drawn: eval(text, drawn)
    tabular = lib.dataset.tabular
    for text in TABULAR:
        for seed in range(TIMES // 2):
            drawn = arguments(seed)
            scope = {**drawn, "tabular": tabular, "mask": np.arange(8) % (drawn["k"] + 1) == 0,
                     "table": tabular.from_data({"a": drawn["data"], "b": drawn["order"], "c": drawn["data"] / 2.}),
                     "other": tabular.from_data({"z": drawn["order"] * 3})}
            yield f"{text} {seed}", lambda text=text, scope=scope: eval(text, scope)
