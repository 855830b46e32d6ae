"""Checking a model, and running it against define-by-run."""
from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from . import files
from .blame import baked_node, differing_nodes, function_of
from .errors import ExportError, MismatchError, OnnxRuntimeWarning
from .files import save, size_of
from .trace import Call
from .versions import optional_runtime, require_onnx

TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-7}


def check(model: Any, external: bool = False) -> bool:
    """Run the checker of the package onnx; raises ``ExportError``.

    Where there are converters of the user's (``external``), it warns instead, and returns False: operators may be
    theirs.
    """
    onnx = require_onnx()
    try:
        with _loadable(model) as source:
            onnx.checker.check_model(source, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        if not external:
            raise ExportError(f"the exported model is not valid ONNX: {error}") from error
        warnings.warn(f"the exported model is not compared with define-by-run, since it is not valid ONNX: {error}; "
                      "give operators of your own a domain", UserWarning, stacklevel=4)
        return False
    return True


def runner(model: Any) -> Any:
    """Return ``run(feeds) -> outputs``, by ONNX Runtime or else by the reference evaluator; None if neither can.

    The reference evaluator may find that it cannot only when it runs: then ``run`` returns None.
    """
    reference = functools.partial(_reference, model)
    runtime = optional_runtime()
    if runtime is None:
        return reference()
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised
    options.intra_op_num_threads = 1
    try:
        with _loadable(model) as source:
            live = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return _refused(model, runtime, error, reference)

    def run(feeds: dict[str, Any]) -> list[Any] | None:
        try:
            return live.run(None, feeds)
        except Exception as error:
            other = _refused(model, runtime, error, reference)
            if other is None:
                raise ExportError(f"nothing can run the exported model: {error}") from error
            return other(feeds)
    return run


def _place(model: Any, error: Exception) -> str:
    """Return the line of the node that a runtime's message names, as a beginning for another message."""
    found = re.search(r"Name:'([^']*)'", str(error))
    for node in model.graph.node:
        if found is not None and node.name == found[1] and node.doc_string:
            return f"{node.doc_string}: {function_of(node)}, as {node.op_type} {node.name!r}: "
    return ""


@contextlib.contextmanager
def _loadable(model: Any) -> Iterator[Any]:
    """Context with a model as checker and runtime take it: its bytes, or the path of files that are gone afterwards."""
    if size_of(model) <= files.LIMIT:
        yield model.SerializeToString()
        return
    with tempfile.TemporaryDirectory(prefix="kusari", ignore_cleanup_errors=True) as folder:
        path = os.path.join(folder, "model.onnx")
        save(model, path)
        yield path


def _reference(model: Any) -> Any:
    reference = importlib.import_module("onnx.reference")
    try:
        evaluator = reference.ReferenceEvaluator(model)
    except reference.op_run.RuntimeImplementationError as error:
        warnings.warn(f"the reference evaluator cannot run the exported model either, which is not compared with "
                      f"define-by-run: {str(error).partition(',')[0]}", OnnxRuntimeWarning, stacklevel=7)
        return None

    def run(feeds: dict[str, Any]) -> list[Any] | None:
        try:
            return evaluator.run(None, feeds)
        except Exception as error:  # it has mistakes of its own
            warnings.warn("the reference evaluator fails on the exported model, which is not compared with "
                          f"define-by-run: {type(error).__name__}: {error}", OnnxRuntimeWarning, stacklevel=7)
            return None
    return run


_TOO_OLD = ("NOT_IMPLEMENTED", "not supported", "does not support", "Unsupported model IR version", "under development")


def _refused(model: Any, runtime: Any, error: Exception, reference: Any) -> Any:
    """Return the reference evaluator where the runtime lacks a kernel, or is older than the opset; else raise."""
    what = f"{_place(model, error)}ONNX Runtime {runtime.__version__} cannot run the exported model"
    if not any(words in str(error) for words in _TOO_OLD):
        raise ExportError(f"{what}: {error}") from error
    warnings.warn(f"{what}, which is verified with the reference evaluator instead: {error}", OnnxRuntimeWarning,
                  stacklevel=5)
    return reference()


def compare(model: Any, calls: list[Call], parameters: dict[str, Any], write: Callable[[Call], Any],
            anew: bool = True) -> float | None:
    """Raise ``MismatchError`` unless ``model`` computes what define-by-run does, on given and on random data.

    The first call has the given arguments, further ones have them at other extents. Returns the greatest difference
    seen, None where nothing can run the model, or results are random and only their types were compared. ``write``
    exports a call once more, to find the nodes that differ. Without ``anew`` there are no random data.
    """
    greatest = 0.0
    run = runner(model)
    if run is None:
        return None
    names = [info.name for info in model.graph.output]
    random, tolerances = draws(model), tolerances_of(model)
    trials = [(calls[0], "the given arguments", calls[0].arrays)]
    if anew:
        trials.append((calls[0], "random data", tuple(fresh(calls[0].arrays))))
    trials += [(c, f"inputs of shapes {[x.shape for x in c.arrays]}", c.arrays) for c in calls[1:]]
    for call, what, arrays in trials:
        rewritten = functools.partial(write, replace(call, arrays=tuple(arrays)))
        feeds = {**dict(zip(call.names, arrays, strict=True)), **parameters}
        with np.errstate(all="ignore"):
            try:
                expected = call.run(arrays)
            except Exception:
                if arrays is call.arrays:
                    raise
                continue  # not what the model takes: places, say, that do not exist
            try:
                actual = run(feeds)
            except ExportError as error:
                if len(calls) == 1:
                    raise
                raise _explained(error, model, feeds, True, rewritten) from None
        if actual is None:
            return None
        if len(expected) != len(names):
            raise ExportError(f"the model returned {len(names)} Variables or arrays of them while it was traced, and "
                              f"{len(expected)} on {what}; return as many of both")
        for name, a, e in zip(names, actual, expected, strict=True):
            try:
                greatest = max(greatest, compare_arrays(
                    name, np.asarray(a), e, what, values=not random, tolerance=tolerances[name]))
            except MismatchError as error:
                raise _explained(error, model, feeds, random, rewritten) from None
    return None if random else greatest


def _explained(error: ExportError, model: Any, feeds: dict[str, Any], random: bool,
               write: Callable[[], Any]) -> ExportError:
    """Return ``error`` with the nodes that differ: from their functions, or else from an export of just that call."""
    writer = write()
    lines = [] if random else differing_nodes(writer, runner, _how)
    if lines:
        return MismatchError("\n".join([f"{error}; the nodes that differ, in order:", *lines]))
    line = baked_node(model, writer, runner, _how, feeds, random)
    return error if line is None else type(error)(
        f"{error}\n{line}; it is written for other extents: give that axis an int, or write code that suits all")


def _how(a: Any, e: Any) -> str | None:
    """Return how a node differs from its function, or None."""
    if a.shape != e.shape or a.dtype != e.dtype:
        return f"{a.dtype}{list(a.shape)} instead of {e.dtype}{list(e.shape)}"
    try:
        compare_arrays("", a, e, "")
    except MismatchError:
        with np.errstate(all="ignore"):
            off = np.abs(a.astype(np.float64) - e.astype(np.float64))
        return f"off by up to {np.nanmax(off):.3g}" if np.isfinite(off).all() else "infinite or not a number"
    return None


def draws(model: Any) -> bool:
    """Whether a model draws random numbers."""
    return any(n.op_type.startswith("Random") or n.op_type == "Dropout" for n in model.graph.node)


def tolerances_of(model: Any) -> dict[str, float]:
    """Return the tolerance of each output: that of the coarsest floating-point type on the way to it."""
    helper, graph = require_onnx().helper, model.graph
    known = {info.name: TOLERANCE.get(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).name, 0.0)
             for info in (*graph.value_info, *graph.input, *graph.output)}
    worst: dict[str, float] = {}
    for node in graph.node:
        inherited = max((worst.get(n, known.get(n, 0.0)) for n in node.input), default=0.0)
        worst.update((n, max(inherited, known.get(n, 0.0))) for n in node.output)
    return {info.name: worst.get(info.name, known[info.name]) for info in graph.output}


