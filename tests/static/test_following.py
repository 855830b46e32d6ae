"""What is applied to the results of a static function is compiled too: it equals define-by-run, and is seen to be."""
from __future__ import annotations

import copy
import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from static.followed import (
    IN_PARTS,
    LOSSES,
    Model,
    binary,
    both,
    cross_entropy,
    data,
    equal,
    gradients,
    joined,
    paths,
    runs,
    schedule,
    schedules,
    several,
    squares,
)

import kusari
import kusari.functions as F
from kusari import Variable
from kusari.static.composed import Composed
from kusari.static.follow import follow as follow_module
from kusari.static.follow import joint_backward
from kusari.static.follow.joint_backward import JointBackward
from kusari.tape import composed


@pytest.fixture(autouse=True)
def _on() -> Iterator[None]:
    with kusari.using_config("follow_static", True), kusari.using_config("keep_define_by_run", False):
        yield


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_every_loss_equals_define_by_run(loss: Callable[..., Any]) -> None:
    model = Model()
    for i in range(4):
        both(model, loss, *data(i))


@pytest.mark.parametrize("loss", [f for f in LOSSES if f not in IN_PARTS], ids=lambda f: f.__name__)
def test_the_backward_is_one_schedule(loss: Callable[..., Any]) -> None:
    model = Model()
    for i in range(5):
        gradients(model, loss, *data(i))
    x, t = data(5)
    y = loss(model, x, t)
    every = schedules(model, Model.forward, Model.two, Model.again)
    assert sum(isinstance(j, JointBackward) for e in every for j in e.tail.joined.values()) == 1
    before = [c._backwards.copy() for e in every for c in e.free]
    y.backward()
    assert before == [c._backwards for e in every for c in e.free]


def test_a_backward_of_its_own_is_compiled_when_it_is_needed() -> None:
    model = Model()
    for i in range(3):
        gradients(model, cross_entropy, *data(i))
    (owner,) = Model.forward.static.caches(model)
    (entry,) = owner.entries.values()
    assert [c.graph.name for c in entry.compiled] == ["forward"]
    y = model.forward(data(3)[0])
    y.grad = np.ones_like(y.array)
    y.backward()
    assert [c.graph.name for c in entry.compiled] == ["forward", "forward_backward"]


def test_functions_of_many_others_are_static_functions_of_their_own() -> None:
    model = Model()
    for i in range(5):
        both(model, paths, *data(i))
    x, t = data(5)
    loss = paths(model, x, t)
    inside = loss.creator.inputs[0].creator
    assert inside.label == "static connectionist_temporal_classification"
    assert {v.creator.label for v in inside.inputs} == {"static forward", "_ * 0.5", "sin"}
    text = str(model.static.explain("plan"))
    assert "connectionist_temporal_classification: a static function of its own" in text
    assert "static function connectionist_temporal_classification\n  1 schedule " in text
    (composed,) = schedule(model).tail.composed.values()
    gone = weakref.ref(composed.static)
    del model, loss, inside, composed
    gc.collect()
    assert gone() is None


def test_signatures_of_composed_functions_are_traced_when_they_come_often() -> None:
    """Of many: a loss over sequences of other lengths in every call is not traced every time."""
    model, n = Model(), Composed.soon
    model(data(0)[0])
    for length in range(1, n + 3):
        F.connectionist_temporal_classification([model(data(0)[0])] * length, np.ones((4, 1), "i"), 0)
    (composed,) = schedule(model).tail.composed.values()
    assert len(composed.static.signatures()) == n
    assert schedule(model).nbytes > sum(c.executable.report.bytes for c in schedule(model).compiled)


def test_composed_functions_that_are_not_static_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def reading(x: Any) -> Any:
        return F.sum(x) * float(x.array.sum())
    whole, model = composed()(reading), Model()
    for i in range(4):
        both(model, lambda m, x, t: whole(m(x)), *data(i))
    text = str(model.static.explain())
    assert "reading" in text and "fell back" in text


