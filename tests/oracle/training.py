"""Optimizers, triggers and extensions with random settings."""
from __future__ import annotations

import io
import json
import os
import pathlib
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .programs import TIMES, R, arguments

OPTIMIZERS = {
    "SGD": "lr=p", "MomentumSGD": "lr=p, momentum=q", "NesterovAG": "lr=p, momentum=q", "AdaGrad": "lr=p, eps=q / 100",
    "AdaDelta": "rho=q, eps=p / 100", "Adam": "alpha=p, beta1=q, eta=p", "AdamW": "alpha=p, weight_decay_rate=q / 10",
    "AMSGrad": "alpha=p, beta2=q", "AdaBound": "alpha=p, final_lr=q, gamma=p / 10", "AMSBound": "alpha=p",
    "RMSprop": "lr=p, alpha=q, eps_inside_sqrt=q > 0.5", "RMSpropGraves": "lr=p / 10, alpha=q", "SMORMS3": "lr=p",
    "CorrectedMomentumSGD": "lr=p, momentum=q", "MSVAG": "lr=p, beta=q, weight_decay_rate=p / 10",
}
HOOKS = ["GradientNoise(p)", "GradientNoise(p, lambda xp, shape, dtype, *a: xp.full(shape, 0.1, dtype))",
         "WeightDecay(p)", "Lasso(p)", "GradientClipping(q)", "GradientHardClipping(-q, p)", "GradientLARS(q, p)"]
