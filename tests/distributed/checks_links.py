"""Checks of links."""
from __future__ import annotations

import numpy as np
from mpi_ranks import raised
from regression import batch, same_everywhere

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import distributed
from kusari.distributed.errors import CollectiveMismatch


def check_multi_node_batch_normalization(comm):
    for dtype, axis, shape in ((np.float32, None, (5, 3)), (np.float32, None, (4, 3, 2, 2)), (np.float32, (0, 1),
                               (2, 4, 3)), (np.float16, None, (6, 3))):
        random = np.random.RandomState(5)
        rows = [shape[0] + r for r in range(comm.size)]
        whole = random.rand(sum(rows), *shape[1:]).astype(dtype)
        weights = random.rand(*whole.shape).astype(dtype)
        start = sum(rows[:comm.rank])
        mine = slice(start, start + rows[comm.rank])
        one = L.BatchNormalization(3, axis=axis)
        one.avg_var[...] = 0
        several = distributed.links.create_mnbn_model(kusari.Sequential(one, F.relu), comm)[0]
        assert isinstance(several, distributed.links.MultiNodeBatchNormalization)
        assert several.comm is comm and several.copy("copy").comm is comm
        x, y = kusari.Variable(whole), kusari.Variable(whole[mine])
        F.sum(one(x) * weights).backward()
        F.sum(several(y) * weights[mine]).backward()
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype is np.float16 else {"rtol": 1e-3, "atol": 1e-4}
        np.testing.assert_allclose(y.grad, x.grad[mine], **tolerance)
        for p, q in ((one.gamma, several.gamma), (one.beta, several.beta)):
            np.testing.assert_allclose(comm.allreduce(q.grad), p.grad, **tolerance)
        np.testing.assert_allclose(several.avg_mean, one.avg_mean, **tolerance)
        same_everywhere(comm, several.avg_var.tobytes())
        with kusari.using_config("train", False):
            several(y)
    model = kusari.Chain(a=L.BatchNormalization(2), b=kusari.ChainList(L.BatchNormalization(2), L.Linear(2, 2)))
    made = distributed.links.create_mnbn_model(model, comm)
    assert [type(link).__name__ for _, link in sorted(made.namedlinks())] == [
        "Chain", "MultiNodeBatchNormalization", "ChainList", "MultiNodeBatchNormalization", "Linear"]
    assert [name for name, _ in sorted(made.namedparams())] == [name for name, _ in sorted(model.namedparams())]
    raised(ValueError, "nccl is not supported", lambda: distributed.links.create_mnbn_model(model, comm, "nccl"))


def check_statistics_are_averaged(comm):
    model = kusari.Chain(bn=L.BatchNormalization(2), embed=L.EmbedID(2, 2))
    model.bn.avg_mean[...] = comm.rank
    distributed.extensions.AllreducePersistent(model, comm)()
    assert (model.bn.avg_mean == (comm.size - 1) / 2).all() and model.bn.N == 0


def check_chain_lists(comm):
    if comm.size != 2:
        return
    class Pair(kusari.Chain):
        def forward(self, x):
            return x * 2, x * 3

    class Join(kusari.Chain):
        def forward(self, *given):
            x = given[0] if len(given) == 1 else given
            return x[0] + x[1] if isinstance(x, tuple) else x
    for others in ((0, 0), (1, 1)):
        model = distributed.MultiNodeChainList(comm)
        here, there = others
        if comm.rank == 0:
            model.add_link(Pair(), rank_in=None, rank_out=1)
            model.add_link(Join(), rank_in=1, rank_out=None)
        else:
            model.add_link(Join(), rank_in=0, rank_out=0)
        x = kusari.Variable(np.full(2, 1.5, "f"))
        y = model(x)
        (F.sum(y) if comm.rank == 0 else y).backward()
        if comm.rank == 0:
            np.testing.assert_allclose(y.array, [7.5, 7.5])
            np.testing.assert_allclose(x.grad, [5, 5])
    # An output in the middle, several receivers, and a message to itself.
    model = distributed.MultiNodeChainList(comm)
    double = L.Linear(2, 2, initialW=2 * np.eye(2))
    if comm.rank == 0:
        model.add_link(double, rank_in=None, rank_out=[0, 1])
        model.add_link(Join(), rank_in=0, rank_out=None)
        model.add_link(Join(), rank_in=1, rank_out=1)
    else:
        model.add_link(Join(), rank_in=0, rank_out=0)
        model.add_link(Join(), rank_in=0, rank_out=None)
    x = kusari.Variable(np.ones((1, 2), "f"))
    model.cleargrads()
    F.sum(model(x)).backward()
    if comm.rank == 0:
        np.testing.assert_allclose(x.grad, [[4, 4]])
    raised(ValueError, "more than two", lambda: [model.add_link(Join()) for _ in range(2)])


