"""Small things that Chainer 7.8.1 does, with what it gives."""
from __future__ import annotations

import contextlib
import copy
import enum
import io
import operator
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable, datasets, gradient_check, optimizers, testing
from kusari.backends import cuda
from kusari.training import extensions

X = np.arange(12, dtype="f").reshape(3, 4)
A = np.arange(6, dtype="f").reshape(2, 3)


class Two(enum.IntEnum):
    """An enumeration whose member is no literal when it is printed."""

    MEMBER = 2


class MyInt(int):
    """A kind of integer."""


class MyFloat(float):
    """A kind of number."""


@pytest.mark.parametrize("two", [Two.MEMBER, MyInt(2), MyFloat(2.0), np.float64(2), np.int64(2)])
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
                                operator.pow])
def test_kinds_of_numbers_are_numbers(op: Any, two: Any) -> None:
    x = Variable(np.full(2, 3, "f"))
    for y, expected in ((op(x, two), op(3.0, 2)), (op(two, x), op(2, 3.0))):
        assert y.dtype == np.float32
        np.testing.assert_allclose(y.array, expected, rtol=1e-6)


def test_unary_plus() -> None:
    x = Variable(np.ones(2, "f"))
    assert +x is x


@pytest.mark.parametrize("dtype", ["f", "e", "d"])
def test_a_matrix_product_takes_constants_in_the_variables_dtype(dtype: str) -> None:
    for constant in (np.ones((4, 2)), np.ones((4, 2), "i"), np.ones((4, 2), bool)):
        assert (Variable(X.astype(dtype)) @ constant).dtype == dtype
        assert (constant.T @ Variable(X.T.astype(dtype)[:, :4].copy())).dtype == dtype


INDICES: list[tuple[Any, Any]] = [
    ([[0, 1], [1, 2]], X[[0, 1], [1, 2]]), ([0, 1], X[:2]), ([[0, 1]], X[:2]), ([slice(0, 2), 1], X[:2, 1]),
    ([1, None], X[1, None]), ([True, False, True], X[::2]), ([Ellipsis, 1], X[..., 1]),
    ([slice(None), [0, 1]], X[:, :2]), ([[]], X[:0]), ((slice(None), []), X[:, :0]),
    ([np.array([0, 1]), np.array([1, 2])], X[[0, 1], [1, 2]]), (True, X[None]),
]  # fmt: skip


@pytest.mark.parametrize(("index", "expected"), INDICES, ids=[str(i) for i, _ in INDICES])
def test_a_list_as_an_index(index: Any, expected: Any) -> None:
    x = Variable(X)
    for y in (F.get_item(x, index), x[index]):
        np.testing.assert_array_equal(y.array, expected)


@pytest.mark.parametrize("call", [
    lambda axis: F.bias(A, A[0], axis), lambda axis: F.scale(A, A[0], axis),
    lambda axis: F.permutate(A, np.array([2, 0, 1]), axis),
])
def test_an_axis_that_is_an_array_stays_as_it_is(call: Callable[[Any], Any]) -> None:
    axis = np.array(-1)
    np.testing.assert_array_equal(call(axis).array, call(1).array)
    assert axis == -1