TRIGGERS = """
IntervalTrigger(k, "iteration")
IntervalTrigger(k / 2., "epoch")
ManualScheduleTrigger([k, l + 2], "iteration")
ManualScheduleTrigger([k / 3., l], "epoch")
OnceTrigger()
OnceTrigger(True)
MaxValueTrigger("v", trigger=(k, "iteration"))
MinValueTrigger("v", trigger=(k, "iteration"))
BestValueTrigger("v", lambda best, new: new > best, trigger=(1, "epoch"))
EarlyStoppingTrigger(check_trigger=(1, "iteration"), monitor="v", patience=k, mode="min")
EarlyStoppingTrigger(check_trigger=(k, "iteration"), monitor="v", patience=l, mode="max", max_trigger=(9, "iteration"))
EarlyStoppingTrigger(monitor="v", patience=k)
ManualScheduleTrigger(k, "iteration")
ManualScheduleTrigger([k, l + 2, 9], "epoch")
IntervalTrigger(1 / 3., "epoch")
OnceTrigger(call_on_resume=flag)
BestValueTrigger("v", lambda best, new: new < best, (k, "iteration"))
get_trigger((k, "iteration"))
""".split("\n")[1:-1]
SHIFTS = """
ExponentialShift("lr", 0.5 + q, init=k)
ExponentialShift("lr", 0.5, target=q / 8, init=1.)
InverseShift("lr", gamma=p, power=q, init=1.)
LinearShift("lr", (p, q), (k, k + l))
PolynomialShift("lr", q, 8, init=p)
StepShift("lr", gamma=q, step=k, init=p)
MultistepShift("lr", gamma=q, step_value=[k, k + l], init=p)
WarmupShift("lr", p, k, q)
""".split("\n")[1:-1]
EXTENSIONS = """
LogReport(trigger=(k, "iteration"))
LogReport(["main/loss", "seen"], trigger=(l, "epoch"))
LogReport(trigger=(k, "iteration"), filename="log-{iteration}")
LogReport(trigger=(k / 2., "epoch"), postprocess=lambda stats: stats.update(more=stats["iteration"] + 1))
Evaluator(test, model), trigger=(k, "iteration")
Evaluator(test, model), trigger=(1, "epoch"), call_before_training=True
Evaluator({"main": test}, {"main": model}), name="other"
MicroAverage("seen", "main/loss", "average", trigger=(k, "iteration"))
observe_lr(), trigger=(k, "iteration")
observe_lr(observation_key="rate")
observe_value("twice", lambda trainer: trainer.updater.iteration * 2), trigger=(k, "iteration")
ParameterStatistics(model)
ParameterStatistics(model, {"mean": np.mean, "high": np.max}, report_params=False, prefix="p")
ParameterStatistics(model.predictor, report_grads=False, skip_nan_params=True, trigger=(k, "iteration"))
PrintReport(["iteration", "main/loss", "seen"], out=file)
PrintReport(["epoch", "main/accuracy", "none"], "LogReport", out=file)
ExponentialShift("lr", 0.5), trigger=(k, "iteration")
FailOnNonNumber()
snapshot(filename="saved-{.updater.iteration}"), trigger=(k, "iteration")
snapshot(filename="saved-{.updater.iteration}", n_retains=l), trigger=(1, "iteration")
snapshot(filename="last", snapshot_on_error=flag), trigger=(k, "epoch")
snapshot_object(model, "model-{.updater.epoch}"), trigger=(1, "epoch")
snapshot_object(model, "model", condition=lambda: flag)
DumpGraph("main/loss", filename="graph")
unchain_variables()
PlotReport(["main/loss", "seen"], "iteration", trigger=(k, "iteration"), filename="plot.png")
PlotReport(["main/loss"], trigger=(k, "iteration"), file_name="plot-{iteration}.png", marker=None, grid=False)
VariableStatisticsPlot(model, trigger=(k, "iteration"), max_sample_size=3, filename="statistics.png")
ProgressBar(update_interval=100, out=file)
snapshot(filename="saved", writer=w.SimpleWriter()), trigger=(k, "iteration")
snapshot(filename="saved-{.updater.iteration}", writer=w.ThreadWriter()), trigger=(k, "iteration")
snapshot(filename="saved", writer=w.ProcessWriter()), trigger=(4, "iteration")
snapshot(filename="saved-{.updater.iteration}", writer=w.ThreadQueueWriter()), trigger=(k, "iteration")
snapshot(filename="saved", writer=w.ProcessQueueWriter()), trigger=(4, "iteration")
snapshot_object(model, "model-{.updater.iteration}", writer=w.SimpleWriter()), trigger=(k, "iteration")
snapshot(filename="saved-{.updater.iteration}", condition=lambda: flag, autoload=True), trigger=(k, "iteration")
make_extension(trigger=(k, "iteration"), default_name="mine")(lambda trainer: file.write("called"))
lambda trainer: file.write("called")
lambda trainer: file.write("called"), trigger=t.TimeTrigger(1e-9)
lambda trainer: file.write("called"), trigger=t.TimeTrigger(1e9)
InverseShift("lr", gamma=0.5, power=l), trigger=(k, "iteration")
LinearShift("lr", (0.5, 0.1), (k, 7))
WarmupShift("lr", 0.01, k, 0.3)
LogReport(["main/loss"], trigger=(k, "iteration")), call_before_training=True
Evaluator(test, model, converter=lambda batch, device=None: [np.stack([v[0] for v in batch]), labels[:len(batch)] % 2])
Evaluator(test, model, eval_func=lambda x, t: report({"a": len(x)}))
Evaluator(test, model, eval_hook=lambda e: file.write("evaluated"))
""".split("\n")[1:-1]
UPDATERS = """
StandardUpdater(iterator, optimizer)
StandardUpdater(iterator, optimizer, auto_new_epoch=flag)
StandardUpdater({"main": iterator}, {"main": optimizer}, device=-1)
StandardUpdater(iterator, optimizer, loss_func=lambda x, t: model(x, t) * k)
StandardUpdater(iterator, optimizer, loss_scale=4)
StandardUpdater(iterator, optimizer, converter=lambda batch, device=None: c.dataset.concat_examples(batch[:1]))
StandardUpdater(iterator, optimizer, input_device="@numpy")
ParallelUpdater(iterator, optimizer, devices={"main": "@numpy", "second": "@numpy"})
ParallelUpdater(iterator, optimizer, models={"main": model, "second": other}, devices={"main": -1, "second": -1})
ParallelUpdater(iterator, optimizer, devices={"main": -1, "b": -1, "c": -1}, auto_new_epoch=False)
""".split("\n")[1:-1]


