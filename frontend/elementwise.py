"""Elementwise functions: one definition gives the value, the gradients, the compiler's tree and the ONNX form.

>>> import numpy as np
>>> import kusari.functions as F
>>> F.relu(np.array([-1.0, 2.0], dtype=np.float32)).array.tolist()
[0.0, 2.0]
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kusari.ir import SCALAR, Arg, Call, Expr, Symbol, cast_name, substitute, used_args, walk
from kusari.ir.symbol import derivative, expr_of

from . import backend
from .backends import cuda
from .broadcasting import broadcast_to, sum_to
from .callsite import user_location
from .errors import ArrayTypeError
from .function_names import class_name, shown_label
from .function_node import FunctionNode
from .lazy import lazy
from .pytorch_keywords import ending
from .symbolic import python_function
from .utils import type_check
from .utils.arrays import AS_ARRAY

_GY, _Y = -2, -1  # what a gradient reads besides inputs (0, 1, …): the output's gradient and the output


class Body:
    """The formula of one elementwise node, with its literals and keyword attributes bound.

    Invariant: immutable; nodes with equal definitions share one body, so trees and gradients are made once.
    """

    def __init__(self, label: str, arity: int, fn: Callable[..., Any], tree: Expr | None = None, onnx: Any = None,
                 rule: Callable[..., Any] | None = None, attrs: dict[str, Any] | None = None,
                 names: tuple[str, ...] = (), kind: str | None = None, literals: tuple[Any, ...] = ()) -> None:
        self.names = names
        self.kind = kind
        self.label = label
        self.literals = literals  # in the place of inputs, None for an input
        self.arity = arity
        self.fn = fn
        self.onnx = onnx
        self.attrs = attrs or {}
        self._tree = tree
        self._rule = rule
        self._gradients: tuple[tuple[Body, tuple[int, ...]] | None, ...] | None = None
        self._kernels: dict[Any, Any] = {}

    def compute(self, arrays: tuple[Any, ...]) -> Any:
        """The value for arrays of other kinds than NumPy's; on a card it is one kernel."""
        if not cuda.is_cupy_array(arrays[0]):
            xp = backend.get_array_module(*arrays)
            return xp.asanyarray(self.fn(xp, *arrays))
        dtypes = tuple([x.dtype for x in arrays])
        kernel = self._kernels.get(dtypes)
        if kernel is None:
            kernel = self._kernels[dtypes] = cuda.map_kernel([self.tree], dtypes, self.label)
        return kernel(*arrays)

    @property
    def tree(self) -> Expr:
        """The expression over the inputs."""
        if self._tree is None:
            self._tree = expr_of(self.fn(SCALAR, *(Symbol(Arg(i)) for i in range(self.arity))))
        return self._tree

    @property
    def gradients(self) -> tuple[tuple[Body, tuple[int, ...]] | None, ...]:
        """For each input the body of its gradient and what that reads (``_GY``, ``_Y``, input numbers), or None."""
        if self._gradients is None:
            n = self.arity
            gy, y, xs = Arg(0), Arg(1), [Arg(2 + i) for i in range(n)]
            if self._rule is not None:
                made = self._rule(SCALAR, Symbol(gy), Symbol(y), *(Symbol(x) for x in xs))
                trees = [None if g is None else expr_of(g) for g in made]
            else:
                shifted = substitute(self.tree, xs)
                # A derivative that contains the value itself reads the output rather than computing it again.
                trees = [_replace(g, shifted, y) if (g := derivative(shifted, 2 + i, gy)) is not None else None
                         for i in range(n)]
            self._gradients = tuple(None if t is None else self._gradient(t) for t in trees)
        return self._gradients

    def _gradient(self, tree: Expr) -> tuple[Body, tuple[int, ...]]:
        used = used_args(tree) or (0,)
        compact = substitute(tree, [Arg(used.index(i)) if i in used else Arg(i) for i in range(2 + self.arity)])
        body = Body(f"{self.label}Grad", len(used), python_function(compact, len(used)), compact)
        return body, tuple(i - 2 for i in used)

    @lazy
    def retained(self) -> tuple[tuple[int, ...], bool]:
        """The inputs the gradients read, and whether they read the output."""
        reads = {i for g in self.gradients if g is not None for i in g[1]}
        return tuple(sorted(i for i in reads if i >= 0)), _Y in reads


