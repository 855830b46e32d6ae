"""What the extensions write and print; expected texts have the form of Chainer 7.8.1's."""

import io
import json
import os
import re

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import iterators, serializers, training
from kusari.training import extensions
from kusari.training.extensions import snapshot_writers


def report_constants(trainer):
    """Stands for a model: the values depend on the iteration only."""
    i = trainer.updater.iteration
    kusari.report({"main/loss": 1.0 / i, "count": i})


@pytest.fixture
def constant(build_idle):
    def make(stop=(2, "epoch")):
        trainer = build_idle(stop)
        trainer.extend(report_constants, name="constants", priority=training.PRIORITY_WRITER)
        return trainer

    return make


def test_log_report(constant):
    trainer = constant()
    trainer.extend(extensions.LogReport(postprocess=lambda entry: entry.update(note="seen")))
    trainer.run()
    with open(os.path.join(trainer.out, "log")) as file:
        log = json.load(file)
    assert log == trainer.get_extension("LogReport").log
    assert list(log[0]) == ["main/loss", "count", "epoch", "iteration", "elapsed_time", "note"]
    assert log[0]["main/loss"] == pytest.approx(np.mean([1, 1 / 2, 1 / 3, 1 / 4]))
    assert [(entry["epoch"], entry["iteration"], entry["count"]) for entry in log] == [(1, 4, 2.5), (2, 7, 6)]
    assert os.listdir(trainer.out) == ["log"]


@pytest.mark.parametrize(("make", "other_word", "usual"), [
    (lambda **names: extensions.LogReport(**names), "log_name", "log"),
    (lambda **names: extensions.PlotReport("main/loss", **names), "file_name", "plot.png"),
    (lambda **names: extensions.DumpGraph("main/loss", **names), "out_name", "cg.dot"),
    (lambda **names: extensions.VariableStatisticsPlot(L.Linear(1, 1), **names), "file_name", "statistics.png"),
])
def test_names_of_files(make, other_word, usual):
    assert [make(**names)._filename for names in ({}, {"filename": None}, {other_word: "a"}, {"filename": "b"},
            {"filename": "b", other_word: "a"})] == [usual, usual, "a", "b", "b"]  # fmt: skip


def test_tasks_of_queues(tmp_path):
    done = []

    class Noting(snapshot_writers.ThreadQueueWriter):
        def create_task(self, savefun):
            return lambda filename, outdir, target: done.append((filename, savefun))

        def consume(self, q):
            super().consume(q)
            done.append("consumed")

    for writer in (Noting("save"), snapshot_writers.ThreadQueueWriter(
            task=lambda filename, outdir, target: done.append((filename, target)))):
        writer("a", str(tmp_path), {})
        writer.finalize()
    assert done == [("a", "save"), "consumed", ("a", {})]


def test_log_report_chooses(constant):
    trainer = constant((4, "iteration"))
    trainer.extend(extensions.LogReport(["count", "no"], (2, "iteration"), log_name="log_{iteration}"))
    trainer.extend(extensions.LogReport(log_name=None))
    trainer.run()
    assert sorted(os.listdir(trainer.out)) == ["log_2", "log_4"]
    log = trainer.get_extension("LogReport").log
    assert [(entry["count"], "main/loss" in entry) for entry in log] == [(1.5, False), (3.5, False)]


def test_print_report(constant):
    trainer, out = constant(), io.StringIO()
    trainer.extend(extensions.LogReport())
    columns = ["epoch", "iteration", "main/loss", "validation/main/loss", "count"]
    trainer.extend(extensions.PrintReport(columns, out=out))
    trainer.run()
    assert out.getvalue() == (
        "epoch       iteration   main/loss   validation/main/loss  count     \n"
        "\033[J1           4           0.520833                          2.5         \n"
        "\033[J2           7           0.169841                          6           \n"
    )


def test_print_report_with_a_log_of_its_own(constant, capsys):
    trainer = constant((2, "iteration"))
    trainer.extend(extensions.PrintReport(["count"], extensions.LogReport(trigger=(1, "iteration"), log_name=None)))
    trainer.run()
    assert capsys.readouterr().out.replace("\033[J", "").split() == ["count", "1", "2"]
    other = constant()
    other.extend(extensions.PrintReport(["count"], "NoSuchLog"))
    with pytest.raises(ValueError, match="extension NoSuchLog not found"):
        other.run(show_loop_exception_msg=False)


