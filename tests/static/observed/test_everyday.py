"""Programs as people write them for Chainer: what each does is compared, and whether it replays."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable

ROWS = Rows()


class PairwiseMax(kusari.Function):
    """A function of the old style, whose forward fills an array that it has made."""

    def forward(self, inputs: Any) -> Any:
        x, = inputs
        y = np.zeros((len(x), x.shape[1] // 2), x.dtype)
        self.places = np.empty(y.shape, np.int32)
        for j in range(y.shape[1]):
            pair = x[:, 2 * j:2 * j + 2]
            self.places[:, j] = pair.argmax(axis=1)
            y[:, j] = pair.max(axis=1)
        return y,

    def backward(self, inputs: Any, grads: Any) -> Any:
        x, = inputs
        gx = np.zeros_like(x)
        for j in range(self.places.shape[1]):
            gx[np.arange(len(x)), 2 * j + self.places[:, j]] = grads[0][:, j]
        return gx,


@ROWS.replays
def a_function_fills_an_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        return PairwiseMax()(F.tanh(self.l(x)))
    model = build(decorate(body))
    return lambda i, x: model(x)


class Gather(kusari.FunctionNode):
    """A function of the new style that keeps an array of its own for its gradient."""

    def __init__(self, n: int) -> None:
        self.n = n

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs(())
        x, = inputs
        self.shape = x.shape
        self.order = np.empty(self.n, np.int64)
        self.order[:] = np.arange(self.n)[::-1]
        return x[:, self.order].copy(),

    def backward(self, indexes: Any, gys: Any) -> Any:
        made = np.zeros(self.shape, np.float32)
        made[:, self.order] = gys[0].array
        return Variable(made),


@ROWS.replays
def a_function_keeps_an_order(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        return Gather(3).apply((F.tanh(self.l(x)),))[0] * 2
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_function_of_an_array_made_in_the_call(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        mask = np.zeros((len(x), 4), np.float32)
        mask[:, 1:3] = 1
        return PairwiseMax()(F.tanh(self.l(x)) * mask) + PairwiseMax()(mask)
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_function_of_a_filled_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        block = np.zeros((len(x), 4), np.float32)
        block[:, :2] = x[:, 2:]
        return F.tanh(self.l(x))[:, :2] + PairwiseMax()(block)
    model = build(decorate(body))
    return lambda i, x: model(x)


class ThinStack(kusari.Function):
    """A stack of states in one array, which its forward changes in place."""

    def forward(self, inputs: Any) -> Any:
        stack, state, at = inputs
        stack[np.arange(len(stack)), at] = state
        return stack,

    def backward(self, inputs: Any, grads: Any) -> Any:
        gs, = grads
        _, _, at = inputs
        rows = np.arange(len(gs))
        g = gs[rows, at].copy()
        gs[rows, at] = 0
        return gs, g, None


@ROWS.either
def a_thin_stack(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        stack = Variable(np.zeros((len(x), 3, 4), np.float32))
        at = np.zeros(len(x), np.int32)
        h = F.tanh(self.l(x))
        for _ in range(3):
            stack = ThinStack()(stack, h, at)
            at = at + 1
            h = F.tanh(h)
        return F.sum(stack, axis=1)
    model = build(decorate(body))
    return lambda i, x: model(x)


# -- counts -----------------------------------------------------------------------------------------------------------


def counting(change: Any, **attributes: Any) -> Any:
    def program(decorate: Any) -> Any:
        def body(self: Any, x: Any) -> Any:
            h = F.tanh(self.l(x))
            change(self, x, h)
            return h
        model = build(decorate(body), **{k: v.copy() for k, v in attributes.items()})

        def call(i: int, x: Any) -> Any:
            if i == CHANGED:
                for name in attributes:
                    if isinstance(getattr(model, name), np.ndarray):
                        getattr(model, name)[...] = 5
            return model(x), {k: getattr(model, k) for k in attributes}
        return call
    return program


def at_a_constant(self: Any, x: Any, h: Any) -> None:
    self.counts[1] += 1


def at_a_computed_place(self: Any, x: Any, h: Any) -> None:
    for i in np.argmax(x, axis=1):
        self.counts[i] += 1


def at_computed_places(self: Any, x: Any, h: Any) -> None:
    np.add.at(self.counts, np.argmax(h.array, axis=1), 1)


def with_a_bincount(self: Any, x: Any, h: Any) -> None:
    self.counts += np.bincount(np.argmax(h.array, axis=1), minlength=4)


def a_confusion_matrix(self: Any, x: Any, h: Any) -> None:
    for t, p in zip(np.argmax(x, axis=1), np.argmax(h.array, axis=1), strict=True):
        self.matrix[t, p] += 1


def a_part_and_a_number(self: Any, x: Any, h: Any) -> None:
    self.rows[0] *= 0.5
    self.rows[0] += 0.5 * h.array.mean(axis=0)
    self.rows[1, 2] += float(h.array.sum())


def a_twice_changed_count(self: Any, x: Any, h: Any) -> None:
    self.counts[1] += 1
    self.counts[1] += len(x)
    self.counts[2] -= 1


def sets(self: Any, x: Any, h: Any) -> None:
    self.seen |= {len(x)}


def more_sets(self: Any, x: Any, h: Any) -> None:
    self.seen |= set(range(len(self.rows)))
    self.seen &= {0, 1, 2, 9}
    self.seen -= {1}
    self.seen ^= {2, 7}


for name, change, attributes in (
        ("at_a_constant", at_a_constant, {"counts": np.zeros(4, np.int64)}),
        ("at_a_computed_place", at_a_computed_place, {"counts": np.zeros(4, np.int64)}),
        ("at_computed_places", at_computed_places, {"counts": np.zeros(4, np.int64)}),
        ("with_a_bincount", with_a_bincount, {"counts": np.zeros(4, np.int64)}),
        ("a_twice_changed_count", a_twice_changed_count, {"counts": np.zeros(4, np.int64)}),
        ("a_confusion_matrix", a_confusion_matrix, {"matrix": np.zeros((4, 4), np.int32)}),
        ("a_part_and_a_number", a_part_and_a_number, {"rows": np.zeros((3, 4), np.float32)}),
        ("sets", sets, {"seen": set()}), ("more_sets", more_sets, {"seen": {1}, "rows": np.zeros(2)})):
    program = counting(change, **attributes)
    program.__name__ = name
    ROWS.replays(program)


@ROWS.either  # a trace for each place
def a_row_at_the_step(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.rows[self.at] = h.array[0]
        self.at = (self.at + 1) % 3
        return h
    model = build(decorate(body), rows=np.zeros((3, 4), np.float32), at=0)
    return lambda i, x: (model(x), model.rows, model.at)


COUNTS = np.zeros(4, np.int64)
SEEN: Any = set()


@ROWS.replays
def a_global_count(decorate: Any) -> Any:
    global COUNTS, SEEN
    COUNTS = np.zeros(4, np.int64)
    SEEN = set()

    def body(self: Any, x: Any) -> Any:
        global SEEN
        h = F.tanh(self.l(x))
        COUNTS[2] += 1
        SEEN |= {3}
        return h
    model = build(decorate(body))
    return lambda i, x: (model(x), COUNTS, SEEN)


# -- functions and outside arrays that change -------------------------------------------------------------------------


@ROWS.replays
def a_function_reads_a_changed_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.mean *= 0.9
        self.mean += 0.1 * h.array.mean(axis=0)
        return PairwiseMax()(h - self.mean)
    model = build(decorate(body), mean=np.zeros(4, np.float32))
    return lambda i, x: (model(x), model.mean)


@ROWS.replays
def a_function_after_a_change(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.mean *= 0.9
        self.mean += 0.1 * h.array.mean(axis=0)
        return PairwiseMax()(h)
    model = build(decorate(body), mean=np.zeros(4, np.float32))
    return lambda i, x: (model(x), model.mean)


@ROWS.replays
def functions_after_a_count(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.n += 1
        return PairwiseMax()(F.tanh(self.l(x)))
    model = build(decorate(body), n=0)
    return lambda i, x: (model(x), model.n)


@ROWS.replays
def a_functional_reads_a_changed_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.mean *= 0.9
        self.mean += 0.1 * h.array.mean(axis=0)
        return h - self.mean
    model = build(decorate(body), mean=np.zeros(4, np.float32))
    return lambda i, x: (model(x), model.mean)


@ROWS.replays
def a_codebook_by_averages(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        d = ((h.array[:, None] - self.book[None]) ** 2).sum(axis=2)
        nearest = d.argmin(axis=1)
        hot = np.eye(len(self.book), dtype="f")[nearest]
        self.sizes *= 0.9
        self.sizes += 0.1 * hot.sum(axis=0)
        self.sums *= 0.9
        self.sums += 0.1 * hot.T.dot(h.array)
        q = self.book[nearest]
        loss = F.mean((h - q) ** 2)
        self.book[...] = self.sums / (self.sizes[:, None] + 1e-5)
        return loss
    model = build(decorate(body), book=np.random.RandomState(3).randn(5, 4).astype("f"), sizes=np.ones(5, "f"),
                  sums=np.ones((5, 4), "f"))
    return lambda i, x: (model(x), model.book, model.sizes, model.sums)


@ROWS.replays
def a_target_network(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        q = self.l(x)
        with kusari.no_backprop_mode():
            best = F.max(self.target(x), axis=1)
        y = F.select_item(q, np.argmax(q.array, axis=1).astype("i"))
        return F.mean(F.huber_loss(y[:, None], (0.9 * best)[:, None], 1.0, reduce="no"))
    model = build(decorate(body), target=L.Linear(4, 4))
    return lambda i, x: model(x)


@ROWS.replays
def a_policy_gradient(decorate: Any) -> Any:
    def body(self: Any, x: Any, a: Any, r: Any) -> Any:
        logp = F.log_softmax(self.l(x))
        returns = np.zeros(len(r), np.float32)
        running = 0.0
        for t in reversed(range(len(r))):
            running = r[t] + 0.9 * running
            returns[t] = running
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        return -F.mean(F.select_item(logp, a) * returns)
    model = build(decorate(body))
    return lambda i, x: model(x, np.array([i % 4, 1, 2], "i"), x[:, 0].copy())


@ROWS.replays
def generalized_advantages(decorate: Any) -> Any:
    def body(self: Any, x: Any, r: Any, done: Any) -> Any:
        v = F.tanh(self.l(x))[:, 0]
        values = v.array
        adv = np.zeros_like(values)
        last = 0
        for t in reversed(range(len(r) - 1)):
            delta = r[t] + 0.99 * values[t + 1] * (1 - done[t]) - values[t]
            adv[t] = last = delta + 0.99 * 0.95 * (1 - done[t]) * last
        return F.mean(F.square(v - (adv + values)))
    model = build(decorate(body))
    return lambda i, x: model(x, x[:, 0].copy(), (x[:, 1] > 1).astype("f"))


@ROWS.falls_back("lt takes a number out")
def a_teacher_forced_decoder(decorate: Any) -> Any:
    def body(self: Any, x: Any, t: Any) -> Any:
        h = Variable(np.zeros((len(x), 4), "f"))
        loss = 0
        for i in range(t.shape[1]):
            h = F.tanh(self.l(x) + h)
            if np.random.rand() < 0.5:
                x = F.embed_id(t[:, i], self.l.W)
            else:
                x = F.embed_id(F.argmax(h, axis=1).array.astype("i"), self.l.W)
            loss += F.softmax_cross_entropy(h, t[:, i])
        return loss
    model = build(decorate(body))
    return lambda i, x: model(x, (np.abs(x) * 10).astype("i") % 4)


@ROWS.replays
def attention_with_a_mask_of_lengths(decorate: Any) -> Any:
    def body(self: Any, x: Any, lengths: Any) -> Any:
        h = F.tanh(self.l(x))
        scores = F.matmul(h, h, transb=True)
        mask = np.zeros(scores.shape, bool)
        for i, n in enumerate(lengths):
            mask[i, :n] = True
        scores = F.where(mask, scores, np.full(scores.shape, -1e9, "f"))
        return F.matmul(F.softmax(scores), h)
    model = build(decorate(body))
    return lambda i, x: model(x, [1, 2, 3])


@ROWS.replays
def attention_with_an_array_of_lengths(decorate: Any) -> Any:
    def body(self: Any, x: Any, lengths: Any) -> Any:
        h = F.tanh(self.l(x))
        scores = F.matmul(h, h, transb=True)
        mask = np.arange(scores.shape[1])[None] < lengths[:, None]
        scores = F.where(mask, scores, np.full(scores.shape, -1e9, "f"))
        return F.matmul(F.softmax(scores), h)
    model = build(decorate(body))
    return lambda i, x: model(x, np.array([1, 1 + i % 3, 3]))


@ROWS.replays
def noise_of_the_shape_of_something(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = self.l(x)
        if kusari.config.train:
            h = h + self.xp.random.normal(0, 0.1, h.shape).astype(h.dtype)
            h = h * (np.random.rand(*h.shape) < 0.5).astype("f") / 0.5
        return F.tanh(h)
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_permuted_minibatch(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        return h - h[np.random.permutation(len(x))]
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_mixup(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        lam = np.random.beta(0.4, 0.4)
        index = np.random.permutation(len(x))
        mixed = lam * x + (1 - lam) * x[index]
        return F.tanh(self.l(mixed.astype("f")))
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_running_mean_with_momentum(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = self.l(x)
        if kusari.config.train:
            self.mean = 0.9 * self.mean + 0.1 * h.array.mean(axis=0)
            self.steps = self.steps + 1
        return h - self.mean.astype("f")
    model = build(decorate(body), mean=np.zeros(4, "f"), steps=0)
    return lambda i, x: (model(x), model.mean, model.steps)


@ROWS.falls_back("keeps it for its gradient; give that function a copy")
def a_memory_of_keys(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.normalize(self.l(x))
        sims = F.matmul(h, self.keys, transb=True)
        weights = F.softmax(sims)
        read = F.matmul(weights, self.keys)
        oldest = int(np.argmax(self.age))
        self.keys[oldest] = h.array[0]
        self.age += 1
        self.age[oldest] = 0
        return read
    model = build(decorate(body), keys=np.random.RandomState(3).randn(5, 4).astype("f"), age=np.zeros(5, "i"))
    return lambda i, x: (model(x), model.keys, model.age)


@ROWS.replays
def a_graph_by_adjacency(decorate: Any) -> Any:
    def body(self: Any, x: Any, adj: Any) -> Any:
        degree = adj.sum(axis=1)
        norm = np.diag(1.0 / np.sqrt(degree + 1)).astype("f")
        a = norm.dot(adj + np.eye(len(adj), dtype="f")).dot(norm)
        return F.relu(F.matmul(a, self.l(x)))
    model = build(decorate(body))
    return lambda i, x: model(x, (np.abs(x[:, :3]) > 0.5).astype("f"))


@ROWS.replays
def messages_along_edges(decorate: Any) -> Any:
    def body(self: Any, x: Any, edges: Any) -> Any:
        h = self.l(x)
        source, target = edges
        out = F.scatter_add(Variable(np.zeros(h.shape, "f")), target, h[source])
        return F.tanh(out + h)
    model = build(decorate(body))
    return lambda i, x: model(x, np.array([[0, 1, 2, i % 3], [1, 2, 0, 0]]))


@ROWS.replays
def a_detection_loss(decorate: Any) -> Any:
    def body(self: Any, x: Any, boxes: Any) -> Any:
        h = self.l(x)
        pred = F.sigmoid(h)
        p = pred.array
        area = np.maximum(0, np.minimum(p[:, 2:], boxes[:, 2:]) - np.maximum(p[:, :2], boxes[:, :2]))
        iou = area[:, 0] * area[:, 1]
        conf = np.zeros(len(x), "f")
        conf[iou > 0.1] = iou[iou > 0.1]
        positive = (iou > 0.1).astype("f")
        return F.sum(F.square(pred - boxes) * positive[:, None]) + F.sum(F.square(pred[:, 0] - conf))
    model = build(decorate(body))
    return lambda i, x: model(x, np.abs(x) / 2)


@ROWS.replays
def hard_negatives(decorate: Any) -> Any:
    def body(self: Any, x: Any, t: Any) -> Any:
        y = self.l(x)
        loss = F.softmax_cross_entropy(y, t, reduce="no")
        positive = t > 0
        n = positive.sum()
        rank = np.argsort(np.argsort(-loss.array * ~positive))
        hard = rank < 3 * n
        return F.sum(F.where(positive | hard, loss, np.zeros_like(loss.array))) / max(n, 1)
    model = build(decorate(body))
    return lambda i, x: model(x, (x[:, 0] > 0.3).astype("i"))


@ROWS.replays
def a_gan_generator_update(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        z = np.random.uniform(-1, 1, (len(x), 4)).astype("f")
        fake = F.tanh(self.l(z))
        real, false = self.d(x), self.d(fake)
        eps = np.random.uniform(0, 1, (len(x), 1)).astype("f")
        mid = Variable(eps * x + (1 - eps) * fake.array)
        grad, = kusari.grad([self.d(mid)], [mid], enable_double_backprop=True)
        penalty = F.mean((F.sqrt(F.sum(grad ** 2, axis=1)) - 1) ** 2)
        return F.mean(F.softplus(-real)) + F.mean(F.softplus(false)) + 10 * penalty
    model = build(decorate(body), d=L.Linear(4, 1))
    return lambda i, x: model(x)


@ROWS.replays
def a_beam_scorer(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        logp = F.log_softmax(self.l(x)).array
        scores = self.scores[:, None] + logp
        best = np.argsort(-scores.ravel())[:3]
        self.scores[:] = scores.ravel()[best]
        return F.tanh(self.l(x)), best // 4, best % 4
    model = build(decorate(body), scores=np.zeros(3, "f"))
    return lambda i, x: (model(x), model.scores)


@ROWS.replays
def the_best_of_a_beam(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        logp = F.log_softmax(self.l(x))
        best = F.argmax(logp, axis=1)
        return [int(i) for i in best.array]
    model = build(decorate(body))
    return lambda i, x: model(np.abs(x[:, :]) * 0 + 1)


@ROWS.replays
def weight_norm(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        v = self.l.W
        norm = F.sqrt(F.sum(v ** 2, axis=1, keepdims=True) + 1e-12)
        w = F.broadcast_to(self.g, v.shape) * v / F.broadcast_to(norm, v.shape)
        if not self.ready:
            y = F.linear(x, w).array
            self.g.array[...] = 1 / (y.std() + 1e-6)
            self.ready = True
        return F.linear(x, w, self.l.b)
    def program() -> Any:
        model = build(decorate(body), ready=False)
        with model.init_scope():
            model.g = kusari.Parameter(np.ones((4, 1), "f"))
        return model
    model = program()
    return lambda i, x: model(x)


@ROWS.replays
def a_spectral_norm(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        W, u = self.l.W.array, self.u
        v = u.dot(W)
        v /= np.linalg.norm(v)
        u = v.dot(W.T)
        u /= np.linalg.norm(u)
        sigma = F.sum(F.linear(Variable(u[None]), F.transpose(self.l.W)) * v[None])
        self.u[:] = u
        return F.linear(x, self.l.W / F.broadcast_to(sigma, self.l.W.shape))
    model = build(decorate(body), u=np.random.RandomState(3).randn(4).astype("f"))
    return lambda i, x: (model(x), model.u)


@ROWS.replays
def a_normalization_without_warnings(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = self.l(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            h = F.batch_normalization(h, np.ones(4, "f"), np.zeros(4, "f"))
        return F.tanh(h)
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.falls_back("its filters are others")
def a_warning_that_is_not_shown(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore")
            warnings.warn("mine", stacklevel=1)
        return F.tanh(self.l(x))
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_warning_after_such_a_block(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            h = self.l(x)
        warnings.warn("mine", stacklevel=1)
        return F.tanh(h)
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.falls_back("warnings are recorded")
def warnings_that_are_recorded(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        with warnings.catch_warnings(record=True) as found:
            h = self.l(x)
        return F.tanh(h) * (1 + len(found))
    model = build(decorate(body))
    return lambda i, x: model(x)


@ROWS.replays
def a_log_of_norms(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        self.log["norm"].append(float(np.linalg.norm(h.array)))
        self.log["mean"].append(h.array.mean())
        self.best = max(self.best, 3)
        return h
    model = build(decorate(body), log={"norm": [], "mean": []}, best=0)
    return lambda i, x: (model(x), model.log)


@ROWS.falls_back("lt takes a number out")
def an_early_best(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.sum(F.tanh(self.l(x)))
        if float(h.array) < self.best:
            self.best = float(h.array)
        return h
    model = build(decorate(body), best=1e9)
    return lambda i, x: (model(x), model.best)


@ROWS.falls_back("changes in every call; pass it as an argument")
def a_warmup_by_steps(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.step += 1
        scale = min(1.0, self.step / 4)
        return F.tanh(self.l(x)) * scale
    model = build(decorate(body), step=0)
    return lambda i, x: (model(x), model.step)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
