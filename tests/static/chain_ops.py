"""The functions that random chains are made of.

Each is called with the chain (or a link of its own), a tuple of random numbers and the Variables it is applied to; it
suits itself to their shapes, whatever they are, so that one chain can be called with any.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L

LARGEST = 400  # elements of a value: what is larger is cut
WIDE = 4       # the length of the axes that have parameters
Op = Callable[..., Any]
OPS: dict[str, tuple[int, Op, Callable[[], Any] | None]] = {}  # name: number of operands, function, its link


class Now:
    """What a call is given besides the arrays that functions are applied to."""

    def __init__(self, chain: Any, labels: Any, mask: Any) -> None:
        self.alpha = chain.alpha
        self.flag = chain.flag
        self.setting = chain.setting
        self.labels = labels
        self.mask = mask


def op(arity: int, link: Callable[[], Any] | None = None) -> Callable[[Op], Op]:
    """Enter a function into the table."""
    def enter(f: Op) -> Op:
        OPS[f.__name__] = arity, f, link
        return f
    return enter


def small(x: Any) -> Any:
    """Cut what has become too large."""
    if x.size > LARGEST:
        x = x[:max(1, x.shape[0] * LARGEST // x.size)]
    while x.ndim > 4:
        x = F.mean(x, axis=0) if x.shape[0] else F.sum(x, axis=0)
    return x


def fit_axis(x: Any, axis: int, n: int) -> Any:
    """Make an axis as long as it has to be."""
    have = x.shape[axis]
    if have == n:
        return x
    if have == 0:
        return F.broadcast_to(F.sum(x, axis=axis, keepdims=True), (*x.shape[:axis], n, *x.shape[axis + 1:]))
    if have < n:
        x = F.tile(x, (*(1,) * axis, -(-n // have), *(1,) * (x.ndim - axis - 1)))
    return x[(*(slice(None),) * axis, slice(0, n))]


def fit(x: Any, *shape: int | None) -> Any:
    """Make an array have a shape; axes that are None keep their length."""
    while x.ndim < len(shape):
        x = F.expand_dims(x, 0 if len(shape) % 2 else -1)
    if x.ndim > len(shape):
        lead = x.shape[:len(shape) - 1]
        x = F.reshape(x, (*lead, math.prod(x.shape[len(shape) - 1:])))
    for axis, n in enumerate(shape):
        if n is not None:
            x = fit_axis(x, axis, n)
    return x


def like(y: Any, x: Any, r: int) -> Any:
    """Make ``y`` broadcast against ``x``, in the same dtype."""
    y = F.cast(y, x.dtype)
    try:
        if math.prod(np.broadcast_shapes(x.shape, y.shape)) <= LARGEST:
            return y
    except ValueError:
        pass
    if r % 3 == 0 or not y.size:
        return F.sum(y)
    if r % 3 == 1 and x.ndim:
        return fit(y, x.shape[-1])
    return fit(y, *x.shape) if x.ndim else F.mean(y)


def axis_of(x: Any, r: int) -> int:
    """Choose an axis, from the front or from the back."""
    return r % (2 * x.ndim) - x.ndim


def axes_of(x: Any, r: int) -> Any:
    """Choose one, several or all axes."""
    if x.ndim == 0 or r % 4 == 0:
        return None
    if r % 4 == 1 and x.ndim > 1:
        return tuple(sorted({r // 4 % x.ndim, r // 16 % x.ndim}))
    return axis_of(x, r // 4)


def at_least(x: Any, n: int) -> Any:
    """Give a value as many axes."""
    while x.ndim < n:
        x = F.expand_dims(x, -1)
    return x


UNARY: tuple[Callable[[Any], Any], ...] = (
    F.relu, F.sigmoid, F.tanh, F.softplus, F.elu, F.leaky_relu, F.sin, F.cos, F.arctan, F.erf, F.absolute, F.square,
    F.hard_sigmoid, F.relu6, F.selu, F.erfc, F.ndtr, F.identity,
    lambda x: F.sqrt(x * x + 0.1), lambda x: F.exp(F.tanh(x)), lambda x: F.log(x * x + 0.5),
    lambda x: 1 / (x * x + 0.5), lambda x: F.tanh(x) ** 3, lambda x: F.rsqrt(F.square(x) + 0.3),
    lambda x: F.expm1(F.sin(x)), lambda x: F.log1p(abs(x)), lambda x: (2 - x * 3 + 1) / 4 - 1.5,
    lambda x: F.clip(x, -1.0, 1.1), lambda x: F.clipped_relu(x, 1.5), lambda x: 2 ** F.tanh(x), lambda x: -x,
    lambda x: F.leaky_relu(x, 0.1), lambda x: F.elu(x, 0.5), lambda x: F.softplus(x, 2.0), lambda x: x ** 2,
    lambda x: F.arcsin(0.9 * F.tanh(x)), lambda x: F.arccos(0.9 * F.sin(x)), lambda x: F.tan(F.tanh(x)),
    lambda x: F.arctanh(0.9 * F.tanh(x)), lambda x: F.sinh(F.tanh(x)), lambda x: F.cosh(F.sin(x)),
    lambda x: F.log2(x * x + 1), lambda x: F.log10(abs(x) + 0.1), lambda x: (x * x + 0.1) ** 0.5,
    lambda x: F.cast(F.cast(x, np.float64), x.dtype), lambda x: F.cast(F.cast(x, np.float16), x.dtype),
    lambda x: F.copy(x, -1), lambda x: x * F.sigmoid(x),
    F.sign, F.floor, F.ceil, F.fix, lambda x: abs(x) % 1.5, lambda x: x // 2 + x)


@op(1)
def unary(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    return UNARY[r[0] % len(UNARY)](x)


@op(1)
def unary_twice(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    return UNARY[r[0] % len(UNARY)](UNARY[r[1] % len(UNARY)](x))


BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / (y * y + 0.5), F.maximum, F.minimum,
    lambda x, y: (x * x + 0.5) ** F.tanh(y), F.arctan2, lambda x, y: F.add(x, y, x),
    lambda x, y: F.fmod(x, y * y + 1.0), lambda x, y: y - x * 2)


@op(2)
def binary(chain: Any, r: tuple[int, ...], x: Any, y: Any) -> Any:
    y = like(y, x, r[1])
    return small(BINARY[r[0] % len(BINARY)](*((x, y) if r[2] % 2 else (y, x))))


@op(2)
def same_shapes(chain: Any, r: tuple[int, ...], x: Any, y: Any) -> Any:
    f: Any = (F.squared_error, F.squared_difference, F.absolute_error,
              lambda x, y: F.linear_interpolate(F.sigmoid(x), y, x))[r[0] % 4]
    x = at_least(x, 1)
    return f(x, fit(y, *x.shape))


@op(1)
def attribute(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    return x * chain.alpha if r[0] % 2 or chain.flag else F.tanh(x) + chain.alpha


@op(1)
def branch(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    if kusari.config.train:
        return F.relu(x) + 0.1 * x
    return x + chain.setting["shift"]


@op(1)
def reduce(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    if not x.size:
        return F.sum(x, axes_of(x, r[1]), keepdims=r[2] % 2 == 0)
    f: Any = (F.sum, F.mean, F.max, F.min, F.average, lambda x, axis, keepdims: F.prod(F.tanh(x) + 1, axis, keepdims))
    return f[r[0] % 6](x, axis=axes_of(x, r[1]), keepdims=r[2] % 2 == 0)


@op(1)
def other_reductions(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    if not x.size:
        return F.flatten(x)
    kind = r[0] % 6
    if kind == 0:
        return F.logsumexp(x, axes_of(x, r[1]))
    if kind == 1:
        return F.cast((F.argmax if r[2] % 2 else F.argmin)(x, None if x.ndim == 0 else axis_of(x, r[1])), x.dtype)
    if kind == 2:
        return F.cumsum(x, axis_of(x, r[1]) if x.ndim else None)
    if kind == 3:
        return F.cumprod(F.tanh(x) + 1, axis_of(x, r[1]) if x.ndim else None)
    if kind == 4:
        return F.batch_l2_norm_squared(at_least(x, 2))
    x = at_least(x, 1)
    return F.sum_to(x, tuple([1 if r[1] >> i & 1 else n for i, n in enumerate(x.shape)]))


@op(1)
def softmax(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    x = at_least(x, 2)
    axis = axis_of(x, r[1])
    if not x.size:
        return x * 2
    f: Any = (F.softmax, F.log_softmax, lambda x, axis: F.normalize(x, 0.1, axis),
              lambda x, axis: F.logsumexp(x, axis), lambda x, axis: F.crelu(x, axis),
              lambda x, axis: F.maxout(fit_axis(x, axis % x.ndim, 4), 2, axis % x.ndim))[r[0] % 6]
    return small(f(x, axis=axis))


@op(1)
def move(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    x = at_least(x, 1)
    n, a, b = x.ndim, axis_of(x, r[1]), axis_of(x, r[2])
    cases: tuple[Callable[[], Any], ...] = (
        lambda: F.flatten(x), lambda: F.reshape(x, (-1, x.shape[-1])) if x.size else F.flatten(x),
        lambda: F.transpose(x), lambda: F.transpose(x, tuple(np.random.RandomState(r[1]).permutation(n).tolist())),
        lambda: F.expand_dims(x, a), lambda: F.squeeze(x), lambda: F.swapaxes(x, a, b), lambda: F.moveaxis(x, a, b),
        lambda: F.rollaxis(x, a % n, b % n), lambda: F.broadcast_to(x, (2, *x.shape)), lambda: F.flip(x, a),
        lambda: F.tile(x, (1 + r[1] % 2, *(1,) * (n - 2), 1 + r[2] % 2)), lambda: F.repeat(x, 2, a),
        lambda: F.pad(x, ((r[1] % 2, r[2] % 3), *((0, 1),) * (n - 1)), "constant", constant_values=float(r[3] % 2)),
        lambda: F.diagonal(at_least(x, 2), r[1] % 3 - 1) if min(at_least(x, 2).shape) else x,
        lambda: F.reshape(x, (1, *x.shape, 1)), lambda: F.transpose(F.reshape(x, (x.shape[0], -1))) if x.size else x)
    return small(cases[r[0] % len(cases)]())


@op(1)
def item(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    x = at_least(x, 1)
    n = x.shape[0]
    last = x.shape[-1]
    cases: tuple[Callable[[], Any], ...] = (
        lambda: x[r[1] % n] if n else x, lambda: x[1:], lambda: x[::-1], lambda: x[..., ::2], lambda: x[None],
        lambda: x[..., None, -1] if last else x, lambda: x[::-2], lambda: x[[0, n - 1, 0]] if n else x,
        lambda: x[:, r[1] % x.shape[1]] if n and x.ndim > 1 and x.shape[1] else x, lambda: x[-3:-1], lambda: x[()],
        lambda: at_least(x, 2)[[-1, -1], ..., :1] if n else x, lambda: x[:0], lambda: x[..., :last // 2])
    return cases[r[0] % len(cases)]()


@op(2)
def join(chain: Any, r: tuple[int, ...], x: Any, y: Any) -> Any:
    x = at_least(x, 1)
    kind, axis = r[0] % 6, axis_of(x, r[1])
    y = fit(y, *x.shape)
    if kind == 0:
        return small(F.stack((x, y), axis))
    if kind == 1:
        return small(F.hstack((x, y, x)))
    if kind == 2:
        return small(F.vstack((y, x)))
    if kind == 3:
        return small(F.concat((x, x), axis) + 1)
    if kind == 4 and x.shape[axis] > 1:
        first = F.split_axis(y, [1], axis)[0]
        return small(F.concat((x, first, y), axis))
    return small(F.concat((x, y), axis))


@op(1)
def split(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    x = at_least(x, 1)
    axis = axis_of(x, r[1])
    n = x.shape[axis]
    kind = r[0] % 4
    if kind == 0 and n:
        parts = F.separate(x, axis)
        return parts[r[2] % n] * parts[r[3] % n]
    if kind == 1 and n % 2 == 0 and n:
        a, b = F.split_axis(x, 2, axis)
        return a - b
    parts = F.split_axis(x, sorted((r[2] % (n + 1), r[3] % (n + 1))), axis)
    return parts[r[2] % 3] if kind == 2 else F.concat((parts[2], parts[0], parts[1] * 2), axis)


@op(2)
def product(chain: Any, r: tuple[int, ...], x: Any, y: Any) -> Any:
    kind = r[0] % 8
    k = 1 + r[1] % 5
    if kind == 0:
        x, y = fit(x, None), fit(y, None)
        return F.matmul(fit(x, k), fit(y, k))
    x, y = fit(x, None, None), fit(y, None, None)
    if kind <= 4:
        ta, tb = r[2] % 2 == 1, r[3] % 2 == 1
        z = F.matmul(fit_axis(x, 0 if ta else 1, k), fit_axis(y, 1 if tb else 0, k), ta, tb)
    elif kind == 5:
        z = F.tensordot(fit_axis(x, 1, k), fit_axis(y, 0, k), 1)
    elif kind == 6:
        z = F.matmul(fit(x, 2, None, k), fit(y, 2, k, None))
    else:
        z = F.einsum("ij,kj->ik", fit_axis(x, 1, k), fit_axis(y, 1, k))
    return small(z * (1 / k))


@op(1, lambda: L.Linear(WIDE, 5))
def linear(link: Any, r: tuple[int, ...], x: Any) -> Any:
    y = link(fit(x, None, WIDE))
    return F.relu(y) if r[0] % 3 == 0 else F.tanh(y) if r[0] % 3 == 1 else y


@op(1, lambda: L.Linear(WIDE, 3, nobias=True))
def tied(link: Any, r: tuple[int, ...], x: Any) -> Any:
    y = F.sigmoid(link(fit(x, None, WIDE)))
    return link(fit(y, None, WIDE)) if r[0] % 2 else y @ link.W


@op(1, lambda: L.BatchNormalization(WIDE))
def batch_norm(link: Any, r: tuple[int, ...], x: Any) -> Any:
    x = fit(x, None, WIDE) if r[0] % 2 else fit(x, None, WIDE, 2)
    return link(fit_axis(x, 0, 2) if x.shape[0] < 2 else x)


@op(1, lambda: L.LayerNormalization(WIDE))
def layer_norm(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return link(fit(x, None, WIDE))


@op(1, lambda: L.Scale(1, (WIDE,), bias_term=True))
def scale(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return link(fit(x, None, WIDE) if r[0] % 2 else fit(x, None, WIDE, 3))


@op(1, lambda: L.Convolution2D(2, 3, 3, pad=1))
def convolution(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return small(link(fit(x, 1 + r[0] % 2, 2, 3 + r[1] % 3, 4)))


@op(1, lambda: L.Convolution2D(4, 4, (3, 2), stride=2, pad=(2, 1), dilate=(2, 1), groups=2))
def strided_convolution(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return small(link(fit(x, 1 + r[0] % 3, 4, 4 + r[1] % 4, 3 + r[2] % 3)))


@op(1, lambda: L.Deconvolution2D(2, 3, 3, stride=2, pad=1))
def deconvolution(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return small(link(fit(x, 1 + r[0] % 2, 2, 2 + r[1] % 3, 3)))


@op(1, lambda: L.ConvolutionND(1, 2, 3, 3, pad=1))
def convolution_1d(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return small(link(fit(x, 1 + r[0] % 2, 2, 3 + r[1] % 5)))


@op(1)
def padded_pooling(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    x = fit(x, 1 + r[0] % 2, 2, 5 + r[1] % 2, 4)
    cases: tuple[Callable[[], Any], ...] = (
        lambda: F.max_pooling_2d(x, 3, stride=2, pad=1, cover_all=r[3] % 2 == 0),
        lambda: F.average_pooling_2d(x, 3, stride=2, pad=1), lambda: F.average_pooling_2d(x, x.shape[2:]),
        lambda: F.unpooling_2d(x, 2, cover_all=False), lambda: F.max_pooling_2d(x, (2, 1), stride=(1, 2)))
    return small(cases[r[2] % len(cases)]())


@op(1, lambda: L.StatefulPeepholeLSTM(WIDE, 3))
def peephole(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return link(fit(x, 3, WIDE))


@op(1)
def pooling(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    x = fit(x, 2, 2, 5, 4)
    f: Any = (F.max_pooling_2d, F.average_pooling_2d)[r[0] % 2]
    return f(x, 2 + r[1] % 2, stride=1 + r[2] % 2)


@op(1, lambda: L.LSTM(WIDE, 3))
def lstm(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return link(fit(x, 3, WIDE))


@op(1, lambda: L.StatefulGRU(WIDE, 3))
def gru(link: Any, r: tuple[int, ...], x: Any) -> Any:
    return link(fit(x, 2, WIDE))


@op(1)
def noise(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    kind = r[0] % 6
    if kind <= 1:
        return F.dropout(x, 0.1 + 0.2 * (r[1] % 4))
    if kind == 2:
        return F.zoneout(x, F.tanh(x), 0.4)
    if kind == 3:
        return F.gaussian(x, F.sin(x))
    if kind == 4:
        return F.rrelu(x)
    return F.gumbel_softmax(at_least(x, 2), 0.7) if x.size else F.dropout(x)


@op(2)
def loss(chain: Any, r: tuple[int, ...], x: Any, y: Any) -> Any:
    x = fit(x, None, WIDE)
    x = fit_axis(x, 0, 2) if x.shape[0] < 2 else x
    y = fit(y, *x.shape)
    cases: tuple[Callable[[], Any], ...] = (
        lambda: F.mean_squared_error(x, y), lambda: F.mean_absolute_error(x, y), lambda: F.huber_loss(x, y, 0.7),
        lambda: F.huber_loss(x, y, 0.5, "no"), lambda: F.gaussian_kl_divergence(x, F.tanh(y)),
        lambda: F.bernoulli_nll(F.sigmoid(x), y, "mean"), lambda: F.gaussian_nll(x, y, F.tanh(x), "no"),
        lambda: F.decov(x), lambda: F.cross_covariance(x, y), lambda: F.triplet(x, y, F.sin(x), 1.5),
        lambda: F.r2_score(x, y))
    return cases[r[0] % len(cases)]()


@op(1)
def labelled(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    t = chain.labels
    x = fit(x, len(t), WIDE)
    if not len(t):
        return F.sum(x)
    cases: tuple[Callable[[], Any], ...] = (
        lambda: F.softmax_cross_entropy(x, t), lambda: F.softmax_cross_entropy(x, t, normalize=False),
        lambda: F.softmax_cross_entropy(x, t, reduce="no"), lambda: F.softmax_cross_entropy(x, t, ignore_label=1),
        lambda: F.hinge(x, t), lambda: F.hinge(x, t, "L2", "no"), lambda: F.select_item(x, t),
        lambda: F.cast(F.accuracy(x, t), x.dtype), lambda: F.accuracy(x, t, ignore_label=0) + x,
        lambda: F.sigmoid_cross_entropy(x[:, 0], t), lambda: x[t] * 2,
        lambda: F.get_item(x, (t, t)))
    return cases[r[0] % len(cases)]()


@op(1, lambda: L.EmbedID(WIDE, 3))
def embedded(link: Any, r: tuple[int, ...], x: Any) -> Any:
    # Numbers that do not depend on rounding: what x is says only how many there are. Nor does the sign of a mean of
    # squares, while a mean of normalized values is nothing but rounding.
    ids = F.cast(F.cumsum(fit(x, None, WIDE)[:, 0] * 0 + 1, axis=0) % WIDE, np.int32)
    return link(ids) * (1 if r[0] % 2 else F.mean(x * x) if x.size else 2)


@op(2)
def masked(chain: Any, r: tuple[int, ...], x: Any, y: Any) -> Any:
    m = chain.mask
    x = fit(x, len(m), None)
    return F.where(F.broadcast_to(F.reshape(m, (len(m), 1)), x.shape), x, fit(y, *x.shape))


class Cube(kusari.FunctionNode):
    """A function of the user's, of which nothing is known."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0,))
        return np.asarray(inputs[0] ** 3 * inputs[0].dtype.type(0.1)),

    def backward(self, indexes: tuple[int, ...], gys: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = self.get_retained_inputs()
        return 0.3 * x * x * gys[0],


@op(1)
def opaque(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    return Cube().apply((F.tanh(x) if r[0] % 2 else F.clip(x, -2.0, 2.0),))[0]


@op(1)
def detached(chain: Any, r: tuple[int, ...], x: Any) -> Any:
    if r[0] % 2:
        with kusari.no_backprop_mode():
            y = F.tanh(x) * 2
        return y + x
    return kusari.functions.forget(lambda z: F.sigmoid(z) * z, x) + 1
