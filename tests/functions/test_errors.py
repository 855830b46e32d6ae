"""What is refused, and how the message reads; what scalars and dtypes become."""
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.errors import InvalidType

X = np.ones((3, 4), np.float32)
I = np.arange(3)
V = kusari.Variable(X)
IMAGE = np.ones((2, 4, 3, 2), np.float32)

REFUSED: list[tuple[str, Callable[[], Any], str, str]] = [
    ("relu", lambda: F.relu(I), "x.dtype.kind == f", "i != f"),
    ("exp", lambda: F.exp(I), "x.dtype.kind == f", "i != f"),
    ("add dtypes", lambda: V + kusari.Variable(X.astype("d")), "lhs.dtype == rhs.dtype", "float32 != float64"),
    ("add shapes", lambda: V + np.ones((4, 5), "f"), "can be broadcast together", "cannot"),
    ("maximum", lambda: F.maximum(X, X.astype("e")), "x1.dtype == x2.dtype", "float32 != float16"),
    ("linear", lambda: F.linear(X, np.ones((2, 5), "f")), "x.shape[1] == W.shape[1]", "4 != 5"),
    ("linear bias", lambda: F.linear(X, np.ones((2, 4), "f"), np.ones(3, "f")), "b.shape[0] == W.shape[0]", "3 != 2"),
    ("matmul", lambda: F.matmul(X, X), "a.shape[-1] == b.shape[-2]", "4 != 3"),
    ("sum dtype", lambda: F.sum(I), "x.dtype.kind == f", "i != f"),
    ("sum axis", lambda: F.sum(X, axis=5), "x.ndim > 5", "2 <= 5"),
    ("max axis", lambda: F.max(X, axis=-3), "x.ndim >= 3", "2 < 3"),
    ("reshape", lambda: F.reshape(X, (5, 2)), "prod(x.shape) == prod((5, 2))", "12 != 10"),
    ("reshape -1", lambda: F.reshape(X, (5, -1)), "prod(x.shape) % known_size(=5) == 0", "2 != 0"),
    ("reshape 0", lambda: F.reshape(X[:0], (0, -1)), "the extent of -1 follows", "(0, -1) for (0, 4)"),
    ("diagonal", lambda: F.diagonal(X, 0, 0, 2), "x.ndim > 2", "2 <= 2"),
    ("broadcast nothing", lambda: F.broadcast(), "in_types.size > 0", "0 <= 0"),
    ("local response", lambda: F.local_response_normalization(X[0]), "x.ndim >= 2", "float32(4,)"),
    ("transpose", lambda: F.transpose(X, (0, 1, 2)), "x.ndim == 3", "2 != 3"),
    ("concat", lambda: F.concat([X, X[:1]], 1), "in_types[0].shape[0] == in_types[1].shape[0]", "3 != 1"),
    ("concat axis", lambda: F.concat([X, X], 2), "in_types[0].ndim > axis", "2 <= 2"),
    ("concat nothing", lambda: F.concat([], 0), "in_types.size > 0", "0 <= 0"),
    ("split", lambda: F.split_axis(X, 3, 1), "in_types[0].shape[1] % sections == 0", "1 != 0"),
    ("split index", lambda: F.split_axis(X, [9], 1), "in_types[0].shape[1] >= max_index", "4 < 9"),
    ("broadcast_to", lambda: F.broadcast_to(X, (3, 3)), "x.shape[-1] == 3 or x.shape[-1] == 1", "x.shape: (3, 4)"),
    ("where", lambda: F.where(I, X[0, :3], X[0, :3]), "condition.dtype == ", "int64 != "),
    ("labels float", lambda: F.accuracy(X, np.ones(3, "f")), "t.dtype.kind == i", "f != i"),
    ("sce labels", lambda: F.softmax_cross_entropy(X, np.zeros(2, "i")), "x.shape[0] == t.shape[0]", "3 != 2"),
    ("bce", lambda: F.sigmoid_cross_entropy(X, np.zeros((3, 3), "i")), "x.shape == t.shape", "(3, 4) != (3, 3)"),
    ("mse", lambda: F.mean_squared_error(X, X[:2]), "x0.shape == x1.shape", "(3, 4) != (2, 4)"),
    ("embed_id", lambda: F.embed_id(X, X), "x.dtype.kind == i", "f != i"),
    ("matmul batches", lambda: F.matmul(IMAGE, IMAGE[:1, :2], transb=True), "batch axes can be broadcast together",
     "(2, 4) and (1, 2) cannot"),
    ("batch_matmul", lambda: F.batch_matmul(IMAGE[0], IMAGE[0, :3], transb=True), "broadcast", "(4,) and (3,)"),
    ("huber", lambda: F.huber_loss(X, X[:1], 1.0), "x.shape == t.shape", "(3, 4) != (1, 4)"),
    ("linear_interpolate", lambda: F.linear_interpolate(X, X, X[0]), "p.shape == y.shape", "(3, 4) != (4,)"),
    ("gaussian", lambda: F.gaussian(X, X[:1]), "ln_var: of the same shape", "float32(1, 4)"),
    ("rrelu slopes", lambda: F.rrelu(X, r=X[0]), "r: of the same shape", "float32(4,)"),
    ("swish dtype", lambda: F.swish(X, X[0].astype("d")), "beta: of the same dtype", "float32, float64"),
    ("group norm", lambda: F.group_normalization(IMAGE, 2, X[:2, :2], X[:2, :2]), "floating-point (4,)", "(2, 2)"),
    ("renormalization", lambda: F.batch_renormalization(X, X[0, :1], X[0, :1], 1, 1, running_mean=X[0],
                                                        running_var=X[0]), "of one dtype, (4,)", "float32(1,)"),
    ("bilinear bias", lambda: F.bilinear(X, X, np.ones((4, 4, 2), "f"), X[:, :2].repeat(2, 0)[:4], np.ones((4, 2), "f"),
                                         X[0]), "b.shape == (2,)", "(4,)"),
    ("cross_covariance", lambda: F.cross_covariance(X[0], X), "y: floating (N, J)", "float32(4,)"),
    ("decov", lambda: F.decov(IMAGE), "y: floating (N, J)", "(2, 4, 3, 2)"),
    ("triplet of none", lambda: F.triplet(X[:0], X[:0], X[:0]), "N > 0", "(0, 4)"),
    ("im2col", lambda: F.im2col(X, 2), "floating-point (N, C, H, W)", "(3, 4)"),
    ("moveaxis", lambda: F.moveaxis(X, 0, 2), "-2 <= axis < 2", "axis = 2"),
    ("pad_sequence", lambda: F.pad_sequence([X, np.ones((), "f")]), "xs[1].ndim > 0", "0 <= 0"),
    ("local bias", lambda: F.local_convolution_2d(IMAGE, np.ones((2, 3, 2, 4, 1, 1), "f"), np.ones((2, 3, 2))),
     "b.shape == (2, 3, 2), float32", "(2, 3, 2), float64"),
    ("batch norm", lambda: F.batch_normalization(IMAGE, np.ones(3, "f"), np.ones(3, "f")),
     "gamma.shape[0] == x.shape[1]", "3 != 4"),
    ("layer norm", lambda: F.layer_normalization(IMAGE, X[0], X[0]), "x.ndim == 2", "4 != 2"),
    ("softmax axis", lambda: F.softmax(X, axis=2), "x.ndim > 2", "2 <= 2"),
    ("prelu", lambda: F.prelu(X, np.ones(3, "f")), "W.shape == x.shape[1:2]", "(3,) != (4,)"),
    ("maxout", lambda: F.maxout(X, 3), "x.shape[axis] % 3 == 0", "4 % 3 == 1"),
    ("triplet", lambda: F.triplet(X, X, X[:2]), "three inputs of one shape", "(2, 4)"),
    ("roi indices", lambda: F.roi_max_align_2d(IMAGE, X, X[0], 2, 1.0), "roi_indices.dtype.kind == i", "f != i"),
    ("roi rows", lambda: F.roi_average_align_2d(IMAGE, X, I[:2].astype("i"), 2, 1.0),
     "rois.shape[0] == roi_indices.shape[0]", "3 != 2"),
    ("roi box", lambda: F.roi_max_pooling_2d(IMAGE, X[:, :3], I.astype("i"), 2, 1.0), "rois.shape[1] == 4", "3 != 4"),
    ("grid", lambda: F.spatial_transformer_grid(IMAGE[0], (2, 2)), "theta.shape[1] == 2", "3 != 2"),
    ("sampler", lambda: F.spatial_transformer_sampler(IMAGE, IMAGE), "grid.shape[1] == 2", "4 != 2"),
    ("deformable", lambda: F.deformable_convolution_2d_sampler(IMAGE, IMAGE, np.ones((1, 4, 1, 1), "f")),
     "offset.shape[1] == 2", "4 != 2"),
    ("deformable size", lambda: F.deformable_convolution_2d_sampler(IMAGE, IMAGE[:, :2, :2],
                                                                    np.ones((1, 4, 1, 1), "f")),
     "offset.shape[2] == 3", "2 != 3"),
    ("ctc", lambda: F.connectionist_temporal_classification([X], I[:, None][:2], 0),
     "in_types[0].shape[0] == in_types[1].shape[0]", "2 != 3"),
    ("crf", lambda: F.crf1d(X[:3, :3], [X], [I]), "scores of 3 labels", "(3, 4)"),
]


