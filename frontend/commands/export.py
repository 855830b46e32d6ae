"""``python -m kusari export``: a model becomes an ONNX file."""

from __future__ import annotations

import argparse
import glob
import importlib
import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import compat
from ..errors import KusariError
from ..link import Link
from .common import CommandError, Formatter, require

DESCRIPTION = """\
Export a model to ONNX and verify the file: what ONNX Runtime computes from it is compared with define-by-run.

  python -m kusari export models:make_resnet --input 1,3,224,224 --out model.onnx --dynamic batch
  python -m kusari export models:Net --input x=8,784 --input t=8:int32 --out loss.onnx --train

MODEL is module:attribute, looked for in the current directory first: a link, a class or function that makes one when
called without arguments, or a function of arrays. Modules may import chainer, which is Kusari to them.
"""


@dataclass(frozen=True)
class Input:
    """One --input: shape and dtype of an argument, and what to call it (None for the default)."""

    name: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def array(self, generator: np.random.Generator) -> Any:
        """Return data to trace with: normally distributed floats, zeros of everything else."""
        if self.dtype.kind != "f":
            return np.zeros(self.shape, self.dtype)
        return generator.standard_normal(self.shape).astype(self.dtype)


def add(subparsers: Any) -> None:
    """Declare the command's options."""
    parser = subparsers.add_parser(
        "export",
        help="write a model as an ONNX file",
        description=DESCRIPTION,
        formatter_class=Formatter,
    )
    parser.add_argument("model", metavar="MODEL", help="module:attribute")
    parser.add_argument("--input", metavar="[NAME=]SHAPE[:DTYPE]", action="append", type=input_of, required=True,
                        help="an argument: 1,3,224,224 or x=100:int32 (float32 by default); repeat for several")
    parser.add_argument("--out", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--dynamic", metavar="NAME", action="append", default=[],
                        help="make axis 0 of all inputs the symbolic dimension NAME; INPUT:AXIS=NAME for another axis")
    parser.add_argument("--opset", type=int, metavar="N", help="opset version, 9 to 26 (default: 18)")
    parser.add_argument("--train", action="store_true", help="export what the model computes in training")
    parser.add_argument("--param-dtype", choices=("float16", "bfloat16"),
                        help="store float32 parameters in half the bytes; they are cast back where the graph begins")
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="write without comparing")
    parser.set_defaults(main=main)


def input_of(text: str) -> Input:
    """Parse ``[NAME=]SHAPE[:DTYPE]``."""
    name, equals, rest = text.rpartition("=")
    shape, _, dtype = rest.partition(":")
    if equals and not name:
        raise argparse.ArgumentTypeError(f"expected a name before =, got {text!r}")
    try:
        extents = tuple(int(n) for n in shape.split(",")) if shape else ()
    except ValueError:
        extents = (-1,)
    if any(n < 1 for n in extents):
        raise argparse.ArgumentTypeError(f"expected extents above 0 like 1,3,224,224, got {shape!r}")
    try:
        kind = np.dtype(dtype or "float32")
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "fiub":
        raise argparse.ArgumentTypeError(f"expected a dtype like float32 or int32, got {dtype!r}")
    return Input(name or None, extents, kind)


def main(options: argparse.Namespace) -> int:
    """Load, export, verify, write; print what came of it."""
    require("onnx", "onnx")
    from ..onnx.dimensions import dynamic_axes, symbols_of
    from ..onnx.exporter import export_call
    from ..onnx.files import save
    from ..onnx.narrow import checked_dtype
    from ..onnx.trace import call_of
    from ..onnx.versions import checked_opset

    out = Path(options.out)
    if out.is_dir() or not os.access(out.resolve().parent, os.W_OK):
        raise CommandError(f"cannot write {options.out}: it is a folder, or its folder is missing or not writable")
    generator = np.random.default_rng(0)
    args = tuple(i.array(generator) for i in options.input)
    names = [i.name or f"Input_{k}" for k, i in enumerate(options.input)]
    start = time.perf_counter()
    try:
        opset = checked_opset(options.opset)
        narrow = checked_dtype(options.param_dtype, opset)
        call = call_of(None, args, options.train, names)
        symbols = symbols_of(call, args, dynamic_axes(call, dynamic_shapes(options.dynamic, options.input, names)))
    except KusariError as error:
        raise CommandError(str(error)) from None

    def progress(step: str) -> None:
        print(f"{time.perf_counter() - start:6.1f} s  {step}", file=sys.stderr, flush=True)

    try:
        model = load(options.model)
        accepts(model, args)
        call = call_of(model, args, options.train, names)
        done = export_call(call, symbols, opset, verify=options.verify, progress=progress,
                           narrow=narrow)
        progress(f"writing {options.out}")
        save(done.model, options.out)
    except KusariError as error:
        print(f"python -m kusari export: {error}", file=sys.stderr)
        return 1
    except CommandError:
        raise
    except Exception:
        traceback.print_exc()
        return 1
    print(summary(done, opset, out, options, time.perf_counter() - start))
    return 0


