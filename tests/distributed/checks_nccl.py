"""Checks of pure_nccl with a stand-in for cards, in which NCCL is MPI on the arrays' memory."""
from __future__ import annotations

import ctypes
import types

import cupy_double
import numpy as np
from mpi4py import MPI

import kusari
import kusari.links as L
from kusari import distributed

TYPES = {"NCCL_FLOAT16": np.float16, "NCCL_FLOAT32": np.float32, "NCCL_FLOAT64": np.float64}
calls = []


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
        cupy.cuda.nccl = types.SimpleNamespace(
            NcclCommunicator=NcclCommunicator, get_unique_id=lambda: ("key of rank", MPI.COMM_WORLD.rank),
            NCCL_SUM="sum", **{name: name for name in TYPES})
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
