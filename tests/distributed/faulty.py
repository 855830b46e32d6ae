"""A training on which faults are tried: ``faulty.py KIND RANK``."""
# ruff: noqa: E402
from __future__ import annotations

import os
import signal
import sys
import threading
import time

FOLDER = os.environ.get("FAULTY_FOLDER", "")


def tell(phase):
    """Tell `fault_runs` how far this rank is, with its process's number."""
    if FOLDER:
        os.makedirs(os.path.join(FOLDER, phase), exist_ok=True)
        os.symlink(str(os.getpid()), os.path.join(FOLDER, phase, os.environ["PMI_RANK"]))


tell("started")
from kusari import distributed  # exceptions end all ranks from here on


class FaultError(BaseException):  # static functions take an Exception of a handler for their own, and fall back
    pass


def fault(*_):
    raise FaultError("a fault")


signal.signal(signal.SIGUSR1, fault)
tell("imported")
import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L


def loss(model, comm, k):
    return F.sum(model.l(np.full((3, 4), comm.rank + k, "f")) ** 2) * 1e-4


def fail(kind, comm, model):
    """Do what goes wrong on one rank."""
    if kind == "raise":
        raise ZeroDivisionError("the cause")
    if kind == "raise in a thread":
        thread = threading.Thread(target=lambda: 1 // 0)
        thread.start()
        time.sleep(60)
    elif kind == "exit":
        sys.exit(3)
    elif kind == "return":
        return True
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "other call":
        comm.bcast_obj(1)
    elif kind == "message":
        comm.recv((comm.rank + 1) % comm.size)
    elif kind == "skip":
        comm.allreduce_obj(1)
        comm.allreduce_obj(1)
    elif kind == "shape":
        comm.allreduce(np.ones(7))
    elif kind == "missing gradient":
        model.cleargrads()
        comm.multi_node_mean_grad(model)
    return False


def main():
    kind, rank = sys.argv[1].replace("_", " "), int(sys.argv[2])
    way = os.environ.get("FAULTY_WAY", "pure_nccl")
    comm = distributed.create_communicator("pure_nccl" if way in ("messages", "double") else way)
    comm.set_config("shared_memory", way != "messages")
    comm.set_config("bucket_size", 1000)
    if FOLDER:
        mixed(comm, way == "double")
        return
    model = kusari.Chain(l=L.Linear(4, 300))
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), comm).setup(model)
    for k in range(20):
        if k == 12 and comm.rank == rank and fail(kind, comm, model):
            return
        if k % 5 == 3:
            comm.allreduce(np.ones(100_000))
        optimizer.update(lambda k=k: loss(model, comm, k))
        if k % 7 == 2:
            comm.gather_obj(k)


class Network(kusari.Chain):
    def __init__(self):
        super().__init__(a=L.Linear(4, 60), b=L.Linear(60, 60), c=L.Linear(60, 1))

    @kusari.static_graph
    def forward(self, x):
        return F.sum(self.c(F.tanh(self.b(F.tanh(self.a(x)))))) * 1e-4


def mixed(comm, double):
    """Train for ever: compiled steps, all kinds of communication, checkpoints."""
    model = Network()
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), comm, double).setup(model)
    saver = distributed.extensions.checkpoint._MultiNodeCheckpointer("run", comm, 2, 2, FOLDER)
    k = 0
    while True:
        k += 1
        if k == 4:
            tell("training")
        time.sleep(0.002)  # there may be other work on the machine
        optimizer.update(model, np.full((3, 4), comm.rank + k % 5, "f"))
        if k % 5 == 3:
            comm.allreduce(np.ones(100_000))
        elif k % 7 == 2:
            comm.gather_obj(k)
        elif k % 11 == 5 and comm.rank < 2:
            comm.send(np.ones(3), 1) if comm.rank == 0 else comm.recv(0)
        elif k % 20 == 1:
            saver.save(model, k)


if __name__ == "__main__":
    main()
