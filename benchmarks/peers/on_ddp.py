"""One rank of PyTorch's DistributedDataParallel over gloo: ``on_ddp.py CASE.json``; rank 0 prints a line of JSON.

The file names models with the folders of their cases (`case.save`), the steps, this rank, how many there are and the
port where they meet.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
VARIANTS = ("eager", "compile")


def seconds_of_steps(step: Any, count: int, dist: Any, torch: Any) -> float:
    """Return the median over steps of the time of the slowest rank; all begin together."""
    found: list[float] = []
    for _ in range(count):
        dist.barrier()
        start = time.perf_counter()
        step()
        passed = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(passed, dist.ReduceOp.MAX)
        found.append(float(passed))
    return statistics.median(found)


def stepper(folder: str, name: str, variant: str, rank: int, share: float) -> Any:
    """Return a function that does a step on a share of the batch."""
    import torch

    from peers.case import load as load_case
    from peers.on_torch import MODELS, load, optimizer, tensors

    case = load_case(name, "train", variant, 1, Path(folder))
    entry = MODELS[name]
    module = (entry.module if variant == "eager" else entry.compiled)(**case.sizes)
    load(module, case.weights)
    module.train()

    def part(arrays: Any) -> Any:
        return tensors(tuple(x[:max(1, round(len(x) * share))] for x in arrays), entry.stacked)
    inputs, labels = part(case.inputs), part(case.labels[rank % len(case.labels)])
    parallel: Any = torch.nn.parallel.DistributedDataParallel(module)
    update = optimizer(case, [p for p in module.parameters() if p.requires_grad])

    def forward_loss() -> Any:
        return entry.loss(parallel(*inputs), *labels)
    forward = forward_loss if variant == "eager" else torch.compile(forward_loss)

    def step() -> None:
        update.zero_grad()
        forward().backward()
        update.step()
    return step


def main(about: dict[str, Any]) -> None:
    """Be a rank."""
    sys.path.insert(0, str(HERE.parent))
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(about["port"]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=about["rank"], world_size=about["ranks"])
    found: dict[str, dict[str, float]] = {}
    for name, folder in about["models"].items():
        found[name] = {}
        for variant in VARIANTS:
            step = stepper(folder, name, variant, about["rank"], 1.0)
            seconds_of_steps(step, 6, dist, torch)
            found[name][variant] = seconds_of_steps(step, about["steps"], dist, torch)
    if about["rank"] == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
