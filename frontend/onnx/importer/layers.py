"""Products, convolutions, pooling and normalizations of images."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ...variable import as_variable
from .program import Step
from .registry import Table, is_float

TABLE = Table()
_ATTENTION = frozenset(("scale", "is_causal", "q_num_heads", "kv_num_heads", "softcap", "qk_matmul_output_mode"))


@TABLE.add("MatMul")
def _matmul(step: Step, x: Any, y: Any) -> Any:
    return _product(as_variable(x), as_variable(y)) if is_float(x) and is_float(y) else NotImplemented


def _product(x: Any, y: Any) -> Any:
    """The matrix product of NumPy's ``matmul``."""
    if x.ndim == 1 and y.ndim > 1:
        return F.squeeze(_product(F.reshape(x, (1, -1)), y), -2)
    if y.ndim == 1 and x.ndim > 1:
        return F.squeeze(_product(x, F.reshape(y, (-1, 1))), -1)
    if x.ndim > 2 and y.ndim == 2:  # one product for all
        return F.reshape(F.matmul(F.reshape(x, (-1, x.shape[-1])), y), (*x.shape[:-1], y.shape[-1]))
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return F.matmul(F.broadcast_to(x, lead + x.shape[-2:]), F.broadcast_to(y, lead + y.shape[-2:]))


@TABLE.add("Gemm")
def _gemm(step: Step, a: Any, b: Any, c: Any = None) -> Any:
    if not is_float(a):
        return NotImplemented
    alpha, beta = step("alpha", 1.0), step("beta", 1.0)
    plain = not step("transA", 0) and step("transB", 0) and alpha == beta == 1
    if plain and c is not None and c.shape == (b.shape[0],):
        return F.linear(a, b, c)
    y = F.matmul(a, b, bool(step("transA", 0)), bool(step("transB", 0)))
    y = y if alpha == 1 else y * float(alpha)
    if c is None or not beta:
        return y
    c = as_variable(c)
    return y + F.broadcast_to(c if beta == 1 else c * float(beta), y.shape)


@TABLE.add("Attention")
def _attention(step: Step, q: Any, k: Any, v: Any, mask: Any = None, *kept: Any) -> Any:
    """Scaled dot products of as many heads of queries as of keys, without keys kept from earlier calls."""
    plain = len([name for name in step.outputs if name]) == 1 and not step("softcap") and not any(
        x is not None for x in kept) and _ATTENTION.issuperset(step.attributes)
    if not plain or not is_float(q) or q.dtype == np.float16 or k.ndim != q.ndim:
        return NotImplemented
    flat = q.ndim == 3
    if flat:
        heads = step("q_num_heads")
        if heads != step("kv_num_heads"):
            return NotImplemented
        q, k, v = [F.transpose(F.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3)) for x in (q, k, v)]
    shape = (*q.shape[:3], k.shape[2])
    if k.shape[1] != q.shape[1] or mask is not None and mask.shape[-1] != shape[-1]:
        return NotImplemented
    scores = F.matmul(q, k, transb=True) * float(step("scale") or q.shape[-1] ** -0.5)
    allowed: list[Any] = [] if mask is None or mask.dtype != np.bool_ else [F.broadcast_to(mask, shape)]
    if mask is not None and not allowed:
        scores = scores + F.broadcast_to(mask, shape)
    if step("is_causal", 0):
        allowed.append(np.broadcast_to(np.tril(np.ones(shape[2:], bool)), shape))
    for each in allowed:
        scores = F.where(each, scores, np.full(shape, np.finfo(q.dtype).min, q.dtype))
    shares = F.softmax(scores, axis=-1)
    for each in allowed:  # a row without any is zero
        shares = F.where(each, shares, np.zeros(shape, q.dtype))
    y = F.matmul(shares, v)
    return F.reshape(F.transpose(y, (0, 2, 1, 3)), (y.shape[0], y.shape[2], -1)) if flat else y


@TABLE.add("Einsum")
def _einsum(step: Step, *xs: Any) -> Any:
    equation = step("equation").replace(" ", "")
    return F.einsum(equation, *xs) if all(map(is_float, xs)) else NotImplemented