def _replace(expr: Expr, old: Expr, new: Expr) -> Expr:
    done: dict[Expr, Expr] = {}
    for e in walk(expr):
        if isinstance(e, Call):
            args = tuple([done[a] for a in e.args])
            done[e] = new if e == old else e if args == e.args else Call(e.fn, args)
        else:
            done[e] = e
    return done[expr]


class Elementwise(FunctionNode):
    """The function node of every elementwise function; all it knows is its body."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    @property
    def label(self) -> str:
        return shown_label(self.body.label, self.body.literals)

    @property
    def _impl_name(self) -> str:
        return class_name(self.body.label, self.body.literals)

    def __getattr__(self, name: str) -> Any:
        """Return a static argument, as ``slope``, or as ``value`` the number among the operands."""
        body: Body | None = self.__dict__.get("body")
        if body is not None:
            if name in body.attrs:
                return body.attrs[name]
            value = next((v for v in body.literals if v is not None), None)
            if name == "value" and value is not None:
                return value
        raise AttributeError(f"{self.__class__.__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def check_type_forward(self, in_types: Any) -> None:
        body = self.body
        if body.kind is None:
            return
        type_check.argname(in_types, body.names)
        first = in_types[0]
        if body.kind:
            type_check.expect(first.dtype.kind == body.kind[0])
        for other in in_types[1:]:
            type_check.expect(first.dtype == other.dtype)
            if body.kind == "f=":
                type_check.expect(first.shape == other.shape)
            elif (first.shape == other.shape) is not True:  # expressions of shapes compare to one more expression
                type_check.expect_broadcast_shapes("inputs", first.shape, other.shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        body = self.body
        if type(inputs[0]) is np.ndarray:
            y = body.fn(np, *inputs)
            if type(y) is not np.ndarray:
                y = np.asanyarray(y)
        else:
            y = body.compute(inputs)
        inputs_read, output_read = body.retained
        if inputs_read:
            self.retain_inputs(inputs_read)
        if output_read:
            self.retain_outputs((0,))
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        body = self.body
        inputs_read, output_read = body.retained
        values = dict(zip(inputs_read, self.get_retained_inputs(), strict=True)) if inputs_read else {}
        values[_GY] = grad_outputs[0]
        if output_read:
            values[_Y], = self.get_retained_outputs()
        grads = []
        for i in indexes:
            gradient = body.gradients[i]
            if gradient is None:
                grads.append(None)
                continue
            g, reads = gradient
            node = self.inputs[i]
            gx = values[_GY] if g.tree == Arg(0) and reads == (_GY,) else Elementwise(g).apply(
                tuple([values[k] for k in reads]))[0]
            grads.append(_fit(gx, node.shape, node.dtype))
        return tuple(grads)

    def lower(self, b: Any, *xs: Any) -> tuple[Any, ...]:
        return b.map(self.body.tree, *xs),

    def gradient(self, b: Any, inputs: Any, outputs: Any, gys: Any) -> tuple[Any, ...]:
        """The gradients of the inputs, inside a formula."""
        values = {**dict(enumerate(inputs)), _GY: gys[0], _Y: outputs[0]}
        return tuple([None if g is None else b.cast(
            b.sum_to(b.map(g[0].tree, *[values[k] for k in g[1]]), x.shape), x.tensor.dtype)
            for x, g in zip(inputs, self.body.gradients, strict=True)])

    def onnx(self, g: Any, *xs: str) -> Any:
        form = self.body.onnx
        if isinstance(form, str):
            # Operators take one dtype, and round differently where it is not floating.
            dtypes = {g.type(x).dtype for x in xs}
            if len(dtypes) > 1 or dtypes.pop().kind != "f":
                form = None
        if form is None:
            return g.expression(self.body.tree, *xs)
        if isinstance(form, str):
            return getattr(g, form)(*xs)
        return form(g, *xs, **self.body.attrs)


def _fit(gx: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Sum a gradient over broadcast axes and give it the dtype of its input."""
    if gx.dtype != dtype:
        gx = cast_body(dtype)(gx)
    if gx.shape != shape:
        shrinks = gx.ndim >= len(shape) and all(
            n in (1, g) for g, n in zip(gx.shape[gx.ndim - len(shape):], shape, strict=True))
        gx = sum_to(gx, shape) if shrinks else broadcast_to(gx, shape)
    return gx


