"""When triggers fire; expected sequences were taken from Chainer 7.8.1."""

import itertools

import pytest

from kusari import training
from kusari.serializers import DictionarySerializer, NpzDeserializer
from kusari.training import triggers as T


class Clock:
    """What triggers look at: a trainer with three iterations per epoch, half a second each."""

    def __init__(self, losses=None):
        self.losses = losses
        self.updater = self
        self.observation = {}
        self.iteration = 0
        self.elapsed_time = 0.0
        self.epoch_detail = self.previous_epoch_detail = 0.0
        self.epoch = 0

    def tick(self):
        self.iteration += 1
        self.elapsed_time += 0.5
        self.previous_epoch_detail, self.epoch_detail = self.epoch_detail, self.iteration / 3
        self.epoch = int(self.epoch_detail)
        if self.losses:
            self.observation = {"main/loss": self.losses[self.iteration - 1]}


def fired(trigger, losses=None, clock=None, steps=12):
    clock = clock or Clock(losses)
    flags = []
    for _ in range(steps):
        clock.tick()
        flags.append(int(bool(trigger(clock))))
    return "".join(map(str, flags))


LOSSES = [5, 4, 3, 6, 6, 6, 1, 1, 1, 2, 2, 2]
WORSE = [5, 4, 3, 6, 6, 6, 7, 8, 9, 2, 2, 2]
CASES = [
    (lambda: T.IntervalTrigger(2, "iteration"), None, "010101010101"),
    (lambda: T.IntervalTrigger(1, "epoch"), None, "001001001001"),
    (lambda: T.IntervalTrigger(0.5, "epoch"), None, "011011011011"),
    (lambda: T.IntervalTrigger(2, "epoch"), None, "000001000001"),
    (lambda: T.IntervalTrigger(1.5, "iteration"), None, "011011011011"),
    (lambda: T.ManualScheduleTrigger([2, 5], "iteration"), None, "010010000000"),
    (lambda: T.ManualScheduleTrigger([1, 1.5], "epoch"), None, "001010000000"),
    (lambda: T.ManualScheduleTrigger(3, "iteration"), None, "001000000000"),
    (lambda: T.OnceTrigger(), None, "100000000000"),
    (lambda: T.TimeTrigger(1.0), None, "001010101010"),
    (lambda: T.TimeTrigger(1.2), None, "001010010100"),
    (lambda: T.MinValueTrigger("main/loss"), LOSSES, "001000001000"),
    (lambda: T.MaxValueTrigger("main/loss"), LOSSES, "001001000000"),
    (lambda: T.BestValueTrigger("main/loss", lambda a, b: b > a, (1, "iteration")), LOSSES, "100100000000"),
    (lambda: T.EarlyStoppingTrigger(), WORSE, "000000000000"),
    (lambda: T.EarlyStoppingTrigger(patience=1), WORSE, "000001001000"),
    (lambda: T.EarlyStoppingTrigger(patience=2), WORSE, "000000001000"),
    (lambda: T.EarlyStoppingTrigger(patients=2, mode="max"), WORSE, "000000000000"),
    (lambda: T.EarlyStoppingTrigger(max_trigger=(2, "epoch")), WORSE, "000001000001"),
    (lambda: T.EarlyStoppingTrigger((1, "iteration"), patience=2), WORSE, "000011111001"),
]


@pytest.mark.parametrize(("make", "losses", "expected"), CASES)
def test_when_they_fire(make, losses, expected):
    assert fired(make(), losses) == expected


@pytest.mark.parametrize(
    ("case", "stop"), [(case, stop) for case, stop in itertools.product(CASES, (1, 3, 4, 7))]
)
def test_a_resumed_trigger_fires_as_it_would_have(case, stop):
    make, losses, expected = case
    first, clock = make(), Clock(losses)
    assert fired(first, clock=clock, steps=stop) == expected[:stop]
    saved = DictionarySerializer()
    first.serialize(saved)
    second = make()
    second.serialize(NpzDeserializer(saved.target))
    assert fired(second, clock=clock, steps=12 - stop) == expected[stop:]


def test_keys_in_files_are_chainers():
    expected = {
        T.IntervalTrigger(1, "epoch"): {"previous_iteration", "previous_epoch_detail"},
        T.ManualScheduleTrigger(1, "epoch"): {"previous_iteration", "previous_epoch_detail", "finished"},
        T.OnceTrigger(): {"_flag_first"},
        T.TimeTrigger(1): {"next_time"},
        T.MaxValueTrigger("x"): {
            "interval_trigger/previous_iteration",
            "interval_trigger/previous_epoch_detail",
            "summary/_names",
            "best_value",
        },
    }
    for trigger, keys in expected.items():
        saved = DictionarySerializer()
        trigger.serialize(saved)
        assert set(saved.target) == keys


def test_once_again_after_resuming():
    for again, expected in ((False, "000"), (True, "100")):
        saved = DictionarySerializer()
        first = T.OnceTrigger(again)
        assert fired(first, steps=2) == "10" and first.finished
        first.serialize(saved)
        second = T.OnceTrigger(again)
        second.serialize(NpzDeserializer(saved.target))
        assert fired(second, steps=3) == expected


def test_early_stopping_tells(capsys):
    trigger = T.EarlyStoppingTrigger(patience=1, verbose=True, max_trigger=(7, "epoch"))
    assert trigger.get_training_length() == (7, "epoch")
    fired(trigger, WORSE, steps=6)
    assert capsys.readouterr().out.endswith("Epoch 2: early stopping\n")
    with pytest.warns(UserWarning, match="no/such is not in the observation"):
        fired(T.EarlyStoppingTrigger(monitor="no/such"), WORSE)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: T.IntervalTrigger(1, "day"), ValueError, "either 'epoch' or 'iteration'"),
        (lambda: T.IntervalTrigger(0, "epoch"), ValueError, "must be positive"),
        (lambda: T.ManualScheduleTrigger(1, "day"), ValueError, "either 'epoch' or 'iteration'"),
        (lambda: training.get_trigger((1, 2, 3)), TypeError, r"a pair like \(1, 'epoch'\)"),
        (lambda: training.get_trigger(5), TypeError, r"a pair like \(1, 'epoch'\)"),
        (lambda: T.EarlyStoppingTrigger(mode="best"), ValueError, "'auto', 'min' or 'max'"),
        (lambda: T.EarlyStoppingTrigger(patiance=3), TypeError, "unexpected keyword argument"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_get_trigger():
    assert training.get_trigger(None)(Clock()) is False
    assert str(training.get_trigger([2, "epoch"])) == "IntervalTrigger(2, 'epoch')"

    def function(trainer):
        return True

    assert training.get_trigger(function) is function