OUT_OF_RANGE: dict[str, Callable[[], Any]] = {
    "softmax_cross_entropy": lambda: F.softmax_cross_entropy(A, np.array([0, 3], "i")),
    "softmax_cross_entropy below": lambda: F.softmax_cross_entropy(A, np.array([0, -2], "i")),
    "select_item": lambda: F.select_item(A, np.array([0, 3], "i")),
    "embed_id": lambda: F.embed_id(np.array([0, 3], "i"), A),
    "embed_id below": lambda: F.embed_id(np.array([0, -1], "i"), A),
    "permutate": lambda: F.permutate(A, np.array([0, 3], "i")),
    "permutate twice": lambda: F.permutate(A, np.array([0, 0], "i")),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_debug_mode_looks_for_what_is_out_of_range(name: str) -> None:
    with kusari.using_config("debug", True), pytest.raises(ValueError, match="needs to satisfy|twice"):
        OUT_OF_RANGE[name]()


def test_debug_mode_lets_ignored_labels_pass() -> None:
    with kusari.using_config("debug", True):
        F.softmax_cross_entropy(A, np.array([0, -1], "i"))
        F.embed_id(np.array([0, -1], "i"), A, ignore_label=-1)


def test_det_of_a_matrix_with_axes_of_one() -> None:
    a = np.array([[1, 2], [3, 5]], "f")
    np.testing.assert_allclose(F.det(a.reshape(2, 2, 1, 1)).array, -1, rtol=1e-5)
    gradient_check.check_backward(F.det, a.reshape(2, 2, 1, 1).astype("d"), np.ones(()), rtol=1e-3)


@pytest.mark.parametrize("arrays", [True, False])
def test_forget_gives_parameters_gradients(arrays: bool) -> None:
    w, x = Variable(np.full(2, 3, "f")), np.ones(2, "f")
    F.sum(F.forget(lambda x: x * w, x if arrays else Variable(x))).backward()
    np.testing.assert_array_equal(w.grad, 1)


def test_gradient_checks_take_nan_for_nan() -> None:
    x, g = np.array([1, np.nan, 2], "f"), np.ones(3, "f")
    gradient_check.check_backward(lambda x: x * x, x, g, rtol=1e-2)
    gradient_check.check_double_backward(lambda x: x * x, x, g, g, rtol=1e-2)
    with pytest.raises(AssertionError):
        gradient_check.check_backward(lambda x: x * 2, x, np.array([1, 1, np.inf], "f"), eps=np.nan)


def test_a_function_of_the_old_style_may_give_a_list() -> None:
    class Halves(kusari.Function):
        def forward(self, inputs: Any) -> Any:
            return inputs[0] * 2, inputs[1] * 3

        def backward(self, inputs: Any, grad_outputs: Any) -> Any:
            return [grad_outputs[0] * 2, grad_outputs[1] * 3]

    x, y = Variable(np.ones(2, "f")), Variable(np.ones(2, "f"))
    a, b = Halves()(x, y)
    F.sum(a + b).backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2, 2], [3, 3])


# Gradients set by hand


@pytest.mark.parametrize("keep", [False, True])
def test_a_gradient_set_on_another_output_counts(keep: bool) -> None:
    x = Variable(A)
    a, b, c = F.split_axis(x * 2, 3, 1)
    a.grad = np.full((2, 1), 5, "f")
    F.sum(b * 3).backward(retain_grad=keep)
    np.testing.assert_array_equal(x.grad, [[10, 6, 0]] * 2)
    assert (a.grad is None) is not keep and (b.grad is None) is not keep and c.grad is None


def test_a_gradient_that_comes_takes_the_place_of_one_set_before() -> None:
    x = Variable(A)
    y = x * 2
    y.grad = np.full((2, 3), 100, "f")
    F.sum(y * 3).backward()
    assert (x.grad == 6).all() and (y.grad == 100).all()


@pytest.mark.parametrize("loss", ["inside", "after", "apart"])
def test_gradients_set_on_results_of_a_static_call(loss: str) -> None:
    """Three results: h depends on c, d on neither."""
    def step(x: Any) -> Any:
        c, d, _ = F.split_axis(F.tanh(x), 3, 1)
        h = F.sin(c)
        return c, d, F.sum(h) if loss == "inside" else h

    def run(function: Any) -> list[Any]:
        found = []
        for _ in range(4):
            x = Variable(A)
            c, d, h = function(x)
            c.grad, d.grad = np.full((2, 1), 5, "f"), np.full((2, 1), 7, "f")
            if loss == "after":
                h = F.sum(h * 2)
            elif loss == "apart":
                h.grad = np.ones((2, 1), "f")
            h.backward()
            found.append(x.grad)
        return found

    np.testing.assert_allclose(run(kusari.static_graph(step)), run(step), rtol=1e-5)


# Parameters that are shared before their shapes are known


