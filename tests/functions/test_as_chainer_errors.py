"""What functions refuse, as Chainer's do; and what they know of themselves."""
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari import Variable, gradient_check
from kusari.errors import InvalidType
from kusari.utils.cache import cached_property

A = np.arange(6, dtype="f").reshape(2, 3)

REFUSED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("an axis twice", lambda: F.max(A, (1, -1)), ValueError, "duplicate"),
    ("an axis twice, logsumexp", lambda: F.logsumexp(A, (0, -2)), ValueError, "duplicate"),
    ("an axis twice, average", lambda: F.average(A, (1, -1)), ValueError, "duplicate"),
    ("a name for an axis", lambda: F.concat([A, A], "a"), TypeError, "str"),
    ("a name for an axis, flip", lambda: F.flip(A, "a"), TypeError, "str"),
    ("half an axis", lambda: F.moveaxis(A, (0, 1.0), (1, 0)), TypeError, "float"),
    ("a truth value for an axis", lambda: F.repeat(A, 1, True), TypeError, "True"),
    ("an extent", lambda: F.squeeze(A, 0), ValueError, "extent 2, not 1"),
    ("rows and matrices", lambda: F.vstack([A, A[0]]), InvalidType, "1 and 2"),
    ("rows and numbers", lambda: F.dstack([A[0, 0], A[0]]), InvalidType, "0 and 1"),
    ("two ellipses", lambda: F.get_item(A, (..., ...)), ValueError, "one ellipsis"),
    ("too many axes", lambda: F.scatter_add(A, (0, 0, 0), A), InvalidType, ">= 3"),
    ("a sum over an ellipsis", lambda: F.einsum("...i->i", A), ValueError, "summed over"),
    ("an ellipsis of nothing", lambda: F.einsum("ij->...", A), ValueError, "no input"),
    ("no variable", lambda: F.forget(lambda x: (x, x, 3), Variable(A)), RuntimeError, "the 3rd value it .* is int"),
    ("no share of weights", lambda: F.simplified_dropconnect(A, A, ratio=1.0), ValueError, r"\[0, 1\)"),
    ("no arrays", lambda: _Gives(object()).apply((A,)), TypeError, "must be a tuple of ndarrays"),
    ("no gaps", lambda: F.convolution_2d(A[None, None], A[None, None], dilate=0), ValueError, "at least 1"),
    ("an index in part", lambda: kusari.utils.get_order(np.array([0, -1]), np.array([1, 1])), ValueError, "negative"),
    ("no step", lambda: gradient_check.numerical_grad(lambda: (A,), (A,), (A,), eps=0), AssertionError, "positive"),
    ("no real numbers", lambda: kusari.testing.generate_matrix((2, 2), singular_values=1j), TypeError, "real"),
]  # fmt: skip


class _Gives(kusari.FunctionNode):
    def __init__(self, value: Any) -> None:
        self.value = value

    def forward(self, inputs: Any) -> Any:
        return self.value,