def test_losses_are_compiled_and_small_sums_are_not() -> None:
    model = Model()
    for i in range(4):
        gradients(model, several, *data(i))
    assert runs(model)["SoftmaxCrossEntropy"] == "compiled"
    assert "gain nothing" in runs(model)["_ + _"]
    text = str(model.static.explain("plan"))
    assert "SoftmaxCrossEntropy(f32[4,3], i32[4])" in text and "one schedule for the backward through" in text


def test_what_is_left_to_define_by_run_says_why() -> None:
    class Doubled(kusari.FunctionNode):
        def forward(self, inputs: Any) -> Any:
            return 2 * inputs[0],

        def backward(self, indexes: Any, grads: Any) -> Any:
            return 2 * grads[0],
    model = Model()
    for i in range(4):
        gradients(model, lambda m, x, t: F.sum(Doubled().apply((m(x),))[0]), *data(i))
    text = str(model.static.explain("plan"))
    assert re.search(r"Doubled of .*test_following.py:\d+: not compiled, Doubled states no expressions", text)


def test_large_arrays_are_added_by_kernels() -> None:
    model = Model()
    for i in range(4):
        both(model, squares, *data(i, 9000))
    assert runs(model)["Sum"] == runs(model)["_ * _"] == "compiled"


@pytest.mark.parametrize("name, value", [("follow_static", False), ("debug", True), ("use_static_graph", False)])
def test_it_can_be_switched_off(name: str, value: Any) -> None:
    model = Model()
    for i in range(3):
        gradients(model, cross_entropy, *data(i))
    y = model(data(3)[0])
    with kusari.using_config(name, value):
        loss = F.softmax_cross_entropy(y, data(3)[1])
    assert loss.creator._kind is None


def test_hooks_see_every_function_forward_and_backward() -> None:
    model, seen = Model(), []

    class Hook(kusari.FunctionHook):
        def forward_postprocess(self, function: Any, arrays: Any) -> None:
            seen.append(function.label)

        def backward_postprocess(self, function: Any, arrays: Any, gys: Any) -> None:
            seen.append("grad " + function.label)

    for i in range(3):
        gradients(model, cross_entropy, *data(i))
    x, t = data(3)
    loss = F.softmax_cross_entropy(model(x), t)
    with Hook():
        loss.backward()
    assert "grad SoftmaxCrossEntropy" in seen
    seen.clear()
    y = model(x)
    with Hook():
        loss = F.softmax_cross_entropy(y, t)
    own = F.softmax_cross_entropy(model(x), t)
    own.creator.add_hook(Hook())
    own.backward()
    assert seen == ["SoftmaxCrossEntropy", "grad SoftmaxCrossEntropy"]
    assert loss.creator._kind is None


def test_labels_changed_between_forward_and_backward_count_as_they_are_then() -> None:
    def loss(m: Any, x: Any, t: Any) -> Any:
        t = t.copy()
        y = F.softmax_cross_entropy(m(x), t)
        t[...] = 0
        return y
    model = Model()
    for i in range(4):
        both(model, loss, *data(i))


def test_a_result_changed_in_place_is_read_as_it_is_then() -> None:
    def loss(m: Any, x: Any, t: Any) -> Any:
        y = m(x)
        found = F.sum(y * y)
        y.array[...] = 1
        return found
    model = Model()
    for i in range(4):
        found = gradients(model, loss, *data(i))
        with kusari.using_config("follow_static", False):
            equal(found, gradients(model, loss, *data(i)))


def test_arrays_replaced_by_others_of_another_shape_are_not_read() -> None:
    model = Model()
    for i in range(3):
        gradients(model, squares, *data(i))
    y = model(data(3)[0])
    loss = F.sum(y * y)
    y.array = np.ones((2, 2), "f")
    with pytest.raises(ValueError, match="shape"):
        loss.backward()