@pytest.mark.parametrize("share", [
    lambda link: [link, link.copy()], lambda link: [link.copy("share"), link], lambda link: link.repeat(2, "share"),
    lambda link: [layer[0] for layer in kusari.Sequential(link).repeat(2, "share")],
])
def test_shared_parameters_of_unknown_shapes(share: Callable[[Any], Any]) -> None:
    first, second = share(L.Linear(3))
    first(np.ones((1, 3), "f"))
    assert first.W is not second.W
    assert first.W.array is second.W.array and first.b.array is second.b.array
    assert second.W.grad is None
    second.cleargrads()
    F.sum(second(np.ones((1, 3), "f"))).backward()
    assert (second.W.grad == 1).all() and second.W.node.shape == (3, 3)


def test_what_shares_and_what_does_not() -> None:
    a = L.Linear(3)
    b, c = a.copy(), a.copy("copy")
    d = copy.deepcopy(b)
    file = io.BytesIO()
    kusari.serializers.save_npz(file, L.Linear(2, 3))
    file.seek(0)
    kusari.serializers.load_npz(file, b)
    assert a.W.array is b.W.array is not None
    assert c.W.array is d.W.array is None
    a.W.array = np.zeros((3, 2), "f")
    assert b.W.array is a.W.array


# Update rules


@pytest.mark.parametrize("name", optimizers.__all__)
def test_a_parameter_without_axes(name: str) -> None:
    found = []
    for shape in ((), (1,)):
        link = kusari.Link()
        with link.init_scope():
            link.p = kusari.Parameter(np.ones(shape, "f"))
        optimizer = getattr(optimizers, name)().setup(link)
        for _ in range(3):
            optimizer.update(lambda link=link: F.sum(link.p * link.p * 3))
        assert type(link.p.array) is np.ndarray and link.p.shape == shape
        found.append(float(link.p.array.sum()))
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def rules() -> Iterator[tuple[Any, list[float]]]:
    from kusari.optimizers import (
        ada_delta,
        ada_grad,
        adam,
        corrected_momentum_sgd,
        momentum_sgd,
        msvag,
        nesterov_ag,
        rmsprop,
        sgd,
        smorms3,
    )
    yield ada_delta.AdaDeltaRule, 0.9909991
    yield ada_grad.AdaGradRule, 0.9982929
    yield adam.AdamRule, 0.998
    yield corrected_momentum_sgd.CorrectedMomentumSGDRule, 0.9855
    yield momentum_sgd.MomentumSGDRule, 0.9855
    yield msvag.MSVAGRule, 0.9
    yield nesterov_ag.NesterovAGRule, 0.9692549
    yield rmsprop.RMSpropRule, 0.82911193
    yield rmsprop.RMSpropGravesRule, 0.9987955
    yield sgd.SGDRule, 0.99
    yield smorms3.SMORMS3Rule, 0.9973905


@pytest.mark.parametrize(("rule", "expected"), list(rules()))
def test_a_rule_on_its_own_has_its_optimizers_defaults(rule: Any, expected: float) -> None:
    p = kusari.Parameter(np.ones(2, "f"))
    p.update_rule, p.grad = rule(), np.full(2, 0.5, "f")
    p.update()
    p.update()
    np.testing.assert_allclose(p.array, expected, rtol=1e-5)


# Tests with parameters


def test_parameters_that_are_functions_are_not_bound() -> None:
    class TestCase:
        f: Any

        def test(self) -> Any:
            return self.f(4.0)

    name = TestCase.__name__ + "_param_0_{f="
    testing.parameterize({"f": lambda x: x + 1})(TestCase)
    case = next(value for key, value in list(globals().items()) if key.startswith(name))
    assert case().test() == 5
    del globals()[case.__name__]


# Deprecated names

def _without_cards(call: Callable[[], Any]) -> None:
    with contextlib.suppress(kusari.errors.DeviceError):
        call()


