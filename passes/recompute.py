"""Recomputation: values that are read late are dropped and computed again, so that less memory is taken.

``static_graph(memory=…)`` is a budget. A graph is cut, and of the values that cross the cut some are kept: the cut lies
between a forward and its backward where these are compiled apart, and where the most is alive in a whole step, again
and again as long as that helps.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from math import inf

from kusari.ir import Graph, Value

from .cut import Cut, Recomputed
from .liveness import Liveness
from .slices import Slices
from .tidy import remove_dead
from .update_early import update_early

TIME_SHARE = 0.01           # of the time of all nodes: may be spent under "speed"
LEAST_LIVE_BYTES = 1 << 20  # with fewer there is nothing to gain under "speed"
LEAST_GAIN_SHARE = 0.02     # of the bytes: less is not worth computing anything again
ABOUT_SHARE = 0.04          # the same of a wish for less memory, which may take more time
PRICE_CHOICES = 8           # of values that are cheap to compute again: equal shares of their bytes
EVERY_CHOICES = 1 << 20     # the same, each value a choice
CUT_ROUNDS = 6              # of one step, each where the most is alive

Size = Callable[[Graph], int]


@dataclass(frozen=True)
class Budget:
    """The wish for ``memory``: the fewest bytes, or no more than ``nbytes``, in ``time`` picoseconds at most.

    Without ``products`` neither products nor convolutions run again. ``about`` is a share of the bytes: so much
    more than the least counts as the least.
    """

    nbytes: float = 0
    time: float = inf
    products: bool = True
    about: float = ABOUT_SHARE


@dataclass(frozen=True)
class Account:
    """The effect of recomputation: nodes that run again, bytes now and before, bytes of outputs that are gone."""

    clones: int
    now: int
    before: int
    gone: int = 0


def limit(memory: str | float, speed: int) -> str | float:
    """Return a share of the bytes that ``"speed"`` takes as bytes; other wishes unchanged."""
    return memory * speed if isinstance(memory, float) and memory < 1 else memory


def budgets(memory: str | float) -> tuple[Budget, ...]:
    """Return the budgets of a wish, to be tried one after the other; a limit first without repeating products."""
    if isinstance(memory, str):
        return (Budget(products=memory == "low"),)
    return Budget(memory, products=False), Budget(memory)


def recompute(graph: Graph, memory: str | float, size: Size,
              spent: Collection[int] = ()) -> tuple[Graph, Account | None]:
    """Return the graph to run for ``memory``, whose bytes are its ``size``, and an account of it; None if unchanged.

    Under ``"speed"`` values are computed again for hardly any time; no other wish takes more memory than that.
    ``spent`` are outputs that ``"low"`` does not return: gradients, which are released once they have been used.
    """
    cheaper = cheap(graph, TIME_SHARE, LEAST_LIVE_BYTES)
    account = None
    if cheaper.clones:
        before, now = size(graph), size(cheaper.graph)
        if now < before * (1 - LEAST_GAIN_SHARE):
            graph, account = cheaper.graph, Account(cheaper.clones, now, before)
    if memory == "speed":
        return graph, account
    before = size(graph) if account is None else account.now
    early = bool(spent) and memory == "low"
    stay = [v for i, v in enumerate(graph.outputs) if not early or i not in spent]

    def finished(graph: Graph) -> Graph:
        less = remove_dead(graph)
        return update_early(less.with_nodes(less.nodes, stay)) if early else less

    now = size(finished(graph)) if early else before
    found, now = search(graph, limit(memory, before), now, lambda way: size(finished(way.graph)))
    gone = sum(v.tensor.nbytes for v in {graph.outputs[i] for i in spent}) if early else 0
    return finished(found.graph), Account(found.clones, now, before, gone)


def cheap(graph: Graph, share: float, least: int) -> Recomputed:
    """Return the graph with values computed again at the peak of live memory, for ``share`` of its time at most.

    Nothing is done where fewer than ``least`` bytes are alive.
    """
    now = Liveness(graph).most
    if now < least or not now:
        return Recomputed(graph, (), 0, 0)
    budget = Budget(time=share * Slices().time(graph.nodes), products=False, about=LEAST_GAIN_SHARE)
    return _rounds(graph, budget, now, lambda way: Liveness(remove_dead(way.graph)).most, EVERY_CHOICES)[0]


def search(graph: Graph, memory: str | float, now: int, size: Callable[[Recomputed], int],
           cut: int | None = None) -> tuple[Recomputed, int]:
    """Return the graph for ``memory`` that is cut at a position, or where it is fullest, and its bytes.

    ``size`` returns the bytes that an alternative takes, ``now`` are those of the graph as it is.
    """
    tried = [_rounds(graph, budget, now, size, PRICE_CHOICES, cut) for budget in budgets(memory)]
    if not isinstance(memory, str) and (within := [each for each in tried if each[1] <= memory]):
        return min(within, key=lambda each: each[0].picoseconds)
    return min(tried, key=lambda each: each[1])


def _rounds(graph: Graph, budget: Budget, now: int, size: Callable[[Recomputed], int], choices: int,
            cut: int | None = None) -> tuple[Recomputed, int]:
    """Cut the graph, and the graphs that come of it, for a budget; return the best that was found, and its bytes."""
    found, worth = Recomputed(graph, (), 0, 0), 0.0
    slices = Slices()
    for _ in range(1 if cut is not None else CUT_ROUNDS):
        left = replace(budget, time=budget.time - found.picoseconds)
        at = Cut(found.graph, fullest(found.graph) if cut is None else cut, budget.products, slices)
        way, less = choose(alternatives(at, choices, left.time), left, now, size)
        if way is None or now - less < worth:
            break
        done = remove_dead(way.graph) if cut is None else way.graph
        found = Recomputed(done, way.kept, found.clones + way.clones, found.picoseconds + way.picoseconds)
        now = less
        worth = worth or (1 if budget.nbytes else budget.about * now)  # further rounds repeat clones
    return found, now


def fullest(graph: Graph) -> int:
    """Return the position at which the most bytes of intermediates are alive, the cut of a whole step."""
    return min(Liveness(graph).at + 1, len(graph.nodes))


def alternatives(at: Cut, choices: int, time: float = inf) -> Iterator[Recomputed]:
    """Yield graphs that trade time for memory at a cut."""
    smallest = at.smallest()
    sets = [smallest, *at.by_price(choices, time)]
    if at.products:
        sets += at.segments(smallest)
    seen: set[frozenset[Value]] = set()
    for kept in sets:
        found = at.attempt(kept)
        if (key := frozenset(found.kept)) not in seen:
            seen.add(key)
            yield found


def choose(ways: Iterator[Recomputed], budget: Budget, now: int,
           size: Callable[[Recomputed], int]) -> tuple[Recomputed | None, int]:
    """Return the best alternative, and its bytes; None if none is better than the graph as it is.

    Of the ones within the budget it is the fastest; if none is, of the ones that take about the least.
    """
    if now <= budget.nbytes:
        return None, now
    found = [(size(way), way) for way in ways if way.clones and way.picoseconds <= budget.time]
    found = [(n, way) for n, way in found if n < now * (1 - LEAST_GAIN_SHARE)]
    if not found:
        return None, now
    enough = max(budget.nbytes, min(n for n, _ in found) + budget.about * now)
    if within := [(n, way) for n, way in found if n <= budget.nbytes]:
        found = within
    n, best = min(((n, way) for n, way in found if n <= enough), key=lambda each: (each[1].picoseconds, each[0]))
    return best, n