def test_progress_bar(build_idle):
    trainer, out = build_idle((2, "epoch")), io.StringIO()
    trainer.extend(extensions.ProgressBar(update_interval=3, bar_length=10, out=out))
    trainer.run()
    text = re.sub(r" *[0-9.e+inf]+ iters/sec.*\n", "speed\n", out.getvalue())
    assert text == (
        "\033[J     total [####......] 48.00%\nthis epoch [#########.] 96.00%\n"
        "         3 iter, 0 epoch / 2 epochs\nspeed\n\033[4A"
        "\033[J     total [#########.] 96.00%\nthis epoch [#########.] 92.00%\n"
        "         6 iter, 1 epoch / 2 epochs\nspeed\n\033[4A"
        "\033[J"
    )


def test_progress_bar_needs_a_length(build_idle):
    trainer = build_idle(lambda trainer: False)
    trainer.extend(extensions.ProgressBar())
    with pytest.raises(TypeError, match="pass training_length"):
        trainer.run(show_loop_exception_msg=False)


@pytest.mark.slow
def test_plot_report(constant):
    pytest.importorskip("matplotlib")
    seen = []

    def look(figure, axes, summary):
        seen.append({line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()})

    trainer = constant()
    trainer.extend(extensions.PlotReport(["main/loss", "no"], "epoch", file_name="loss.png", postprocess=look))
    trainer.run()
    with open(os.path.join(trainer.out, "loss.png"), "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    assert seen[-1] == {"main/loss": [[1, pytest.approx(0.5208333)], [2, pytest.approx(0.1698413)]]}
    saved = serializers.DictionarySerializer()
    trainer.get_extension("PlotReport").serialize(saved)
    assert json.loads(str(saved.target["_plot_loss.png"]))["no"] == []


@pytest.mark.parametrize("kind", ["PlotReport", "VariableStatisticsPlot"])
def test_without_matplotlib(constant, monkeypatch, kind):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    targets = ["main/loss"] if kind == "PlotReport" else kusari.Variable(np.ones(2))
    trainer = constant()
    with pytest.warns(UserWarning, match="matplotlib is not installed"):
        trainer.extend(getattr(extensions, kind)(targets))
    trainer.run()
    assert os.listdir(trainer.out) == []


@pytest.mark.slow
def test_variable_statistics_plot(build):
    pytest.importorskip("matplotlib")
    trainer = build((3, "iteration"))
    model = trainer.updater.get_optimizer("main").target
    trainer.extend(extensions.VariableStatisticsPlot(model, max_sample_size=2, trigger=(1, "iteration")))
    trainer.run()
    assert os.path.getsize(os.path.join(trainer.out, "statistics.png")) > 1000


def numbers(trainer):
    return sorted(int(re.sub(r"\D", "", name)) for name in os.listdir(trainer.out))


def test_snapshots_that_are_kept(build_idle):
    trainer = build_idle((11, "iteration"))
    trainer.extend(extensions.snapshot(n_retains=2), trigger=(1, "iteration"))
    trainer.run()
    assert numbers(trainer) == [10, 11]
    # The newest is loaded by its number, not by its name: 9 < 11.
    again = build_idle((12, "iteration"))
    again.extend(extensions.snapshot(autoload=True), trigger=(1, "iteration"))
    again.run()
    assert numbers(again) == [10, 11, 12]


def test_snapshot_variants(build_idle):
    saved = []
    trainer = build_idle((2, "iteration"))
    model = trainer.updater.get_optimizer("main").target
    every = (1, "iteration")
    trainer.extend(extensions.snapshot(filename=lambda t: f"named_{t.updater.iteration}"), trigger=every)
    trainer.extend(extensions.snapshot(condition=lambda: False, filename="never"), trigger=every)
    trainer.extend(extensions.snapshot_object(model, "model_{.updater.epoch}"), trigger=every)

    def savefun(path, state):
        saved.append(sorted(state))
        open(path, "w").close()

    trainer.extend(extensions.snapshot_object(model, "own_{.updater.iteration}", savefun), trigger=every)
    trainer.run()
    assert sorted(os.listdir(trainer.out)) == ["model_0", "named_1", "named_2", "own_1", "own_2"]
    assert saved == [["W1", "W2"]] * 2
    other = type(model)()
    other.W1.array[...] = 0
    serializers.load_npz(os.path.join(trainer.out, "model_0"), other)
    np.testing.assert_array_equal(other.W1.array, model.W1.array)


def test_snapshot_on_error(build_idle):
    trainer = build_idle()
    trainer.extend(extensions.snapshot(snapshot_on_error=True), trigger=(100, "iteration"))

    def fail(trainer):
        if trainer.updater.iteration == 2:
            raise RuntimeError("broken on purpose")

    trainer.extend(fail)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        trainer.run(show_loop_exception_msg=False)
    assert os.listdir(trainer.out) == ["snapshot_iter_2"]


def test_a_failing_snapshot_leaves_nothing_behind(build_idle):
    def savefun(path, state):
        with open(path, "w") as file:
            file.write("half")
        raise OSError("disk full")

    trainer = build_idle()
    trainer.extend(extensions.snapshot(savefun), trigger=(1, "iteration"))
    with pytest.raises(OSError, match="disk full"):
        trainer.run(show_loop_exception_msg=False)
    assert os.listdir(trainer.out) == []


WRITERS = ["SimpleWriter", "ThreadWriter", "ThreadQueueWriter", "ProcessWriter", "ProcessQueueWriter"]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Pythons warn of fork with threads
def test_snapshot_writers(build, name):
    writer = getattr(snapshot_writers, name)()
    trainer = build((3, "iteration"))
    trainer.extend(extensions.snapshot(writer=writer), trigger=(1, "iteration"))
    trainer.run()
    assert numbers(trainer) == [1, 2, 3]
    final = trainer.updater.get_optimizer("main").target.W1.array.copy()
    other = build((3, "iteration"))
    serializers.load_npz(os.path.join(trainer.out, "snapshot_iter_3"), other)
    np.testing.assert_array_equal(other.updater.get_optimizer("main").target.W1.array, final)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: extensions.snapshot(lambda p, s: None, writer=snapshot_writers.SimpleWriter()), "specified together"),
        (lambda: extensions.snapshot(filename=lambda t: "x", autoload=True), "name pattern"),
        (lambda: extensions.snapshot(filename=lambda t: "x", n_retains=1), "name pattern"),
        (lambda: extensions.LogReport(keyz=1), "unexpected keyword argument"),
        (lambda: extensions.PlotReport(["x"], fille_name=1), "unexpected keyword argument"),
        (lambda: extensions.DumpGraph("x", file="y"), "unexpected keyword argument"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_evaluator(build, examples):
    trainer = build((1, "epoch"))
    model = trainer.updater.get_optimizer("main").target
    modes = []

    class Watching(type(model)):
        def forward(self, x, t):
            modes.append((kusari.config.train, kusari.config.enable_backprop, len(x)))
            return super().forward(x, t)

    watching = Watching()
    hooks = []
    for _ in range(2):
        batches = iterators.SerialIterator(examples, 10, repeat=False, shuffle=False)
        trainer.extend(extensions.Evaluator(batches, watching, eval_hook=hooks.append))
    trainer.run()
    assert modes == [(False, False, 10), (False, False, 10), (False, False, 5)] * 2
    assert len(hooks) == 2
    names = ["main/loss", "validation/main/loss", "validation_1/main/loss"]
    assert [name for name in sorted(trainer.observation) if name.endswith("loss")] == names
    alone = extensions.Evaluator(iterators.SerialIterator(examples, 5, repeat=False, shuffle=False), watching)()
    assert sorted(alone) == ["main/accuracy", "main/loss"]
    assert kusari.config.train and kusari.config.enable_backprop


def test_evaluator_function_and_dicts(capsys):
    batches = iterators.SerialIterator([{"a": 1.0}, {"a": 3.0}], 1, repeat=False, shuffle=False)
    model = kusari.Chain()
    evaluator = extensions.Evaluator(
        {"main": batches}, {"main": model}, eval_func=lambda a: kusari.report({"a": a[0]}, model), progress_bar=True
    )
    evaluator.name = "test"
    assert evaluator() == {"test/main/a": 2.0}
    assert "test: 2 batches, 100.0%" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="repeat=False"):
        extensions.Evaluator(iterators.SerialIterator([1], 1), model)