@functools.cache
def cast_body(dtype: Any) -> Callable[[Any], Any]:
    """Return the function that casts a Variable to ``dtype``."""
    name = np.dtype(dtype).name
    tree = Call(cast_name(np.dtype(dtype)), (Arg(0),))
    body = Body("Cast", 1, lambda xp, x: x.astype(name), tree, onnx=lambda g, x: g.Cast(x, to=name),
                rule=lambda xp, gy, y, x: (gy,))  # _fit casts the gradient back
    return lambda x: Elementwise(body).apply((x,))[0]


class ElementwiseFunction:
    """A public elementwise function; made by ``elementwise``."""

    __name__: str

    def __init__(self, fn: Callable[..., Any], label: str, onnx: Any, kind: str | None) -> None:
        functools.update_wrapper(self, fn)
        self.kind = kind
        self.label = label
        self.onnx = onnx
        self._fn = fn
        self._rule: Callable[..., Any] | None = None
        self._bodies: dict[Any, Body] = {}
        parameters = list(inspect.signature(fn).parameters.values())[1:]
        self.inputs = tuple(p.name for p in parameters if p.default is p.empty)
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.__signature__ = inspect.Signature([p.replace(annotation=p.empty) for p in parameters])

    def gradient(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: ``rule(xp, gy, y, *inputs, **attrs)`` gives one gradient (or None) per input."""
        self._rule = rule
        return rule

    def body(self, literals: tuple[Any, ...], attrs: dict[str, Any]) -> Body:
        """Return the shared body for inputs of which some are literals (``None`` marks a true input)."""
        key = (tuple((type(v), repr(v)) for v in literals), tuple((k, type(v), repr(v)) for k, v in attrs.items()))
        body = self._bodies.get(key)
        if body is None:
            if len(self._bodies) >= 1024:  # a literal that is new at every call must not fill the memory
                self._bodies.clear()
            body = self._bodies[key] = self._bind(literals, attrs)
        return body

    def _bind(self, literals: tuple[Any, ...], attrs: dict[str, Any]) -> Body:
        free = [i for i, v in enumerate(literals) if v is None]
        fn, rule = self._fn, self._rule

        def full(xs: Any) -> list[Any]:
            it = iter(xs)
            return [next(it) if v is None else v for v in literals]

        if len(free) == len(literals) and not attrs:
            value = fn
        else:
            def value(xp: Any, *xs: Any) -> Any:
                return fn(xp, *full(xs), **attrs)
        bound: Callable[..., Any] | None = None
        if rule is not None:
            def bound_rule(xp: Any, gy: Any, y: Any, *xs: Any) -> Any:
                grads = rule(xp, gy, y, *full(xs), **attrs)
                return tuple(grads[i] for i in free)
            bound = bound_rule
        onnx = self.onnx
        if onnx is not None and len(free) < len(literals):
            onnx = None  # the tree, with its constants in place, exports itself
        names = tuple(self.inputs[i] for i in free)
        return Body(self.label, len(free), value, None, onnx, bound, attrs, names, self.kind, literals)

    def __call__(self, *xs: Any, **attrs: Any) -> Any:
        if attrs or len(xs) != len(self.inputs):
            try:
                attrs = self.__signature__.bind(*xs, **attrs).arguments
            except TypeError as error:
                more = "".join([ending((self.__name__,), name, self) for name in attrs])
                raise TypeError(f"{self.__name__}{self.__signature__}: {error}{more}") from None
            xs = tuple([attrs.pop(name) for name in self.inputs])
            attrs = {k: v.item() if isinstance(v, (np.generic, np.ndarray)) and v.ndim == 0 else v
                     for k, v in attrs.items()}
        if self.defaults:
            attrs = {**self.defaults, **attrs}
        literals = tuple([literal_of(x) for x in xs])
        arrays = xs if literals == _NO_LITERALS[len(xs)] else tuple(
            [x for x, v in zip(xs, literals, strict=True) if v is None])
        if not arrays:
            raise ArrayTypeError(f"{self.__name__} was given no array.\n{AS_ARRAY}\nApplied at: {user_location()}")
        return Elementwise(self.body(literals, attrs)).apply(arrays)[0]

    def of(self, b: Any, *xs: Any) -> Any:
        """The function of values, inside a formula."""
        return b.apply(Elementwise(self.body(_NO_LITERALS[len(xs)], self.defaults)), *xs)[0]

    def __repr__(self) -> str:
        return f"<elementwise function {self.__name__}>"

    def __reduce__(self) -> str:
        # Copied and pickled by name, as any function: models hold it among their layers.
        return self.__name__


class HalfWidened(ElementwiseFunction):
    """An elementwise function of one input that is computed in float32 where that is float16.

    Its formula has many steps, or cancels: rounded to float16 at each, the result would be several digits short.
    """

    def __init__(self, fn: Callable[..., Any], label: str, onnx: Any, kind: str | None) -> None:
        super().__init__(fn, label, onnx, kind)
        self._half = ElementwiseFunction(lambda xp, x: fn(xp, x.astype("float32")).astype("float16"), label, onnx, kind)

    def gradient(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        self._half.gradient(lambda xp, *values: tuple(
            [g.astype("float16") for g in rule(xp, *[v.astype("float32") for v in values])]))
        return super().gradient(rule)

    def __call__(self, *xs: Any, **attrs: Any) -> Any:
        if len(xs) == 1 and getattr(xs[0], "dtype", None) == np.float16:
            return self._half(*xs, **attrs)
        return super().__call__(*xs, **attrs)

    def of(self, b: Any, *xs: Any) -> Any:
        return self._half.of(b, *xs) if xs[0].tensor.dtype == np.float16 else super().of(b, *xs)


_NO_LITERALS = [(None,) * n for n in range(16)]
_PLAIN = frozenset({bool, int, float})
_NUMBERS = (int, float, np.generic)


def literal_of(x: Any) -> Any:
    """Return the Python scalar that ``x`` is, or None when it is an array or a Variable."""
    if type(x) in _PLAIN:
        return x
    if not isinstance(x, _NUMBERS):
        return None
    if isinstance(x, np.generic):
        return x.item()
    # Members of an enumeration and the like: formulas are written from the text of their literals.
    return int.__int__(x) if isinstance(x, int) else float.__float__(x)


def elementwise(label: str, onnx: Any = None, kind: str | None = None,
                half: bool = True) -> Callable[[Callable[..., Any]], ElementwiseFunction]:
    """Make a function of arrays elementwise over Variables.

    The decorated ``fn(xp, *inputs, **attrs)`` computes with ``xp`` (NumPy, CuPy, or ``SCALAR`` to build its tree);
    parameters with defaults are static attributes, scalars. Inputs broadcast; Python scalars become literals.
    ``onnx`` is an operator's name or ``callable(g, *inputs, **attrs)``; without it the tree is exported.
    With ``kind="f"`` the inputs must be floating, of one dtype and broadcast together, with ``kind=""`` only the
    latter two, with ``kind="f="`` of one shape; otherwise NumPy decides. Without ``half`` the steps of a function of
    one input are not rounded to float16.
    """
    def decorate(fn: Callable[..., Any]) -> ElementwiseFunction:
        return (ElementwiseFunction if half else HalfWidened)(fn, label, onnx, kind)
    return decorate


__all__ = ["Body", "Elementwise", "ElementwiseFunction", "elementwise", "cast_body"]
