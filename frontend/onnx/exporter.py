"""``export``: a traced call of a model becomes an ONNX file."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir import Graph, TensorType

from ..progress import Work
from ..pytorch_keywords import explained
from ..static.arrays.bindings import ParameterBinding
from ..static.trace.recording import Recording
from ..static.trees import flatten
from ..variable import Variable
from .complete import completed
from .dialect import KUSARI, Dialect
from .dimensions import Symbol, dynamic_axes, generalized, resized, symbols_of
from .emitter import Emitter
from .errors import DataReadError, ExportError, MismatchError
from .files import add_tensor, save
from .graph import GraphWriter, name_outputs, prune
from .narrow import checked_dtype, narrowed, rounded
from .patterns import modernized
from .trace import BakingTape, Call, binding_names, call_of, checked_model, output_names, roots, to_array, trace
from .verify import check, compare
from .versions import IR_VERSIONS, checked_opset, require_onnx


@explained
def export(model: Any, args: Any, filename: Any = None, export_params: bool = True, graph_name: str = "Graph",
           save_text: bool = False, opset_version: int | None = None, input_names: Any = None, output_names: Any = None,
           train: bool = False, return_named_inout: bool = False, external_converters: dict[str, Any] | None = None,
           external_opset_imports: dict[str, int] | None = None, input_shapes: Any = None, no_testcase: bool = False,
           verify: bool = True, dynamic_shapes: dict[str, dict[int, str]] | None = None,
           external_data_threshold: int | None = None, param_dtype: Any = None, dialect: Dialect = KUSARI) -> Any:
    """Export a model in ONNX format.

    The model is called once with ``args``; the functions that this applies become the graph. Parameters and persistent
    arrays are initializers named by their paths (``/l1/W``). Every node's ``doc_string`` is the line of your program
    that made it. Equal models give equal bytes. Parameters that wait for their shape are initialised by the call.

    Args:
        model: A link, or any callable that takes and returns Variables.
        args: An array or Variable, a tuple or list of positional arguments, or a dict of keyword arguments.
        filename: Path or binary file object to write to, or None. A path gets its content in one step.
        export_params: If False, parameters are inputs of the graph, and their values are not in the file.
        graph_name: Name of the graph.
        save_text: Whether to write a readable form too, to ``filename`` with ``.txt`` appended.
        opset_version: 9 to 26; by default 18. The IR version is the oldest with that opset.
        input_names: Names of the inputs: a string, a list, or a dict with the keys of ``args``. By default the keys of
            ``args``, else ``Input_0``, ``Input_1``, ….
        output_names: Names of the outputs, likewise; by default the keys of the result, else ``Output_0``, ….
        train: Whether to export the computation in training: dropout draws, batch normalization uses the batch.
        return_named_inout: Whether to return the inputs and outputs too.
        external_converters: Own conversions: function label, or the name of Chainer's class (``"AddConstant"``), to
            ``converter(param)``, which returns ONNX nodes from ``param.input_names`` to ``param.output_names`` (there
            are also ``func``, ``opset_version``, ``g`` and ``context``, whose ``add_const(array, name)`` returns the
            name of a constant).
        external_opset_imports: Versions of the operator domains that these use.
        input_shapes: Shapes of the inputs, where a string (or None) in place of an extent is a symbolic dimension: a
            tuple, or a list or dict of tuples. The model is traced and verified at several extents.
        no_testcase: Accepted for compatibility.
        verify: Whether to check the model, run it in ONNX Runtime (in the reference evaluator of the package onnx when
            that is missing), and compare with define-by-run on ``args`` and on random data of the same types and range.
            Outputs agree within 1e-4 (float32), 1e-2 (float16), 1e-7 (float64) of their greatest magnitude, or of 1. Of
            graphs that draw random numbers shapes and dtypes are compared, models with operators of other domains are
            not run.
        dynamic_shapes: Another way to say ``input_shapes``: names of inputs to the names of their symbolic axes,
            ``{"x": {0: "batch"}}``.
        external_data_threshold: Bytes of parameters and constants above which these go to a second file beside the
            model, ``NAME.DIGEST.data``, aligned to be mapped into memory. By default, and at most, the limit of a
            file: 2 GiB.
        param_dtype: ``"float16"`` or ``"bfloat16"`` to store float32 parameters as that, in half the bytes. They are
            cast back where the graph begins: inputs, outputs and arithmetic stay the same, and verification takes
            the rounded parameters.
        dialect: How parameters, nodes and outputs are called, and what else a file is like: Kusari's, or
            ``kusari.onnx.ONNX_CHAINER``, which is that of ``onnx_chainer.export``.

    Returns:
        onnx.ModelProto: The model; with ``return_named_inout`` a tuple of it, and of the inputs and the outputs as
        dicts from names to Variables.

    Raises:
        ExportError: The model cannot be followed, or not at all extents; the message names your line and the way out.
            Or it is not valid ONNX: only a warning where there are ``external_converters``.
        UnsupportedFunctionsError: Functions have no ONNX form; all of them are listed.
        MismatchError: The exported model computes something else than define-by-run.
        OpsetError: There is no such opset.
        MissingExtraError: The package onnx is not installed.
        ExportFileError: The file cannot be written; nothing is left behind.

    Example:
        >>> import numpy as np, kusari, kusari.functions as F, kusari.links as L, kusari.onnx
        >>> model = kusari.Sequential(L.Linear(4, 3), F.relu)
        >>> made = kusari.onnx.export(model, np.zeros((2, 4), np.float32))
        >>> [(node.op_type, list(node.input)) for node in made.graph.node]
        [('Gemm', ['Input_0', '/0/W', '/0/b']), ('Relu', ['Gemm_0'])]
    """
    require_onnx()
    opset = checked_opset(dialect.default_opset if opset_version is None else opset_version)
    narrow = checked_dtype(param_dtype, opset)
    call = call_of(checked_model(model), args, train, input_names, dialect.keys_are_names)
    if dynamic_shapes is not None:
        if input_shapes is not None:
            raise ExportError("give input_shapes or dynamic_shapes, not both")
        input_shapes = dynamic_axes(call, dynamic_shapes)
    symbols = [] if input_shapes is None else symbols_of(call, args, input_shapes, dialect.shares_symbols)
    with Work("exporting", graph_name if filename is None else str(filename)) as work:
        done = export_call(call, symbols, opset, output_names, export_params, graph_name, external_converters,
                           external_opset_imports, verify, work.step, narrow, dialect)
        if filename is not None:
            work.step("writing")
            save(done.model, filename, save_text, external_data_threshold)
    if not return_named_inout:
        return done.model
    inputs = dict(zip(call.names, (Variable(x, requires_grad=False) for x in call.arrays), strict=True))
    return done.model, inputs, done.outputs


@dataclass(frozen=True)
class Exported:
    """An exported call: the model, its outputs by name, and the greatest error that verification saw, if it did."""

    model: Any
    outputs: dict[str, Any]
    error: float | None


def export_call(call: Call, symbols: list[Symbol], opset: int, names: Any = None, export_params: bool = True,
                graph_name: str = "Graph", converters: dict[str, Any] | None = None,
                imports: dict[str, int] | None = None, verify: bool = True,
                progress: Callable[[str], None] = lambda step: None, narrow: Any = None,
                dialect: Dialect = KUSARI) -> Exported:
    """Export and verify a call; ``progress`` is told what begins."""
    options = opset, converters or {}, imports or {}, names, dialect
    progress("tracing")
    writer = Export(call, *options)
    made = writer.model(export_params, graph_name)
    calls = [call]
    if symbols:
        progress("tracing at other extents")
        made = generalized(call, symbols, lambda other, whole: Export(other, *options).model(
            whole and export_params, graph_name))
        calls.append(resized(call, {s: s.unseen for s in symbols}))
    if narrow is not None and export_params:
        narrowed(made, writer.trained, narrow)
    error = None
    if verify:
        progress("verifying")
        if check(made, external=bool(converters)) and not any(node.domain for node in made.graph.node):
            given = {} if export_params else writer.parameters
            try:
                with rounded(call.model, narrow):
                    error = compare(made, calls, given, lambda other: Export(other, *options), not writer.baked)
            except MismatchError as mismatch:
                dialect.mismatch(mismatch, bool(converters))
    if dialect.complete:
        completed(made, writer, export_params)
    return Exported(made, dict(zip(writer.output_names, writer.outputs, strict=True)), error)


class Export:
    """One traced call on its way to a model.

    ``names`` are the names of values as written, of which ``renamed`` gives the names of outputs. ``states`` are params
    that are inputs of the model besides having values in it; ``settings`` are, too, as far as they are read.
    """

    trains = False
    baked = False  # whether data that depend on the arguments are constants
    states: Sequence[str] = ()
    settings: Sequence[str] = ()

    def __init__(self, call: Call, opset: int, converters: dict[str, Any], imports: dict[str, int], names: Any,
                 dialect: Dialect = KUSARI) -> None:
        self.call = call
        self.opset = opset
        self.imports = imports
        self.dialect = dialect
        self.recording, self.result = self.traced()
        self.outputs: list[Any] = []
        flatten(self.result, self.outputs)
        if not self.outputs:
            raise ExportError(f"the model returns no Variable, but {self.result!r}; return what is to be exported")
        dialect.check_result(self.result)
        graph, bindings, self.bound = self.graph()
        self.output_names = () if dialect.own_outputs and names is None else output_names(self.result, names)
        for clash in set(self.bound) & set(call.names):
            raise ExportError(f"the input name {clash!r} is the name of a parameter; choose another")
        for clash in {*self.output_names} & {*call.names, *self.bound}:
            raise ExportError(f"the output name {clash!r} is taken by an input or a parameter; choose another")
        self.data = self.parameters = {
            name: to_array(b.array()) for name, b in zip(self.bound, bindings, strict=True)}
        self.trained = {name for name, b in zip(self.bound, bindings, strict=True) if isinstance(b, ParameterBinding)}
        self.g = Emitter(opset, imports, {*call.names, *self.bound, *self.output_names}, dialect)
        writer = GraphWriter(self.g, converters, tuple(roots(call.model)))
        for value, name in zip(self.recording.leaves, call.names, strict=True):
            writer.define(value, name)
        for value, name in zip(graph.params, self.bound, strict=True):
            writer.define(value, name)
        for value, array in graph.consts:
            writer.define(value, self.g.constant(to_array(array), self.g.fresh, dialect.outside, stored=True))
        writer.write(graph, self.trains)
        self.names, self.functions = writer.names, writer.functions
        self.renamed: dict[str, str] = {}
        self.made = [writer.names[v] for v in graph.outputs]
        self.output_names = self.output_names or self._own_names()

    def _own_names(self) -> tuple[str, ...]:
        """Return for each output the name that it has in the graph, another for an input and for one that is there."""
        nodes = {name for proto in self.g.nodes for name in proto.output}
        return tuple([name if name in nodes and name not in self.made[:i] else self.g.fresh("Identity")
                      for i, name in enumerate(self.made)])

    def traced(self) -> tuple[Recording, Any]:
        """Return the recording to write, and the result of its call."""
        try:
            return trace(self.call, self.trains)
        except DataReadError as error:
            if not self.dialect.bakes:
                raise
            warnings.warn(f"{error}; data that the model reads are constants in the file, as these arguments make them",
                          UserWarning, stacklevel=2)
            self.baked = True
            return trace(self.call, self.trains, BakingTape)

    def graph(self) -> tuple[Graph, Sequence[Any], list[str]]:
        """Return the parts to write: a graph, the bindings of its params, and their names."""
        names = binding_names(self.call.model, self.recording)
        return self.recording.graph, self.recording.bindings, [self.dialect.parameter(name) for name in names]

    def model(self, export_params: bool, graph_name: str) -> Any:
        """Return the ``ModelProto``."""
        from .. import __version__
        g, helper = self.g, self.g.onnx.helper
        inputs = list(self.call.names)
        self.renamed = name_outputs(g, self.made, self.output_names, {*inputs, *self.bound})
        nodes = prune(g.nodes, list(self.output_names))
        nodes = prune(modernized(g, nodes), list(self.output_names))
        read = {n for proto in nodes for n in proto.input}
        params = {n: a for n, a in self.parameters.items() if n in read or n in self.states}
        stored = {**(params if export_params else {}), **{n: a for n, a in g.constants.items() if n in read}}
        self.parameters = params
        inner = [n for proto in nodes for n in proto.output if n in g.types and n not in self.output_names]
        graph = helper.make_graph(
            nodes, graph_name,
            [self._info(n, g.types[n]) for n in (*inputs, *(
                n for n in params if not export_params or n in self.states or n in self.settings))],
            [self._info(n, g.types[n]) for n in self.output_names],
            value_info=[self._info(n, g.types[n]) for n in inner])
        imports = [helper.make_opsetid("", self.opset), *(
            helper.make_opsetid(domain, version) for domain, version in self.imports.items())]
        made = helper.make_model(graph, producer_name="Kusari", producer_version=__version__,
                                 ir_version=IR_VERSIONS[self.opset], opset_imports=imports)
        for n, a in stored.items():
            add_tensor(made.graph, n, a)
        return made

    def _info(self, name: str, t: TensorType) -> Any:
        helper = self.g.onnx.helper
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)), t.shape)