def compare_arrays(name: str, a: Any, e: Any, what: str, values: bool = True, tolerance: float = 0.0) -> float:
    """Raise ``MismatchError`` unless output ``name`` is what was expected; returns the greatest difference.

    ``tolerance`` counts where it is more than that of the output's type.
    """
    if a.shape != e.shape or a.dtype != e.dtype:
        raise MismatchError(f"output {name!r} of the exported model is {a.dtype}{list(a.shape)}, that of "
                            f"define-by-run {e.dtype}{list(e.shape)}, on {what}")
    if not e.size or not values:
        return 0.0
    if e.dtype.kind != "f":
        wrong = int((a != e).sum())
        if wrong:
            raise MismatchError(f"output {name!r}: {wrong} of {e.size} elements differ from define-by-run on {what}")
        return 0.0
    tolerance = max(tolerance, TOLERANCE[e.dtype.name])
    a, e = a.astype(np.float64), e.astype(np.float64)
    finite = np.isfinite(e)
    same = np.where(finite, 0.0, np.where((a == e) | (np.isnan(a) & np.isnan(e)), 0.0, np.inf))
    with np.errstate(invalid="ignore"):
        error = np.where(finite, np.abs(a - e), same)
    worst = float(np.where(np.isnan(error), np.inf, error).max())
    allowed = tolerance * max(float(np.abs(e[finite]).max(initial=0.0)), 1.0)
    if worst > allowed:
        raise MismatchError(f"output {name!r} differs from define-by-run by up to {worst:.3g} on {what}, "
                            f"where {allowed:.3g} is allowed; if that is rounding, pass verify=False")
    return worst


def fresh(arrays: tuple[Any, ...]) -> list[Any]:
    """Return other data of the same types: floats anew within the range that was given, all else as it is.

    Rows of whole numbers (regions, say) stay such, each column within its own range.
    """
    generator = np.random.default_rng(0)
    made: list[Any] = []
    for x in arrays:
        if x.dtype.kind != "f" or not x.size or not np.isfinite(x).all():
            made.append(x)
            continue
        whole = x.ndim == 2 and len(x) > 1 and bool((x == np.rint(x)).all())
        low, high = x.min(axis=0 if whole else None), x.max(axis=0 if whole else None)
        if (low < high).any():
            data = generator.uniform(low, high, x.shape)
            data = np.rint(data) if whole else data
        else:
            data = generator.standard_normal(x.shape)
        made.append(data.astype(x.dtype))
    return made