@pytest.mark.parametrize("call,expect,actual", [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_invalid_type(call: Callable[[], Any], expect: str, actual: str) -> None:
    with pytest.raises(InvalidType) as caught:
        call()
    message = str(caught.value)
    before, _, after = message.partition("Actual:")
    assert expect in before, message
    assert actual in after, message


FIXES: list[tuple[str, Callable[[], Any], str]] = [
    ("features", lambda: L.Linear(5, 2)(X), "Axis 1 of an input has its features"),
    ("one row", lambda: L.Linear(4, 2)(X[0]), r"a single row x becomes x\[None\]"),
    ("channels last", lambda: L.Convolution2D(3, 2, 2)(IMAGE), r"Axis 1 of an input has its channels: .*transpose"),
    ("one picture", lambda: L.Convolution2D(4, 2, 2)(IMAGE[0]), r"a single picture x becomes x\[None\]"),
    ("label column", lambda: F.softmax_cross_entropy(X, I[:, None]), r"a column of them becomes t\[:, 0\]"),
    ("labels float", lambda: F.softmax_cross_entropy(X, I.astype("f")), r"astype\(numpy.int32\)"),
    ("float64", lambda: L.Linear(4, 2)(X.astype("d")), r"astype\(numpy.float32\)"),
    ("pixels", lambda: L.Linear(4, 2)(X.astype("B")), r"astype\(numpy.float32\)"),
    ("two axes", lambda: V[None].transpose(1, 2), r"all axes in their new order: transpose\(0, 2, 1\)"),
    ("two axes of four", lambda: F.transpose(IMAGE, (0, 1)), r"F.swapaxes\(x, 1, 2\) exchanges two."),
]


@pytest.mark.parametrize("call,fix", [f[1:] for f in FIXES], ids=[f[0] for f in FIXES])
def test_the_message_names_the_fix_and_the_line(call: Callable[[], Any], fix: str) -> None:
    line = f"test_errors.py:{call.__code__.co_firstlineno}, in "
    with pytest.raises(InvalidType, match=rf"{fix}.*\nApplied at: .*{line}"):
        call()


WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("add", lambda: F.add(), ValueError, "at least one"),
    ("keyword", lambda: F.dropout(X, p=0.5), TypeError,
     r"dropout\(\) got an unexpected keyword argument 'p', which is PyTorch's; here: ratio$"),
    ("keyword when traced", lambda: kusari.static_graph(lambda: F.dropout(X, p=0.5))(), TypeError, r"^dropout\(\) got"),
    ("keyword of a link", lambda: L.Convolution2D(3, 8, kernel_size=3), TypeError, r"__init__\(\) got .*'kernel_size'"),
    ("axis twice", lambda: F.sum(X, axis=(0, 0)), ValueError, "duplicate"),
    ("axis float", lambda: F.sum(X, axis=1.5), TypeError, "axis must be"),
    ("string", lambda: V + "a", TypeError, "unsupported operand"),
    ("list", lambda: V + [1, 2, 3, 4], TypeError, "unsupported operand"),
    ("compare", lambda: V < 1, TypeError, "array"),
    ("two unknowns", lambda: F.reshape(X, (-1, -1)), ValueError, "one unknown"),
    ("index", lambda: V[7], IndexError, "out of bounds"), ("index str", lambda: V["a"], IndexError, "valid indices"),
    ("indices", lambda: V[0, 0, 0], IndexError, "too many"),
    ("concat array", lambda: F.concat(X), TypeError, "list or tuple"),
    ("reduce", lambda: F.softmax_cross_entropy(X, I, reduce="sum"), ValueError, "'mean' and 'no'"),
    ("weight", lambda: F.softmax_cross_entropy(X, I, class_weight=V), ValueError, "not a Variable"),
    ("weight rank", lambda: F.softmax_cross_entropy(X, I, class_weight=X), ValueError, "ndim should be 1"),
    ("weight dtype", lambda: F.softmax_cross_entropy(X, I, class_weight=I), ValueError, "floating"),
    ("soft", lambda: F.softmax_cross_entropy(X, X, soft_target_loss="mse"), ValueError, "kl-divergence"),
    ("label", lambda: F.softmax_cross_entropy(X, np.array([0, 9, 1])), IndexError, "out of bounds"),
    ("identifier", lambda: F.embed_id(np.array([9]), X), IndexError, "out of bounds"),
    ("clip", lambda: F.clip(X, 1, 1), ValueError, "less than"), ("repeat", lambda: F.repeat(X, -1), ValueError, "zero"),
    ("tile", lambda: F.tile(X, -1), ValueError, "zero"), ("pad", lambda: F.pad(X, 1, "odd"), ValueError, "odd"),
    ("hinge", lambda: F.hinge(X, I, norm="L3"), NotImplementedError, "L3"),
    ("hinge label", lambda: F.hinge(X, I + 2), IndexError, "out of bounds"),
    ("rrelu", lambda: F.rrelu(X, 0.5, 0.2), ValueError, "less than"),
    ("rrelu range", lambda: F.rrelu(X, 0.5, 1.0), ValueError, "range"),
    ("squeeze twice", lambda: F.squeeze(X[:1], (0, -2)), ValueError, "named twice"),
    ("scatter", lambda: F.scatter_add(X, 0, X[0, :1]), ValueError, "broadcast_to"),
    ("scatter rows", lambda: F.scatter_add(X, [0, 1], X[:1]), ValueError, "broadcast_to"),
    ("einsum output", lambda: F.einsum("ij->k", X), ValueError, "label 'k'"),
    ("einsum lists", lambda: F.einsum(X, "ij"), TypeError, "integers from 0"),
    ("no state", lambda: F.n_step_gru(1, 0.0, None, [[X] * 6], [[X] * 6], [X]), TypeError, "give zeros"),
    ("group", lambda: F.group_normalization(IMAGE, 3, X[0], X[0]), ValueError, "divide"),
    ("bilinear", lambda: F.bilinear(X, X, np.ones((4, 4, 2), "f"), V1=X), ValueError, "all together"),
    ("batch axes", lambda: F.linear(X, X, n_batch_axes=0), ValueError, "greater than 0"),
    ("arguments", lambda: F.relu(X, X, X), TypeError, "relu"), ("keyword", lambda: F.elu(X, beta=1), TypeError, "beta"),
    ("einsum", lambda: F.einsum("ij->ii", np.ones((2, 2), "f")), ValueError, "repeated"),
    ("einsum extents", lambda: F.einsum("ij,ij->j", X, X[:1]), InvalidType, r"3 != 1"),
    ("average", lambda: F.average(X, (0, 1), weights=X), ValueError, "weights"),
    ("outsize", lambda: F.roi_max_pooling_2d(IMAGE, X, I, 0, 1.0), TypeError, "outsize"),
    ("sampling", lambda: F.roi_max_align_2d(IMAGE, X, I, 2, 1.0, (1, 0)), TypeError, "sampling_ratio"),
    ("scale", lambda: F.roi_average_pooling_2d(IMAGE, X, I, 2, -1.0), TypeError, "spatial_scale"),
    ("cudnn", lambda: F.spatial_transformer_grid(X, (2, 2), use_cudnn=True), ValueError, "using_config"),
    ("ctc array", lambda: F.connectionist_temporal_classification(X, I, 0), TypeError, "must be a list"),
    ("ctc blank", lambda: F.connectionist_temporal_classification([X], I[:, None], 4), ValueError, "4 classes"),
    ("ctc no steps", lambda: F.connectionist_temporal_classification([], I[:, None], 0), ValueError, "got none"),
    ("crf labels", lambda: F.crf1d(np.ones((4, 4), "f"), [X, X], [I]), ValueError, "labels for each of 2 steps"),
]


@pytest.mark.parametrize("call,error,message", [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_use(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("call", [
    lambda x: F.sigmoid(x), lambda x: F.softplus(x), lambda x: F.mean(x), lambda x: F.average(x, 0),
    lambda x: F.softmax(x),
    lambda x: F.softmax_cross_entropy(x, I), lambda x: F.sigmoid_cross_entropy(x, np.ones((3, 4), "i")),
    lambda x: F.mean_squared_error(x, x * 2), lambda x: F.accuracy(x, I), lambda x: F.dropout(x),
    lambda x: F.linear(x, x),
    lambda x: (kusari.as_variable(x) * 2.5 + 1) / 3 - np.float64(1.5), lambda x: F.gaussian(x, x), lambda x: F.erf(x),
    lambda x: F.batch_normalization(x, x[0], x[0]), lambda x: F.layer_normalization(x, x[0], x[0]),
    lambda x: F.rsqrt(x),
    lambda x: F.huber_loss(x, x * 2, 1.0), lambda x: F.hinge(x, I), lambda x: F.logsumexp(x), lambda x: F.normalize(x),
])
def test_dtype_stays(call: Callable[..., Any], dtype: str) -> None:
    """Values and gradients have the dtype of the input, whatever Python and NumPy scalars take part."""
    x = kusari.Variable(X.astype(dtype))
    y = call(x)
    assert y.dtype == dtype
    y.grad = np.ones(y.shape, dtype)
    y.backward()
    assert x.grad is None or x.grad.dtype == dtype


def test_integers_keep_their_dtype() -> None:
    x = kusari.Variable(I)
    for y in (x + 1, x * 2.7, x / 2, x // 2, 2 - x, -x):
        assert y.dtype == I.dtype
    np.testing.assert_array_equal((x * 2.7).array, I * 2)


def test_half_statistics_are_computed_in_float32() -> None:
    x = np.full((400, 400), 1.0, np.float16)
    assert float(F.mean(x).array) == 1.0
    assert float(F.mean_squared_error(x, x * 2).array) == 1.0
    loss = F.softmax_cross_entropy(np.zeros((4096, 2), np.float16), np.zeros(4096, "i"))
    assert float(loss.array) == np.float16(np.log(2))


@pytest.mark.parametrize("call", [
    F.relu, F.softmax, F.log_softmax, F.dropout, lambda x: F.linear(x, X), lambda x: F.concat([x, X], 0), F.sum,
    lambda x: F.sigmoid_cross_entropy(x, np.zeros((0, 4), "i")), lambda x: F.softmax_cross_entropy(x, np.zeros(0, "i")),
])
def test_empty_batches(call: Callable[..., Any]) -> None:
    y = call(np.zeros((0, 4), np.float32))
    assert y.dtype == np.float32
    assert not np.isnan(y.array).any()


def test_nothing_overflows() -> None:
    big = np.array([[-1e4, 1e4, 0]], np.float32)
    with np.errstate(over="raise"):
        for f in (F.sigmoid, F.softplus, F.softmax, F.log_softmax, F.elu, F.selu, F.logsumexp, F.tanh):
            assert np.isfinite(f(big).array).all()
        assert np.isfinite(F.softmax_cross_entropy(big, np.array([0])).array)
        assert np.isfinite(F.sigmoid_cross_entropy(big, np.array([[1, 0, 1]])).array)


def test_undefined_scores_are_nan() -> None:
    p, r, f, support = F.classification_summary(np.eye(3, dtype="f"), np.array([0, 0, -1]))
    np.testing.assert_array_equal(support.array, [2, 0, 0])
    np.testing.assert_allclose(p.array, [1, 0, np.nan])
    np.testing.assert_allclose(r.array, [0.5, np.nan, np.nan])
    np.testing.assert_allclose(f.array, [2 / 3, np.nan, np.nan])
    for one, expected in ((F.precision, p), (F.recall, r), (F.f1_score, f)):
        np.testing.assert_array_equal(one(np.eye(3, dtype="f"), np.array([0, 0, -1]))[0].array, expected.array)


def test_gradient_of_a_shared_input_adds_up() -> None:
    x = kusari.Variable(X.copy())
    y = F.sum(x * x + x)
    y.backward()
    np.testing.assert_array_equal(x.grad, 2 * X + 1)


def test_partial_gradients_of_pieces() -> None:
    """Pieces without a gradient count as zeros."""
    x = kusari.Variable(X.copy())
    _, second = F.split_axis(x, [1], 1)
    F.sum(second).backward()
    np.testing.assert_array_equal(x.grad, [[0, 1, 1, 1]] * 3)


@pytest.mark.parametrize("call", [
    lambda x: F.add(x, x, x), F.dropout, lambda x: F.zoneout(x, x), lambda x: F.gaussian(x, x), F.max, F.sum,
    F.prod, F.relu, F.mean, F.logsumexp, F.leaky_relu, lambda x: F.where(np.array(True), x, x), F.cumsum,
    F.flatten, lambda x: x[None], lambda x: F.broadcast_to(x, (2,))[np.array(1)],
    lambda x: F.mean_squared_error(x, x * 2), lambda x: F.stack([x, x]), lambda x: F.hstack([x, x]), F.erf, F.transpose,
    lambda x: F.tile(x, 3), lambda x: F.sigmoid_cross_entropy(x, np.array(1), reduce="no"), F.rrelu,
    lambda x: x ** 2 / x,
    lambda x: F.broadcast_to(x, (2, 3)), lambda x: F.dropout(x, mask=np.array(2.0, "f")), lambda x: F.clip(x, 0, 1),
])
def test_scalars_are_arrays(call: Callable[..., Any]) -> None:
    """Inputs without dimensions: NumPy makes scalars of them at every occasion."""
    x = kusari.Variable(np.array(2.0, np.float32))
    y = call(x)
    y.grad = np.ones(y.shape, np.float32)
    y.backward(enable_double_backprop=True)
    assert x.grad_var is not None
    assert (x.grad_var.shape, x.grad_var.dtype) == ((), np.float32)


def test_elementwise_functions_are_pickled_by_reference() -> None:
    assert pickle.loads(pickle.dumps(F.relu)) is F.relu
    assert copy.deepcopy(F.tanh) is F.tanh


def test_forget_computes_again() -> None:
    """One node, called twice; parameters inside get their gradients."""
    w = kusari.Parameter(np.full((3, 4), 2, np.float32))
    modes: list[bool] = []

    def inside(x: Any) -> Any:
        modes.append(kusari.config.in_recomputing)
        return F.tanh(x * w), x + 1

    x = kusari.Variable(X.copy())
    a, b = F.forget(inside, x)
    assert a.creator_node is b.creator_node
    F.sum(a * b).backward()
    assert modes == [False, True]
    y, v = kusari.Variable(X.copy()), kusari.Parameter(w.array)
    F.sum(F.tanh(y * v) * (y + 1)).backward()
    np.testing.assert_allclose(x.grad, y.grad, rtol=1e-6)
    np.testing.assert_allclose(w.grad, v.grad, rtol=1e-6)
    with pytest.raises(RuntimeError, match="must return Variables"):
        F.forget(lambda x: 1, X)


A_LIST = [[1.0, 2.0, 3.0, 4.0]]
LABELS = np.array([0, 4, 1], "i")
LABELS_AS_FLOATS = np.array([0, np.nan, 1], "f")


@pytest.mark.parametrize(("name", "call", "kind", "fix"), [
    ("ReLU", lambda: F.relu(A_LIST), TypeError, "numpy.asarray(x, dtype=numpy.float32)"),
    ("relu", lambda: F.relu(1.0), TypeError, "numpy.asarray("),
    ("matmul", lambda: F.matmul(A_LIST, X), TypeError, "was given a list in place of an array"),
    ("Linear", lambda: L.Linear(None, 2)(A_LIST), TypeError, "was given a list"),
    ("softmax_cross_entropy", lambda: F.softmax_cross_entropy(X, [0, 1, 2]), TypeError, "dtype=numpy.int32"),
    ("max_pooling_2d", lambda: F.max_pooling_2d(A_LIST, 2), TypeError, "was given a list"),
    ("SoftmaxCrossEntropy", lambda: F.softmax_cross_entropy(X, LABELS), IndexError, "Input 1 holds values from 0 to 4"),
    ("SoftmaxCrossEntropy", lambda: F.softmax_cross_entropy(X, LABELS - 100), IndexError, "label -100 is no class"),
    ("SoftmaxCrossEntropy", lambda: F.softmax_cross_entropy(X, LABELS - 2), IndexError, "ignore_label=-1"),
    ("EmbedIDFunction", lambda: L.EmbedID(3, 2)(LABELS), IndexError, "Input 0 holds values from 0 to 4"),
    ("SoftmaxCrossEntropy", lambda: F.softmax_cross_entropy(X, LABELS_AS_FLOATS), InvalidType, "astype(numpy.int32)"),
    ("LinearFunction", lambda: L.Linear(4, 2)(X.astype("d")), InvalidType, "astype(numpy.float32)"),
    ("ReLU", lambda: F.relu(I), InvalidType, "astype(numpy.float32)")])
def test_wrong_data_are_refused_with_function_line_and_fix(
        name: str, call: Callable[[], Any], kind: type[Exception], fix: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert name in str(caught.value) and fix in str(caught.value) and f"Applied at: {__file__}" in str(caught.value)


def test_errors_of_users_code_stay_theirs() -> None:
    class Model(kusari.Chain):
        def forward(self, x: Any) -> Any:
            return x.shape

    with pytest.raises(AttributeError, match="'list' object has no attribute 'shape'"):
        Model()(A_LIST)