DEPRECATED: dict[str, Callable[[], Any]] = {
    "Variable.zerograd is": lambda: Variable(A).zerograd(),
    "chainer.DebugMode is": lambda: kusari.DebugMode(True),
    "batch_matmul is": lambda: F.batch_matmul(A[None], A[None], transb=True),
    "fixed_batch_renormalization is": lambda: F.fixed_batch_renormalization(A, *[np.ones(3, "f")] * 4),
    "GradientMethod.use_cleargrads is": lambda: optimizers.SGD().use_cleargrads(),
    "to_cpu is": lambda: L.Linear(1, 1).to_cpu(),
    "get_device is": cuda.get_device,
    "The stream option is": lambda: _without_cards(lambda: cuda.to_gpu(A, stream=1)),
    "is_linear option is": lambda: testing.unary_math_function_unittest(F.sin, is_linear=False),
    "Link.zerograds is": lambda: L.Linear(1, 1).zerograds(),
    "retain_after_backward option has": lambda: kusari.Function().retain_outputs((), retain_after_backward=True),
    "sep argument in chainer.function_hooks.PrintHook is": lambda: kusari.function_hooks.PrintHook(sep=","),
    "Argument `num_retain` is": lambda: extensions.snapshot(num_retain=2),
    "Argument `n_fold` is": lambda: datasets.get_cross_validation_datasets(A, n_fold=2),
    "chainer.optimizer.WeightDecay is": lambda: kusari.optimizer.WeightDecay(0.1),
    "chainer.optimizer.GradientClipping is": lambda: kusari.optimizer.GradientClipping(0.1),
}


@pytest.mark.parametrize("message", DEPRECATED)
def test_deprecated_names_warn(message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(DeprecationWarning, match=message):
            DEPRECATED[message]()


def test_deprecated_names_for_the_learning_rate_of_adam() -> None:
    optimizer = optimizers.Adam().setup(link := L.Linear(1, 1))
    optimizer.update(lambda: F.sum(link.W))
    with pytest.warns(DeprecationWarning, match="Adam.lr has been renamed"):
        assert optimizer.lr == optimizer.alpha_t
    with pytest.warns(DeprecationWarning, match="AdamRule.lr has been renamed"):
        assert link.W.update_rule.lr == optimizer.alpha_t


# Keyword arguments


def test_arguments_taken_out_of_keywords() -> None:
    from kusari.utils import argument

    def function(**kwargs: Any) -> Any:
        argument.check_unexpected_kwargs(kwargs, gone="gone is not supported anymore")
        found = argument.parse_kwargs(kwargs, ("a", 1), ("b", 2))
        argument.assert_kwargs_empty(kwargs)
        return found

    assert function() == (1, 2)
    assert function(b=5) == (1, 5)
    with pytest.raises(TypeError, match=r"function\(\) got unexpected keyword argument\(s\) 'x', 'y'"):
        function(x=1, y=2)
    with pytest.raises(ValueError, match="gone is not"):
        function(gone=1)


def test_a_static_function_that_is_define_by_run_in_tests() -> None:
    calls = []

    @kusari.static_graph(force_test_define_by_run=True)
    def function(x: Any) -> Any:
        if not kusari.config.train:
            calls.append(1)
        return F.tanh(x)

    for train in (True, False, False, True):
        with kusari.using_config("train", train):
            np.testing.assert_allclose(function(Variable(A)).array, np.tanh(A), rtol=1e-6)
    assert len(calls) == 2


# Texts and graphs


def test_texts() -> None:
    assert repr(Variable(np.zeros((0, 2), "f"))) == "variable([], shape=(0, 2))"
    assert str(Variable(np.zeros((0, 2), "f"))) == repr(Variable(np.zeros(0, "f"))) == "variable([])"
    assert Variable(A, grad=np.zeros_like(A)).debug_print().endswith("\n- grad: 0")
    assert Variable(name="x").debug_print().splitlines()[1:3] == ["- device: None", "- backend: None"]


def test_lambdas_of_a_sequential_are_shown_as_they_are_written() -> None:
    model = kusari.Sequential(
        lambda x: F.leaky_relu(x, slope=0.2),
        F.relu,
    )
    assert "(0): lambda x: F.leaky_relu(x, slope=0.2),\n  (1): <elementwise function relu>" in str(model)
    assert "<lambda> at 0x" in str(kusari.Sequential(lambda x: x, lambda x: x + 1))


def test_a_cast_to_the_same_dtype_is_a_variable_of_its_own() -> None:
    x = Variable(A)
    assert F.copy(x, kusari.backends.cuda.DummyDevice).array.tolist() == A.tolist()
    first, second = F.cast(x, "f"), F.cast(x, "f")
    assert [g.array.tolist() for g in kusari.grad([first + second], [first, second])] == [np.ones_like(A).tolist()] * 2
    assert first.array is A
    with kusari.no_backprop_mode():
        assert F.cast(x, "f") is x


def test_a_variable_that_is_given_no_creator() -> None:
    for forget in (lambda y: setattr(y, "creator", None), lambda y: setattr(y, "creator_node", None)):
        y = Variable(A) * 2
        forget(y)
        assert (y.creator, y.rank) == (None, 1)


@pytest.mark.parametrize("dtypes", ["ef", "fe", "fd", "de"])
@pytest.mark.parametrize("first", [True, False])
def test_a_sparse_product_is_of_the_wider_dtype(dtypes: str, first: bool) -> None:
    dense, sparse = Variable(X.astype(dtypes[0])), kusari.utils.to_coo(X.T.astype(dtypes[1]), requires_grad=True)
    y = F.sparse_matmul(dense, sparse) if first else F.sparse_matmul(sparse, dense)
    assert y.dtype == np.result_type(*dtypes)
    np.testing.assert_allclose(y.array, X @ X.T if first else X.T @ X)
    y.grad = np.ones_like(y.array)
    y.backward()
    assert (dense.grad.dtype, sparse.data.grad.dtype) == (dense.dtype, sparse.data.dtype)


def test_utilities() -> None:
    assert issubclass(list, kusari.utils.collections_abc.Iterable)
    assert (kusari.utils.size_of_shape((2, 3)), kusari.utils.size_of_shape(())) == (6, 1)
    for shape in ((), (3,), (1, 3), (2, 1), (1, 1), (2, 3)):
        np.testing.assert_array_equal(kusari.utils.sum_to(A, shape), F.sum_to(A, shape).array)
    with kusari.utils.tempdir() as folder:
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)