def test_gradients_that_are_retained_come_from_define_by_run() -> None:
    model = Model()
    for i in range(3):
        gradients(model, squares, *data(i))
    for static in (True, False):
        with kusari.using_config("use_static_graph", static):
            x, _ = data(3)
            y = model(x)
            loss = F.sum(y * y)
            loss.backward(retain_grad=True)
            np.testing.assert_allclose(y.grad, 2 * y.array, 1e-5)
            assert loss.grad is not None


def test_several_losses_on_one_result_add_up() -> None:
    model = Model()
    for i in range(4):
        x, t = data(i)
        results = []
        for static in (True, False):
            with kusari.using_config("use_static_graph", static):
                model.cleargrads()
                y = model(x)
                first, second = F.softmax_cross_entropy(y, t), F.sum(y * y)
                first.backward()
                second.backward()
                first.backward()
                results.append({n: p.grad.copy() for n, p in model.namedparams() if p.grad is not None})
        equal(*results)


def test_gradients_of_gradients() -> None:
    def loss(m: Any, x: Any, t: Any) -> Any:
        x = Variable(x)
        y = F.softmax_cross_entropy(m(x), t)
        gx, = kusari.grad([y], [x], enable_double_backprop=True)
        assert gx is not None
        return F.sum(gx * gx)
    model = Model()
    for i in range(4):
        both(model, loss, *data(i))
        both(model, cross_entropy, *data(i), enable_double_backprop=True)


def test_gradients_of_the_argument_and_a_start_of_ones_own() -> None:
    model = Model()
    for i in range(4):
        found = []
        for static in (True, False):
            with kusari.using_config("use_static_graph", static):
                x = Variable(data(i)[0])
                model.cleargrads()
                x.grad = np.ones_like(x.array)
                result = model(x)
                y = F.softmax_cross_entropy(result, data(i)[1]) + F.sum(result * x[:, :3]) + F.sum(x * x[0, 0])
                y.grad = np.array(3, "f")
                y.backward()
                assert y.grad is None
                found.append({"x": x.grad, "W": model.l.W.grad})
        equal(*found)


def test_a_graph_that_is_cut_is_not_followed_behind() -> None:
    model = Model()
    for i in range(3):
        gradients(model, cross_entropy, *data(i))
    model.cleargrads()
    x, t = data(3)
    y = model(x)
    loss = F.softmax_cross_entropy(y, t)
    y.unchain_backward()
    loss.backward()
    assert model.l.W.grad is None
    assert y.grad is not None
    loss = F.softmax_cross_entropy(model(x), t)
    loss.unchain_backward()
    loss.backward()
    assert model.l.W.grad is None


def test_scaled_losses() -> None:
    model = Model()
    for i in range(4):
        both(model, cross_entropy, *data(i), loss_scale=4.0)


def test_labels_out_of_range_are_errors_as_ever() -> None:
    model = Model()
    for i in range(4):
        gradients(model, cross_entropy, *data(i))
    x, t = data(4)
    for wrong in (3, 7, -2):
        with pytest.raises(IndexError):
            F.softmax_cross_entropy(model(x), np.full_like(t, wrong))
    with pytest.raises(kusari.utils.type_check.InvalidType):
        F.softmax_cross_entropy(model(x), t[:2])


def test_a_class_derived_from_ours_is_its_own() -> None:
    from kusari.functions.loss.softmax_cross_entropy import SoftmaxCrossEntropy

    class Louder(SoftmaxCrossEntropy):
        def forward(self, inputs: Any) -> Any:
            return tuple(np.asarray(y * 2) for y in super().forward(inputs))

    model = Model()
    for i in range(4):
        x, t = data(i)
        y = model(x)
        loss, = Louder(True, -1, "mean").apply((y, t))[:1]
        np.testing.assert_allclose(loss.array, 2 * F.softmax_cross_entropy(y.array, t).array, 1e-5)
        assert loss.creator._kind is None


