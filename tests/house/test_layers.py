"""Who may import whom: ir nothing of ours, passes, codegen and runtime only ir, the frontend all of them."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY = {"ir": set(), "passes": {"ir"}, "codegen": {"ir"}, "runtime": {"ir"}}
FOREIGN = {"codegen": {"numba", "llvmlite", "cupy", "onnxruntime", "onnx"}, "ir": {"numba", "llvmlite", "cupy"}}
# Imports inside functions of the core. They load with the first use of ChainerX, of a card's kernels, of a notebook or
# of a file to read; and a method of links makes a link of a class that derives from it.
LATE_IN_CORE = {
    "backends/chainerx.py": {"chainerx"}, "backends/cuda.py": {"codegen.cuda.scalar.elementwise"},
    "variable_text.py": {"explanation"}, "link/base.py": {"sequential"},
    "links/model/vision/pretrained.py": {"links.caffe", "dataset"}}
# frontend/static in the order of imports: each may import those before it.
BASE = ("collector", "computed_numbers", "decorated", "errors", "mode", "room", "signature", "source", "trees")
ROOMS = ("guards", "arrays", "trace.copies", "trace", "trace.observer", "gradients", "compile", "replay", "card",
         "follow", "step", "verify")
TOP = ("function", "composed", "__init__")
# Inside functions: the extra ``onnx`` may be missing, and so may CuPy.
LATE = {"function imports onnx.session", "function imports static.card.place.card",
        "step.update imports static.card.place.card"}
# The rooms of two languages in the same way; above those of cuda is the module that knows them all.
LANGUAGES = {
    "llvm": ("text", "scalar", "nest", "contraction", "contraction.gemm", "contraction.conv", "contraction.winograd",
             "data"),
    "cuda": ("text", "scalar", "nest", "contraction", "data")}
MOST_MODULES = 12  # of a folder of frontend/static
# The core, which is all else in frontend, imports none of these.
ABOVE = ("static", "onnx", "profiling", "commands", "__main__")
LAZY = ("kusari.passes", "kusari.codegen", "kusari.runtime")  # these cost import time


class Found(NamedTuple):
    """An import statement, and where it stands."""

    node: ast.Import | ast.ImportFrom
    top_level: bool
    inside_function: bool
    for_types: bool  # under ``if TYPE_CHECKING``


@functools.cache
def found_in(file: Path) -> list[Found]:
    """All imports in a file: they are no expressions, where most of the nodes are. The tree is not kept."""
    found: list[Found] = []
    blocks: list[tuple[Any, int, bool, bool]] = [(ast.parse(file.read_text(encoding="utf-8")), 0, False, False)]
    while blocks:
        block, depth, inside, types = blocks.pop()
        if isinstance(block, (ast.Import, ast.ImportFrom)):
            found.append(Found(block, depth == 1, inside, types))
        inside = inside or isinstance(block, ast.FunctionDef)
        types = types or isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(block, name, ())
            if isinstance(inner, list):
                blocks += [(node, depth + 1, inside, types) for node in inner]
    return found


def statements(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """All imports in a file, also inside functions."""
    return [found.node for found in found_in(file)]


@functools.cache
def imports(file: Path, *, top_level: bool = False) -> set[str]:
    """The absolute names a file imports; relative imports stay in the layer and are left out."""
    names: set[str] = set()
    for node in [found.node for found in found_in(file) if found.top_level or not top_level]:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def files(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


def test_layers_import_only_what_they_may() -> None:
    for layer in MAY:
        assert files(layer)
        for file in files(layer):
            for name in imports(file):
                top, _, rest = name.partition(".")
                assert top != "kusari" or rest.split(".")[0] in MAY[layer], f"{file}: {name}"
                assert top not in FOREIGN.get(layer, ()), f"{file}: {name}"


def test_nobody_imports_a_second_copy() -> None:
    for file in [file for layer in ("frontend", *MAY) for file in files(layer)]:
        assert not {name for name in imports(file) if name.partition(".")[0] in {"frontend", *MAY}}, file


def test_frontend_reaches_the_compiler_lazily() -> None:
    for file in files("frontend"):
        reached = {name for name in imports(file, top_level=True) if name.startswith(LAZY)}
        assert not reached or not {"static", "profiling"}.isdisjoint(file.parts), f"{file}: {reached}"


def test_relative_imports_stay_in_the_layer() -> None:
    for layer in ("frontend", *MAY):
        for file in files(layer):
            depth = len(file.relative_to(ROOT / layer).parts)
            for node in statements(file):
                assert not isinstance(node, ast.ImportFrom) or node.level <= depth, f"{file}:{node.lineno}"


def in_frontend(file: Path, *, inside_functions: bool = False, foreign: bool = False) -> Iterator[str]:
    """The names in ``frontend`` that a file imports when it runs, from there: ``static.trace.tape.Tape``.

    With ``inside_functions`` these are those that its functions import, with ``foreign`` those of other packages, too.
    """
    package = ("kusari", *file.relative_to(ROOT / "frontend").parent.parts)
    for node in [f.node for f in found_in(file) if (f.inside_function if inside_functions else not f.for_types)]:
        around = package[:len(package) + 1 - node.level] if isinstance(node, ast.ImportFrom) and node.level else ()
        module = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for alias in node.names:
            name = ".".join((*around, *module, alias.name))
            if foreign or f"{name}.".startswith("kusari."):
                yield name.removeprefix("kusari.")


def of_static() -> dict[str, Path]:
    """The modules of ``frontend/static`` by name, from there: ``trace.tape``."""
    static = ROOT / "frontend" / "static"
    return {".".join(file.relative_to(static).with_suffix("").parts): file for file in files("frontend/static")}


def rank(name: str) -> int:
    """Where a name in ``frontend/static`` stands in the order: 0 in the base, then the rooms, then the top."""
    rooms = [room for room in ROOMS if f"{name}.".startswith(f"{room}.")]
    if rooms:
        return ROOMS.index(max(rooms, key=len)) + 1
    module = name.partition(".")[0]
    assert module in (*BASE, *TOP), f"{name} has no place in the order of frontend/static"
    return 0 if module in BASE else len(ROOMS) + 1


def test_rooms_of_static_import_in_order() -> None:
    modules = of_static()
    assert {rank(name) for name in modules} == set(range(len(ROOMS) + 2))
    against = [f"{name} imports {other}" for name, file in modules.items() for other in in_frontend(file)
               if other.startswith("static.") and rank(other.removeprefix("static.")) > rank(name)]
    assert against == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_rooms_of_languages_import_in_order(language: str) -> None:
    folder, rooms = ROOT / "codegen" / language, LANGUAGES[language]

    def room(name: str) -> int:
        found = [r for r in rooms if f"{name}.".startswith(f"{r}.")]
        return rooms.index(max(found, key=len))
    seen: set[int] = set()
    for file in files(f"codegen/{language}"):
        package = file.relative_to(folder).parent.parts
        if not package:
            assert file.stem == "generate" or not statements(file), f"{file}: rooms are imported one by one"
            continue
        own = room(".".join(package))
        seen.add(own)
        for node in statements(file):
            if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(package) + 1:
                name = ".".join((*package[:len(package) + 1 - node.level], node.module or ""))
                assert room(name) <= own, f"{file} imports {name}"
    assert seen == set(range(len(rooms)))


def test_static_imports_inside_functions_only_what_may_be_missing() -> None:
    late = {f"{name} imports {other}" for name, file in of_static().items()
            for other in in_frontend(file, inside_functions=True, foreign=True)}
    assert late == LATE


def test_the_frontend_imports_inside_functions_only_what_loads_late() -> None:
    """Commands and ONNX load with their first use; of other modules see the table."""
    late: dict[str, set[str]] = {}
    for file in files("frontend"):
        where = file.relative_to(ROOT / "frontend")
        if where.parts[0] not in ("commands", "onnx", "static"):
            for name in in_frontend(file, inside_functions=True):
                late.setdefault(where.as_posix(), set()).add(name.rpartition(".")[0] or name)
    assert late == LATE_IN_CORE


def test_rooms_of_static_are_small() -> None:
    folders = [file.parent for file in of_static().values() if file.name != "__init__.py"]
    assert {str(folder): count for folder in folders if (count := folders.count(folder)) > MOST_MODULES} == {}


def test_core_reaches_static_functions_through_hooks_only() -> None:
    """So no cycle of imports has modules of both, not even with those inside functions counted."""
    frontend = ROOT / "frontend"
    core = [file for file in files("frontend") if file.relative_to(frontend).with_suffix("").parts[0] not in ABOVE]
    assert frontend / "tape.py" in core
    reached = [f"{file} imports {name}" for file in core for name in in_frontend(file) if name.split(".")[0] in ABOVE]
    assert reached == []


def test_modules_of_static_import_each_other_in_no_circle() -> None:
    modules = of_static()
    prefixes = {name: {".".join(parts[:k]) for other in in_frontend(file) if (parts := other.split("."))[0] == "static"
                       for k in range(len(parts) + 1)} for name, file in modules.items()}
    graph = {name: {other for other in modules if f"static.{other}" in found} for name, found in prefixes.items()}
    assert graph["function"] > {"replay.schedule", "trees"}
    assert [*graphlib.TopologicalSorter(graph).static_order()][-1] == "__init__"


def test_no_attribute_holds_a_lock_that_a_fork_would_keep() -> None:
    """``functools.cached_property`` does before Python 3.12: ``kusari.lazy`` is there in its place."""
    every = [file for layer in (*MAY, "frontend") for file in files(layer)]
    assert [f for f in every if "@functools.cached_property" in f.read_text("utf-8")] == []
    assert [f for f in every if "functools.cached_property" in imports(f)] == []
