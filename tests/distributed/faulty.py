"""A training on which faults are tried: ``faulty.py KIND RANK``."""
from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import distributed


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
    comm = distributed.create_communicator("pure_nccl")
    model = kusari.Chain(l=L.Linear(4, 300))
    optimizer = distributed.create_multi_node_optimizer(kusari.optimizers.Adam(), comm).setup(model)
    steps = int(os.environ.get("FAULTY_STEPS", "20"))
    if "FAULTY_PIDS" in os.environ:
        os.symlink(str(os.getpid()), os.path.join(os.environ["FAULTY_PIDS"], str(comm.rank)))
    for k in range(steps):
        if k == 12 and comm.rank == rank and fail(kind, comm, model):
            return
        if k % 5 == 3:
            comm.allreduce(np.ones(100_000))
        optimizer.update(lambda k=k: loss(model, comm, k))
        if k % 7 == 2:
            comm.gather_obj(k)


if __name__ == "__main__":
    main()
