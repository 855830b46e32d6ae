"""The model of these checks, its data, and what all ranks must have alike."""
from __future__ import annotations

import hashlib

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L


class Regression(kusari.Chain):
    def __init__(self, static=False):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(4, 8)
            self.l2 = L.Linear(8, 3)

    def forward(self, x, t):
        loss = F.mean_squared_error(self.l2(F.tanh(self.l1(x))), t)
        kusari.report({"loss": loss}, self)
        return loss


class StaticRegression(Regression):
    forward = kusari.static_graph(Regression.forward)


def batch(seed, rows=6):
    random = np.random.RandomState(seed)
    return random.rand(rows, 4).astype("f"), random.rand(rows, 3).astype("f")


def digest(model):
    h = hashlib.sha1()
    for name, p in sorted(model.namedparams()):
        h.update(name.encode() + p.array.tobytes())
    return h.hexdigest()


def same_everywhere(comm, value):
    assert len(set(comm.allgather_obj(value))) == 1, comm.allgather_obj(value)
