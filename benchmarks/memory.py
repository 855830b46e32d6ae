"""Time against memory: what ``static_graph(memory=…)`` costs and saves in training.

  python benchmarks/memory.py --plot memory.png
  python benchmarks/memory.py vgg_cifar --wishes speed balanced low 0.6
  python benchmarks/memory.py --python chainer=PY39/bin/python     Chainer's memory beside ours
  python benchmarks/memory.py --survey --wishes speed "in parts" --python chainer=…

Each point is a process of its own that trains with one wish. ``frames`` is what the schedules hold for intermediate
values and scratch of kernels; ``start`` the resident size of the process before the first step, with weights and
gradients; ``peak`` the largest of all its life, ``steady`` that of the steps after the first three. ``step`` is what a
step takes on top of what stays from step to step: steady, without start and without the optimizer's state, which the
first step has made. For Chainer the same without frames.

Every round measures each point once, so that what disturbs the machine for a while disturbs no point alone; the table
has medians of the rounds and, of the times, the least and the most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from kusari.commands.bench import LIMIT, THREAD_VARIABLES, aligned, figure, machine, positive, progress

WORKER = Path(__file__).parent / "peers" / "worker.py"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lenet_cnn": ("lenet_cnn", {}),
    "lenet_512": ("lenet_cnn", {"batch": 512}),
    "vgg_cifar": ("vgg_cifar", {}),
    "resnet18": ("resnet18", {}),
    "resnet18_2": ("resnet18", {"batch": 2}),
    "resnet18_32": ("resnet18", {"batch": 32}),
    "resnet18_224": ("resnet18", {"side": 224}),
    "transformer_block": ("transformer_block", {}),
    "deep_mlp": ("mnist_mlp", {"depth": 60, "units": 256, "batch": 1024}),
}
SURVEY: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("unet", "densenet", "mobilenet", "inception", "conv3d", "volumes",
                                     "conv_autoencoder", "dilated", "dqn", "siamese")},
    "unet_128": ("unet", {"side": 128}),
    "mobilenet_96": ("mobilenet", {"side": 96}),
    "inception_96": ("inception", {"side": 96}),
    "densenet_64": ("densenet", {"side": 64}),
}
WISHES = ("speed", "0.8", "0.65", "0.5", "0.35", "balanced", "low")
EAGER = "define-by-run"
PARTS = "in parts"
CHAINER = "Chainer"


def child(name: str, wish: str, seconds: float) -> dict[str, Any]:
    """Train in this process."""
    import numpy as np
    from peers.on_kusari import MODELS as KNOWN

    import kusari
    from kusari.commands.timing import measure, settled_megabytes
    from kusari.commands.worker import training_step
    base, sizes = {**MODELS, **SURVEY}[name]
    model = KNOWN[base].at(**sizes)
    kind = model.chain
    parts = wish == PARTS
    if parts:
        kind = type(kind.__name__, (kind,), {"forward": kusari.static_graph(kind.forward)})
    elif wish != EAGER:
        memory: Any = float(wish) if wish[0].isdigit() else wish
        kind = type(kind.__name__, (kind,), {"loss": kusari.static_graph(kind.loss, memory=memory)})
    np.random.seed(0)
    chain = model.build(kind)
    optimizer = model.updater(chain)
    inputs, labels = model.arrays()
    start = settled_megabytes() or 0.0
    if parts:
        found = measure(training_step(chain, optimizer, inputs, labels), seconds)
    else:
        found = measure(lambda i: optimizer.update(chain.loss, *inputs, *labels[i % len(labels)]), seconds)
    import executables  # not before: it imports the compiler

    from kusari.runtime import default_loader
    live = executables.live()
    held = sum(f.arena.nbytes for _, frames in live for f in frames)
    params = list(chain.params())
    state = sum(a.nbytes for p in params for a in p.update_rule.state.values() if isinstance(a, np.ndarray))
    return {**found, "frames_mb": held / 2**20, "start_mb": start,
            "state_mb": state / 2**20, "compiled": default_loader().report.compiled}


def point(name: str, wish: str, seconds: float) -> dict[str, Any]:
    """One point in a new process whose kernels are on disk, so that compiling takes no memory: the second at most."""
    command = [sys.executable, __file__, "--child", name, wish, "--seconds", str(seconds)]
    for _ in range(2):
        found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True,
                                          ).stdout.splitlines()[-1])
        if not found["compiled"]:
            break
    return found


def chainer(interpreter: str, name: str, seconds: float) -> dict[str, Any]:
    """Chainer's define-by-run on the same model."""
    base, sizes = {**MODELS, **SURVEY}[name]
    threads = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    environment = dict(os.environ, PYTHONWARNINGS="ignore", **{f"{n}_NUM_THREADS": threads for n in THREAD_VARIABLES})
    with tempfile.TemporaryDirectory(prefix="kusari-memory-") as folder:
        subprocess.run([sys.executable, str(WORKER), "prepare", base, folder, json.dumps(sizes)], check=True,
                       capture_output=True, timeout=LIMIT)
        done = subprocess.run([interpreter, str(WORKER), "measure", "chainer", "eager", base, "train", folder, threads,
                               str(seconds)], capture_output=True, text=True, timeout=LIMIT, check=True,
                              env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    return {**found, "frames_mb": None}


def with_steps(points: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The points of a model, each with what its step takes."""
    known = next((p for p in points.values() if "state_mb" in p), None)
    if known is None:
        return points
    return {wish: {**p, "mb": p["steady_mb"] - p["start_mb"] - known["state_mb"]} for wish, p in points.items()}


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """One row per model and wish."""
    rows = [["model", "memory", "ms per step", "from–to", "frames, MB", "start, MB", "steady, MB", "peak, MB",
             "step, MB", "step ÷ Chainer's", "peak ÷ Chainer's"]]
    for name, points in results.items():
        points = with_steps(points)
        beside = points.get(CHAINER, {})
        for wish, p in points.items():
            numbers = [p["frames_mb"], p["start_mb"], p["steady_mb"], p["peak_mb"], p.get("mb")]
            times = figure(p["step_ms"]), "–".join(map(figure, p["range"]))
            ratios = [f"{p[key] / beside[key]:.2f}" if wish != CHAINER and beside.get(key) and key in p else "-"
                      for key in ("mb", "peak_mb")]
            rows.append([name, wish, *times, *(figure(n) if n is not None else "-" for n in numbers), *ratios])
    return aligned(rows, left=2)


def draw(results: dict[str, dict[str, dict[str, Any]]], path: Path, subtitle: str) -> Path:
    """A curve per model: time of a step against the process's memory."""
    from kusari.commands.pictures import FAST, GRID, INK, SOFT, heading, new_figure, save, style
    picture = new_figure(4.4 * len(results), 4.6)
    picture.subplots_adjust(left=0.2 / len(results), right=0.985, top=0.72, bottom=0.13, wspace=0.25)
    heading(picture, "Memory for time", subtitle)
    for axes, (name, points) in zip(picture.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True):
        style(axes, name)
        at = {wish: (p["steady_mb"], p["step_ms"]) for wish, p in points.items() if p["frames_mb"]}
        # Different wishes may lead to the same schedule: one point, with its least disturbed time.
        line = sorted((mb, min(ms for other, ms in at.values() if other == mb)) for mb in {mb for mb, _ in at.values()})
        axes.plot(*zip(*line, strict=True), color=FAST, linewidth=1.2, marker="o", markersize=5)
        near: list[list[tuple[float, float]]] = []  # points that share a label, as they are side by side
        for xy in line:
            if near and xy[0] - near[-1][0][0] < 0.16 * (line[-1][0] - line[0][0]):
                near[-1].append(xy)
            else:
                near.append([xy])
        for group in near:
            names = [wish for wish, other in at.items() if any(other[0] == mb for mb, _ in group)]
            label = "\n".join(", ".join(names[i:i + 2]) for i in range(0, len(names), 2))
            xy = sum(mb for mb, _ in group) / len(group), max(ms for _, ms in group)
            axes.annotate(label, xy, xytext=(0, 7), textcoords="offset points", fontsize=8, color=INK, ha="center")
        axes.set_ylim(0, 1.4 * max(ms for _, ms in line))
        room = 0.2 * (line[-1][0] - line[0][0]) + 1
        axes.set_xlim(line[0][0] - room, line[-1][0] + room)
        axes.set_xlabel("process in steady steps, MB", color=SOFT, fontsize=9)
        axes.set_ylabel("ms per step", color=SOFT, fontsize=9)
        axes.grid(color=GRID, linewidth=0.8)
    return save(picture, path)


def measured(options: argparse.Namespace) -> dict[str, dict[str, dict[str, Any]]]:
    """All points that ``--out`` does not have yet, with those it has; what is measured is added to it as it comes."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    if options.out and options.out.exists():
        for line in options.out.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found.setdefault(record["model"], {}).setdefault(record["memory"], []).append(record["found"])
    end = time.monotonic() + 60 * (options.minutes or float("inf"))
    wishes = (*([CHAINER] if options.python else []), *options.wishes)
    names = options.models or tuple(SURVEY if options.survey else MODELS)
    for turn, wish, name in product(range(options.rounds), wishes, names):
        known = found.setdefault(name, {}).setdefault(wish, [])
        if len(known) > turn or time.monotonic() > end:
            continue
        progress(f"round {turn + 1}: {name} {wish}")
        if wish == CHAINER:
            known.append(chainer(options.python.partition("=")[2], name, options.seconds))
        else:
            known.append(point(name, wish, options.seconds))
        if options.out:
            with options.out.open("a", encoding="utf-8") as out:
                print(json.dumps({"model": name, "memory": wish, "found": known[-1]}), file=out)
    progress("")
    clock = "cpu_ms" if options.cpu else "step_ms"
    return {name: {wish: together(known, clock) for wish, known in points.items() if known}
            for name, points in found.items() if any(points.values())}


def together(rounds: list[dict[str, Any]], clock: str) -> dict[str, Any]:
    """The medians of some rounds of one point; ``step_ms`` by that clock, with its range."""
    times = [r[clock] for r in rounds]
    found = {key: statistics.median(r[key] for r in rounds) for key, value in rounds[0].items()
             if isinstance(value, (int, float))}
    return {**found, "frames_mb": found.get("frames_mb"), "step_ms": statistics.median(times),
            "range": (min(times), max(times))}


def main() -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join((*MODELS, *SURVEY))}")
    parser.add_argument("--survey", action="store_true", help="further convolutional models")
    parser.add_argument("--wishes", nargs="+", default=[EAGER, *WISHES],
                        help=f"values of memory=, {EAGER}, or {PARTS!r}: forward static, loss and update outside")
    parser.add_argument("--seconds", type=positive(float), default=0.5, help="time per point (0.5)")
    parser.add_argument("--rounds", type=positive(int), default=2, help="how often each point is measured (2)")
    parser.add_argument("--cpu", action="store_true", help="processor time, one thread: where others use the machine")
    parser.add_argument("--python", metavar="chainer=PATH", help="Chainer's interpreter")
    parser.add_argument("--out", type=Path, metavar="FILE", help="add every point, as JSON lines; what it has is kept")
    parser.add_argument("--minutes", type=positive(float), metavar="M", help="start nothing after so many minutes")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(*options.child, options.seconds)))
        return 0
    for each in options.models:
        if each not in {**MODELS, **SURVEY}:
            parser.error(f"expected one of {', '.join((*MODELS, *SURVEY))}, got {each}")
    if options.cpu:
        os.environ["KUSARI_NUM_THREADS"] = "1"
    results = measured(options)
    where = f"{machine(None)}; training as whole steps, float32; " + (
        "processor time with one thread" if options.cpu else f"wall-clock, {options.rounds} rounds")
    print(f"{where}\n\n{table(results)}")
    if options.plot:
        print(f"\npicture: {draw(results, options.plot, where)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
