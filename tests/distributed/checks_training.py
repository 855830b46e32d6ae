"""Checks of optimizers, evaluators, iterators, datasets, links and extensions."""
from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import warnings

import numpy as np
from mpi_ranks import raised, run_all

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import distributed, training
from kusari.distributed.errors import CollectiveMismatch, InconsistentRanks
from kusari.iterators import SerialIterator
from kusari.training import extensions


class Regression(kusari.Chain):
    def __init__(self, static=False):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(4, 8)
            self.l2 = L.Linear(8, 3)

    def forward(self, x, t):
        loss = F.mean_squared_error(self.l2(F.tanh(self.l1(x))), t)
        kusari.report({"loss": loss}, self)
        return loss


class StaticRegression(Regression):
    forward = kusari.static_graph(Regression.forward)


def batch(seed, rows=6):
    random = np.random.RandomState(seed)
    return random.rand(rows, 4).astype("f"), random.rand(rows, 3).astype("f")


def digest(model):
    h = hashlib.sha1()
    for name, p in sorted(model.namedparams()):
        h.update(name.encode() + p.array.tobytes())
    return h.hexdigest()


def same_everywhere(comm, value):
    assert len(set(comm.allgather_obj(value))) == 1, comm.allgather_obj(value)


def expected_parameters(comm, steps, make, static=False):
    """The parameters that one process gets with the mean of the ranks' gradients."""
    np.random.seed(0)
    model = Regression()
    optimizer = make().setup(model)
    for k in range(1, steps):
        grads = []
        for rank in range(comm.size):
            model.cleargrads()
            model(*batch(100 * rank + k)).backward()
            grads.append([p.grad for _, p in sorted(model.namedparams())])
        for (_, p), *of in zip(sorted(model.namedparams()), *grads, strict=True):
            p.grad = sum(of[1:], of[0]) / comm.size
        optimizer.update()
    return model


def check_updates_are_those_of_mean_gradients(comm):
    for name in ("naive", "flat", "pure_nccl", "hierarchical"):
        own = distributed.create_communicator(name)
        for kind in (kusari.optimizers.MomentumSGD, kusari.optimizers.Adam):
            for cls in (Regression, StaticRegression):
                np.random.seed(comm.rank)
                model = cls()
                optimizer = distributed.create_multi_node_optimizer(kind(), own).setup(model)
                before = digest(model)
                for k in range(8):
                    optimizer.update(model, *batch(100 * comm.rank + k))
                    same_everywhere(comm, digest(model))
                    assert optimizer.t == k
                    assert k or comm.rank or digest(model) == before  # the first update broadcasts
                steps = vars(optimizer.actual_optimizer).get("_steps")
                if cls is StaticRegression:
                    (_, step), = steps.by_loss.values()
                    assert step is not None and step.compiled is not None and not step.in_parts
                expected = expected_parameters(comm, 8, kind)
                for (_, p), (_, q) in zip(sorted(model.namedparams()), sorted(expected.namedparams()), strict=True):
                    np.testing.assert_allclose(p.array, q.array, rtol=2e-5, atol=2e-6)
        own.finalize()


def check_ranks_may_differ_in_what_they_have_compiled(comm):
    own = distributed.create_communicator("pure_nccl")
    own.set_config("bucket_size", 64)  # several buckets
    found = []
    for cls in (Regression, StaticRegression):
        np.random.seed(0)
        model = cls()
        optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), own).setup(model)
        optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(0.01))
        for k in range(12):
            x, t = batch(10 * comm.rank + k, 4 + (k + comm.rank) % 3)  # each rank sees shapes at its own times
            optimizer.update(model, x, t)
            same_everywhere(comm, digest(model))
        found.append([p.array for _, p in sorted(model.namedparams())])
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


def in_buckets(shared):
    """A communicator with buckets of one or two gradients."""
    own = distributed.create_communicator("pure_nccl")
    own.set_config("bucket_size", 64)
    own.set_config("shared_memory", shared)
    return own


class Deep(kusari.Chain):
    def __init__(self):
        super().__init__(a=L.Linear(4, 8), b=L.Linear(8, 8), c=L.Linear(8, 8), d=L.Linear(8, 8), e=L.Linear(8, 3))

    @kusari.static_graph
    def forward(self, x, t):
        h = F.tanh(self.d(F.tanh(self.c(F.tanh(self.b(F.tanh(self.a(x))))))))
        return F.mean_squared_error(self.e(h), t)


