"""static_graph(memory=...): less memory, the same bits; nothing random is drawn twice."""

from __future__ import annotations

import importlib
import weakref
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.static.signature import ArrayTypes, unpack
from kusari.static.source import Source
from kusari.static.trace.recording import begin
from kusari.tape import recording

DEPTH = 12


class Deep(kusari.Chain):
    """Layers whose activations cost to keep; dropout and batch normalization where asked for."""

    def __init__(self, dropout: bool = False, normalized: bool = False) -> None:
        super().__init__()
        self.dropout = dropout
        with self.init_scope():
            self.layers = kusari.ChainList(*(L.Linear(16, 16) for _ in range(DEPTH)))
            self.norms = kusari.ChainList(*(L.BatchNormalization(16) for _ in range(DEPTH if normalized else 0)))

    def loss(self, x: Any) -> Any:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if len(self.norms):
                x = self.norms[i](x)
            x = F.tanh(x)
            if self.dropout:
                x = F.dropout(x, 0.3)
        return F.mean(x * x)


class Recurrent(kusari.Chain):
    """A chain that stores its state, which no gradient comes from."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.lstm = L.LSTM(16, 16)

    def loss(self, x: Any) -> Any:
        self.lstm.reset_state()
        return sum(F.mean(self.lstm(x)) for _ in range(4))


CHAINS = {"deep": Deep, "dropout": lambda: Deep(dropout=True), "normalized": lambda: Deep(normalized=True),
          "recurrent": Recurrent}


@kusari.using_config("join_loops", False)
def trained(make: Any, memory: Any, whole: bool) -> tuple[Any, list[Any], int, str]:
    """Train for four steps; the chain, its numbers and losses, the bytes of frames, and the text on recomputation."""
    np.random.seed(0)
    chain = make()
    kind = type(chain)
    chain.__class__ = type(kind.__name__, (kind,), {"loss": kusari.static_graph(memory=memory, strict=True)(kind.loss)})
    optimizer = kusari.optimizers.SGD(0.1).setup(chain)
    x = np.random.rand(64, 16).astype(np.float32)
    numbers: list[Any] = []
    for _ in range(4):
        if whole:
            optimizer.update(chain.loss, x)
        else:
            chain.cleargrads()
            loss = chain.loss(x)
            loss.backward()
            optimizer.update()
            numbers.append(loss.array)
    numbers += [p.array for p in chain.params()]
    numbers += [link.avg_var for link in chain.links() if isinstance(link, L.BatchNormalization)]
    if whole:
        (step,) = [s for _, s in optimizer._steps.by_loss.values()]
        return chain, numbers, step.compiled.plan.arena_size, step.compiled.recomputation
    text = str(chain.static.explain("plan"))
    (schedule,) = [e for o in type(chain).loss.static.caches(chain) for e in o.entries.values()]
    size = sum(c.plan.arena_size for c in schedule.compiled)
    return chain, numbers, size, "".join(line for line in text.splitlines() if line.startswith("memory="))


@pytest.mark.parametrize(("name", "whole"), [
    ("normalized", False), *(pytest.param(name, whole, marks=pytest.mark.slow) for name, whole in (
        ("deep", False), ("deep", True), ("dropout", False), ("dropout", True), ("normalized", True),
        ("recurrent", False)))])
def test_same_bits_with_less_memory(name: str, whole: bool) -> None:
    _, expected, most, told = trained(CHAINS[name], "speed", whole)
    assert told == ""
    for memory in ("balanced", "low"):
        _, found, size, told = trained(CHAINS[name], memory, whole)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)
        assert size <= most
        assert told.startswith(f"memory={memory!r}: ")
    assert size < most


def stepped(memory: Any, make: Any, hooks: tuple[Any, ...]) -> tuple[Any, list[Any], str]:
    """Four whole steps of a normalized chain; the chain, all its numbers and those of its optimizer, what is told."""
    np.random.seed(0)
    kind = type("Other", (Deep,), {"loss": kusari.static_graph(memory=memory, strict=True)(Deep.loss)})
    chain = kind(normalized=True)
    optimizer = make().setup(chain)
    for hook in hooks:
        optimizer.add_hook(hook())
    chain.layers[3].W.update_rule.enabled = False
    x = np.random.rand(64, 16).astype(np.float32)
    for _ in range(4):
        optimizer.update(chain.loss, x)
    (step,) = [s for _, s in optimizer._steps.by_loss.values()]
    numbers = [p.array for p in chain.params()] + [link.avg_var for link in chain.links() if hasattr(link, "avg_var")]
    numbers += [a for p in chain.params() for a in (p.update_rule.state or {}).values()]
    return chain, [*numbers, chain.layers[3].W.grad], step.compiled.recomputation


@pytest.mark.parametrize(("make", "hooks"), [
    pytest.param(kusari.optimizers.Adam, (), marks=pytest.mark.slow),
    pytest.param(lambda: kusari.optimizers.MomentumSGD(0.1), (lambda: kusari.optimizer_hooks.WeightDecay(0.01),),
                 marks=pytest.mark.slow),
    (lambda: kusari.optimizers.SGD(0.1), (lambda: kusari.optimizer_hooks.GradientClipping(0.1),)),
])
def test_low_uses_up_gradients(make: Any, hooks: tuple[Any, ...]) -> None:
    """They are gone once the parameter is updated; what is not updated has its gradient."""
    speed, expected, _ = stepped("speed", make, hooks)
    chain, found, told = stepped("low", make, hooks)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(p.grad is not None for p in speed.params())
    assert [p for p in chain.params() if p.grad is not None] == [chain.layers[3].W]
    assert "of gradients, which are not kept" in told


def test_low_gives_gradients_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    from kusari.static.replay import arguments
    link, there = L.Linear(3, 2), []
    optimizer = kusari.optimizers.SGD(0.1).setup(link)
    monkeypatch.setattr(arguments, "TRIM_ABOVE_BYTES", 0)
    monkeypatch.setattr(arguments, "trim_heap", lambda: there.append(link.W.grad is not None))
    loss = kusari.static_graph(memory="low")(lambda x: F.sum(link(x) ** 2))
    for _ in range(2):
        optimizer.update(loss, np.ones((4, 3), np.float32))
    assert there == [False]  # it is called when those of the first step are gone


@pytest.mark.parametrize("whole", [False, True])
def test_memory_grows_slower_than_depth(whole: bool) -> None:
    _, _, most, _ = trained(Deep, "speed", whole)
    _, _, low, told = trained(Deep, "low", whole)
    assert low < 0.75 * most
    assert "computed again" in told


def test_a_limit_is_kept_where_possible() -> None:
    _, expected, most, _ = trained(Deep, "speed", True)
    _, found, size, told = trained(Deep, 0.9, True)
    assert size <= 0.9 * most
    assert told.startswith("memory=0.9: ")
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)
    _, _, size, told = trained(Deep, 1e9, True)
    assert size == most
    assert "nothing is computed again" in told and "missed" not in told
    _, _, size, told = trained(Deep, 0.01, True)
    assert size < most and "MB is missed" in told.replace("bytes", "MB")


def test_gradients_of_a_stored_state() -> None:
    """What was not expected is there nevertheless: a gradient that comes through the state."""
    def gradients(memory: Any) -> list[Any]:
        np.random.seed(0)
        chain = Recurrent()
        loss = kusari.static_graph(memory=memory, strict=True)(Recurrent.loss)
        x = np.random.rand(8, 16).astype(np.float32)
        for _ in range(3):
            chain.cleargrads()
            (loss(chain, x) + F.sum(chain.lstm.c)).backward()
        return [p.grad for p in chain.params()]

    for a, b in zip(gradients("speed"), gradients("low"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("memory", "error", "text"), [
    ("small", ValueError, "'speed', 'balanced', 'low'"), (0, ValueError, "above 0"), (True, TypeError, "a number"),
    (None, TypeError, "a number"),
])
def test_wrong_wishes(memory: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        kusari.static_graph(memory=memory)


def test_explain_reports_memory() -> None:
    chain, _, _, _ = trained(Deep, "speed", False)
    text = str(chain.static.explain("plan"))
    assert text.count("-- memory\narena ") == 2
    assert "kept for the backward" in text


def test_a_traced_call_keeps_no_more_than_define_by_run() -> None:
    """Nor does an array that lies where another one lay stand for that one's value."""
    tape, (x,) = begin([a := np.ones(4, np.float32)])
    with recording(tape), kusari.no_backprop_mode():
        h = F.exp(a)
        died, place = weakref.ref(h._array), id(h._array)
        h = F.sin(h)
        assert died() is None
        again = [array for array in (np.zeros(4, np.float32) for _ in range(50)) if id(array) == place]
        assert not any(tape.known(array) for array in again)
    first, second = tape.nodes
    assert first.inputs == (x,) and second.inputs == first.outputs and tape.known(h._array) is second.output


