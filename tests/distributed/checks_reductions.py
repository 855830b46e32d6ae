"""Checks of the reduction of gradients in buckets, as part of a compiled step and by itself."""
from __future__ import annotations

import copy
import pickle

import numpy as np
from mpi_ranks import raised
from regression import Regression, StaticRegression, batch, digest, same_everywhere

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import distributed
from kusari.distributed.transport.shared import SharedSum


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


def check_pieces_of_sums_are_added_in_order(comm):
    """A rank may find a later sum filled in before it has looked at the one before."""
    own = in_buckets(True)
    if comm.size == 2:
        return  # no pieces
    region = own.region(1 << 12)
    place = own.place("multi_node_mean_grad")
    region.begin(place)
    first, second = [SharedSum(region, at, 64, "float32", 1) for at in (0, 1024)]
    for k, total in enumerate((first, second)):
        total.buffer[...] = 10 * k + comm.rank
        total.start(place)
    comm.allgather_obj(None)  # all have filled in both
    second.poll()
    for k, total in enumerate((first, second)):
        total.wait()
        np.testing.assert_array_equal(total.total, 10 * k * comm.size + sum(range(comm.size)))
    region.end()
    own.finalize()


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
                end = "wait_for" if comm.size == 2 else "finish"
                assert kinds == ["begin"] + ["start"] * 2 + ["start", end] * 3 + [end] * 2, kinds
                assert names.index("foreach") < len(names) - 1 - names[::-1].index("start_reduction")
            else:
                assert kinds == ["begin"] + ["start"] * 5 + ["finish"] * 5, kinds
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
            np.testing.assert_allclose(model.l1.W.grad, (comm.size - 1) / 2 + 10 * k + turn, rtol=1e-6)
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


class Apart:
    """Two models of one communicator, compiled or not, and what their gradients were behind each step."""

    def __init__(self, cls, settings, hook=None, memory="speed"):
        self.comm = distributed.create_communicator("pure_nccl")
        for name, value in settings.items():
            self.comm.set_config(name, value)
        np.random.seed(0)
        self.models = [cls(), cls()]
        rules = kusari.optimizers.Adam(), kusari.optimizers.MomentumSGD()
        self.optimizers = [distributed.create_multi_node_optimizer(rule, self.comm).setup(model)
                           for rule, model in zip(rules, self.models, strict=True)]
        if hook is not None:
            self.optimizers[0].add_hook(hook)

    def run(self, steps, look):
        found = []
        for k in range(steps):
            for optimizer, model in zip(self.optimizers, self.models, strict=True):
                optimizer.update(model, *batch(10 * self.comm.rank + k))
            found += look(self.models, k)
        found += [p.array for model in self.models for _, p in sorted(model.namedparams())]
        self.comm.finalize()
        return found


def gradients(models, k):
    return [p.grad for model in models for _, p in sorted(model.namedparams())]


def later_gradients(models, k):
    """Gradients that are looked at in some steps only, those of the first model behind the step of the second."""
    return gradients(models[:1], k) if k % 3 == 2 else []


def copied_gradients(models, k):
    return [copy.copy(p).grad for p in models[1].params()] + [
        pickle.loads(pickle.dumps(p)).grad for p in models[0].params()]


def gradient_variables(models, k):
    return [(p.grad_var * 2).array for p in models[0].params()]


def check_gradients_in_place_are_means(comm):
    looks = gradients, later_gradients, copied_gradients, gradient_variables
    for look in looks if comm.size == 2 else looks[:1]:  # others copy
        for hook in (None, lambda: kusari.optimizer_hooks.GradientClipping(0.05),
                     lambda: kusari.optimizer_hooks.WeightDecay(0.01)):
            found = []
            for cls, shared in ((StaticRegression, True), (StaticRegression, False), (Regression, True)):
                apart = Apart(cls, {"shared_memory": shared}, hook and hook())
                found.append(apart.run(8, look))
                if cls is StaticRegression and hook is None:
                    in_place = shared and comm.size == 2 and comm.inter_size == 1
                    assert all((step_of(o)._reduction.states != []) == in_place for o in apart.optimizers)
            for x, y, z in zip(*found, strict=True):
                np.testing.assert_allclose(x, z, rtol=5e-5, atol=5e-6)
                if comm.size == 2:
                    np.testing.assert_array_equal(x, y)


def step_of(optimizer):
    (_, step), = vars(optimizer.actual_optimizer)["_steps"].by_loss.values()
    return step


def check_gradients_in_place_stay_when_the_memory_goes(comm):
    apart = Apart(StaticRegression, {})
    found = apart.run(5, lambda models, k: [])  # which ends with the communicator
    shown = [p.grad for model in apart.models for p in model.params()]
    assert found and all(g is not None and g.any() for g in shown)
    same_everywhere(comm, b"".join(g.tobytes() for g in shown))


def check_an_update_of_its_own_takes_gradients_in_place(comm):
    found = []
    for cls in (StaticRegression, Regression):
        own = distributed.create_communicator("pure_nccl")
        np.random.seed(0)
        model = cls()
        optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.SGD(0.1), own).setup(model)
        for k in range(5):
            optimizer.update(model, *batch(10 * comm.rank + k))
            if k > 1:  # the first step broadcasts
                optimizer.actual_optimizer.update()  # once more with the same gradients
        found.append([p.array for _, p in sorted(model.namedparams())])
        own.finalize()
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


def check_ranks_in_place_and_not_add_up_the_same(comm):
    own = in_buckets(True)
    found = []
    for cls in (Regression, StaticRegression):
        np.random.seed(0)
        model = cls()
        optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), own).setup(model)
        for k in range(15):
            x, t = batch(10 * comm.rank + k, 4 + (k + 2 * comm.rank) % 5)  # each rank sees shapes at its own times
            optimizer.update(model, x, t)
            same_everywhere(comm, digest(model))
        found.append([p.array for _, p in sorted(model.namedparams())])
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)
    own.finalize()


class Failing(kusari.FunctionNode):
    fails = False

    def forward(self, inputs):
        if Failing.fails:
            raise ZeroDivisionError("a fault")
        return inputs[0] * 2,

    def backward(self, indexes, grads):
        return grads[0] * 2,


class Guarded(Regression):
    @kusari.static_graph
    def forward(self, x, t):
        return F.mean_squared_error(self.l2(Failing().apply((F.tanh(self.l1(x)),))[0]), t)


def check_a_step_that_fails_leaves_gradients_in_place(comm):
    own = distributed.create_communicator("pure_nccl")
    model = Guarded()
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.SGD(0.1), own).setup(model)
    for k in range(5):
        optimizer.update(model, *batch(10 * comm.rank + k))
    assert (step_of(optimizer)._reduction.states != []) == (comm.size == 2 and comm.inter_size == 1)
    Failing.fails = True
    raised(ZeroDivisionError, "a fault", lambda: optimizer.update(model, *batch(comm.rank)))
    Failing.fails = False
    assert all(p.grad is not None and np.isfinite(p.grad).all() for p in model.params())
    same_everywhere(comm, b"".join(p.grad.tobytes() for p in model.params()))
    own.finalize()