def _window(step: Step, x: Any, kernel: tuple[int, ...], ceil: bool = False) -> tuple[Any, ...]:
    """Return the input, padded where the two ends differ, with strides, pads and dilations per axis."""
    n = len(kernel)
    stride = tuple(step("strides") or (1,) * n)
    dilate = tuple(step("dilations") or (1,) * n)
    auto = step("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = [], []
        for size, k, s, d in zip(x.shape[2:], kernel, stride, dilate, strict=True):
            total = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
            less, more = total // 2, total - total // 2
            begin.append(less if auto == "SAME_UPPER" else more)
            end.append(more if auto == "SAME_UPPER" else less)
    else:
        pads = step("pads") if auto == "NOTSET" else None
        begin, end = (list(pads[:n]), list(pads[n:])) if pads else ([0] * n, [0] * n)
    return tuple(begin), tuple(end), stride, dilate


def _padded(x: Any, begin: tuple[int, ...], end: tuple[int, ...], value: float = 0.0) -> tuple[Any, tuple[int, ...]]:
    """Return ``x`` and the pads that are left for the function, which are the same at both ends."""
    if begin == end:
        return x, begin
    width = [(0, 0), (0, 0), *zip(begin, end, strict=True)]
    return F.pad(x, width, "constant", constant_values=value), (0,) * len(begin)


@TABLE.add("Conv")
def _conv(step: Step, x: Any, w: Any, b: Any = None) -> Any:
    if not is_float(x):
        return NotImplemented
    begin, end, stride, dilate = _window(step, x, w.shape[2:])
    x, pad = _padded(x, begin, end)
    return F.convolution_nd(x, w, b, stride, pad, dilate=dilate, groups=step("group", 1))


@TABLE.add("ConvTranspose")
def _conv_transpose(step: Step, x: Any, w: Any, b: Any = None) -> Any:
    if not is_float(x):
        return NotImplemented
    kernel = w.shape[2:]
    n = len(kernel)
    stride = tuple(step("strides") or (1,) * n)
    dilate = tuple(step("dilations") or (1,) * n)
    more = tuple(step("output_padding") or (0,) * n)
    full = [s * (size - 1) + d * (k - 1) + 1 + m
            for size, k, s, d, m in zip(x.shape[2:], kernel, stride, dilate, more, strict=True)]
    auto = step("auto_pad", "NOTSET")
    given = step("output_shape")
    wanted = given or ([size * s for size, s in zip(x.shape[2:], stride, strict=True)]
                                      if auto.startswith("SAME") else None)
    if wanted:
        wanted = list(wanted)[-n:]
        full = [max(f, out) for f, out in zip(full, wanted, strict=True)]
        total = [f - out for f, out in zip(full, wanted, strict=True)]
        begin = [t - t // 2 if auto != "SAME_UPPER" and auto.startswith("SAME") else t // 2 for t in total]
        end = [t - left for t, left in zip(total, begin, strict=True)]
    else:
        pads = step("pads") or (0,) * (2 * n)
        begin, end = list(pads[:n]), list(pads[n:])
    y = F.deconvolution_nd(x, w, b, stride, 0, outsize=tuple(full), dilate=dilate, groups=step("group", 1))
    return y[(slice(None), slice(None), *[slice(left, f - right)
                                          for left, f, right in zip(begin, full, end, strict=True)])]


def _further(step: Step, shape: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Return how far windows reach behind the padded ``shape`` where their number is rounded up.

    A window that would begin behind the end is left out.
    """
    stride = tuple(step("strides") or (1,) * len(kernel))
    if not step("ceil_mode", 0):
        return (0,) * len(kernel)
    end = (step("pads") or (0,) * (2 * len(kernel)))[len(kernel):]
    found: list[int] = []
    for n, k, s, after in zip(shape, kernel, stride, end, strict=True):
        count = max(-(-(n - k) // s), 0)
        count -= count * s >= n - after
        found.append(max(count * s + k - n, 0))
    return tuple(found)


@TABLE.add("MaxPool")
def _max_pool(step: Step, x: Any) -> Any:
    kernel = tuple(step("kernel_shape"))
    begin, end, stride, dilate = _window(step, x, kernel)
    if len(step.outputs) > 1 or any(d != 1 for d in dilate) or not is_float(x):
        return NotImplemented
    more = _further(step, tuple([n + i + j for n, i, j in zip(x.shape[2:], begin, end, strict=True)]), kernel)
    x, pad = _padded(x, begin, tuple([i + j for i, j in zip(end, more, strict=True)]), -np.inf)
    return F.max_pooling_nd(x, kernel, stride, pad, cover_all=False)


@TABLE.add("AveragePool")
def _average_pool(step: Step, x: Any) -> Any:
    kernel = tuple(step("kernel_shape"))
    begin, end, stride, dilate = _window(step, x, kernel)
    counts_pads = bool(step("count_include_pad", 0))
    if any(d != 1 for d in dilate) or not is_float(x):
        return NotImplemented
    more = _further(step, tuple([n + i + j for n, i, j in zip(x.shape[2:], begin, end, strict=True)]), kernel)
    if begin == end and not any(more):
        return F.average_pooling_nd(x, kernel, stride, begin, 0 if counts_pads else None)
    counted = np.ones(x.shape[2:], x.dtype)
    counted = np.pad(counted, list(zip(begin, end, strict=True)), constant_values=int(counts_pads))
    counted = np.pad(counted, [(0, n) for n in more])
    padded = F.pad(x, [(0, 0), (0, 0), *[(i, j + n) for i, j, n in zip(begin, end, more, strict=True)]], "constant",
                   constant_values=0)
    zero = (0,) * len(kernel)
    shares = F.average_pooling_nd(counted[np.newaxis, np.newaxis], kernel, stride, zero, 0).array
    y = F.average_pooling_nd(padded, kernel, stride, zero, 0)
    return y / F.broadcast_to(shares, y.shape)


@TABLE.add("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(step: Step, x: Any) -> Any:
    axes = tuple(range(2, x.ndim))
    if step.operator == "GlobalMaxPool":
        return F.max(x, axes, True)
    return F.sum(x, axes, True) / float(np.prod(x.shape[2:]))


@TABLE.add("BatchNormalization")
def _batch_normalization(step: Step, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    if not is_float(x) or step.version < 7 and not step("is_test", 0) or not step("spatial", 1):
        return NotImplemented
    eps = step("epsilon", 1e-5)
    if not step("training_mode", 0):
        return F.fixed_batch_normalization(x, scale, bias, mean, var, eps)
    axes = (0, *range(2, x.ndim))
    y = F.batch_normalization(x, scale, bias, eps=eps, axis=axes)
    if len([name for name in step.outputs if name]) == 1:
        return y
    keep, array = step("momentum", 0.9), as_variable(x).array
    old_mean, old_var = as_variable(mean).array, as_variable(var).array
    fresh = array.mean(axis=axes), array.var(axis=axes)
    return y, old_mean * keep + fresh[0] * (1 - keep), old_var * keep + fresh[1] * (1 - keep)


def _by_groups(x: Any, groups: int, eps: float) -> Any:
    """Return ``x`` less its mean over its deviation, of each example's groups of channels."""
    rows = F.reshape(as_variable(x), (x.shape[0] * groups, -1))
    ones, zeros = np.ones(rows.shape[1], x.dtype), np.zeros(rows.shape[1], x.dtype)
    return F.reshape(F.layer_normalization(rows, ones, zeros, eps), x.shape)


def _by_channels(p: Any, x: Any) -> Any:
    return F.broadcast_to(F.reshape(p, (1, -1, *(1,) * (x.ndim - 2))), x.shape)


@TABLE.add("InstanceNormalization")
def _instance_normalization(step: Step, x: Any, scale: Any, bias: Any) -> Any:
    y = _by_groups(x, x.shape[1], step("epsilon", 1e-5))
    return y * _by_channels(scale, x) + _by_channels(bias, x)


@TABLE.add("GroupNormalization")
def _group_normalization(step: Step, x: Any, scale: Any, bias: Any) -> Any:
    groups = step("num_groups")
    y = _by_groups(x, groups, step("epsilon", 1e-5))
    if step.version < 21:
        scale, bias = (F.repeat(p, x.shape[1] // groups, axis=0) for p in (scale, bias))
    return y * _by_channels(scale, x) + _by_channels(bias, x)


@TABLE.add("LRN")
def _lrn(step: Step, x: Any) -> Any:
    n, alpha = step("size"), step("alpha", 1e-4)
    if n % 2 == 0:
        return NotImplemented
    return F.local_response_normalization(x, n, step("bias", 1.0), alpha / n, step("beta", 0.75))
