"""The pipeline: every pass by name, in order, with the IR checked after each."""
from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from kusari.ir import Graph, Node, print_graph, verify

from .algebra import simplify_algebra
from .dilation import split_dilated
from .foreach import foreach
from .fuse import fuse, fuse_nests
from .gathers import expand_gathers
from .group_stages import group_stages
from .join import join_rows, join_terms, share_concats, share_transposes
from .lower import lower
from .memory import hoist_random
from .narrow_draws import narrow_draws
from .share_bodies import share_bodies
from .stack import lead_axes, stack_pads
from .tidy import fold_constants, merge_common, remove_dead
from .update_early import update_in_parts

Pass = Callable[[Graph], Graph]
Observer = Callable[[str, Graph, Graph], None]

OPENING: tuple[Pass, ...] = (
    lower,             # ops of the frontend become primitives
    remove_dead,
    merge_common,
)
PIPELINE: tuple[Pass, ...] = (
    *OPENING,
    fold_constants,
    simplify_algebra,  # identities of tensors and of scalars
    expand_gathers,    # gathers become lookups, or sums that are fused
    fold_constants,
    merge_common,
    remove_dead,
    split_dilated,     # dilated convolutions become dense ones of more and smaller images
    stack_pads,        # gradients of slices are stacked, not added up
    lead_axes,         # the axis that a loop walks along becomes the first
    join_terms,        # sums of products of few terms become products of many terms
    join_rows,         # products with one right factor become one product
    merge_common,
    share_concats,     # operands of joined products are slices of each other
    share_transposes,  # a factor of many products is transposed once
    narrow_draws,      # draws compute their masks
    fuse,              # maps, reductions and epilogues become single kernels
    share_bodies,      # steps at the ends of a loop run the kernels of those between
    foreach,           # the same update of many parameters becomes one kernel
    merge_common,
    remove_dead,
    hoist_random,      # Python draws before native instructions
    group_stages,      # nodes that may run concurrently become neighbours
    update_in_parts,   # updates between Python nodes that wait for gradients
)
WITHOUT_WINOGRAD: tuple[Pass, ...] = tuple(p for p in PIPELINE if p is not split_dilated)
NESTS_ONLY: tuple[Pass, ...] = tuple(fuse_nests if p is fuse else p for p in WITHOUT_WINOGRAD)  # libraries multiply

_log = logging.getLogger("kusari.passes")
_dumped = count()


def name_of(step: Pass) -> str:
    """The name under which a pass is logged."""
    return getattr(step, "__name__", repr(step))


def switched_off(passes: Sequence[Pass]) -> frozenset[str]:
    """Return the names in ``KUSARI_PASSES=-name,-other``; raises ``ValueError`` for one of no pass at all."""
    text = os.environ.get("KUSARI_PASSES", "").strip()
    if not text:
        return frozenset()
    words = [word.strip() for word in text.split(",")]
    known = dict.fromkeys(map(name_of, (*PIPELINE, *NESTS_ONLY, *passes)))
    if wrong := [word for word in words if word[:1] != "-" or word[1:] not in known]:
        raise ValueError(f"KUSARI_PASSES is {text!r}: {', '.join(map(repr, wrong))} switches no pass off. Write "
                         f"-name,-other with names of these: {', '.join(known)}.")
    return frozenset(word[1:] for word in words)


def run_pipeline(graph: Graph, passes: Sequence[Pass] = PIPELINE, observer: Observer | None = None,
                 known: set[Node] | None = None) -> Graph:
    """Run ``passes`` on ``graph``, checking the IR before the first and after each.

    ``known`` are nodes that were checked before; the nodes checked now are added. ``observer(name, before, after)``
    sees every pass; by default ``KUSARI_LOG=passes`` logs the passes that change something and ``KUSARI_DUMP=dir``
    writes the text after each of these. Raises ``VerifyError``, which lists the passes run.
    """
    watch = observer or observer_from_environment(graph)
    history: tuple[str, ...] = ()
    known = set() if known is None else known
    if not known:
        verify(graph, known=known)
    for step in passes:
        before, name = graph, name_of(step)
        graph = step(before)
        history += (name,)
        if graph is not before:
            verify(graph, history, known)
        if watch is not None:
            watch(name, before, graph)
    return graph


def log_pass(name: str, before: Graph, after: Graph) -> None:
    """Log the effect of a pass, with the text of the graph when it changed."""
    if after is before:
        _log.info("%s: %s: nothing to do", before.name, name)
    else:
        _log.info("%s: %s: %d nodes -> %d\n%s", before.name, name, len(before.nodes), len(after.nodes),
                  print_graph(after))


def dump_to(directory: Path, graph: Graph) -> Observer:
    """Return an observer that writes the text of the graph to a file of its own after each pass that changes it."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{next(_dumped):03d}-{re.sub(r'[^A-Za-z0-9_.]+', '_', graph.name)}"
    last, number = "", count()

    def write(name: str, before: Graph, after: Graph) -> None:
        nonlocal last
        text = print_graph(after)
        if text != last:
            last = text
            (directory / f"{stem}-{next(number):02d}-{name}.txt").write_text(text + "\n", encoding="utf-8")

    write("traced", graph, graph)
    return write


def observer_from_environment(graph: Graph) -> Observer | None:
    """Return the observer that ``KUSARI_LOG`` and ``KUSARI_DUMP`` ask for, or None."""
    observers: list[Observer] = []
    if "passes" in [word.strip() for word in os.environ.get("KUSARI_LOG", "").split(",")]:
        observers.append(log_pass)
    if directory := os.environ.get("KUSARI_DUMP"):
        observers.append(dump_to(Path(directory), graph))
    if not observers:
        return None

    def watch(name: str, before: Graph, after: Graph) -> None:
        for observer in observers:
            observer(name, before, after)

    return watch