def check_buckets_are_finished_soon_where_memory_is_shared(comm):
    found = []
    for shared, cls in ((True, Deep), (False, Deep), (True, uncompiled(Deep))):
        own = in_buckets(shared)
        np.random.seed(0)
        model = cls()
        optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.MomentumSGD(), own).setup(model)
        for k in range(6):
            optimizer.update(model, *batch(10 * comm.rank + k))
        found.append([p.array for _, p in sorted(model.namedparams())])
        assert bool(own._regions) == (shared and comm.size > 1 and comm.inter_size == 1)
        if cls is Deep:
            (_, step), = vars(optimizer.actual_optimizer)["_steps"].by_loss.values()
            names = [x.node.op.name for x in step.compiled.program.instructions]
            kinds = [n[:-10] for n in names if n.endswith("_reduction")]
            count = kinds.count("start")
            assert count == 5
            if shared:
                assert kinds == ["start"] * 2 + ["start", "finish"] * 3 + ["finish"] * 2, kinds
                assert names.index("foreach") < len(names) - 1 - names[::-1].index("start_reduction")
            else:
                assert kinds == ["start"] * 5 + ["finish"] * 5, kinds
        own.finalize()
    for x, y, z in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(x, z, rtol=2e-5, atol=2e-6)
        if comm.size == 2:  # one order of additions
            np.testing.assert_array_equal(x, y)


def uncompiled(cls):
    return type("Uncompiled", (cls,), {"forward": cls.forward.__wrapped__})


def check_gradients_take_messages_where_memory_is_short(comm):
    from kusari.distributed.communicators import mpi_communicator_base as base
    before, base.free_bytes = base.free_bytes, lambda: 0 if comm.rank == 0 else 1 << 40
    try:
        own = distributed.create_communicator("pure_nccl")
        model = Regression()
        model.cleargrads()
        for _, p in model.namedparams():
            p.grad = np.full_like(p.array, comm.rank)
        own.multi_node_mean_grad(model)
        assert not own._regions and (model.l1.W.grad == (comm.size - 1) / 2).all()
    finally:
        base.free_bytes = before


def check_reductions_may_be_under_way_together(comm):
    own = distributed.create_communicator("pure_nccl")
    models = [Regression() for _ in range(3)]
    for turn in range(3):
        started = []
        for k, model in enumerate(models):
            model.cleargrads()
            for _, p in model.namedparams():
                p.grad = np.full_like(p.array, comm.rank + 10 * k + turn)
            started.append(own.reduction.start(model, False))
        for k, (model, each) in enumerate(zip(models, started, strict=True)):
            each.finish()
            assert (model.l1.W.grad == (comm.size - 1) / 2 + 10 * k + turn).all()
    assert len(own._regions) in (0, 3)
    own.finalize()


def check_each_bucket_is_followed_by_its_update(comm):
    own = in_buckets(False)
    model = StaticRegression()
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), own).setup(model)
    for _ in range(3):
        optimizer.update(model, *batch(comm.rank))
    (_, step), = vars(optimizer.actual_optimizer)["_steps"].by_loss.values()
    names = [x.node.op.name for x in step.compiled.program.instructions]
    first = names.index("finish_reduction")
    assert names[first:] == ["finish_reduction", "foreach"] * (len(names) - first >> 1)
    count = names.count("start_reduction")
    assert count == names.count("finish_reduction") > 1 and "start_reduction" not in names[first:]
    lines = [line.strip() for line in str(model.static.explain()).splitlines() if "bucket" in line]
    assert [line.split(",")[0] for line in lines] == [f"bucket {k} of gradients" for k in range(count)]
    assert int(lines[0].split("during ")[1].split()[0]) >= int(lines[-1].split("during ")[1].split()[0]) > 0
    with kusari.profile() as found:
        optimizer.update(model, *batch(comm.rank))
    bars = [e for e in found.events if e.kind == "reduction"]
    assert [e.name for e in bars] == [f"bucket {k}" for k in range(count)]
    assert all(a.begin < b.begin and a.end < b.end for a, b in zip(bars, bars[1:], strict=False))
    assert bars[0].end > bars[-1].begin  # under way at the same time
    same_everywhere(comm, digest(model))
    own.finalize()


def check_losses_may_be_scaled(comm):
    found = []
    for cls in (Regression, StaticRegression):
        np.random.seed(0)
        model = cls()
        optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.MomentumSGD(0.1), comm).setup(model)
        optimizer.loss_scaling(interval=2)
        for k in range(9):
            x, t = batch(10 * comm.rank + k)
            if k == 5 and comm.rank == 0:
                x = x * np.float32(1e38)  # only this rank's gradients overflow: all skip the update
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                optimizer.update(model, x, t)
            same_everywhere(comm, (digest(model), optimizer.t, optimizer._loss_scale))
        found.append([optimizer._loss_scale, *[p.array for _, p in sorted(model.namedparams())]])
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


