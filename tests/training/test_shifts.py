"""Schedules of hyperparameters; expected values were taken from Chainer 7.8.1."""

import pytest

from kusari.training import extensions as X

CASES = [
    (lambda: X.ExponentialShift("lr", 0.5), None, [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]),
    (lambda: X.ExponentialShift("lr", 0.5, init=3.0, target=0.6), None, [3, 1.5, 0.75, 0.6, 0.6, 0.6]),
    (lambda: X.ExponentialShift("lr", 2, init=1.0, target=10), None, [1, 2, 4, 8, 10, 10]),
    (lambda: X.ExponentialShift("lr", 0.5), (2, "iteration"), [1, 1, 0.5, 0.5, 0.25, 0.25]),
    (lambda: X.LinearShift("lr", (1.0, 0.0), (2, 6)), None, [1, 1, 1, 0.75, 0.5, 0.25, 0, 0]),
    (lambda: X.LinearShift("lr", (1.0, 2.0), (0, 4)), (2, "iteration"), [1, 1, 1.25, 1.25, 1.5, 1.5]),
    (lambda: X.InverseShift("lr", 1.0, 2.0), None, [1, 0.25, 0.111111, 0.0625, 0.04, 0.027778]),
    (lambda: X.InverseShift("lr", 0.5, 1.0, init=3.0, target=2.0), None, [3, 2, 2]),
    (lambda: X.PolynomialShift("lr", 2.0, 5), None, [1, 0.64, 0.36, 0.16, 0.04, 0, 0]),
    (
        lambda: X.PolynomialShift("lr", 0.5, 9, init=3.0, target=1.5),
        None,
        [3, 2.828427, 2.645751, 2.44949, 2.236068, 2, 1.732051, 1.5, 1.5],
    ),
    (lambda: X.PolynomialShift("lr", 1, 10, init=1.0, target=0.5), None, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.5]),
    # Chainer divides by zero here.
    (lambda: X.PolynomialShift("lr", 1, 2, init=1.0, target=0.25), None, [1, 0.5, 0.25, 0.25]),
    (lambda: X.StepShift("lr", 0.5, 3), None, [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]),
    (lambda: X.StepShift("lr", 0.5, 2, init=4.0, target=1.5), None, [4, 4, 2, 2, 1.5, 1.5]),
    (lambda: X.WarmupShift("lr", 0.1, 4, 1.0), None, [0.1, 0.325, 0.55, 0.775, 1, 1]),
    (lambda: X.MultistepShift("lr", 0.1, [3, 5], 1.0), None, [1, 1, 1, 0.1, 0.1, 0.01, 0.01]),
]


def rates(trainer, extension, trigger):
    seen = []
    trainer.updater.get_optimizer("main").lr = 1.0
    trainer.extend(extension, trigger=trigger)
    trainer.extend(
        lambda trainer: seen.append(trainer.updater.get_optimizer("main").lr),
        name="watch",
        priority=-1,
        call_before_training=True,
    )
    trainer.run()
    return seen


@pytest.mark.parametrize(("make", "trigger", "expected"), CASES)
def test_values(build_idle, make, trigger, expected):
    trainer = build_idle((len(expected) - 1, "iteration"))
    assert rates(trainer, make(), trigger) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("make", "trigger", "expected"), CASES)
def test_resumed(build_idle, tmp_path, make, trigger, expected):
    """Half of the calls in one run, half in another that starts from the optimizer's default."""
    from kusari.serializers import load_npz, save_npz

    half = (len(expected) - 1) // 2
    first = build_idle((half, "iteration"))
    rates(first, make(), trigger)
    save_npz(tmp_path / "saved", first)
    second = build_idle((len(expected) - 1, "iteration"))
    second.extend(make(), trigger=trigger)
    seen = []
    second.extend(lambda t: seen.append(t.updater.get_optimizer("main").lr), name="watch", priority=-1)
    load_npz(tmp_path / "saved", second)
    second.run()
    assert seen == pytest.approx(expected[half + 1 :], abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: X.ExponentialShift("lr", -0.5), "does not support negative rate"),
        (lambda: X.InverseShift("lr", -0.5, 1), "does not support negative gamma"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_attribute(build_idle):
    trainer = build_idle()
    trainer.extend(X.ExponentialShift("speed", 0.5))
    with pytest.raises(AttributeError, match="speed"):
        trainer.run(show_loop_exception_msg=False)


def test_another_optimizer(build_idle):
    class Other:
        rate = 8.0

    trainer = build_idle()
    trainer.extend(X.ExponentialShift("rate", 0.5, optimizer=Other))
    trainer.run()
    assert Other.rate == 1.0
