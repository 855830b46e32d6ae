"""Windows of 3 x 3 taps two pixels apart, as four convolutions of neighbours that are added up.

Along an axis ``y[o] = w0 even[o] + w1 odd[o] + w2 even[o + 1]``, where ``even`` and ``odd`` are the image's elements:
two taps on the even ones, and one on the odd ones. Both are computed at the points of two taps; one tap has nothing at
infinity, so there the odd elements take no part. In two dimensions there are four phases, and of the products at 25
points with four phases each, 19 in a hundred need not be made.
"""
from __future__ import annotations

from ...text.emitter import Emitter
from .algebra import Grid, Matrix, Transform

#: Odd rows, odd columns? In an order in which phases that meet at a point are neighbours.
PHASES = ((0, 1), (0, 0), (1, 0), (1, 1))


def phases_at(side: int) -> list[tuple[int, int]]:
    """For each point, of ``side`` x ``side``: the first phase with a term there, and the number of phases."""
    last = side - 1
    kinds = {(False, False): (0, 4), (True, False): (0, 2), (False, True): (1, 2), (True, True): (1, 1)}
    return [kinds[i == last, j == last] for i in range(side) for j in range(side)]


def transformed(em: Emitter, matrix: Matrix, lanes: int, grid: Grid, phased: bool) -> list[list[tuple[int, str]]]:
    """The points of a tile's pixels or of the nine taps, phase by phase: the number of the point and its vector."""
    whole = Transform(em, matrix, lanes)
    if not phased:
        return [list(enumerate(x for row in whole.both(grid) for x in row))]
    side, sides = len(matrix), (whole, Transform(em, tuple(row[:-1] for row in matrix[:-1]), lanes))
    phases: list[list[tuple[int, str]]] = []
    for odd_row, odd_column in PHASES:
        part = [row[odd_column::2] for row in grid[odd_row::2]]
        columns = [sides[odd_row].one([row[j] for row in part]) for j in range(len(part[0]))]
        rows = [sides[odd_column].one([column[i] for column in columns]) for i in range(len(columns[0]))]
        phases.append([(i * side + j, x) for i, row in enumerate(rows) for j, x in enumerate(row)])
    return phases