def check_compiled_steps_find_gradients_that_differ(comm):
    own = comm.split(0, comm.rank)
    model = StaticRegression()
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.SGD(), own, zero_fill=False).setup(model)
    for _ in range(4):
        optimizer.update(model, *batch(0))
    before = digest(model), optimizer.t
    own.set_config("checked_updates", 100)
    if comm.rank == 0:
        model.l2.b.cleargrad()
        raised(CollectiveMismatch, "/l2/b is missing on rank 0 and float32[3] on rank 1",
               lambda: own.multi_node_mean_grad(without_bias(model)))
    else:
        raised(CollectiveMismatch, "/l2/b is missing on rank 0 and float32[3] on rank 1",
               lambda: optimizer.update(model, *batch(0)))
    assert (digest(model), optimizer.t) == before
    optimizer.update(model, *batch(0))
    same_everywhere(comm, digest(model))


def without_bias(model):
    model.cleargrads()
    for name, p in model.namedparams():
        if name != "/l2/b":
            p.grad = np.zeros_like(p.array)
    return model


def check_double_buffering_takes_the_gradients_before(comm):
    x, t = batch(comm.rank)
    model = kusari.Chain(w=L.Linear(4, 1, nobias=True, initialW=0))
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.SGD(1), comm, double_buffering=True)
    optimizer.setup(model)
    seen = []
    for k in range(5):
        optimizer.update(lambda k=k: F.sum(model.w.W) * (10.0**k) * (comm.rank + 1))
        seen.append(float(model.w.W.array[0, 0]))
    mean = (comm.size + 1) / 2
    np.testing.assert_allclose(seen, [0, 0, -10 * mean, -110 * mean, -1110 * mean])
    optimizer.wait()


def check_optimizers_are_themselves(comm):
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(alpha=0.5), comm)
    optimizer.setup(Regression())
    optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(0.1))
    assert optimizer.alpha == 0.5
    optimizer.alpha = 0.25
    assert optimizer.actual_optimizer.alpha == 0.25 and type(optimizer.target) is Regression
    optimizer.new_epoch()
    assert optimizer.epoch == 1


def check_parameters_that_come_late_are_broadcast(comm):
    np.random.seed(comm.rank)
    model = kusari.Chain(a=L.Linear(None, 2), b=L.Linear(3, 2))
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.SGD(0.1), comm).setup(model)
    for _ in range(3):
        optimizer.update(lambda: F.sum(model.b(np.ones((1, 3), "f"))))
    for _ in range(3):
        optimizer.update(lambda: F.sum(model.a(np.ones((1, 5), "f"))))
        same_everywhere(comm, digest(model))
    assert optimizer.t == 4


def check_inconsistent_ranks_are_named(comm):
    def optimizer(make=kusari.optimizers.Adam, **options):
        np.random.seed(comm.rank)
        model = Regression()
        made = distributed.create_multi_node_optimizer(make(**options), comm).setup(model)
        return made, (model, *batch(comm.rank))
    # Weights that were never broadcast.
    own, arguments = optimizer()
    own.note_loaded()
    raised(InconsistentRanks, "the parameter /l1/W is not the same on ranks 0 and 1", lambda: own.update(*arguments))
    # Another learning rate.
    own, arguments = optimizer(alpha=0.1 * (comm.rank + 1))
    own.update(*arguments)
    raised(InconsistentRanks, "the hyperparameter alpha", lambda: own.update(*arguments))
    # A state that only one rank has loaded.
    own, arguments = optimizer()
    if comm.rank == 0:
        own.actual_optimizer.update(*arguments)
    own.update(*arguments)
    raised(InconsistentRanks, "the count of updates t", lambda: own.update(*arguments))
    own, arguments = optimizer()
    own.update(*arguments)
    for name, p in sorted(own.target.namedparams()):
        p.update_rule._state = {}
        p.update_rule.init_state(p)
        if name == "/l2/b":
            p.update_rule.state["m"][...] = comm.rank
    raised(InconsistentRanks, "the state 'm' of /l2/b", lambda: own.update(*arguments))