def check_recurrent_networks_of_several_ranks(comm):
    if comm.size != 2:
        return
    for kind in (L.NStepLSTM, L.NStepGRU, L.NStepBiLSTM):
        np.random.seed(0)
        first, second = kind(1, 3, 3, 0), kind(1, 3, 3, 0)
        xs = [np.random.rand(n, 3).astype("f") for n in (3, 2)]
        first.cleargrads()
        second.cleargrads()
        states = first(*[None] * first.n_cells, xs)[:-1]
        F.sum(F.concat(second(*states, xs)[-1], axis=0)).backward()
        expected = {name: p.grad for name, p in first.namedparams()}
        np.random.seed(0)
        copies = kind(1, 3, 3, 0), kind(1, 3, 3, 0)
        create = distributed.links.create_multi_node_n_step_rnn
        own = create(copies[comm.rank], comm, rank_in=None if comm.rank == 0 else 0,
                     rank_out=1 if comm.rank == 0 else None)
        own.cleargrads()
        found = own(xs)
        (found[-1] if comm.rank == 0 else F.sum(F.concat(found[-2], axis=0))).backward()
        if comm.rank == 0:
            for name, p in copies[0].namedparams():
                np.testing.assert_allclose(p.grad, expected[name], rtol=1e-4, atol=1e-6)
    raised(ValueError, "link must be NStepRNN", lambda: create(L.Linear(1, 1), comm))


def check_static_chains_communicate(comm):
    class Model(kusari.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.l = L.Linear(4, 4, initialW=np.arange(16).reshape(4, 4) / 16)

        def forward(self, x):
            h = self.l(x)
            ys = distributed.functions.allgather(comm, h)
            z = distributed.functions.allreduce(comm, F.tanh(h))
            return F.sum(ys[0] * ys[-1] + z)

    class Static(Model):
        forward = kusari.static_graph(Model.forward)
    found = []
    for cls in (Model, Static):
        model = cls()
        for k in range(5):
            model.cleargrads()
            loss = model(batch(comm.rank + k)[0])
            loss.backward()
        found.append((loss.array, model.l.W.grad))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4)


def check_static_chains_that_differ_are_named(comm):
    class Model(kusari.Chain):
        how = "together"

        @kusari.static_graph
        def forward(self, x):
            y = distributed.functions.allreduce(comm, x * 2)
            if self.how == "other":
                return F.sum(distributed.functions.bcast(comm, y))
            return F.sum(distributed.functions.allreduce(comm, y[:2] if self.how == "shape" else y))
    model = Model()
    x = np.ones(4, "f")
    for how, said in (("other", "rank 1: bcast, root=0, at "), ("shape", "float32[4] on rank 0, float32[2] on rank 1")):
        for calls in (0, 4):
            model.how = "together"
            for _ in range(calls):
                model(x).backward()
            model.how = how if comm.rank == 1 else "together"
            raised(CollectiveMismatch, said, lambda: model(x))
    assert comm.allreduce_obj(1) == comm.size  # still in step
