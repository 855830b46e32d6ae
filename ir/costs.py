"""The costs of a machine: one table for all that weighs time, from passes to the choice of threads and algorithms.

Times are of one core, in picoseconds, or cycles of it. They describe no processor in particular: decisions compare them
with each other, so that ratios matter, and a plan must not depend on how busy the machine was that made it. In brackets
is how each was measured, on two cores of an EPYC with AVX2; ``benchmarks/costs.py`` measures again.

* An operation of a product [multiply-adds in registers: 10; with AVX-512 on other machines 4 to 5].
* A byte, written or read [triads: 13 of 1 MiB, 16 of 8, 120 to 170 of 128]: between caches that cores share and memory,
  since a step has both.
* A scalar function at one point [chains on operands in the first cache, each call waiting for the one before: addition
  26, division 116, root 193, exponential 1010]. In a loop nest the calls of other points fill the gaps of the last two.
  That a value is kept which takes an exponential, and computed again if it takes some additions, was measured as a
  whole (decision 8).
* An instruction more in a schedule [decision 14: steps of networks with and without]: a launch takes a hundredth of it,
  barriers and operands that lie in no near cache the rest.
* Waking threads [steps of small networks, at the size where one thread and two take the same time]; half as much work
  is enough where instructions are few and long, as there are few barriers.
* Cycles of convolutions and products [each kernel in a loop, with that part and without; of products fitted to some 750
  shapes with AVX-512 and AVX2, decision 3; ``benchmarks/choices.py`` compares counts with times].
"""
from __future__ import annotations

from .arithmetic import operations
from .convolution import CONVOLUTIONS, windows_of
from .expr import Call, Expr, walk
from .graph import Node
from .nest import TRANSCENDENTAL

OPERATION_PICOSECONDS = 10                 # an addition or a multiplication of a product or a convolution
BYTE_PICOSECONDS = 50                      # to write or to read
CALL_PICOSECONDS = 25                      # a scalar function at one point
SLOW_CALL_PICOSECONDS = 125                # a division or a root
COSTLY_CALL_PICOSECONDS = 500              # an exponential
INSTRUCTION_PICOSECONDS = 5_000_000        # one more in a schedule
WAKING_PICOSECONDS = 40_000_000            # less work is faster on one thread than on two
FEW_INSTRUCTIONS_PICOSECONDS = 20_000_000  # the same where instructions take at least
LONG_INSTRUCTION_PICOSECONDS = 10_000_000  # on average
WINOGRAD_RATIO = 3                         # operations by definition for each that Winograd's algorithm takes

CYCLE_PICOSECONDS = 300
PRODUCT_CYCLES = 0.5    # a multiply-add of vectors
LOAD_CYCLES = 0.9       # a vector that mostly lies in two cache lines
BROADCAST_CYCLES = 0.5  # an element to all lanes
COPY_CYCLES = 3.0       # a vector copied to a panel
TURN_CYCLES = 4.0       # a vector of a square that is transposed: of a panel, or of results
READ_CYCLES = 2.5       # a cache line from behind the first cache, at the least: arithmetic hides behind it
RESULT_CYCLES = 0.9     # a vector of results
LANE_CYCLES = 1.2       # a step in adding up the lanes of several vectors
SUMS_CYCLES = 1.5       # a vector of sums that waits in a cache: loaded, added to, stored
PARTS_RATIO = 1.15      # the time of reading a matrix in panels, a few vectors of each line, over that of reading lines
CLASH_CYCLES = 20.0     # a vector stored among many whose places share the sets of a cache
CLASH_RATIO = 1.3       # the time of arithmetic on operands that share the sets of a cache
ADD_CYCLES = 4.0        # a vector added to an image
GATHER_CYCLES = 3.5     # a piece of a panel
# For each size of Winograd's tiles: one vector of a tile transformed to its points or back; one vector of weights
# transformed to its points, in memory that threads share or in a cache; one vector of sums transformed to the gradient.
# Weights come from memory: in a network others are used before the same ones are used again.
WINOGRAD_TILE_CYCLES = {2: 45, 4: 170}
WINOGRAD_SHARED_WEIGHT_CYCLES = {2: 200, 4: 400}
WINOGRAD_OWN_WEIGHT_CYCLES = {2: 80, 4: 150}
WINOGRAD_GRADIENT_CYCLES = {2: 70, 4: 120}

PAGE_BYTES = 1 << 12  # lines whole pages apart share the sets of a cache

_SLOWER = frozenset(("true_divide", "sqrt", "floor_divide", "remainder"))


def work_picoseconds(done: float, moved: float) -> float:
    """Return the time of ``done`` operations and ``moved`` bytes, of which the shorter hides behind the longer."""
    return max(done * OPERATION_PICOSECONDS, moved * BYTE_PICOSECONDS)


def point_picoseconds(expr: Expr) -> int:
    """Return the time of an expression at one point."""
    calls = [e.fn for e in walk(expr) if isinstance(e, Call)]
    return sum(COSTLY_CALL_PICOSECONDS if fn in TRANSCENDENTAL else SLOW_CALL_PICOSECONDS if fn in _SLOWER
               else CALL_PICOSECONDS for fn in calls)


def node_picoseconds(node: Node) -> int:
    """Return the time of a node, as all its arithmetic hides behind reading and writing, or the other way round."""
    return 0 if node.op.is_view else max(moved_picoseconds(node), arithmetic_picoseconds(node))


def moved_picoseconds(node: Node) -> int:
    """Return the time to read the operands of a node and to write its results."""
    return BYTE_PICOSECONDS * sum(v.nbytes for v in (*node.inputs, *node.outputs))


def arithmetic_picoseconds(node: Node) -> int:
    """Return the time of products, convolutions, maps and reductions that a node is or contains."""
    name = node.op.name
    if name == "fused":
        return sum(map(arithmetic_picoseconds, node.attrs["body"].nodes))
    if name == "map":
        return point_picoseconds(node.attrs["expr"]) * node.output.tensor.size
    if name == "reduce":
        return CALL_PICOSECONDS * node.inputs[0].tensor.size
    return operations(node) * OPERATION_PICOSECONDS // (WINOGRAD_RATIO if _suits_winograd(node) else 1)


def _suits_winograd(node: Node) -> bool:
    if node.op.name not in CONVOLUTIONS:
        return False
    w = windows_of(node.op.name, node.attrs, node.inputs[0].shape, node.inputs[1].shape)
    return w.suits_winograd(node.attrs["groups"]) and set(w.stride) == {1}
