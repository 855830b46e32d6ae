"""Checks of pure_nccl with a stand-in for cards, in which NCCL is MPI on the arrays' memory."""
from __future__ import annotations

import ctypes
import types

import cupy_double
import cupy_kernels
import numpy as np
from mpi4py import MPI

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import distributed
from kusari.distributed.communicators import pure_nccl_communicator

TYPES = {"NCCL_FLOAT16": np.float16, "NCCL_FLOAT32": np.float32, "NCCL_FLOAT64": np.float64}
calls = []


def nccl():
    return types.SimpleNamespace(
        NcclCommunicator=NcclCommunicator, get_unique_id=lambda: ("key of rank", MPI.COMM_WORLD.rank),
        NCCL_SUM="sum", **{name: name for name in TYPES})


def memory(ptr, count, kind):
    dtype = np.dtype(TYPES[kind])
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(ptr), dtype)


class NcclCommunicator:
    def __init__(self, ndev, key, rank):
        assert (ndev, rank) == (MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank) and key == ("key of rank", 0)

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        calls.append((count, datatype, op))
        total = np.empty(count, np.float64)
        MPI.COMM_WORLD.Allreduce(memory(sendbuf, count, datatype).astype(np.float64), total)
        memory(recvbuf, count, datatype)[...] = total


def check_gradients_on_cards_are_added_up_by_nccl(comm):
    with cupy_double.cupy() as cupy:
        cupy.cuda.nccl = nccl()
        for travelling in (None, np.float16):
            own = distributed.create_communicator("pure_nccl", allreduce_grad_dtype=travelling)
            model = kusari.Chain(a=L.Linear(2, 3), b=L.Linear(1, 1))
            model.b.W.array = model.b.W.array.astype(np.float64)
            model.to_device("@cupy:0")
            for _ in range(2):
                model.cleargrads()
                model.a.W.grad = cupy.asarray(np.full((3, 2), own.rank + 1, "f"))
                model.b.W.grad = cupy.asarray(np.full((1, 1), 10.0 * own.rank))
                calls.clear()
                own.multi_node_mean_grad(model, zero_fill=True)
                assert calls == ([(11, "NCCL_FLOAT16", "sum")] if travelling else
                                 [(10, "NCCL_FLOAT32", "sum"), (1, "NCCL_FLOAT64", "sum")])
                assert (model.a.W.grad.get() == (own.size + 1) / 2).all() and model.a.W.grad.dtype == np.float32
                assert model.b.W.grad.get() == 5.0 * (own.size - 1) and model.b.W.grad.dtype == np.float64
                assert not model.a.b.grad.get().any()


class Net(kusari.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(4, 5, initialW=0.3), L.Linear(5, 2, initialW=0.2)

    def loss(self, x, t):
        return F.softmax_cross_entropy(self.l2(F.tanh(self.l1(x))), t)


class Static(Net):
    loss = kusari.static_graph(Net.loss)


def trained(comm, cupy, kind, travelling, bucket_bytes):
    """The parameters after some steps, and what the last one has launched and reduced."""
    own = distributed.create_communicator("pure_nccl", allreduce_grad_dtype=travelling)
    own.set_config("bucket_size", bucket_bytes)
    model = kind().to_device("@cupy:0")
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.MomentumSGD(0.1), own).setup(model)
    rs = np.random.RandomState(comm.rank)
    for _ in range(8):
        x, t = cupy.asarray(rs.randn(3, 4).astype("f")), cupy.asarray(rs.randint(0, 2, 3).astype("i"))
        calls.clear()
        cupy_kernels.launches.clear()
        cupy_double.waits.clear()
        optimizer.update(model.loss, x, t)
    done = dict(cupy_kernels.launches), list(calls), dict(cupy_double.waits)
    return {name: p.array.get().copy() for name, p in model.namedparams()}, {
        name: p.grad.get().copy() for name, p in model.namedparams()}, done


def check_steps_on_cards_have_their_reductions_in_them(comm):
    if comm.size > 2:  # each rank compiles kernels for the stand-in
        return
    with cupy_double.cupy() as cupy, kusari.using_config("keep_define_by_run", False):
        cupy.cuda.nccl = nccl()
        for travelling, bucket_bytes, buckets, graphs in ((None, 1 << 20, 1, 2), (np.float16, 8, 3, 5)):
            pure_nccl_communicator.CARD_BUCKET_BYTES = bucket_bytes
            expected, grads, _ = trained(comm, cupy, Net, travelling, bucket_bytes)
            found, own, (launched, reduced, waits) = trained(comm, cupy, Static, travelling, bucket_bytes)
            for name, x in expected.items():
                np.testing.assert_allclose(found[name], x, 1e-3 if travelling else 1e-5, 1e-6)
                np.testing.assert_allclose(own[name], grads[name], 1e-2 if travelling else 1e-5, 1e-5)
            kind = "NCCL_FLOAT16" if travelling else "NCCL_FLOAT32"
            assert len(reduced) == buckets and {k for _, k, _ in reduced} == {kind}
            assert not launched.get("kernels") and launched["graphs"] == graphs
            assert not waits, waits


def check_steps_on_cards_without_nccl_are_define_by_run(comm):
    if comm.size > 2:
        return
    with cupy_double.cupy() as cupy, kusari.using_config("keep_define_by_run", False):
        own = distributed.create_communicator("flat")
        model = Static().to_device("@cupy:0")
        optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.SGD(0.1), own).setup(model)
        x, t = cupy.asarray(np.ones((3, 4), "f")), cupy.asarray(np.zeros(3, "i"))
        for _ in range(4):
            optimizer.update(model.loss, x, t)
        assert "gradients on a card travel through the memory of the host" in str(model.loss.explain("all"))


def check_arrays_on_cards_travel_and_come_back_on_cards(comm):
    with cupy_double.cupy() as cupy:
        own = distributed.create_communicator("non_cuda_aware")
        x = cupy.asarray(np.arange(3.0) + own.rank)
        for found in (own.allreduce(x), own.bcast(x if own.rank == 0 else None), own.allgather(x)[0],
                      own.alltoall([x] * own.size)[0], own.scatter([x] * own.size)):
            assert type(found) is cupy.ndarray
        model = kusari.Chain(a=L.Linear(2, 3)).to_device("@cupy:0")
        model.a.W.array[...] = own.rank
        own.bcast_data(model)
        assert not model.a.W.array.get().any()
        model.cleargrads()
        model.a.W.grad = cupy.asarray(np.full((3, 2), own.rank, "f"))
        own.multi_node_mean_grad(model)
        assert (model.a.W.grad.get() == (own.size - 1) / 2).all()
