"""Comparing gradients with finite differences."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .backend import get_array_module
from .backends.cuda import array_to_cpu
from .backprop import backward, grad
from .configuration import using_config
from .errors import KusariError
from .function_node import FunctionNode
from .functions import broadcast_to, cast
from .variable import Variable, as_array

__all__ = ["NondifferentiableError", "check_backward", "check_double_backward", "numerical_grad"]


class NondifferentiableError(KusariError):
    """A numerical gradient was asked for where the function seems not to be differentiable."""


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _float64(value: Any) -> Any:
    """A copy of an array, a Variable's or a number as one, in float64; None for None."""
    if value is None:
        return None
    return numpy.array(value, numpy.float64) if numpy.isscalar(value) else as_array(value).astype(numpy.float64)


def numerical_grad(
    f: Callable[[], Sequence[Any]],
    inputs: Sequence[Any],
    grad_outputs: Sequence[Any],
    eps: float = 1e-3,
    detect_nondifferentiable: bool = False,
    diff_atol: float = 0,
    diff_rtol: float = 1e-2,
    center_outputs: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """Compute gradients of ``sum(f() * grad_outputs)`` by central differences.

    Args:
        f: A function without arguments that returns a tuple of arrays, computed from the current values of `inputs`.
        inputs (tuple of arrays): What to differentiate with respect to. Values are changed and restored in place.
        grad_outputs (tuple of arrays): Weights of the outputs; None leaves an output out.
        eps (float): The step.
        detect_nondifferentiable (bool): Look for kinks: five outputs around each point must lie on a parabola.
        diff_atol (float): Absolute tolerance of that.
        diff_rtol (float): Tolerance of that relative to the outputs' range.
        center_outputs (tuple of arrays): The outputs at the point itself, when they are known already.

    Returns:
        tuple of arrays: Gradients, of the inputs' shapes and data types.

    Raises:
        NondifferentiableError: A kink was found.
        AssertionError: `eps` is not positive.
        ValueError: The numbers of outputs and of `grad_outputs` differ.

    Example:
        >>> x = numpy.array([1.0, 3.0])
        >>> gx, = numerical_grad(lambda: (x * x,), (x,), (numpy.ones(2),))
        >>> gx.round(4)
        array([2., 6.])
    """
    if not eps > 0:
        raise AssertionError(f"eps must be positive, got {eps}")
    if center_outputs is None:
        center_outputs = f() if detect_nondifferentiable else ()
    center = [None if y is None else numpy.array(as_array(y), numpy.float64) for y in center_outputs]

    def outputs() -> list[Any]:
        found = f()
        if len(found) != len(grad_outputs):
            raise ValueError(f"f returned {len(found)} outputs, but there are {len(grad_outputs)} grad_outputs.")
        # A copy: f may return its input or one buffer again and again.
        return [_float64(y) for y in found]

    def difference(array: Any, index: tuple[int, ...], where: tuple[int, int]) -> float:
        original = array[index].copy()

        def at(offset: float) -> list[Any]:
            array[index] = original + offset
            found = outputs()
            array[index] = original
            return found

        low, high = at(-eps), at(eps)
        if detect_nondifferentiable:
            _check_smooth([at(-eps / 2), center, at(eps / 2)], low, high, index, where, (eps, diff_atol, diff_rtol))
        total = 0.0
        for y_low, y_high, gy in zip(low, high, grad_outputs, strict=True):
            if gy is not None and y_low is not None:
                total += float(((y_high - y_low) * _float64(gy)).sum()) / (2 * eps)
        return total

    grads: list[Any] = []
    for number, array in enumerate(inputs):
        xp = get_array_module(array)
        gradient = xp.zeros_like(array)
        for index in numpy.ndindex(array.shape):
            gradient[index] = difference(array, index, (number, len(inputs)))
        grads.append(gradient)
    return tuple(grads)


def _check_smooth(
    middle: list[Any], low: list[Any], high: list[Any], index: tuple[int, ...], where: tuple[int, int],
    tolerances: tuple[float, float, float],
) -> None:  # fmt: skip
    """Raise unless the outputs at five equidistant points lie close to a parabola."""
    eps, atol, rtol = tolerances
    points = numpy.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    for number, values in enumerate(zip(low, *middle, high, strict=True)):
        if any(y is None for y in values):
            continue
        ys = numpy.stack([numpy.asarray(array_to_cpu(y)).ravel() for y in values])
        finite = numpy.isfinite(ys)
        ok = finite.all(axis=0)
        if (finite.any(axis=0) & ~ok).any():
            raise NondifferentiableError(
                "Tried to compute the numeric gradient on a non-differentiable point: there are values that are not "
                f"finite next to finite ones.\ninput: {where[0]} of {where[1]}\nindex on it: {index}\noutput: {number}"
            )
        if not ok.any():
            continue
        ys = ys[:, ok]
        fit = numpy.polynomial.polynomial.polyfit(points, ys, 2)
        errors = numpy.sqrt(((numpy.polynomial.polynomial.polyval(points, fit).T - ys) ** 2).mean(axis=0))
        limit = atol + rtol * (ys.max(axis=0) - ys.min(axis=0))
        if (errors > numpy.maximum(limit, 1e-12 * (1 + abs(ys).max(axis=0)))).any():
            raise NondifferentiableError(
                "Tried to compute the numeric gradient on a non-differentiable point.\n"
                f"input: {where[0]} of {where[1]}\nindex on it: {index}\noutput: {number}\neps: {eps}\n"
                f"diff_atol: {atol}\ndiff_rtol: {rtol}\nlimit: {limit}\nfitting errors: {errors}"
            )


def check_backward(
    func: Callable[..., Any],
    x_data: Any,
    y_grad: Any,
    params: Any = (),
    eps: float = 1e-3,
    atol: float = 1e-5,
    rtol: float = 1e-4,
    no_grads: Sequence[bool] | None = None,
    dtype: Any = None,
    detect_nondifferentiable: bool = False,
) -> None:
    """Check a function's backward computation against finite differences along a random direction.

    One direction in the space of all inputs and parameters is drawn with numpy's global generator; the derivative along
    it is computed both ways and compared.

    Args:
        func: Takes variables and returns a variable or a tuple of variables.
        x_data (array or tuple of arrays): The inputs; None inputs are passed as they are.
        y_grad (array or tuple of arrays): Gradients of the outputs; None where the only output has no dimensions.
        params (Variable or tuple of Variable): Parameters that `func` also depends on.
        eps (float): The step, in the norm of the direction.
        atol (float): Absolute tolerance.
        rtol (float): Relative tolerance.
        no_grads (list of bool): For each input whether it has no gradient; by default those of integers have none.
            A gradient that is missing elsewhere counts as zero.
        dtype: Floating point type in which the numerical derivative is computed, such as ``numpy.float64``: inputs and
            `params` are cast to it, and functions do not check types. The backward computation has the dtypes given.
        detect_nondifferentiable (bool): Look for kinks, see `numerical_grad`.

    Raises:
        AssertionError: The two derivatives differ.
        RuntimeError: There is a gradient where `no_grads` says there is none.
        NondifferentiableError: A kink was found.
        ValueError: `y_grad` does not fit the outputs.
    """
    xs = list(_tuple(x_data))
    params = _tuple(params)
    if dtype is not None and numpy.dtype(dtype).kind != "f":
        raise ValueError(f"dtype must be a floating point type, not {dtype}.")
    skip = [x is None or x.dtype.kind != "f" for x in xs] if no_grads is None else list(no_grads)
    if len(skip) != len(xs):
        raise ValueError(f"no_grads has {len(skip)} items, but there are {len(xs)} inputs.")
    _check_direction(func, xs, y_grad, params, skip, (eps, atol, rtol), dtype, detect_nondifferentiable)


def _check_direction(
    func: Callable[..., Any], xs: list[Any], y_grad: Any, params: tuple[Any, ...], skip: list[bool],
    settings: tuple[float, float, float], dtype: Any, detect: bool,
) -> None:  # fmt: skip
    eps, atol, rtol = settings
    variables = [None if x is None else Variable(_copied(x), requires_grad=x.dtype.kind == "f") for x in xs]
    for p in params:
        p.cleargrad()
    ys = _tuple(func(*variables))
    gys = _output_gradients(ys, y_grad)
    started = [(y, Variable(g)) for y, g in zip(ys, gys, strict=True)
               if g is not None and (y.creator_node is not None or y.requires_grad)]
    backward([y for y, _ in started], [g for _, g in started])

    names = [f"inputs[{i}]" for i in range(len(xs))] + [f"params[{i}]" for i in range(len(params))]
    chosen: list[tuple[str, Any]] = []
    for name, variable, skipped in zip(names, [*variables, *params], [*skip, *[False] * len(params)], strict=True):
        if variable is None:
            continue
        if not skipped:
            chosen.append((name, variable))
        elif variable.grad is not None:
            raise RuntimeError(f"{name}, which no_grads says has no gradient (as integers have none), got one.")
    if not chosen:
        return

    directions = [numpy.random.normal(size=v.shape) for _, v in chosen]
    norm = math.sqrt(sum(float((d * d).sum()) for d in directions))
    directions = [d / norm for d in directions]
    centers = [v.array.copy() for _, v in chosen]
    step = numpy.zeros((), numpy.float64)
    if dtype is not None:
        for v in variables:
            if v is not None and v.array.dtype.kind == "f":
                v.array = v.array.astype(dtype)

    def shifted() -> tuple[Any, ...]:
        for (_, v), center, d in zip(chosen, centers, directions, strict=True):
            xp = get_array_module(center)
            moved = xp.asarray(center.astype(numpy.float64) + xp.asarray(d) * float(step))
            v.array = moved.astype(center.dtype if dtype is None else dtype)
        # Fresh variables: the graph of the first call must not be touched.
        fresh = [None if v is None else Variable(v.array, requires_grad=v.requires_grad) for v in variables]
        with using_config("type_check", False):
            return tuple([as_array(y) for y in _tuple(func(*fresh))])

    try:
        (numeric,) = numerical_grad(
            shifted, (step,), gys, eps=eps, detect_nondifferentiable=detect,
        )  # fmt: skip
    finally:
        for (_, v), center in zip(chosen, centers, strict=True):
            v.array = center
    computed = sum([0.0 if v.grad is None else float((array_to_cpu(_float64(v.grad)) * d).sum())
                    for (_, v), d in zip(chosen, directions, strict=True)])
    if not numpy.isclose(computed, float(numeric), rtol, atol, equal_nan=True):
        lines = [f"check_backward failed (eps={eps} atol={atol} rtol={rtol})"]
        lines += [f"{name}:\n{v.array}" for name, v in chosen]
        lines += [f"grad_outputs[{i}]:\n{g}" for i, g in enumerate(gys)]
        lines += [f"directions[{i}]:\n{d}" for i, d in enumerate(directions)]
        lines += [f"gradients (numeric):  {float(numeric)}", f"gradients (backward): {computed}"]
        raise AssertionError("\n".join(lines))


def _copied(x: Any) -> Any:
    """Return a copy of an array that is contiguous if the array is, so that functions are tried on such inputs."""
    flags = getattr(x, "flags", None)
    return x.copy() if flags is None or flags.c_contiguous or not x.ndim else x.repeat(2, axis=-1)[..., ::2]


def _output_gradients(ys: tuple[Any, ...], y_grad: Any) -> list[Any]:
    """Return one gradient per output, of the output's shape and data type."""
    if y_grad is None:
        if len(ys) != 1 or ys[0].shape != ():
            shapes = ", ".join(str(y.shape) for y in ys)
            raise ValueError(
                "y_grad argument cannot be omitted if the target function is not a loss function, which has a single "
                f"output with shape ().\nActual output shapes: {shapes}"
            )
        return [ys[0].xp.ones_like(ys[0].array)]
    gys = list(_tuple(y_grad))
    if len(gys) != len(ys):
        raise ValueError(f"y_grad has {len(gys)} gradients, but the function has {len(ys)} outputs.")
    if any(g is not None and (g.shape != y.shape or g.dtype != y.dtype) for y, g in zip(ys, gys, strict=True)):
        outputs = ", ".join(f"{y.shape}:{y.dtype}" for y in ys)
        grads = ", ".join("None" if g is None else f"{g.shape}:{g.dtype}" for g in gys)
        raise ValueError(
            "Shapes and/or dtypes of outputs and output gradients do not match.\n"
            f"Output shapes and dtypes         : {outputs}\nOutput gradient shapes and dtypes: {grads}"
        )
    return gys


class _FirstOrder:
    """The gradients of a function as a function of its inputs and of the gradients of its outputs."""

    def __init__(self, func: Callable[..., Any], params: tuple[Any, ...], skip: list[bool], count: int) -> None:
        self.func = func
        self.params = params
        self.skip = skip
        self.count = count

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        # Copies in the graph: a gradient that is left at a leaf must not be mistaken for the second one.
        xs, gys = args[: self.count], args[self.count :]
        ys = _tuple(self.func(*xs))
        wanted = [x for x, skipped in zip(xs, self.skip, strict=True) if x is not None and not skipped]
        pairs = [(y, g) for y, g in zip(ys, gys, strict=True) if g is not None]
        found = grad(
            [y for y, _ in pairs], [*wanted, *self.params], [g for _, g in pairs], enable_double_backprop=True
        )
        return tuple([
            Variable(v.xp.zeros_like(v.array)) if g is None else g
            for v, g in zip([*wanted, *self.params], found, strict=True)
        ])  # fmt: skip


def check_double_backward(
    func: Callable[..., Any],
    x_data: Any,
    y_grad: Any,
    x_grad_grad: Any,
    params: Any = (),
    params_grad_grad: Any = (),
    eps: float = 1e-3,
    atol: float = 1e-4,
    rtol: float = 1e-3,
    no_grads: Sequence[bool] | None = None,
    dtype: Any = None,
    detect_nondifferentiable: bool = False,
) -> None:
    """Check second-order gradients: `check_backward` of the function that computes the gradients.

    Args:
        func: Takes variables and returns a variable or a tuple of variables.
        x_data (array or tuple of arrays): The inputs.
        y_grad (array or tuple of arrays): Gradients of the outputs.
        x_grad_grad (array or tuple of arrays): Gradients of the gradients of the inputs; those of inputs that have no
            gradient may be left out.
        params (Variable or tuple of Variable): Parameters that `func` also depends on.
        params_grad_grad (array or tuple of arrays): Gradients of the gradients of the parameters.
        eps (float): The step.
        atol (float): Absolute tolerance.
        rtol (float): Relative tolerance.
        no_grads (list of bool): For each input whether it has no gradient.
        dtype: Floating point type in which numerical derivatives are computed.
        detect_nondifferentiable (bool): Look for kinks.

    Raises:
        AssertionError: The derivatives differ, or there are none to compare.
    """
    xs, params, gys = _tuple(x_data), _tuple(params), _tuple(y_grad)
    skip = [x is None or x.dtype.kind != "f" for x in xs] if no_grads is None else list(no_grads)
    ggxs = _tuple(x_grad_grad)
    if len(ggxs) != skip.count(False):  # else inputs without a gradient are left out
        ggxs = [g for g, skipped in zip(ggxs, skip, strict=True) if not skipped]
    ggs = (*ggxs, *_tuple(params_grad_grad))
    gys = tuple([None if g is None else as_array(g) for g in gys])
    first = _FirstOrder(func, params, skip, len(xs))
    # A gradient that depends on nothing (of a linear function) is a leaf and gets none itself.
    grads = [*skip, *[g is None for g in gys]]

    def complete(*args: Any) -> tuple[Any, ...]:
        # A zero joins every input to the graph, so that linear functions have second-order gradients: zeros.
        found = first(*args)
        link = None
        for v in [*(a for a, s in zip(args, grads, strict=True) if not s), *params]:
            term = _Zero().apply((v,))[0]
            link = term if link is None else link + cast(term, link.dtype)
        return found if link is None else tuple([_add_zero(g, link) for g in found])

    try:
        check_backward(
            complete, (*xs, *gys), tuple(ggs), params, eps, atol, rtol, grads, dtype, detect_nondifferentiable
        )
    except AssertionError as error:
        raise AssertionError(f"check_double_backward failed: {error}") from None


class _Zero(FunctionNode):
    """The number 0 as a function of anything, NaN included."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (get_array_module(inputs[0]).zeros((), inputs[0].dtype),)

    def backward(self, target_input_indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        gy, x = grad_outputs[0], self.inputs[0]
        return (Variable(get_array_module(gy).zeros(x.shape, x.dtype)),)


def _add_zero(gradient: Any, zero: Any) -> Any:
    return gradient + broadcast_to(cast(zero, gradient.dtype), gradient.shape)
