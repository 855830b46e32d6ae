"""Reported values and their statistics."""

import threading

import numpy as np
import pytest

import kusari
from kusari import reporter as reporter_module
from kusari.reporter import DictSummary, Summary
from kusari.serializers import DictionarySerializer, NpzDeserializer


def test_observers_give_prefixes():
    reporter, observer = kusari.Reporter(), object()
    reporter.add_observer("o", observer)
    reporter.report({"a": 1}, observer)
    reporter.report({"b": 2})
    assert reporter.observation == {"o/a": 1, "b": 2}
    observation = {}
    with reporter.scope(observation):
        assert kusari.get_current_reporter() is reporter
        kusari.report({"y": 2}, observer)
        inner = {}
        with kusari.report_scope(inner):
            kusari.report({"z": 3}, observer)
    assert (observation, inner) == ({"o/y": 2}, {"o/z": 3})
    assert reporter.observation == {"o/a": 1, "b": 2}


def test_hierarchy_of_links():
    class Leaf(kusari.Chain):
        pass

    class Root(kusari.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.leaf = Leaf()

    model, reporter = Root(), kusari.Reporter()
    reporter.add_observer("main", model)
    reporter.add_observers("main", model.namedlinks(skipself=True))
    with reporter:
        kusari.report({"x": 1}, model.leaf)
        kusari.report({"y": 2}, model)
    assert reporter.observation == {"main/leaf/x": 1, "main/y": 2}


def test_without_a_reporter():
    kusari.report({"lost": 1}, object())
    with pytest.raises(IndexError, match="no reporter is active"):
        kusari.get_current_reporter()
    with pytest.raises(KeyError, match="Given observer is not registered to the reporter.*int.*'known'"):
        reporter = kusari.Reporter()
        reporter.add_observer("known", object())
        reporter.report({"a": 1}, 3)


def test_threads_have_their_own_reporters():
    found = []

    def look():
        kusari.report({"x": 1})
        found.append(len(reporter_module._stack()))

    with kusari.Reporter() as reporter:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == [0] and reporter.observation == {}


@pytest.mark.parametrize("keep", [False, True])
def test_variables_lose_their_graph(keep):
    y = kusari.Variable(np.array(3.0, np.float32)) * 2
    with kusari.using_config("keep_graph_on_report", keep), kusari.Reporter() as reporter:
        kusari.report({"y": y})
    assert (reporter.observation["y"] is y) == keep
    assert (reporter.observation["y"].creator is None) != keep
    assert y.creator is not None
    assert float(reporter.observation["y"].array) == 6


def test_a_tape_hears_of_reports(monkeypatch):
    heard = []

    class Tape:
        def report(self, values, observer):
            heard.append((dict(values), observer))

    monkeypatch.setattr(reporter_module._tape, "active", lambda: Tape())
    observer = object()
    with kusari.Reporter() as reporter:
        reporter.add_observer("o", observer)
        kusari.report({"a": 1}, observer)
    kusari.report({"b": 2})
    assert heard == [({"a": 1}, observer), ({"b": 2}, None)]
    assert reporter.observation == {"o/a": 1}


def test_summary_is_float64():
    summary = Summary()
    for _ in range(3):
        summary.add(np.array(0.1, np.float32))
    assert summary.compute_mean() == pytest.approx(float(np.float32(0.1)), abs=1e-16)
    assert summary.make_statistics()[1] == 0.0
    weighted = Summary()
    weighted.add(1, weight=3)
    weighted.add(np.float32(5))
    assert weighted.make_statistics() == pytest.approx((2.0, 1.7320508075688772))
    with pytest.raises(ZeroDivisionError):
        Summary().compute_mean()


def example_summary():
    summary = DictSummary()
    summary.add(
        {
            "a": 1,
            "b": np.array(2.0, np.float32),
            "variable": kusari.Variable(np.array(2.0, np.float32)),
            "weighted": (3, 2),
            "flag": True,
            "array": np.ones(3),
            "text": "left out",
            "triple": (1, 2, 3),
        }
    )
    summary.add({"a": 2, "weighted": (6, 1)})
    return summary


def test_dict_summary():
    means = {"a": 1.5, "b": 2.0, "variable": 2.0, "weighted": 4.0, "flag": 1.0}
    assert example_summary().compute_mean() == means
    assert example_summary().make_statistics()["a.std"] == 0.5


def test_dict_summary_keys_are_chainers():
    saved = DictionarySerializer()
    summary = DictSummary()
    summary.add({"a": 1})
    summary.serialize(saved)
    assert sorted(saved.target) == ["_names", "_summaries/0/_n", "_summaries/0/_x", "_summaries/0/_x2"]
    assert str(saved.target["_names"]) == '["a"]'


def test_dict_summary_resumes():
    saved = DictionarySerializer()
    example_summary().serialize(saved)
    summary = DictSummary()
    summary.add({"gone": 1})
    summary.serialize(NpzDeserializer(saved.target))
    assert summary.make_statistics() == example_summary().make_statistics()