@pytest.mark.parametrize(("call", "error", "match"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


X = Variable(A)
NAMES: list[tuple[str, Callable[[], Any], str, str]] = [
    ("sum", lambda: X + X, "_ + _", "Add"), ("number right", lambda: X * -2.0, "_ * (-2.0)", "MulConstant"),
    ("number left", lambda: 2.0 - X, "2.0 - _", "SubFromConstant"), ("power", lambda: X ** 2, "_ ** 2", "PowVarConst"),
    ("exponent", lambda: 2 ** X, "2 ** _", "PowConstVar"), ("negative", lambda: -X, "__neg__", "Neg"),
    ("sin", lambda: F.sin(X), "sin", "Sin"), ("log1p", lambda: F.log1p(X), "log1p", "Log1p"),
    ("relu", lambda: F.relu(X), "ReLU", "ReLU"), ("rsqrt", lambda: F.rsqrt(X + 1), "rsqrt", "RsqrtGPU"),
    ("pooling", lambda: F.max_pooling_2d(A[None, None], 2), "MaxPooling2D", "MaxPooling2D"),
    ("convolution", lambda: F.convolution_2d(A[None, None], A[None, None]), *["Convolution2DFunction"] * 2),
]


@pytest.mark.parametrize(("call", "label", "name"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_labels_and_names(call: Callable[[], Any], label: str, name: str) -> None:
    with kusari.function_hooks.TimerHook() as hook:
        y = call()
    assert (y.creator.label, hook.call_history[-1][0]) == (label, name)
    assert hook.summary()[name]["occurrence"] == 1


@pytest.mark.parametrize(("call", "name", "value"), [
    (lambda: F.leaky_relu(X, 0.3), "slope", 0.3), (lambda: F.elu(X, alpha=2.0), "alpha", 2.0),
    (lambda: F.clip(X, 0.0, 1.0), "x_max", 1.0), (lambda: X + 2, "value", 2), (lambda: 2.5 - X, "value", 2.5)])
def test_elementwise_nodes_have_their_arguments(call: Callable[[], Any], name: str, value: float) -> None:
    creator = call().creator
    assert getattr(creator, name) == value
    assert not hasattr(creator, f"{name}_of_another")


def test_a_check_of_types_that_an_object_has_of_its_own() -> None:
    seen: list[Any] = []
    node: Any = _Gives(A)
    node.check_type_forward = seen.append
    node.apply((A,))
    assert len(seen) == 1


def test_expressions_inside_tuples_are_evaluated() -> None:
    x = kusari.utils.type_check.Variable(A, "x")
    kusari.utils.type_check.expect(x.shape == (2, x.shape[1]), kusari.utils.type_check.Constant([3]) == [x.shape[1]])


# What functions give


def test_soft_targets_get_no_gradient() -> None:
    x, t = Variable(A), Variable(np.full((2, 3), 1 / 3, "f"))
    for kind in ("cross-entropy", "kl-divergence"):
        F.softmax_cross_entropy(x, t, soft_target_loss=kind).backward()
        assert t.grad is None and x.grad is not None


def test_creators_of_losses_have_the_softmax() -> None:
    t = np.array([0, 2], "i")
    loss = F.softmax_cross_entropy(X, t)
    np.testing.assert_allclose(loss.creator.y, F.softmax(X).array, rtol=1e-5)
    assert F.softmax_cross_entropy(X, t, cache_score=False).creator.y is None


@pytest.mark.parametrize("options", [{}, {"train": False}, {"use_batchwise_mask": False}, {"b": A[0, :2]}])
@pytest.mark.parametrize("dtype", ["e", "f", "d"])
def test_masks_that_were_drawn(options: dict[str, Any], dtype: str) -> None:
    x, w = Variable(A.astype(dtype)), Variable(A)
    y = F.simplified_dropconnect(x, w, **{"b": None, **options})
    mask = y.creator.mask
    assert y.dtype == dtype and mask.shape == ((2, 2, 3) if options.get("use_batchwise_mask", True) else (2, 3))
    scale = 2 if options.get("train", True) else 1
    expected = np.einsum("ni,noi->no", A, np.broadcast_to(mask, (2, 2, 3)) * A) * scale + options.get("b", 0)
    np.testing.assert_allclose(y.array, expected, rtol=1e-3)
    kept = F.zoneout(x, x * 2)
    np.testing.assert_allclose(kept.array, x.array * kept.creator.flag_h + 2 * x.array * kept.creator.flag_x)
    dropped = F.dropout(x)
    np.testing.assert_allclose(dropped.array, x.array * dropped.creator.mask)


def test_gradient_checks_of_mixed_dtypes_and_numbers() -> None:
    x, w = A.astype("d"), A
    gradient_check.check_double_backward(
        lambda x, w: F.cast(x, "f") * w * w, (x, w), w, (x, w), atol=1e-1, rtol=1e-1, eps=1e-2)
    gradient_check.check_backward(lambda x: (x * 2, x * 3), A[:1, :1], (A[:1, :1], None), rtol=1e-2)
    found, = gradient_check.numerical_grad(lambda: (1,), (np.ones(1),), (2,))
    assert found.tolist() == [0]
    with pytest.raises(gradient_check.NondifferentiableError, match="not finite"):
        z = np.zeros(1)
        gradient_check.numerical_grad(lambda: (np.where(z > 0, np.nan, z),), (z,), (z + 1,),
                                      detect_nondifferentiable=True)


@pytest.mark.parametrize("function", ["BatchNormalization", "DecorrelatedBatchNormalization", "BatchRenormalization"])
def test_batches_that_are_computed_again_are_counted_once(function: str) -> None:
    kind = getattr(kusari.links, function)
    link = kind(3, groups=1) if function.startswith("Dec") else kind(3)
    F.sum(F.forget(lambda x: link(x, finetune=True), Variable(np.random.RandomState(0).randn(5, 3).astype("f")))
          ).backward()
    assert link.N == 1


@pytest.mark.parametrize("finetune", [False, True])
def test_batch_renormalization_is_computed_again_with_the_statistics_it_saw(finetune: bool) -> None:
    x, gy = np.random.RandomState(0).uniform(-1, 1, (2, 4, 3)).astype("f")
    found = []
    for forgets in False, True:
        link = kusari.links.BatchRenormalization(3, rmax=2.0, dmax=1.0)
        v = Variable(x)
        call = functools.partial(link, finetune=finetune)
        y = F.forget(call, v) if forgets else call(v)
        y.grad = gy
        y.backward()
        found.append([y.array, v.grad, link.gamma.grad, link.avg_mean, link.avg_var])
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)


def test_statistics_of_another_dtype() -> None:
    x = np.random.RandomState(0).randn(4, 2)
    y = F.fixed_decorrelated_batch_normalization(x, np.zeros((1, 2), "f"), np.eye(2, dtype="f")[None], 1)
    assert y.dtype == x.dtype
    np.testing.assert_allclose(y.array, x)


def test_local_convolutions_are_of_the_inputs_dtype() -> None:
    assert F.local_convolution_2d(A[None, None], np.ones((1, 2, 3, 1, 1, 1)), np.ones((1, 2, 3), "f")).dtype == "f"


def test_softplus_takes_an_array_without_axes() -> None:
    assert F.softplus(A, np.array(2.0)).dtype == np.float32


def test_one_class_and_one_sample() -> None:
    assert F.gumbel_softmax(np.array(3, "f")).array.tolist() == 1
    with pytest.warns(UserWarning, match="one sample"):
        F.batch_normalization(A[:1], A[0], A[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.batch_normalization(A[:1, :, None] + np.zeros(2, "f"), A[0], A[0])


@pytest.mark.parametrize("dtype", ["i", "?"])
def test_padding_is_for_floats_and_that_of_sequences_for_all(dtype: str) -> None:
    x = np.ones(2, dtype)
    with pytest.raises(InvalidType):
        F.pad(x, 1, "constant")
    assert F.pad_sequence([x, x[:1]], 3, 0).dtype == dtype


# Windows


@pytest.mark.parametrize("settings", [(2, 2, 2, 2, 0, 0), (2, 1, 1, 2, 1, 0), (3, 2, 4, 3, 2, 1)])
@pytest.mark.parametrize("more", [{}, {"cover_all": True}, {"dy": 2, "dx": 3}])
def test_windows_are_those_of_the_function(settings: tuple[int, ...], more: dict[str, Any]) -> None:
    conv = kusari.utils.conv
    kh, kw, sy, sx, ph, pw = settings
    x = np.random.RandomState(0).randn(2, 3, 7, 8)
    col = conv.im2col(x, *settings, **more)
    expected = F.im2col(Variable(x), (kh, kw), (sy, sx), (ph, pw), more.get("cover_all", False),
                        (more.get("dy", 1), more.get("dx", 1))).array
    np.testing.assert_array_equal(col.reshape(expected.shape), expected)
    spread = {k: v for k, v in more.items() if k != "cover_all"}
    back = conv.col2im(np.ones_like(col), sy, sx, ph, pw, 7, 8, **spread)
    assert (back * x).sum() == pytest.approx(col.sum())  # the one is the other's transpose
    with pytest.raises(AssertionError, match="one for each axis"):
        conv.im2col_nd(x, (2,), 1, 0)


def test_properties_that_are_computed_once() -> None:
    class Twice:
        count = 0

        @cached_property
        def value(self) -> Any:
            self.count += 1
            return F.exp(X)

    twice = Twice()
    first = twice.value
    with kusari.no_backprop_mode():
        assert twice.value is twice.value is not first
    assert twice.value is first and twice.count == 2