def test_literals_and_shapes_that_always_change_fill_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "MOST_KINDS", 40)
    monkeypatch.setattr(follow_module, "NEW_APPLICATIONS", 8)
    monkeypatch.setattr(joint_backward, "MOST_BACKWARDS", 3)
    monkeypatch.setattr(joint_backward, "SEEN_STRUCTURES", 10)
    model = Model()
    for i in range(25):
        both(model, lambda m, x, t, i=i: F.sum(m(x) * (0.5 + i)), *data(i))
    tail = schedule(model).tail
    assert len(tail.kinds) <= 40 and len(tail.joined) <= 10
    assert len(joined(model)) == 1
    for i in range(5):
        for _ in range(5):
            gradients(model, lambda m, x, t, i=i: F.sum(m(x)[i % 4:, i // 4:]), *data(i))
    assert len(joined(model)) == 3


def test_only_so_many_functions_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "COMPILED_FUNCTIONS", 1)
    model = Model()
    for i in range(4):
        both(model, lambda m, x, t: cross_entropy(m, x, t) + binary(m, x, t), *data(i))
    assert sorted(how.partition(" ")[0] for how in runs(model).values())[0] == "compiled"
    assert schedule(model).tail.compiled == 1


def test_labels_of_other_shapes_and_dtypes() -> None:
    model = Model()
    for i in range(10):
        x, t = data(i, 3 + i % 2)
        both(model, cross_entropy, x, t.astype("il"[i % 3 == 0]))
    for i in range(4):
        both(model, cross_entropy, *data(i, 0))
        both(model, cross_entropy, data(i)[0], np.repeat(data(i)[1], 2)[::2])


def test_copies_and_other_models_do_not_share_anything() -> None:
    model = Model()
    for i in range(3):
        gradients(model, cross_entropy, *data(i))
    other, third = copy.deepcopy(model), Model(1)
    other.l.W.array[...] = 0.25
    for i in range(3):
        for m in (other, model, third):
            both(m, cross_entropy, *data(i))


def test_parameters_replaced_between_steps_and_passes() -> None:
    model = Model()
    for i in range(5):
        both(model, cross_entropy, *data(i))
        model.l.W.array = model.l.W.array * 1.5
    x, t = data(9)
    loss = F.softmax_cross_entropy(model(x), t)
    model.l.W.array = np.zeros((3, 5), "f")
    model.cleargrads()
    loss.backward()
    assert model.l.W.grad is not None


def test_threads() -> None:
    model = Model()
    for i in range(3):
        gradients(model, cross_entropy, *data(i))
    wanted = [F.softmax_cross_entropy(model(data(i)[0]).array, data(i)[1]).array for i in range(20)]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(5):
            for i in range(20):
                loss = F.softmax_cross_entropy(model(data(i)[0]), data(i)[1])
                if abs(float(loss.array) - wanted[i]) > 1e-5:
                    wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.slow
def test_what_is_gone_is_freed() -> None:
    def run(m: Any, other: Any, i: int) -> None:
        x, t = data(i)
        m.cleargrads()
        F.softmax_cross_entropy(m(F.tanh(other.two(x)[0] + 1).reshape(-1)[:10].reshape(2, 5)), t[:2]).backward()

    model, first = Model(), Model(2)
    for i in range(4):
        run(model, first, i)
    assert len(joined(model)) == 1
    of_first = weakref.ref(first.l.W)
    del first
    gc.collect()
    assert joined(model) == []
    assert of_first() is None
    of_model = weakref.ref(model.l.W)
    del model
    gc.collect()
    assert of_model() is None


def test_verified_calls_are_not_followed() -> None:
    class Verified(Model):
        forward = kusari.static_graph(verify=1)(Model.forward.static.fn)

    model = Verified()
    for i in range(4):
        x, t = data(i)
        loss = F.softmax_cross_entropy(model(x), t)
        loss.backward()
        assert loss.creator._kind is None


@pytest.mark.parametrize("memory", ["balanced", "low"])
def test_schedules_that_compute_again(memory: str) -> None:
    class Lean(Model):
        forward = kusari.static_graph(memory=memory)(Model.forward.static.fn)

    model = Lean()
    for i in range(4):
        both(model, several, *data(i))