def test_dump_graph(build):
    trainer = build((2, "iteration"))
    trainer.extend(extensions.DumpGraph("main/loss"))
    trainer.run()
    with open(os.path.join(trainer.out, "cg.dot")) as file:
        text = file.read()
    assert text.startswith("digraph graphname{rankdir=TB;")
    for label in ("W1: (5, 4), float32", "(8, 4), float32", "(8), int32", "LinearFunction", "SoftmaxCrossEntropy"):
        assert f'label="{label}"' in text, label
    assert not kusari.config.keep_graph_on_report
    assert trainer.observation["main/loss"].creator is None


@pytest.mark.parametrize(("root", "error"), [("main/lost", KeyError), ("number", TypeError)])
def test_dump_graph_errors(build, root, error):
    trainer = build((2, "iteration"))
    trainer.extend(training.make_extension(priority=300)(lambda trainer: kusari.report({"number": 1})), name="number")
    trainer.extend(extensions.DumpGraph(root))
    with pytest.raises(error, match=root):
        trainer.run(show_loop_exception_msg=False)
    assert not kusari.config.keep_graph_on_report


def test_fail_on_nonnumber(build):
    trainer = build()
    trainer.extend(extensions.FailOnNonNumber())

    def poison(trainer):
        if trainer.updater.iteration == 2:
            trainer.updater.get_optimizer("main").target.W2.array[0, 0] = np.nan

    trainer.extend(poison, priority=200)
    with pytest.raises(RuntimeError, match="optimizer 'main' contain NaN or Inf: /W2 at iteration 2"):
        trainer.run(show_loop_exception_msg=False)


