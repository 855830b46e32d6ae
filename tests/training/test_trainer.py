"""The loop: order of calls, errors, and that a resumed run is the same run."""

import json
import os

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari import iterators, optimizers, serializers, training
from kusari.training import extensions


def test_extensions_run_by_priority(build_idle):
    calls = []

    def extension(name, **attributes):
        @training.make_extension(default_name=name, **attributes)
        def function(trainer):
            calls.append(name)

        return function

    trainer = build_idle((1, "iteration"))
    trainer.extend(extension("reader", priority=training.PRIORITY_READER))
    trainer.extend(extension("writer", priority=training.PRIORITY_WRITER))
    trainer.extend(extension("default"))
    trainer.extend(extension("editor", priority=training.PRIORITY_EDITOR))
    trainer.extend(extension("given"), priority=250)
    trainer.extend(lambda trainer: calls.append("lambda"))
    trainer.extend(extension("last"), priority=-1)
    trainer.run()
    assert calls == ["writer", "given", "editor", "reader", "default", "lambda", "last"]


class Recorder(training.Extension):
    def __init__(self, fail_at=None):
        self.events = []
        self.fail_at = fail_at

    def initialize(self, trainer):
        self.events.append(("initialize", trainer.is_before_training))

    def __call__(self, trainer):
        self.events.append(trainer.updater.iteration)
        if trainer.updater.iteration == self.fail_at:
            raise RuntimeError("broken on purpose")

    def on_error(self, trainer, exc, tb):
        self.events.append(("error", str(exc), tb is not None))

    def finalize(self):
        self.events.append("finalize")


def test_life_of_an_extension(build_idle):
    trainer, recorder = build_idle(), Recorder()
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = trainer.elapsed_time
    trainer.extend(recorder, call_before_training=True)
    trainer.run()
    assert recorder.events == [("initialize", True), 0, 1, 2, 3, "finalize"]
    assert recorder.name == "Recorder" and trainer.get_extension("Recorder") is recorder
    assert trainer.elapsed_time == trainer.elapsed_time > 0
    with pytest.raises(RuntimeError, match="cannot run training loop multiple times"):
        trainer.run()


@pytest.mark.parametrize("show", [True, False])
def test_an_error_ends_the_loop(build_idle, capsys, show):
    trainer, recorder = build_idle(), Recorder(fail_at=2)
    trainer.extend(recorder)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        trainer.run(show_loop_exception_msg=show)
    assert recorder.events == [("initialize", True), 1, 2, ("error", "broken on purpose", True), "finalize"]
    assert ("Exception in main training loop: broken on purpose" in capsys.readouterr().err) == show


def test_a_failing_finalizer_does_not_spare_the_others(build_idle):
    trainer, recorder = build_idle(), Recorder()

    def fail():
        raise OSError("disk full")

    trainer.extend(training.make_extension(finalizer=fail)(lambda trainer: None))
    trainer.extend(recorder)
    with pytest.raises(OSError, match="disk full"):
        trainer.run()
    assert recorder.events[-1] == "finalize"