# Links, hooks and iterators


@pytest.mark.parametrize("hook", [kusari.link_hooks.WeightStandardization, kusari.link_hooks.SpectralNormalization])
def test_a_hook_that_refuses_to_be_every_links_is_not_left_behind(hook: Any) -> None:
    link = L.Linear(2, 2)
    with pytest.raises(NotImplementedError), hook():
        pass
    for _ in range(2):
        assert type(link(A[:, :2]).array) is np.ndarray


def test_initializers_of_maxout_see_all_axes() -> None:
    seen = []

    def fill(array: Any) -> None:
        seen.append(array.shape)
        array[...] = np.arange(array.size).reshape(array.shape)

    link = L.Maxout(2, 3, 4, fill, fill)
    assert seen == [(3, 4, 2), (3, 4)]
    np.testing.assert_array_equal(link.linear.W.array.ravel(), np.arange(24))
    np.testing.assert_array_equal(link.linear.b.array, np.arange(12))


@pytest.mark.parametrize("kind", ["SerialIterator", "MultithreadIterator"])
def test_iterators_of_old_archives(kind: str) -> None:
    def make() -> Any:
        return getattr(kusari.iterators, kind)(list(range(6)), 2)

    iterator, target = make(), {}
    first = [iterator.next(), iterator.next()]
    iterator.serialize(kusari.serializers.DictionarySerializer(target))
    target["_order"] = target.pop("order" if "order" in target else "_order")
    del target["previous_epoch_detail"]
    other = make()
    other.serialize(kusari.serializers.NpzDeserializer(target))
    assert other.previous_epoch_detail == pytest.approx(2 / 6)
    assert sorted(sum(first, other.next())) == list(range(6))
    iterator.finalize()
    other.finalize()


def test_a_multithread_iterator_starts_again() -> None:
    iterator = kusari.iterators.MultithreadIterator([1, 2, 3, 4], 2, repeat=False, shuffle=False)
    iterator.next()
    iterator.finalize()
    iterator.reset()
    assert iterator.next() == [1, 2]
    iterator.finalize()


def test_epochs_of_a_part_of_an_iteration() -> None:
    trainer = testing.get_trainer_with_mock_updater((5, "iteration"), 2.5)
    new = []
    trainer.extend(lambda trainer: new.append(trainer.updater.is_new_epoch), "new")
    trainer.out = ""
    trainer.run()
    assert new == [False, False, True, False, True]
