"""The costs of this machine beside those of ``ir/costs.py``, by which the compiler weighs time.

  python benchmarks/costs.py
  python benchmarks/costs.py --seconds 2

All on one thread and as the best of many rounds, so that neighbours disturb little. *operation*: multiply-adds in
registers, and a product of 512 x 512 x 512. *byte*: triads of three footprints. *call*: a chain of a scalar function on
operands that stay in the first cache, less a chain of half the length. *launch*: the same of tiny kernels; it is the
part of an instruction that can be measured alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kusari.codegen import generate
from kusari.commands.bench import aligned, figure, machine, positive
from kusari.ir import Builder, Graph, Value, costs, tensor_type
from kusari.passes import plan, run_pipeline
from kusari.runtime import Executable
from kusari.static.compile.target import host_target
from kusari.static.verify.roof import bandwidth, best, peak

SIZE = 4096    # elements of an operand: in the first cache, with the result
CHAIN = 24     # calls or launches
FOOTPRINTS = (1 << 20, 1 << 23, 1 << 27)


def runner(graph: Graph, threads: int = 1) -> Callable[[], object]:
    """A function that runs ``graph`` on ones."""
    made = plan(run_pipeline(graph))
    executable = Executable(made, generate(made, host_target()), threads=threads)
    frame = executable.acquire()
    frame.bind_all([np.full(v.shape, 0.7, v.tensor.dtype) for v in graph.inputs])
    frame.fresh_outputs()
    return lambda: frame.run()  # keeps the frame


def chain(fn: str, length: int, *more: Any) -> Graph:
    """A scalar function applied again and again."""
    b = Builder()
    x = y = Value(tensor_type("float32", (SIZE,)), "x")
    for _ in range(length):
        y = b.call(fn, y, *[x if m is None else m for m in more])
    return Graph(fn, (x,), (), (), tuple(b.nodes), (y,))


def rows(length: int) -> Graph:
    """Tiny products that wait for each other: no two become one kernel."""
    b = Builder()
    x = y = Value(tensor_type("float32", (8, 8)), "x")
    for _ in range(length):
        y = b.matmul(y, x)
    return Graph("rows", (x,), (), (), tuple(b.nodes), (y,))


def product(n: int) -> Graph:
    """A square matrix product."""
    b = Builder()
    x = Value(tensor_type("float32", (n, n)), "x")
    return Graph("product", (x,), (), (), (), (b.matmul(x, x),)).with_nodes(b.nodes)


def difference(make: Callable[[int], Graph], seconds: float) -> float:
    """Seconds of one of the elements that ``make`` chains."""
    half, whole = best([runner(make(CHAIN // 2)), runner(make(CHAIN))], seconds)
    return (whole - half) / (CHAIN - CHAIN // 2)


def measured(seconds: float) -> list[tuple[str, float, int]]:
    """Names, picoseconds here, picoseconds of the table."""
    (whole,) = best([runner(product(512))], seconds)
    found = [("operation, in registers", 1e12 / peak(1), costs.OPERATION_PICOSECONDS),
             ("operation, product of 512", 1e12 * whole / (2 * 512 ** 3), costs.OPERATION_PICOSECONDS)]
    found += [(f"byte of {size >> 20} MiB", 1e12 / bandwidth(size, 1, seconds), costs.BYTE_PICOSECONDS)
              for size in FOOTPRINTS]
    calls: dict[str, tuple[Any, ...]] = {"add": (None,), "maximum": (None,), "true_divide": (None,), "sqrt": (),
                                         "exp": (), "tanh": ()}
    for fn, more in calls.items():
        known = costs.point_picoseconds(chain(fn, 1, *more).nodes[0].attrs["expr"])
        found.append((fn, 1e12 * difference(lambda n, fn=fn, more=more: chain(fn, n, *more), seconds) / SIZE, known))
    return [*found, ("launch", 1e12 * difference(rows, seconds), costs.INSTRUCTION_PICOSECONDS)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=positive(float), default=0.5, help="time per measurement (0.5)")
    options = parser.parse_args()
    lines = [[name, figure(here), figure(table)] for name, here, table in measured(options.seconds)]
    print(f"{machine(1)}\n\n{aligned([['picoseconds', 'here', 'table'], *lines])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
