"""Checks of communicators."""
from __future__ import annotations

import os
import subprocess
import tempfile

import numpy as np
from mpi_ranks import raised

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import distributed
from kusari.distributed.errors import CollectiveMismatch
from kusari.distributed.transport.watch import Place

DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")
NAMES = ("pure_nccl", "hierarchical", "two_dimensional", "single_node", "flat", "naive", "non_cuda_aware")


def array(rank, shape=(2, 3), dtype="float32"):
    return (np.arange(int(np.prod(shape))).reshape(shape) + rank + 1).astype(dtype)


def check_ranks(comm):
    assert 0 <= comm.rank < comm.size == comm.mpi_comm.size
    per_node = int(os.environ.get("KUSARI_RANKS_PER_NODE", comm.size))
    assert (comm.intra_rank, comm.inter_rank) == (comm.rank % per_node, comm.rank // per_node)
    assert comm.intra_size <= per_node and comm.inter_size == -(-comm.size // per_node)


def check_arrays_of_all_dtypes(comm):
    size, rank, other = comm.size, comm.rank, (comm.rank + 1) % comm.size
    for dtype in DTYPES:
        for shape in ((2, 3), (0,), (0, 4), (1, 1, 1)):
            mine, every = array(rank, shape, dtype), [array(r, shape, dtype) for r in range(size)]
            same(comm.bcast(mine if rank == size - 1 else None, root=size - 1), every[-1])
            for root in range(size):
                found = comm.gather(mine, root=root)
                assert (found is None) == (rank != root)
                same(found or (), every if rank == root else ())
            same(comm.allgather(mine), every)
            same(comm.alltoall([array(10 * rank + r, shape, dtype) for r in range(size)]),
                 [array(10 * r + rank, shape, dtype) for r in range(size)])
            same(comm.scatter(every if rank == 0 else None), mine)
            if dtype != "bool":
                same(comm.allreduce(mine), sum(every[1:], every[0]).astype(dtype))
            if rank % 2 == 0 and rank + 1 < size:
                comm.send(mine, other, tag=3)
                comm.send((mine, mine[None]), other, tag=3)
            elif rank % 2:
                same(comm.recv(rank - 1, tag=3), every[rank - 1])
                same(comm.recv(rank - 1, tag=3), (every[rank - 1], every[rank - 1][None]))


def same(found, expected):
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            same(x, y)
    else:
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (found, expected)
        np.testing.assert_array_equal(found, expected)


def check_arrays_of_other_layouts_and_shapes(comm):
    same(comm.allreduce(array(0, (3, 4)).T), array(0, (3, 4)).T * comm.size)
    found = comm.allgather(array(comm.rank, (comm.rank + 1, 2)))
    same(found, [array(r, (r + 1, 2)) for r in range(comm.size)])
    assert all(x.flags.writeable for x in found)
    same(comm.scatter(np.arange(comm.size * 2.0).reshape(comm.size, 2) if comm.rank == 0 else None),
         np.arange(2.0) + 2 * comm.rank)


def check_objects_of_any_size(comm):
    from kusari.distributed.transport import channel
    rank, size = comm.rank, comm.size
    before, channel.PIECE_BYTES = channel.PIECE_BYTES, 1000
    try:
        big = {"rank": rank, "data": bytes(range(256)) * (20 + rank), "none": None}
        every = [{**big, "rank": r, "data": bytes(range(256)) * (20 + r)} for r in range(size)]
        assert comm.bcast_obj(big, root=size - 1) == every[-1]
        assert comm.gather_obj(big, root=0) == (every if rank == 0 else None)
        assert comm.allgather_obj(big) == every
        if rank == 0:
            comm.send_obj(big, 1, tag=5)
            comm.send_obj((), 1)
        elif rank == 1:
            assert comm.recv_obj(0) == every[0]
            assert comm.recv_obj(0, 0) == ()
        same(comm.allreduce(np.full(3000, rank, "f")), np.full(3000, sum(range(size)), "f"))
    finally:
        channel.PIECE_BYTES = before
    assert comm.allreduce_obj([rank]) == list(range(size))
    assert comm.allreduce_obj(0.5) == 0.5 * size


def check_split(comm):
    part = comm.split(comm.rank % 2, -comm.rank)
    members = [r for r in reversed(range(comm.size)) if r % 2 == comm.rank % 2]
    assert part.size == len(members) and members[part.rank] == comm.rank
    assert part.allreduce_obj([comm.rank]) == members
    assert type(part) is type(comm)
    part.finalize()


def check_wrong_arguments_raise_on_every_rank(comm):
    rank, size, one = comm.rank, comm.size, np.ones(2, "f")
    raised(ValueError, f"root must be a rank from 0 to {size - 1}, but it is {size}",
           lambda: comm.bcast(one, root=size))
    raised(ValueError, "root must be", lambda: comm.gather_obj(1, root=-1))
    raised(TypeError, "that is an integer", lambda: comm.gather(one, root="0"))
    raised(CollectiveMismatch, "rank 1: bcast, root=1", lambda: comm.bcast(one, root=rank))
    raised(TypeError, "bcast does not support dtype <U1 (on rank 0",
           lambda: comm.bcast(np.array(["a"]) if rank == 0 else None))
    raised(TypeError, "bcast cannot handle tuple data", lambda: comm.bcast((one, one)))
    raised(TypeError, "all dtypes must be the same in gather: float32 on rank 0, float64 on rank 1",
           lambda: comm.gather(one if rank == 0 else one.astype("d")))
    raised(ValueError, "communicator size", lambda: comm.alltoall([one] * (size + (rank == 1))))
    raised(TypeError, "alltoall takes arrays", lambda: comm.alltoall(["a"] * size))
    raised(ValueError, "inconsistent number of inputs", lambda: comm.scatter(np.ones((size + 1, 2))))
    raised(CollectiveMismatch, "float32[2] on rank 0, float32[3] on rank 1",
           lambda: comm.allreduce(np.ones(2 + (rank > 0), "f")))
    raised(TypeError, "not Variables", lambda: comm.allreduce(kusari.Variable(one)))
    raised(ValueError, "another rank than this one", lambda: comm.send(one, rank))
    raised(ValueError, "must be a rank from 0", lambda: comm.recv(size))
    same(comm.allreduce(one), one * size)  # all are still in step


def check_other_calls_on_other_ranks(comm):
    raised(CollectiveMismatch, "checks_communicators.py",
           lambda: comm.allreduce(np.ones(2)) if comm.rank == 0 else comm.bcast_obj(1))
    assert comm.allreduce_obj(1) == comm.size


def model(seed=0, dtype=None):
    np.random.seed(seed)
    with kusari.using_config("dtype", dtype or np.float32):
        return kusari.Chain(a=L.Linear(3, 4), b=L.Linear(None, 2), c=L.Linear(4, 2), d=L.Linear(1, 1))


def check_means_of_gradients(comm):
    for name in NAMES:
        uneven = comm.size % comm.inter_size
        if (name == "single_node" and comm.inter_size > 1) or (name == "two_dimensional" and uneven):
            raised(ValueError, name, lambda name=name: distributed.create_communicator(name))
            continue
        own = distributed.create_communicator(name)
        for dtype in (np.float16, np.float32, np.float64):
            for bucket in (1, 1 << 22):
                own.set_config("bucket_size", bucket)
                m = model(0, dtype)
                m.cleargrads()
                if dtype is np.float32:
                    m.d.W.array = m.d.W.array.astype("d")  # dtypes are mixed
                with m.init_scope():
                    m.nothing = kusari.Parameter(np.zeros((0, 3), dtype))
                m.nothing.cleargrad()
                m.a.W.grad = array(own.rank, (4, 3), dtype)
                m.a.b.grad = np.broadcast_to(np.array(own.rank, dtype), (4,))
                m.d.W.grad = np.full((1, 1), own.rank, m.d.W.dtype)
                own.multi_node_mean_grad(m, zero_fill=True)
                mean = (own.size - 1) / 2
                np.testing.assert_allclose(m.a.W.grad, array(0, (4, 3)) + mean)
                np.testing.assert_allclose(m.a.b.grad, np.full(4, mean))
                assert m.d.W.grad == mean and m.d.W.grad.dtype == m.d.W.dtype and m.a.W.grad.dtype == dtype
                assert m.b.W.grad is None and not m.c.W.grad.any()
                m.c.cleargrads()
                own.multi_node_mean_grad(m)
                assert m.c.W.grad is None
        own.finalize()


def check_missing_gradients_are_named(comm):
    m = model()
    m.cleargrads()
    m.a.W.grad = np.ones((4, 3), "f")
    if comm.rank == 0:
        m.a.b.grad = np.ones(4, "f")
    raised(CollectiveMismatch, "/a/b is float32[4] on rank 0 and missing on rank 1",
           lambda: comm.multi_node_mean_grad(m))
    raised(CollectiveMismatch, "/b/W", lambda: comm.bcast_data(partly_initialized(comm)))


def partly_initialized(comm):
    m = model()
    if comm.rank == 1:
        m.b.W.initialize((2, 4))
    return m


def check_gradients_that_differ_later_are_found(comm):
    own = comm.split(0, comm.rank)
    own.set_config("checked_updates", 0)
    m = kusari.Chain(a=L.Linear(3, 4), b=L.Linear(4, 3))
    m.cleargrads()
    (m.a if own.rank == 0 else m.b).W.grad = np.ones(12, "f").reshape((m.a if own.rank == 0 else m.b).W.shape)
    raised(CollectiveMismatch, "gradients of different parameters", lambda: own.multi_node_mean_grad(m))


def check_dtypes_in_which_gradients_travel(comm):
    own = distributed.create_communicator("pure_nccl", allreduce_grad_dtype=np.float16)
    assert own.get_config("allreduce_grad_dtype") == np.float16
    m = kusari.Chain(a=L.Linear(1, 1))
    m.cleargrads()
    m.a.W.grad = np.array([[1.0001]], "f")
    own.multi_node_mean_grad(m)
    assert m.a.W.grad == 1.0 and m.a.W.grad.dtype == np.float32
    raised(ValueError, "only available", lambda: distributed.create_communicator("flat", allreduce_grad_dtype="f"))
    raised(ValueError, "Unknown config: nothing", lambda: own.set_config("nothing"))
    raised(ValueError, "Unrecognized communicator", lambda: distributed.create_communicator("wrong"))


def check_broadcast_of_parameters(comm):
    m = model(comm.rank, np.float16)
    expected = model(0, np.float16)
    comm.bcast_data(m)
    for (_, p), (_, q) in zip(sorted(m.namedparams()), sorted(expected.namedparams()), strict=True):
        if q.array is not None:
            same(p.array, q.array)


def check_mean_of_an_array(comm):
    x = np.full(3, comm.rank, np.float16)
    comm.multi_node_mean(None, x)
    same(x, np.full(3, (comm.size - 1) / 2, np.float16))
    y = np.zeros(3, np.float32)
    comm.multi_node_mean(np.full(3, comm.rank, np.float32), y)
    same(y, np.full(3, (comm.size - 1) / 2, np.float32))


def check_mpi_communicators_are_taken(comm):
    half = comm.mpi_comm.Split(comm.rank, 0)
    own = distributed.create_communicator("naive", half)
    assert own.size == 1 and own.mpi_comm is half
    same(own.allreduce(np.ones(2)), np.ones(2))
    part = distributed.scatter_dataset([1, 2, 3] if comm.rank == 0 else None, comm.mpi_comm)
    assert len(part) == -(-3 // comm.size)


def check_functions_have_gradients(comm):
    functions = distributed.functions
    rank, size = comm.rank, comm.size
    for dtype in (np.float16, np.float32):
        weight = [F.cast(kusari.Variable(np.full((2, 2), r + 1.0, "f")), dtype) for r in range(size)]

        def case(call, expected, mine=None, weight=weight, dtype=dtype):
            x = kusari.Variable(array(rank, (2, 2), dtype))
            found = call(x)
            if isinstance(found, tuple):
                found = sum((F.sum(y * w) for y, w in zip(found, weight, strict=False) if y.size),
                            kusari.Variable(np.array(0, dtype)))
                if found.creator is None:
                    return
            (F.sum(found) if found.size != 1 else found).backward()
            np.testing.assert_allclose(x.grad, np.full((2, 2), expected, dtype))
        case(lambda x: functions.allgather(comm, x), size * (rank + 1))
        case(lambda x: functions.allreduce(comm, x), size)
        case(lambda x: functions.alltoall(comm, [x * (r + 1) for r in range(size)]),
             sum((r + 1) * (rank + 1) for r in range(size)))
        x = kusari.Variable(array(rank, (2, 2), dtype))
        F.sum(functions.bcast(comm, x)).backward()
        assert x.grad is None if rank else (x.grad == size).all()
        xs = [kusari.Variable(array(r, (2, 2), dtype)) for r in range(size)]
        F.sum(functions.scatter(comm, xs) * (rank + 1)).backward()
        assert [None if x.grad is None else x.grad[0, 0] for x in xs] == (
            [None] * size if rank else [r + 1 for r in range(size)])
        x = kusari.Variable(array(rank, (2, 2), dtype))
        ys = functions.gather(comm, x, 0)
        loss = sum(F.sum(y * (r + 1)) for r, y in enumerate(ys)) if rank == 0 else ys[0]
        loss.backward()
        assert (x.grad == rank + 1).all()
    raised(ValueError, "The length of xs", lambda: functions.alltoall(comm, [np.ones(1)] * (size + 1)))


def check_gradients_of_gradients(comm):
    x = kusari.Variable(array(comm.rank, (3,)))
    y = distributed.functions.allreduce(comm, x ** 3)
    (gx,) = kusari.grad([F.sum(y)], [x], enable_double_backprop=True)
    (ggx,) = kusari.grad([F.sum(gx)], [x])
    np.testing.assert_allclose(ggx.array, 6 * comm.size * x.array)


def check_messages_with_gradients(comm):
    functions = distributed.functions
    if comm.rank > 1:
        return
    x = kusari.Variable(array(0, (2,)))
    if comm.rank == 0:
        phi = functions.send((x, x * 2), comm, 1)
        y = functions.recv(comm, 1, delegate_variable=phi)
        F.sum(y).backward()
        np.testing.assert_allclose(x.grad, 4 * x.array)
    else:
        a, b = functions.recv(comm, 0)
        functions.send(a * b + a * a * 0, comm, 0).backward()
    phi = [functions.send(x * k, comm, 1) for k in (1, 2)] if comm.rank == 0 else []
    if comm.rank == 0:
        x.cleargrad()
        (psi,) = functions.pseudo_connect(*phi)
        psi.backward()
        np.testing.assert_allclose(x.grad, [21.0, 21.0])
    else:
        first, second = (functions.recv(comm, 0, force_tuple=True)[0] for _ in range(2))
        (F.sum(first) + 10 * F.sum(second)).backward()
    raised(ValueError, "otherwise deadlock occurs", lambda: functions.send(x, comm, comm.rank))


def check_a_rank_that_does_not_run_for_a_while_is_no_deadlock(comm):
    if comm.size > 2:
        return  # once is enough
    path = comm.bcast_obj(os.path.join(tempfile.mkdtemp(), "go"))
    if comm.rank == 0:
        assert comm.recv_obj(1) == "came"
        return
    pause = f"sleep 3; kill -STOP {os.getpid()}; touch {path}; sleep 5; kill -CONT {os.getpid()}"
    with subprocess.Popen(["sh", "-c", pause]):
        comm._channel._watch.until(lambda: os.path.exists(path), Place("a file", "here"))
        comm.send_obj("came", 0)
