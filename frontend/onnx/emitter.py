"""The emitter: what ``onnx`` facets of functions call to make ONNX nodes."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kusari.ir import TensorType, tensor_type
from kusari.ir.symbol import Formula, tree_of

from .dialect import KUSARI, Dialect
from .errors import NoForm
from .opsets import decomposed, fitted
from .versions import IR_VERSIONS, require_onnx

_SMALL = 4096  # constants up to this many elements take part in shape inference


class Emitter:
    """Collects ONNX nodes; any operator is a method: ``y = g.Gemm(x, W, b, transB=1)``.

    Inputs are names (None for an optional one left out), attributes keywords. The result is the output's name, or
    with ``outputs=n`` a tuple of names.

    Invariant: ``types`` has the type of every name whose shape ONNX can infer.
    """

    def __init__(self, opset: int, imports: dict[str, int], reserved: set[str], dialect: Dialect = KUSARI) -> None:
        self.opset = opset
        self.imports = imports
        self.dialect = dialect
        # Of the function that is being written: the user's line, the path of the link, the label, and the number of
        # its kind that it is, ``ReLU_0``.
        self.where = self.link = self.label = self.function = ""
        self.onnx = require_onnx()
        self.nodes: list[Any] = []
        self.types: dict[str, TensorType] = {}
        self.writes: dict[str, str] = {}  # states that have been written to: what they are now
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.stored: set[str] = set()  # constants that are data of the model's
        self._constant_names: dict[Any, str] = {}
        self._counts: dict[str, int] = {}
        self._taken = set(reserved)

    def __getattr__(self, operator: str) -> Any:
        if not operator[:1].isupper():
            raise AttributeError(f"the ONNX emitter has no {operator!r}; operators begin with a capital letter")
        return functools.partial(self.node, operator)

    # -- what facets use besides operators ----------------------------------------------------------------------

    def const(self, array: Any) -> str:
        """Return the name of a constant; equal constants are one."""
        return self.constant(array, self.fresh, self.dialect.constant(self.function))

    def constant(self, array: Any, named: Callable[[str], str], stem: str, stored: bool = False) -> str:
        """Return the name, ``named(stem)``, of a constant, maybe ``stored`` as data; equal ones of a stem are one."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = (stem, array.dtype.str, array.shape, array.tobytes())
        if key not in self._constant_names:
            name = self._constant_names[key] = named(stem)
            self.constants[name] = array
            self.types[name] = tensor_type(array.dtype, array.shape)
            if stored:
                self.stored.add(name)
        return self._constant_names[key]

    def value(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the array of a constant, or None for anything else."""
        return self.constants.get(name)

    def type(self, name: str) -> TensorType:
        """Return the type of a name; raises ``NoForm`` when it cannot be inferred."""
        if name not in self.types:
            raise NoForm(f"the type of {name!r} cannot be inferred")
        return self.types[name]

    def expression(self, formula: Formula, *names: str) -> str:
        """Emit a function of symbols, or a tree, over the named inputs, which broadcast, with NumPy's promotion."""
        from .expressions import emit
        return emit(self, tree_of(formula, len(names)), names)

    def cast(self, x: str, dtype: Any) -> str:
        """Return ``x`` as ``dtype``: itself when it is that already."""
        dtype = np.dtype(dtype)
        return x if self.type(x).dtype == dtype else self.node("Cast", x, to=dtype)

    # -- nodes --------------------------------------------------------------------------------------------------

    def node(self, operator: str, *inputs: str | None, outputs: int | None = None, domain: str = "",
             **attributes: Any) -> Any:
        """Append a node of any operator, also of another domain; returns its output name or names."""
        helper = self.onnx.helper
        names = [x or "" for x in inputs]
        if not domain:
            made = decomposed(self, operator, names, attributes)
            if made is not None:
                return made
            names, attributes = fitted(self, operator, names, attributes)
        while names and not names[-1]:
            names.pop()
        schema = self._schema(operator, domain)
        if schema is not None:
            unknown = [k for k, v in attributes.items() if v is not None and k not in schema.attributes]
            if unknown:
                raise NoForm(f"{operator} has no attribute {', '.join(unknown)} in opset {self.opset}")
            if len(names) > schema.max_input:
                raise NoForm(f"{operator} takes at most {schema.max_input} inputs in opset {self.opset}")
        stem = self.dialect.value(self.function, operator)
        made = [self.fresh(stem) for _ in range(1 if outputs is None else outputs)]
        name = self.dialect.node(self.link, made[0] if made else self.fresh(stem))
        proto = helper.make_node(
            operator, names, made, name=name, domain=domain,
            doc_string=self.where,
            **{k: self._attribute(operator, k, v) for k, v in attributes.items() if v is not None})
        self.append(proto, schema)
        return made[0] if outputs is None else tuple(made)

    def copied(self, node: Any, version: int, names: list[str]) -> list[str]:
        """Append another model's node, of a ``version`` of its domain, with inputs ``names``; returns its outputs."""
        if node.domain and self.imports.setdefault(node.domain, version) != version:
            raise NoForm(f"{node.op_type} is of version {version} of {node.domain}, not {self.imports[node.domain]}")
        schema = self._schema(node.op_type, node.domain)
        if schema is not None and self.onnx.defs.get_schema(
                node.op_type, version, node.domain).since_version != schema.since_version:
            raise NoForm(f"opset {self.opset} has another {node.op_type} than opset {version}, from which it was read")
        proto = self.onnx.NodeProto()
        proto.CopyFrom(node)
        stem = self.dialect.value(self.function, node.op_type)
        made = [self.fresh(stem) if name else "" for name in node.output]
        proto.input[:], proto.output[:] = names, made
        proto.name, proto.doc_string = self.dialect.node(self.link, next(filter(None, made))), self.where
        self.append(proto, schema)
        return made

    def append(self, proto: Any, schema: Any = None) -> None:
        """Append a finished node and infer the types of its outputs."""
        for key, value in (("link", self.link), ("function", self.label)):
            if value:
                proto.metadata_props.add(key=f"kusari.{key}", value=value)
        self.nodes.append(proto)
        if schema is not None:
            self._infer(proto, schema)

    def fresh(self, stem: str) -> str:
        """Return a name that nothing has yet: ``Gemm_0``."""
        while True:
            number = self._counts.get(stem, 0)
            self._counts[stem] = number + 1
            name = f"{stem}_{number}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def free(self, name: str) -> str:
        """Return a name that nothing has yet: ``name`` itself, or with a number."""
        if name in self._taken:
            return self.fresh(name)
        self._taken.add(name)
        return name

    def rename(self, names: dict[str, str], since: int) -> None:
        """Give values that nodes make other names; only nodes from number ``since`` on know them."""
        for proto in self.nodes[since:]:
            for present in (proto.input, proto.output):
                present[:] = [names.get(name, name) for name in present]
        self.types.update({new: self.types.pop(old) for old, new in names.items() if old in self.types})
        self.writes = {state: names.get(name, name) for state, name in self.writes.items()}

    def rewind(self, count: int) -> None:
        """Forget all but the first ``count`` nodes."""
        del self.nodes[count:]

    def _schema(self, operator: str, domain: str) -> Any:
        if domain:
            return None
        defs = self.onnx.defs
        try:
            schema = defs.get_schema(operator, self.opset, domain)
        except Exception:
            raise NoForm(f"opset {self.opset} has no operator {operator}") from None
        if schema.deprecated:
            raise NoForm(f"operator {operator} is deprecated in opset {self.opset}")
        return schema

    def _attribute(self, operator: str, key: str, value: Any) -> Any:
        if operator in ("Cast", "RandomUniformLike", "RandomNormalLike") and key in ("to", "dtype"):
            return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value))
        if isinstance(value, np.ndarray):
            return self.onnx.numpy_helper.from_array(value)
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, bool):
            return int(value)
        return list(value) if isinstance(value, tuple) else value

    def type_proto(self, t: TensorType) -> Any:
        """Return a type in ONNX's terms."""
        helper = self.onnx.helper
        return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(t.dtype), t.shape)

    def _infer(self, proto: Any, schema: Any) -> None:
        present = [n for n in dict.fromkeys(proto.input) if n]
        if any(n not in self.types for n in present):
            return
        types = {n: self.type_proto(self.types[n]) for n in present}
        data = {n: self.onnx.numpy_helper.from_array(self.constants[n], n) for n in present
                if n in self.constants and self.constants[n].size <= _SMALL}
        opset = self.onnx.helper.make_opsetid("", self.opset)
        try:
            found = self.onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=[opset], ir_version=IR_VERSIONS[self.opset])
        except Exception as error:
            if isinstance(error, (TypeError, AttributeError)):
                raise
            raise NoForm(f"{proto.op_type} does not fit its inputs: {str(error).strip()}") from None
        for name, kind in found.items():
            tensor = kind.tensor_type
            if name and kind.HasField("tensor_type") and tensor.HasField("shape") and all(
                    d.HasField("dim_value") for d in tensor.shape.dim):
                dtype = self.onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                self.types[name] = tensor_type(dtype, tuple(d.dim_value for d in tensor.shape.dim))