def test_parameter_statistics(build):
    trainer = build((1, "epoch"))
    model = trainer.updater.get_optimizer("main").target
    model.name = "net"
    trainer.extend(extensions.ParameterStatistics(model, prefix="p"))
    trainer.run()
    keys = {key.removeprefix("p/net/W2/") for key in trainer.observation if key.startswith("p/net/W2")}
    names = {"mean", "std", "min", "max", "zeros", *(f"percentile/{i}" for i in range(7))}
    assert keys == {f"{kind}/{name}" for kind in ("data", "grad") for name in names}


def test_parameter_statistics_of_nan(build_idle):
    trainer = build_idle((4, "iteration"))
    model = trainer.updater.get_optimizer("main").target
    extension = extensions.ParameterStatistics(
        [model], {"sum": lambda x: x.sum()}, report_grads=False, skip_nan_params=True
    )
    extension.register_statistics("size", lambda x: x.size)
    model.W1.array[0, 0] = np.nan
    trainer.extend(extension)
    trainer.run()
    seen = {key.removeprefix("None/"): value for key, value in trainer.observation.items() if "/data/" in key}
    assert np.isnan(seen.pop("W1/data/sum")) and np.isnan(seen.pop("W1/data/size"))
    assert sorted(seen) == ["W2/data/size", "W2/data/sum"] and seen["W2/data/size"] == 10


@pytest.mark.filterwarnings("ignore:Adam.lr has been renamed")
def test_observed_values(build):
    trainer = build((1, "epoch"))
    trainer.extend(extensions.observe_value("twice", lambda trainer: 2 * trainer.updater.iteration))
    trainer.updater.get_optimizer("main").lr_from = 1
    trainer.extend(extensions.observe_lr())
    trainer.run()
    assert trainer.observation["twice"] == 8
    assert trainer.observation["lr"] == trainer.updater.get_optimizer("main").lr


def test_micro_average(constant):
    trainer = constant()
    trainer.extend(extensions.MicroAverage("main/loss", "count", "ratio"))
    trainer.extend(extensions.LogReport(["ratio"]))
    trainer.run()
    log = trainer.get_extension("LogReport").log
    assert log[0]["ratio"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 10)
    assert log[1]["ratio"] == pytest.approx((1 / 5 + 1 / 6 + 1 / 7) / 18)


def test_unchain_variables(build_idle):
    y = kusari.Variable(np.ones(2, np.float32)) * 2
    z = F.sum(y)
    trainer = build_idle((1, "iteration"))

    def keep(trainer):
        trainer.observation["z"] = z

    trainer.extend(keep, priority=300)
    trainer.extend(extensions.unchain_variables())
    trainer.run()
    assert z.creator is None


def test_logs_begin_before_training(build, capsys):
    trainer = build((2, "epoch"))
    trainer.extend(
        lambda trainer: kusari.report({"first": 5.0}), "first", (100, "epoch"), 300, call_before_training=True)
    trainer.extend(extensions.LogReport(["first", "main/loss"]), call_before_training=True)
    trainer.extend(extensions.PrintReport(["iteration", "first"]), call_before_training=True)
    plot = extensions.PlotReport(["first"], "iteration")
    plot._draw = lambda path: None
    trainer.extend(plot, call_before_training=True)
    trainer.run()
    log = trainer.get_extension("LogReport").log
    assert [(entry["epoch"], entry["iteration"], entry.get("first"), "main/loss" in entry) for entry in log] == [
        (0, 0, 5.0, False), (1, 4, None, True), (2, 7, None, True)]
    assert plot._curves == {"first": [[0, 5.0]]}
    assert capsys.readouterr().out.split()[:5] == ["iteration", "first", "\033[J0", "5", "\033[J4"]