def dynamic_shapes(wanted: list[str], inputs: list[Input], names: list[str]) -> dict[str, dict[int, str]]:
    """Return the --dynamic options as ``dynamic_shapes``."""
    shapes: dict[str, dict[int, str]] = {name: {} for name in names}
    for text in wanted:
        place, equals, symbol = text.rpartition("=")
        if not equals:
            for name, each in zip(names, inputs, strict=True):
                if each.shape:
                    shapes[name][0] = symbol
            continue
        name, _, axis = place.rpartition(":")
        if name not in shapes or not axis.isdecimal():
            raise CommandError(f"--dynamic: expected NAME, or INPUT:AXIS=NAME with an input of {', '.join(names)}; "
                               f"got {text!r}")
        shapes[name][int(axis)] = symbol
    return shapes


def load(target: str) -> Callable[..., Any]:
    """Return the model that ``module:attribute`` names, made if it is a class or a factory."""
    module_name, colon, path = target.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise CommandError(f"expected module:attribute, got {target!r}")
    compat.install()
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise CommandError(f"there is no module {error.name!r}, neither in {os.getcwd()} nor installed") from None
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CommandError(f"{module_name} has no {path!r}") from None
    if isinstance(found, type) or (not isinstance(found, Link) and inspect.isroutine(found)):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            if isinstance(found, type):
                raise CommandError(f"{target} cannot be called without arguments ({error}); "
                                   "write a function that makes the model") from None
        else:
            found = found()
    if not callable(found):
        raise CommandError(f"{target} is {type(found).__name__}, expected a link, a function, or what makes one")
    return found


def accepts(model: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Raise ``CommandError`` when a model takes another number of arguments."""
    try:
        signature = inspect.signature(getattr(model, "forward", model))
    except ValueError:  # written in C
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        raise CommandError(f"the model does not take {len(args)} inputs: {error}; give one --input for each") from None


def summary(done: Any, opset: int, out: Path, options: argparse.Namespace, seconds: float) -> str:
    """Return the table that is printed in the end."""
    graph = done.model.graph
    held = [t for t in graph.initializer if t.name.startswith("/")]
    if not options.verify:
        error = "not verified"
    elif done.error is None:
        error = "not compared: random results, or operators of other domains"
    else:
        error = f"{done.error:.3g}"
    rows = [
        ("file", files(out)),
        ("inputs", ", ".join(map(declared, graph.input))),
        ("outputs", ", ".join(map(declared, graph.output))),
        ("nodes", f"{len(graph.node):,}"),
        ("parameters", f"{sum(int(np.prod(t.dims)) for t in held):,} in {len(held)} arrays"),
        ("opset", str(opset)),
        ("max error", error),
        ("time", f"{seconds:.1f} s"),
    ]
    return "\n".join(f"{name:<12}{text}" for name, text in rows)


def files(out: Path) -> str:
    """Return what was written: one file, or a model and its data."""
    found = [out, *sorted(out.parent.glob(f"{glob.escape(out.name)}.????????????.data"))]
    return ", ".join(f"{path} ({path.stat().st_size:,} bytes)" for path in found)


def declared(info: Any) -> str:
    """Return an input or output as ``x[batch,3]``."""
    extents = [d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?")
               for d in info.type.tensor_type.shape.dim]
    return f"{info.name}[{','.join(extents)}]"
