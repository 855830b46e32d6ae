"""ChainerX's names, its devices and contexts, and its data types."""
from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.chainerx as chx

# What the reference of Chainer 7.8.1 documents below `chainerx.`.
DOCUMENTED = """
empty empty_like eye identity ones ones_like zeros zeros_like full full_like array asarray asanyarray ascontiguousarray
copy frombuffer fromfile fromfunction fromiter fromstring loadtxt arange linspace diag diagflat meshgrid tri tril triu
log_softmax tanh relu sigmoid slstm tree_lstm reshape ravel transpose broadcast_to squeeze concatenate stack hstack
vstack dstack atleast_2d atleast_3d split dsplit vsplit hsplit swapaxes repeat expand_dims flip fliplr flipud moveaxis
accuracy take where nonzero dot linalg.cholesky linalg.qr linalg.svd linalg.eigh linalg.eigvalsh linalg.solve linalg.inv
linalg.pinv all any isinf isnan logical_and logical_or logical_xor logical_not greater greater_equal less less_equal
equal not_equal absolute_error squared_error huber_loss gaussian_kl_divergence sigmoid_cross_entropy
softmax_cross_entropy negative add subtract multiply divide mod remainder sum maximum minimum exp log log10 log2 log1p
logsumexp sqrt sin cos tan arcsin arccos arctan arctan2 sinh cosh arcsinh arccosh square clip fabs sign ceil floor
bitwise_and bitwise_or bitwise_xor left_shift right_shift random.normal random.uniform argmax argmin amax mean var conv
conv_transpose linear lstm batch_norm fixed_batch_norm max_pool average_pool n_step_lstm n_step_bilstm n_step_gru
n_step_bigru n_step_rnn n_step_birnn ndarray to_numpy backward no_backprop_mode force_backprop_mode
is_backprop_required Context Backend get_backend Device get_device get_default_device set_default_device using_device
""".split()
METHODS = """
T all any argmax argmin as_grad_stopped astype backward cleargrad clip copy data_ptr data_size device dot dtype fill
flatten get_grad grad is_backprop_required is_contiguous is_grad_required item itemsize max mean min nbytes ndim offset
ravel repeat require_grad reshape set_grad shape size squeeze strides sum swapaxes take to_device tolist transpose var
view
""".split()


def test_all_documented_names_are_there() -> None:
    assert len(DOCUMENTED) == 165
    for name in DOCUMENTED:
        found: Any = chx
        for part in name.split("."):
            found = getattr(found, part)
        assert found.__doc__, name
    assert [name for name in METHODS if not hasattr(chx.ndarray, name)] == []
    assert chx.is_available()
    assert [name for name in chx.__all__ if not hasattr(chx, name)] == []


def test_devices() -> None:
    device = chx.get_device("native:1")
    assert device is chx.get_device("native", 1) is chx.get_device(device) is pickle.loads(pickle.dumps(device))
    assert (device.name, device.index, device.backend.name) == ("native:1", 1, "native")
    assert chx.get_device("native") is chx.get_default_device() is chx.get_device()
    device.synchronize()
    with chx.using_device(device) as scope:
        assert scope.device is chx.zeros(2).device is chx.get_default_device() is device
    assert chx.zeros(2).device.name == "native:0"
    moved = chx.ones(3).to_device("native", 1)
    assert moved.device is device
    with pytest.raises(chx.DeviceError, match="several devices"):
        moved + chx.ones(3)
    with pytest.raises(chx.BackendError, match="no backend 'tpu'"):
        chx.get_device("tpu:0")
    with pytest.raises(chx.DeviceError, match="no device native:9"):
        chx.get_device("native:9")


@pytest.mark.skipif(kusari.cuda.available, reason="there is a card")
def test_cuda_without_cupy_names_what_to_install() -> None:
    for use in (lambda: chx.get_device("cuda:0"), lambda: chx.zeros(2, device="cuda:0"),
                lambda: kusari.get_device("cuda:0")):
        with pytest.raises(kusari.errors.DeviceError, match=r"pip install 'kusari\[gpu\]'"):
            use()


def test_contexts() -> None:
    context = chx.Context()
    with chx.context_scope(context):
        assert chx.get_default_context() is context
        assert chx.zeros(2).device.context is context is chx.get_backend("native").context
    assert chx.get_default_context() is chx.get_global_default_context() is not context
    before = chx.get_global_default_context()
    chx.set_global_default_context(None)
    try:
        with pytest.raises(chx.ContextError):
            chx.get_default_context()
    finally:
        chx.set_global_default_context(before)


TYPES = [  # operands, the type of their sum
    (("int8", "uint8"), "int16"), (("int64", "float16"), "float16"), (("float16", "float32"), "float32"),
    (("bool", "int8"), "int8"), (("int8", 1), "int8"), (("int8", 1.5), "float32"), (("float16", 2), "float16"),
    (("float32", np.float64(1)), "float32"), (("bool", True), "bool"), (("bool", 1), "int32"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "expected"), TYPES)
def test_types_of_operations(operands: tuple[Any, Any], expected: str) -> None:
    x, y = (chx.ones(2, one) if isinstance(one, str) else one for one in operands)
    assert (x + y).dtype == (y + x).dtype == np.dtype(expected)


@pytest.mark.parametrize(("result", "expected"), [
    (lambda x: chx.sin(x), "float32"), (lambda x: x / x, "float32"), (lambda x: x.sum(), "int64"),
    (lambda x: x.mean(), "float32"), (lambda x: x > 0, "bool"), (lambda x: x << 2, "int8"),
    (lambda x: chx.maximum(x, 2), "int8"), (lambda x: x.argmax(), "int64"),
])  # fmt: skip
def test_types_of_functions_of_integers(result: Any, expected: str) -> None:
    assert result(chx.array([1, 2, 3], "int8")).dtype == np.dtype(expected)


@pytest.mark.parametrize(("use", "error"), [
    (lambda x: x - x, "booleans"), (lambda x: -x, "booleans"), (lambda x: x.require_grad(), "no gradient"),
    (lambda x: x.astype("complex64"), "not supported"), (lambda x: x << 1, "not defined"),
    (chx.square, "booleans"), (lambda x: chx.maximum(x, chx.ones(2)), "booleans and numbers"),
    (lambda x: chx.minimum(chx.ones(2, "int8"), x), "booleans and numbers"),
    (lambda x: x == chx.ones(2), "booleans and numbers"), (lambda x: chx.ones(2) < x, "booleans and numbers"),
])  # fmt: skip
def test_types_that_do_not_fit(use: Any, error: str) -> None:
    with pytest.raises(chx.DtypeError, match=error) as caught:
        use(chx.ones(2, "bool"))
    assert isinstance(caught.value, (TypeError, chx.ChainerxError))


@pytest.mark.parametrize("use", [
    lambda x: x + chx.ones(2), lambda x: x.reshape(4), lambda x: x.sum(3), lambda x: x.transpose(0, 0),
    lambda x: float(x), lambda x: chx.concatenate([x, chx.ones((2, 2))], 0), lambda x: chx.linear(x, x.T),
    lambda x: x.dot(chx.ones((2, 2))), lambda x: chx.linalg.inv(x), lambda x: x.squeeze(0),
    lambda x: x[:1].squeeze((0, 0)), lambda x: chx.split(x, 1.5, 1),
])  # fmt: skip
def test_shapes_that_do_not_fit(use: Any) -> None:
    with pytest.raises(chx.DimensionError):
        use(chx.ones((2, 3)))
