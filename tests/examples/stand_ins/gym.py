"""The interface of gym 0.9, with a pole on a cart and a pendulum that are only as real as training needs."""

import types

import numpy as np


class Box:
    """Arrays between two bounds."""

    def __init__(self, low, high):
        self.low, self.high = np.array(low, "f"), np.array(high, "f")


class Discrete:
    """Numbers below n."""

    def __init__(self, n):
        self.n = n

    def sample(self):
        """Draw a number."""
        return int(np.random.randint(self.n))


class _Env:
    """A linear system with a bounded state; the episode ends where the state leaves its bounds."""

    def __init__(self, action_space, size, name):
        self.action_space, self.size = action_space, size
        self.observation_space = Box([-1] * size, [1] * size)
        self.spec = types.SimpleNamespace(timestep_limit=20, reward_threshold=None, id=name)

    def reset(self):
        """Begin an episode."""
        self.state = np.random.uniform(-0.05, 0.05, self.size)
        return self.state.copy()

    def step(self, action):
        """Push the system, and return its state, the reward and whether the episode ends."""
        push = float(np.ravel(action)[0]) - (self.action_space.n - 1) / 2 if hasattr(self.action_space, "n") else float(
            np.ravel(action)[0])
        self.state = 1.05 * np.roll(self.state, 1) + 0.1 * push
        return self.state.copy(), 1.0 - float(abs(self.state).sum()), bool(abs(self.state).max() > 1), {}


def make(name):
    """Return an environment by its name."""
    return _Env(Discrete(2), 4, name) if "Cart" in name else _Env(Box([-2], [2]), 3, name)


spaces = types.SimpleNamespace(Box=Box, Discrete=Discrete)
wrappers = types.SimpleNamespace(Monitor=lambda env, out, force=False: env)