def check_datasets_are_shared_out(comm):
    size, rank = comm.size, comm.rank
    for count in (0, 1, size - 1, size, 7, 10 * size + 1):
        data = list(range(count))
        for equal in (True, False):
            for options in ({}, {"shuffle": True, "seed": 3}, {"root": size - 1}):
                root = options.get("root", 0)
                part = distributed.scatter_dataset(data if rank == root else None, comm, force_equal_length=equal,
                                                   **options)
                every = comm.allgather_obj(list(part))
                assert {x for each in every for x in each} == set(data)
                if equal:
                    assert {len(each) for each in every} == {-(-count // size)}
                else:
                    assert sorted(x for each in every for x in each) == data
                start, stop = distributed.scatter_index(count, comm, force_equal_length=equal)
                assert stop - start == len(part)
    raised(ValueError, "None there", lambda: distributed.scatter_dataset(None, comm))
    assert distributed.datasets.create_empty_dataset([1, 2]) == [(), ()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert distributed.get_epoch_trigger(3, range(10), 4, comm) == (9, "iteration")


def check_uneven_evaluation(comm):
    for count in (1, 5, 8):
        data = [(np.full(4, i, "f"), np.zeros(3, "f")) for i in range(count)]
        part = distributed.scatter_dataset(data, comm, force_equal_length=False)
        np.random.seed(0)
        model = Regression()
        evaluator = extensions.Evaluator(SerialIterator(part, 2, repeat=False, shuffle=False), model)
        found = distributed.create_multi_node_evaluator(evaluator, comm)()
        same_everywhere(comm, found["main/loss"] if "main/loss" in found else None)
        assert np.isfinite(found["main/loss"])


def check_generic_evaluator(comm):
    class Evaluator(distributed.extensions.GenericMultiNodeEvaluator):
        def calc_local(self, x):
            return float(x.sum())

        def aggregate(self, results):
            return sum(results)
    data = [np.full(1, i, "f") for i in range(3 * comm.rank + 1)]
    found = Evaluator(comm, SerialIterator(data, 2, repeat=False, shuffle=False), None)(None)
    expected = sum(i for r in range(comm.size) for i in range(3 * r + 1))
    assert found == (expected if comm.rank == 0 else None)


def check_iterators_give_the_same_batches(comm):
    data = [(np.full(2, i, "f"), np.int32(i)) for i in range(7)]
    create = distributed.iterators.create_multi_node_iterator
    for master in range(comm.size):
        own = create(SerialIterator(data if comm.rank == master else [()] * 7, 3, repeat=False, shuffle=True), comm,
                     rank_master=master)
        for _ in range(2):
            batches = [[(x.tolist(), int(t), t.dtype.name) for x, t in b] for b in own]
            same_everywhere(comm, str((batches, own.epoch, own.is_new_epoch, own.current_position, own.epoch_detail)))
            assert sorted(t for b in batches for _, t, _ in b) == list(range(7))
            own.reset()
    raised(TypeError, "Multi node iterator supports", create(SerialIterator(["a"] * 3, 2), comm).next)
    np.random.seed(comm.rank)
    own = distributed.iterators.create_synchronized_iterator(SerialIterator(list(range(9)), 4), comm)
    for _ in range(6):
        same_everywhere(comm, str((own.next(), own.epoch)))
    raised(ValueError, "order_sampler", lambda: distributed.iterators.create_synchronized_iterator(object(), comm))


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
        if static:  # the first call is define-by-run, which rounds otherwise
            for (_, p), (_, q) in zip(sorted(found.namedparams()), sorted(model.namedparams()), strict=True):
                np.testing.assert_allclose(p.array, q.array, rtol=1e-5, atol=1e-6)
            same_everywhere(comm, digest(found))
        else:
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


def check_observations_are_summarized(comm):
    class Trainer:
        observation: dict[str, object]
        def __init__(self):
            self.iteration = 0
            self.updater = self
            self.epoch = 0
            self.is_new_epoch = False
            self.epoch_detail = 0.0
    trainer = Trainer()
    own = distributed.extensions.ObservationAggregator(comm, "x", "mean", comm_trigger=(2, "iteration"))
    for i in (1, 2):
        trainer.iteration = i
        trainer.observation = {"x": kusari.Variable(np.array(10.0 * comm.rank + i))}
        own(trainer)
    np.testing.assert_allclose(trainer.observation["mean"], 10 * (comm.size - 1) / 2 + 1.5)
    stop = distributed.extensions.MultiNodeEarlyStoppingTrigger(
        comm, check_trigger=(1, "iteration"), monitor="x", patience=2, max_trigger=(50, "iteration"))
    values = [5, 4, 3, 3, 3, 3, 3, 3]
    stopped = []
    for i, value in enumerate(values, 1):
        trainer.iteration = i
        trainer.observation = {"x": value + comm.rank * (i % 2)}
        stopped.append(stop(trainer))
    same_everywhere(comm, str(stopped))
    assert any(stopped) and stop.get_training_length() == (50, "iteration")


if __name__ == "__main__":
    run_all(globals())
