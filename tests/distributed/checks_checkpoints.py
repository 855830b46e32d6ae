"""Checks of checkpoints and snapshots."""
from __future__ import annotations

import os
import shutil
import tempfile
import warnings

import numpy as np
from mpi_ranks import raised
from regression import Regression, StaticRegression, batch, digest, same_everywhere

import kusari
import kusari.links as L
from kusari import distributed, training
from kusari.iterators import SerialIterator
from kusari.training import extensions


def training_of(comm, out, iterations, seed=0, double=False, static=False):
    np.random.seed(seed + comm.rank)
    data = [(x, t) for x, t in zip(*batch(11, 24), strict=True)]
    part = distributed.scatter_dataset(data if comm.rank == 0 else None, comm, shuffle=True, seed=1)
    model = StaticRegression() if static else Regression()
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), comm, double_buffering=double)
    optimizer.setup(model)
    iterator = SerialIterator(part, 4, order_sampler=kusari.iterators.ShuffleOrderSampler(
        np.random.RandomState(3 + comm.rank)))
    updater = training.StandardUpdater(iterator, optimizer)
    return training.Trainer(updater, (iterations, "iteration"), out=out), optimizer


def folder(comm):
    path = comm.bcast_obj(tempfile.mkdtemp() if comm.rank == 0 else None)
    return os.path.join(path, "out")


def checkpointer(comm, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return distributed.create_multi_node_checkpointer("run", comm, **options)


def check_training_resumes_bitwise(comm):
    resume(comm, static=False)


def check_compiled_training_resumes(comm):
    resume(comm, static=True)


def resume(comm, static):
    out = folder(comm)

    def trainer_of(*arguments, **options):
        return training_of(*arguments, static=static, **options)
    whole, _ = trainer_of(comm, out, 11)
    whole.run()
    model = whole.updater.get_optimizer("main").target
    expected = digest(model)
    same_everywhere(comm, expected)
    first, _ = trainer_of(comm, out, 7)
    writer = checkpointer(comm, path=out)
    writer.finalize = lambda: None  # as if the process had been killed
    first.extend(writer, trigger=(3, "iteration"))
    first.run()
    # The newest one is damaged on the last rank: it was being written.
    newest = os.path.join(out, f"run.{comm.rank}.6")
    if comm.rank == comm.size - 1:
        with open(newest, "r+b") as file:
            file.truncate(os.path.getsize(newest) // 2)
    comm.bcast_obj(None)
    for expected_iteration in (3, 6):
        second, optimizer = trainer_of(comm, out, 11, seed=9)
        loader = checkpointer(comm, path=out)
        loader.maybe_load(second, optimizer)
        assert second.updater.iteration == expected_iteration
        second.run()
        found = second.updater.get_optimizer("main").target
        assert digest(found) == expected
        again, optimizer = trainer_of(comm, out, 6, seed=9)
        loader.maybe_load(again, optimizer)
        again.run()
        loader.save(again, 6)  # whole, now
    loader.finalize()
    assert not [name for name in os.listdir(out) if name.startswith(f"run.{comm.rank}.")]
    comm.bcast_obj(None)
    if comm.rank == 0:
        shutil.rmtree(os.path.dirname(out))


def check_checkpoints_of_one_rank_are_not_chosen(comm):
    out = folder(comm)
    own = checkpointer(comm, path=out, cp_interval=1)
    model = L.Linear(2, 2)
    own.save(model, 1)
    if comm.rank == 0:
        own.save(model, 2)
    comm.bcast_obj(None)

    class Target:
        W = None

        def serialize(self, serializer):
            self.W = serializer("W", np.zeros((2, 2), "f"))
    target = Target()
    again = checkpointer(comm, path=out)
    again.maybe_load(target)
    assert again.files == [f"run.{comm.rank}.1"] and (target.W == model.W.array).all()
    assert "avg=" in own.get_stats() and again.get_stats() == "No stats available"
    raised(ValueError, "has no dot", lambda: distributed.extensions.checkpoint._MultiNodeCheckpointer(
        "a.b", comm, 1, 1, None))
    comm.bcast_obj(None)
    for i in range(3, 12):
        own.save(model, i)
    assert len(own.files) <= 7


def check_snapshots_of_replica_sets(comm):
    out = folder(comm)
    sets = [0] if comm.size > 1 else []
    whole, _ = training_of(comm, out, 6)
    whole.run()
    first, _ = training_of(comm, out, 4)
    snapshot = distributed.extensions.multi_node_snapshot(comm, extensions.snapshot(), sets)
    first.extend(snapshot, trigger=(4, "iteration"))
    first.run()
    comm.bcast_obj(None)
    assert sorted(os.listdir(out)) == [f"snapshot_iter_4.{r}" for r in range(min(comm.size, 2))]
    if comm.size == 2:  # each has its own state
        second, _ = training_of(comm, out, 6, seed=9)
        second.extend(distributed.extensions.multi_node_snapshot(comm, extensions.snapshot(autoload=True), sets),
                      trigger=(100, "iteration"))
        second.run()
        assert digest(second.updater.get_optimizer("main").target) == digest(
            whole.updater.get_optimizer("main").target)
    raised(ValueError, "once at most", lambda: distributed.extensions.multi_node_snapshot(
        comm, extensions.snapshot(), [0, [0]]))
