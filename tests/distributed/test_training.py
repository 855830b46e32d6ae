"""Training on two ranks: the checks, and the manual's tutorials as they stand there."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mpi_ranks as ranks
import pytest

TUTORIALS = Path(__file__).parent / "tutorials"


MODULES = ("checks_training", "checks_reductions", "checks_checkpoints", "checks_links", "checks_nccl")


@ranks.needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [(m, name) for m in MODULES for name in ranks.names(m)])
def test_two_ranks(module: str, name: str) -> None:
    ranks.require((module,), name)


@ranks.needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 8, pytest.param(16, marks=pytest.mark.sweep)])
def test_more_ranks(size: int) -> None:
    for module in MODULES:
        for name in ranks.names(module):
            ranks.require(MODULES, name, size)


@ranks.needs_mpi
@pytest.mark.parametrize(("script", "size"), [
    ("data_parallel", 2), *[pytest.param(*case, marks=pytest.mark.slow) for case in (
        ("model_parallel", 2), ("dual_parallel_seq2seq", 4))]])
def test_tutorials(script: str, size: int, tmp_path: Path) -> None:
    code, out, err, _ = ranks.run(["-m", "kusari", "run", str(TUTORIALS / f"{script}.py")], size)
    assert code == 0 and out == "trained\n", out + err


HIDDEN = """
import os, sys
sys.modules["mpi4py"] = None
import kusari.compat
kusari.compat.install()
import chainer, chainermn, numpy as np
comm = chainermn.create_communicator("naive")
model = chainer.Chain(l=chainer.links.Linear(2, 1))
optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.SGD(), comm).setup(model)
for _ in range(3):
    optimizer.update(lambda: chainer.functions.sum(model.l(np.ones((1, 2), "f"))))
print(comm.size, optimizer.t, len(chainermn.scatter_dataset([1, 2], comm)), comm.bcast_obj("a"), comm.mpi_comm)
for name, launched in (("flat", "1"), ("naive", "2")):
    os.environ["PMI_SIZE"] = launched
    try:
        chainermn.create_communicator(name)
    except ImportError as error:
        print(error)
"""


def test_one_process_needs_no_mpi() -> None:
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 2 2 a None\n")
    assert done.stdout.count("pip install 'kusari[mpi]'") == 2
    assert "For one process" in done.stdout and "this process was started as one of 2" in done.stdout