def test_names(build_idle):
    trainer = build_idle()
    for _ in range(2):
        trainer.extend(extensions.LogReport())
        trainer.extend(lambda trainer: None, name="mine")
    for name in ("LogReport", "LogReport_1", "mine", "mine_1"):
        assert callable(trainer.get_extension(name))

    class Nameless:
        def __call__(self, trainer):
            pass

    for call, error, message in (
        (lambda: trainer.get_extension("other"), ValueError, "extension other not found; there are LogReport, mine"),
        (lambda: trainer.extend(Nameless()), TypeError, "name is not given for the extension"),
        (lambda: trainer.extend("text"), TypeError, "must be callable"),
        (lambda: trainer.extend(lambda t: None, name="training"), ValueError, "prohibited"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_stop_trigger_none_never_stops(build_idle):
    trainer = build_idle(None)
    trainer.extend(Recorder(fail_at=20))
    with pytest.raises(RuntimeError, match="broken on purpose"):
        trainer.run(show_loop_exception_msg=False)


def test_observation_has_the_models_reports(build):
    trainer = build((1, "iteration"))
    trainer.run()
    assert sorted(trainer.observation) == ["main/accuracy", "main/loss"]
    assert os.path.isdir(trainer.out)


def full(build, out, **kwargs):
    """A trainer with everything that has a state: dropout, shuffling, Adam, schedules, logs."""
    trainer = build((4, "epoch"), out=out, ratio=0.5, **kwargs)
    trainer.extend(extensions.LogReport(trigger=(2, "iteration")))
    trainer.extend(extensions.ExponentialShift("alpha", 0.9), trigger=(1, "epoch"))
    trainer.extend(extensions.LinearShift("beta1", (0.9, 0.5), (2, 8)))
    trainer.extend(lambda trainer: None, name="best", trigger=training.triggers.MinValueTrigger("main/loss"))
    trainer.extend(extensions.snapshot(autoload=True), trigger=(5, "iteration"))
    return trainer


def result(trainer):
    log = [{k: v for k, v in entry.items() if k != "elapsed_time"} for entry in trainer.get_extension("LogReport").log]
    model = trainer.updater.get_optimizer("main").target
    return log, [param.array.copy() for param in model.params()], trainer.updater.get_optimizer("main").alpha


@pytest.mark.parametrize("iterator", [iterators.SerialIterator, iterators.MultithreadIterator])
def test_a_resumed_run_is_the_same_run(build, tmp_path, iterator):
    np.random.seed(7)
    whole = full(build, tmp_path / "whole", iterator=iterator)
    whole.run()
    assert whole.updater.iteration == 13
    whole_log, whole_params, whole_alpha = result(whole)

    np.random.seed(7)
    first = full(build, tmp_path / "parts", iterator=iterator)
    first.extend(Recorder(fail_at=7), name="stop")
    with pytest.raises(RuntimeError, match="broken on purpose"):
        first.run(show_loop_exception_msg=False)

    np.random.seed(1234)
    second = full(build, tmp_path / "parts", iterator=iterator)
    second.run()
    assert second.updater.iteration == 13
    log, params, alpha = result(second)
    assert log == whole_log
    assert alpha == whole_alpha
    for mine, expected in zip(params, whole_params, strict=True):
        np.testing.assert_array_equal(mine, expected)
    written = json.loads((tmp_path / "parts" / "log").read_text())
    assert written[0]["main/loss"] == whole_log[0]["main/loss"]
    times = [entry["elapsed_time"] for entry in written]
    assert times == sorted(times) and second.elapsed_time > times[-1]


CHAINERS_KEYS = """
updater/iterator:main/current_position updater/iterator:main/epoch updater/iterator:main/is_new_epoch
updater/iterator:main/order updater/iterator:main/previous_epoch_detail
updater/optimizer:main/t updater/optimizer:main/epoch updater/optimizer:main/W1/t updater/optimizer:main/W1/m
updater/optimizer:main/W1/v updater/optimizer:main/W2/t updater/optimizer:main/W2/m updater/optimizer:main/W2/v
updater/model:main/W1 updater/model:main/W2 updater/iteration
stop_trigger/previous_iteration stop_trigger/previous_epoch_detail
extensions/LogReport/_trigger/previous_iteration extensions/LogReport/_trigger/previous_epoch_detail
extensions/LogReport/_summary/_names extensions/LogReport/_log
extension_triggers/LogReport/previous_iteration extension_triggers/LogReport/previous_epoch_detail
extensions/ExponentialShift/_t extensions/ExponentialShift/_last_value
extension_triggers/ExponentialShift/previous_iteration extension_triggers/ExponentialShift/previous_epoch_detail
_snapshot_elapsed_time
""".split()


def test_keys_of_a_snapshot_are_chainers_and_the_generators(build):
    def make():
        trainer = build((2, "epoch"))
        trainer.extend(extensions.LogReport())
        trainer.extend(extensions.ExponentialShift("alpha", 0.5), trigger=(1, "epoch"))
        return trainer

    trainer = make()
    trainer.run()
    saved = serializers.DictionarySerializer()
    saved.save(trainer)
    ours = {"extensions/ExponentialShift/_init", *(f"_random_state/{k}" for k in ("key", "pos", "has_gauss", "gauss"))}
    assert set(saved.target) == {*CHAINERS_KEYS, *ours}
    # A file that Chainer wrote has no more than these keys, and loads.
    random = np.random.get_state()[1].tolist()
    other = make()
    serializers.NpzDeserializer({key: saved.target[key] for key in CHAINERS_KEYS}).load(other)
    assert other.updater.iteration == 7
    assert np.random.get_state()[1].tolist() == random


X = np.ones((1, 2), np.float32)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ((X[0], np.int32(3)), ("positional", 2)),
        ({"x": X[0], "t": np.int32(3)}, ("keywords", ["t", "x"])),
        (X[0], ("positional", 1)),
    ],
)
def test_standard_updater_passes_on_what_the_converter_gives(batch, expected):
    class Model(kusari.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.W = kusari.Parameter(np.ones((1, 2), np.float32))

    model, seen = Model(), []

    def loss(*args, **kwargs):
        seen.append(("keywords", sorted(kwargs)) if kwargs else ("positional", len(args)))
        return F.sum(model.W * 2)

    optimizer = optimizers.SGD(0.5).setup(model)
    updater = training.StandardUpdater(iterators.SerialIterator([batch] * 3, 2), optimizer, loss_func=loss)
    updater.update()
    assert seen == [expected]
    assert (updater.iteration, updater.epoch, updater.is_new_epoch, updater.previous_epoch_detail) == (1, 0, False, 0)
    assert updater.epoch_detail == pytest.approx(2 / 3)
    np.testing.assert_array_equal(model.W.array, [[0, 0]])
    assert (updater.device, updater.input_device) == (None, None)
    updater.update()
    assert (updater.epoch, optimizer.epoch) == (1, 1)
    with pytest.raises(RuntimeError, match="new_epoch"):
        optimizer.new_epoch()


def test_parallel_updater_adds_gradients_of_its_parts():
    """As in Chainer, two parts step twice as far as their mean; a part of its own batch is a mean over that part."""
    x = np.arange(9, dtype="f").reshape(3, 3)

    class Loss(kusari.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.W = kusari.Parameter(np.full((3, 2), 0.1, "f"))

        def forward(self, part):
            return F.mean(F.matmul(part, self.W) ** 2)
    model, alone = Loss(), Loss()
    updater = training.updaters.ParallelUpdater(
        iterators.SerialIterator(x, 3, shuffle=False), optimizers.SGD(0.01).setup(model), devices=["@numpy", "@numpy"])
    with kusari.no_backprop_mode():  # the caller's, not the updater's
        updater.update()
    alone.cleargrads()
    alone(x[0::2]).backward()
    alone(x[1::2]).backward()
    np.testing.assert_allclose(model.W.array, alone.W.array - 0.01 * alone.W.grad, rtol=1e-6)


def test_names_of_a_sequential_are_those_in_chainers_files():
    """The model of the mushroom walkthrough: the appended layer is called 1, as Chainer's snapshots have it."""
    import kusari.links as L

    model = kusari.Sequential(L.Linear(3, 3), F.relu).repeat(2)
    model.append(L.Linear(3, 3))
    assert [path for path, _ in model.namedparams()] == ["/0/0/W", "/0/0/b", "/1/W", "/1/b", "/2/0/W", "/2/0/b"]
    assert model[2].name == "1"


def test_every_model_of_a_parallel_updater_reports(build, examples):
    def updater(iterator, optimizer):
        models = {"main": optimizer.target, "second": optimizer.target.copy("copy")}
        return training.updaters.ParallelUpdater(iterator, optimizer, models=models)

    trainer = build((1, "iteration"), updater=updater)
    trainer.run()
    assert set(trainer.observation) == {f"{name}/{key}" for name in ("main", "second") for key in ("loss", "accuracy")}
    assert trainer.observation["main/loss"].array != trainer.observation["second/loss"].array