def optimizers(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Parameters after some updates."""
    def run(name: str, text: str, seed: int) -> Any:
        r = R(seed)
        scope = {"p": r.uniform(0.01, 0.2), "q": r.uniform(0.1, 0.9)}
        optimizer = eval(f"o.{name}({text})", {**scope, "o": lib.optimizers})
        link = lib.chainer.Link()
        shape = ((), (3,), (2, 3))[r.randint(3)]
        dtype = "fde"[r.randint(3)]
        with link.init_scope():
            link.w = lib.chainer.Parameter(r.uniform(-1, 1, shape).astype(dtype))
        optimizer.setup(link)
        if seed % 2:
            optimizer.add_hook(eval(f"h.{HOOKS[r.randint(len(HOOKS))]}", {**scope, "h": lib.optimizer_hooks}))
        found = []
        for _ in range(4):
            link.w.grad = r.uniform(-1, 1, shape).astype(dtype)
            optimizer.update()
            found.append(link.w.array.copy())
        return found, optimizer.t
    def trained(name: str, text: str, seed: int) -> Any:
        r = R(seed)
        scope = {"p": r.uniform(0.01, 0.2), "q": r.uniform(0.1, 0.9)}
        dtype = "fed"[r.randint(3)]
        x, t = r.uniform(-1, 1, (4, 3)).astype(dtype), r.randint(0, 2, 4).astype("i")
        with lib.chainer.using_config("dtype", lib.chainer.mixed16 if dtype == "e" else np.dtype(dtype)):
            models = [lib.L.Classifier(lib.L.Linear(None, 2, initialW=0.1)) for _ in range(2)]
            made = [eval(f"o.{name}({text})", {**scope, "o": lib.optimizers}).setup(model) for model in models]
            options = ("use_cleargrads()", "use_fp32_update()", "loss_scaling()", "set_loss_scale(8)", "new_epoch()")
            option = options[r.randint(len(options))]
            for optimizer in made:
                eval(f"o.{option}", {"o": optimizer})
            for _ in range(3):
                made[0].update(models[0], x, t)
            made[0].new_epoch()
            for source, target in ((models[0], models[1]), (made[0], made[1])):
                saved: dict[str, Any] = {}
                lib.serializers.DictionarySerializer(saved).save(source)
                saved = {key: np.array(value) for key, value in saved.items()}  # Chainer goes on in these arrays
                lib.serializers.NpzDeserializer(saved).load(target)
            saved = {key: value.copy() for key, value in saved.items()}
            made[1].update(lambda: models[1](x, t))
            rule = models[1].predictor.W.update_rule
            return [saved, models[1].loss, [(n, p.array) for n, p in sorted(models[1].namedparams())], made[1].t,
                    made[1].epoch, rule.t, {k: v for k, v in rule.state.items() if v is not None},
                    {k: getattr(made[1], k) for k in ("lr", "alpha", "beta1", "rho") if hasattr(made[1], k)}]
    for name, text in OPTIMIZERS.items():
        for seed in range(TIMES):
            yield f"{name} {seed}", lambda name=name, text=text, seed=seed: run(name, text, seed)
            yield f"{name} of a model {seed}", lambda name=name, text=text, seed=seed: trained(name, text, seed)


def trainings(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """When triggers fire, and what hyperparameters are shifted to."""
    def fires(text: str, seed: int) -> Any:
        r, drawn = R(seed), arguments(seed)
        drawn["k"] += 1
        trigger = eval(text, {**named(lib.triggers), **drawn, "get_trigger": lib.training.get_trigger})
        trainer = lib.testing.get_trainer_with_mock_updater((99, "iteration"), iter_per_epoch=int(r.randint(1, 5)))
        found = []
        for _ in range(14):
            trainer.updater.update()
            trainer.observation = {"v": float(r.randint(0, 9))}
            if r.randint(5):
                found.append(bool(trigger(trainer)))
        target: dict[str, Any] = {}
        if not text.startswith("EarlyStopping"):  # Chainer does not save it
            trigger.serialize(lib.serializers.DictionarySerializer(target))
        return found, sorted(target)

    def shifted(text: str, seed: int) -> Any:
        r, drawn = R(seed), arguments(seed)
        drawn["k"] += 1
        optimizer = lib.optimizers.SGD(lr=1.0).setup(lib.L.Linear(1, 1))
        trainer = lib.testing.get_trainer_with_mock_updater((99, "iteration"), iter_per_epoch=3)
        trainer.updater.get_optimizer = lambda name: optimizer
        extension = eval(f"e.{text}", {**drawn, "p": r.uniform(0.1, 1), "q": r.uniform(0.1, 0.9), "e": lib.extensions})
        found = [optimizer.lr]
        extension.initialize(trainer)
        for _ in range(9):
            trainer.updater.update()
            extension(trainer)
            found.append(optimizer.lr)
        return found
    def reported(text: str, seed: int) -> Any:
        with tempfile.TemporaryDirectory() as out:
            return training(lib, text, arguments(seed), out)
    def updated(text: str, seed: int) -> Any:
        return updates(lib, text, arguments(seed))
    for texts, run in ((TRIGGERS, fires), (SHIFTS, shifted), (EXTENSIONS, reported), (UPDATERS, updated)):
        for text in texts:
            for seed in range(2 if "Process" in text or "Plot" in text else TIMES):  # processes and pictures take long
                yield f"{text} {seed}", lambda run=run, text=text, seed=seed: run(text, seed)


def named(module: Any) -> dict[str, Any]:
    """What a module has under public names."""
    return {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}


def updates(lib: types.SimpleNamespace, text: str, drawn: dict[str, Any]) -> Any:
    """What an updater has done and reports after some updates, and after it was saved and loaded."""
    r = R(drawn["k"])
    x = r.uniform(-1, 1, (7, 3)).astype("f")
    rows = lib.datasets.TupleDataset(x, (x.sum(1) > 0).astype("i"))

    def made() -> Any:
        model = lib.L.Classifier(lib.L.Linear(3, 2, initialW=0.25))
        optimizer = lib.optimizers.MomentumSGD(0.25).setup(model)
        iterator = lib.iterators.SerialIterator(rows, drawn["l"] + 1, shuffle=False)
        return eval(text, {**named(lib.updaters), **drawn, "c": lib.chainer, "iterator": iterator,
                           "model": model, "other": model.copy(), "optimizer": optimizer})

    def state(updater: Any) -> list[Any]:
        return [updater.iteration, updater.epoch, updater.is_new_epoch, updater.epoch_detail,
                updater.previous_epoch_detail, sorted(updater.get_all_optimizers()),
                updater.get_optimizer("main").target.predictor.W.array.copy()]
    updater, found = made(), []
    for _ in range(4):
        reporter = lib.chainer.Reporter()
        models = getattr(updater, "_models", None) or {"main": updater.get_optimizer("main").target}
        for name, model in models.items():
            reporter.add_observer(name, model)
        with reporter:
            updater.update()
        found.append([{k: v.array for k, v in reporter.observation.items()}, state(updater)])
    saved: dict[str, Any] = {}
    lib.serializers.DictionarySerializer(saved).save(updater)
    again = made()
    lib.serializers.NpzDeserializer(saved).load(again)
    again.update()
    return [found, sorted(saved), state(again)]


def training(lib: types.SimpleNamespace, text: str, drawn: dict[str, Any], out: str) -> Any:
    """The log of a training with an extension, what is observed at its end, what it prints and the files it writes."""
    r = R(drawn["k"])
    drawn["k"] += 1
    x = r.uniform(-1, 1, (7, 3)).astype("f")
    rows = lib.datasets.TupleDataset(x, (x.sum(1) > 0).astype("i"))
    model = lib.L.Classifier(lib.L.Linear(3, 2, initialW=r.uniform(-1, 1, (2, 3)).astype("f")))
    optimizer = lib.optimizers.SGD(0.25).setup(model)
    updater = lib.training.updaters.StandardUpdater(lib.iterators.SerialIterator(rows, 2, shuffle=False), optimizer)
    trainer = lib.training.Trainer(updater, (8, "iteration"), out=out)
    file = io.StringIO()

    def seen(trainer: Any) -> None:
        lib.chainer.report({"seen": float(trainer.updater.iteration % 3), "average": 2})
    trainer.extend(seen, trigger=(1, "iteration"), priority=400)  # before those that write
    scope = {**drawn, "labels": drawn["t"], "model": model, "file": file,
             "np": np, "test": lib.iterators.SerialIterator(rows, 3, repeat=False, shuffle=False)}
    if not text.startswith("LogReport"):
        trainer.extend(lib.extensions.LogReport(trigger=(drawn["l"], "iteration")))
    eval(f"extend({text})", {**named(lib.extensions), **scope, "extend": trainer.extend, "t": lib.triggers,
                             "report": lib.chainer.report,
                             "w": lib.extensions.snapshot_writers, "make_extension": lib.training.make_extension})
    trainer.run()
    log = [[{key: value for key, value in entry.items() if key != "elapsed_time"} for entry in json.loads(
        pathlib.Path(out, f).read_text())] for f in sorted(os.listdir(out)) if f.startswith("log")]
    observed = {key: np.asarray(value.array if hasattr(value, "array") else value, "f")
                for key, value in trainer.observation.items()}
    printed = [line.split() for line in file.getvalue().replace("\x1b[J", "").split("\n")]
    return [log, observed, printed, sorted(os.listdir(out)), model.predictor.W.array, optimizer.lr]
