"""Losses, layers and updates as people write them for Chainer: what each does is compared, and whether it replays."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import Rows

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable

ROWS = Rows()


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


@ROWS.replays
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
def the_shape_of_a_weight(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        return F.tanh(self.l(x)) / self.l.W.array.shape[1] + self.l.W.data.size
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


@ROWS.replays
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
