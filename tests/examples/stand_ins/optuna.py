"""A study of two trials with random hyperparameters, by Optuna's interface; the second trial is pruned."""

import sys
import types
from enum import Enum

import numpy as np


class TrialPruned(Exception):
    """Raised by the extension that ends a trial."""


class _State(Enum):
    COMPLETE = 1
    PRUNED = 2


class _Trial:
    def __init__(self, number, shared=lambda drawn: drawn):
        self._shared = shared
        self.number, self.params, self.user_attrs, self.value = number, {}, {}, None
        self.state = _State.COMPLETE

    def suggest_float(self, name, low, high, log=False):
        drawn = self._shared(np.random.uniform(*np.log([low, high]) if log else [low, high]))
        self.params[name] = float(np.exp(drawn) if log else drawn)
        return self.params[name]

    def suggest_int(self, name, low, high, log=False):
        self.params[name] = int(self.suggest_float(name, low, high, log))
        return self.params[name]

    def suggest_categorical(self, name, choices):
        self.params[name] = choices[self._shared(np.random.randint(len(choices)))]
        return self.params[name]

    def set_user_attr(self, key, value):
        if "time" not in key:
            self.user_attrs[key] = value


class _Study:
    def __init__(self):
        self.trials = []

    def optimize(self, objective, n_trials, shared=lambda drawn: drawn):
        for number in range(min(n_trials, 2)):
            trial = _Trial(number, shared)
            self.trials.append(trial)
            try:
                trial.value = objective(trial)
            except TrialPruned:
                trial.state = _State.PRUNED

    @property
    def best_trial(self):
        return max((t for t in self.trials if t.value is not None), key=lambda t: t.value)


class ChainerPruningExtension:
    """An extension of Chainer's trainers that ends the second trial where it is first called."""

    priority, name, default_name, trigger = 300, None, "ChainerPruningExtension", (1, "iteration")

    def __init__(self, trial, key, trigger):
        from chainer.training import extension, triggers

        assert issubclass(extension.Extension, object)
        self._trial, self._key, self._trigger = trial, key, triggers.IntervalTrigger(*trigger)

    def __call__(self, trainer):
        if self._trigger(trainer) and self._key in trainer.observation and self._trial.number:
            raise TrialPruned(str(float(trainer.observation[self._key])))

    def initialize(self, trainer):
        """Do nothing."""

    def on_error(self, trainer, exception, traceback):
        """Do nothing."""

    def finalize(self):
        """Do nothing."""

    def serialize(self, serializer):
        """Do nothing."""


class ChainerMNStudy:
    """A study whose trials have the first rank's hyperparameters on all ranks."""

    def __init__(self, study, comm):
        self._study, self._comm = study, comm

    def optimize(self, objective, n_trials):
        """Run trials, to each of which the communicator is given."""
        comm = self._comm
        self._study.optimize(lambda trial: objective(trial, comm), n_trials,
                             lambda drawn: comm.bcast_obj(None if comm.rank else drawn))


def create_study(direction, pruner):
    """Return a study."""
    return _Study()


def load_study(study_name, storage, pruner=None):
    """Return a new study."""
    return _Study()


integration = types.ModuleType("optuna.integration")
integration.ChainerPruningExtension, integration.ChainerMNStudy = ChainerPruningExtension, ChainerMNStudy
sys.modules["optuna.integration"] = integration
pruners = types.SimpleNamespace(MedianPruner=lambda: None)
trial = types.SimpleNamespace(TrialState=_State)
logging = types.SimpleNamespace(set_verbosity=lambda level: None, WARNING=30)
