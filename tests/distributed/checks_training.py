"""Checks of optimizers, evaluators, iterators, datasets, links and extensions."""
from __future__ import annotations

import warnings

import numpy as np
from mpi_ranks import raised
from regression import Regression, StaticRegression, batch, digest, same_everywhere

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import distributed
from kusari.distributed.errors import CollectiveMismatch, InconsistentRanks
from kusari.iterators import SerialIterator
from kusari.training import extensions


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
    for i, name in enumerate(("naive", "flat", "pure_nccl", "hierarchical")):
        own = distributed.create_communicator(name)
        kinds = kusari.optimizers.MomentumSGD, kusari.optimizers.Adam
        for kind in kinds if comm.size <= 4 else kinds[i % 2:i % 2 + 1]:  # many ranks share the cores
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