def test_tests_of_many_arguments_grow_with_their_number() -> None:
    """Not with its square: hundreds of arrays are common where a loop is unrolled."""
    arrays = tuple(np.zeros(2, np.float32) for _ in range(200))
    types = ArrayTypes.of(arrays, arrays)
    assert types is not None
    source = Source("test", "matches(args)")
    source.line(f"return {types.test(source, unpack(source, 'args', len(arrays)))}")
    matches = source.function()
    assert len(matches.__code__.co_code) < 200 * len(arrays)
    assert matches(arrays) and matches(arrays[::-1])
    assert not matches((*arrays[:-1], arrays[0])) and not matches((*arrays[:-1], np.zeros(3, np.float32)))


class Rectified(kusari.Chain):
    """Convolutions, normalizations and rectifiers, with pooling behind the first and a shortcut."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        with self.init_scope(), kusari.using_config("dtype", dtype):
            self.convolutions = kusari.ChainList(*(L.Convolution2D(n, 8, 3, pad=1, nobias=True) for n in (3, 8, 8)))
            self.norms = kusari.ChainList(*(L.BatchNormalization(8) for _ in range(3)))
            self.out = L.Linear(8 * 36, 4)

    def loss(self, x: Any, t: Any) -> Any:
        (a, b, c), (na, nb, nc) = self.convolutions, self.norms
        x = F.max_pooling_2d(F.relu(na(a(x))), 2)
        return F.softmax_cross_entropy(self.out(F.relu(nc(c(F.relu(nb(b(x))))) + x)), t)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_what_is_computed_again_for_nothing_changes_no_bit(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``"speed"``: parts of kernels, alone and inside others, give what the whole kernels gave."""
    monkeypatch.setattr("kusari.static.compile.finished._key", lambda *_: None)  # no plan comes from the disk
    found: list[list[Any]] = []
    sizes: list[int] = []
    recompute = importlib.import_module("kusari.passes.recompute")
    for share, least in ((0.0, 1 << 40), (9.0, 0)):
        monkeypatch.setattr(recompute, "TIME_SHARE", share)
        monkeypatch.setattr(recompute, "LEAST_LIVE_BYTES", least)
        np.random.seed(0)
        chain = Rectified(dtype)
        chain.__class__ = type("Static", (Rectified,), {"loss": kusari.static_graph(Rectified.loss)})
        optimizer = kusari.optimizers.MomentumSGD(0.1).setup(chain)
        x, t = np.random.rand(4, 3, 12, 12).astype(dtype), np.arange(4, dtype=np.int32)
        for _ in range(4):
            optimizer.update(chain.loss, x, t)
        (step,) = [s for _, s in optimizer._steps.by_loss.values()]
        found.append([p.array for p in chain.params()] + [p.grad for p in chain.params()])
        sizes.append(step.compiled.plan.arena_size)
        assert ("computed again, for hardly any time" in step.compiled.recomputation) == (len(sizes) == 2)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert sizes[1] < 0.95 * sizes[0]
