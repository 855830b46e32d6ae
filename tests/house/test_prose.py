"""Docstrings name their subject with a noun, constants carry their units, terms are those of docs/glossary.md."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = ("ir", "passes", "codegen", "runtime", *(f"frontend/static/{room}" for room in (
    "arrays", "compile", "follow", "gradients", "guards", "replay", "step", "trace", "verify")))
FOLDERS = ("ir", "passes", "codegen", "runtime", "frontend")
PAGES = ("README.md", "benchmarks/README.md", "docs/**/*.md")
PHRASES = ("what there is", "nobody", "somebody", "whoever", "who wants", "where there is none", "those that",
           "that which", "quicker", "quickest", "written out", "handed out", "given away", "let go", "make room",
           "side by side", "steps aside", "step aside", "stepped aside", "short cut")
PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
UNITS = frozenset("""
APPLICATIONS BACKWARDS BITS BLOCKS BUFFERS BYTES CALLS CHARACTERS CHOICES COLUMNS CYCLES DEPTH ELEMENTS EXPONENT FRAMES
FUNCTIONS GATHERS IMAGES INSTRUCTIONS ITEMS KINDS LANES LINES NODES OPERANDS OPERATIONS OUTPUTS PAIRS PANELS PARTS
PICOSECONDS POINTS POSITIONS PRODUCTS RADIANS RATIO READERS REASONS REGISTERS ROUNDS ROWS SCHEDULES SECOND SECONDS
SEGMENTS SHARE SIGNATURES STEPS STRUCTURES TAPS THREADS TRACES ULPS VECTORS WORDS WRITES
""".split())
# Numbers that are no quantities: numbers of mathematics, of formats, flags, positions in a record.
NO_QUANTITIES = {
    "frontend/static/follow/follow.py": {"_ONE", "_SAME", "_TWO"},
    "frontend/static/replay/ranks.py": {"_LEAF"},
    "frontend/static/step/straight_code.py": {"UNTRIED"},
    "frontend/static/trace/copies/kept.py": {"_WITHOUT_REFERENCES"},
    "frontend/static/trace/observer/lookup.py": {"_HEAP_TYPE"},
    "codegen/llvm/scalar/elementary.py": {"_HALF_PI_32", "_PI_A", "_PI_B", "_PI_C"},
    "codegen/llvm/data/gather.py": {"STATUS_SLOT"},
    "codegen/llvm/scalar/polynomials.py": {"*"},
    "codegen/llvm/scalar/powers.py": {"_LOG2E_HI", "_LOG2E_LO"},
    "codegen/llvm/data/twister.py": {"_LOWER", "_MATRIX", "_UPPER"},
    "codegen/llvm/contraction/winograd/phases.py": {"PHASES"},
    "passes/min_cut.py": {"INFINITE"},
    "ir/gelu.py": {"CUBE"},
    "ir/program.py": {"NO_INDEX"},
    "runtime/card/cublaslt.py": {"*"},
    "runtime/card/cudnn.py": {"LEAST_AXES", "MOST_AXES"},
    "runtime/card/probes.py": {"SHAPES", "_PLAIN"},
    "runtime/concurrency.py": {"NO_BARRIER"},
    "runtime/linker.py": {"_ABSOLUTE", "_ADDENDS", "_ALLOCATED", "_EMPTY", "_PC32", "_PC64", "_PLT32", "_RELOCATABLE",
                          "_SYMBOLS", "_THREADS", "_UNWINDING", "_WRITE", "_X86_64"},
    "runtime/memory.py": {"_LOADED", "_WRITABLE"},
    "runtime/pool_text.py": {"ARRIVED", "BUSY", "CALLER", "MOVED", "PATIENCE", "READY", "ROUND", "ROWS", "SLEEPING",
                             "SPIN", "STOP", "TABLE", "WORD", "WORKERS"},
    "runtime/prepared.py": {"_FAST_CALL", "_FLAGS", "_NO_ARGUMENTS"},
}


def files(folder: str) -> list[Path]:
    """The modules of a folder that are not left out."""
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no modules in {folder}"
    return found


@functools.cache
def docstrings(file: Path) -> list[tuple[str, str]]:
    """Each docstring of a module with its place."""
    named = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, named)]
    return [(f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text) for node in nodes
            if (text := ast.get_docstring(node))]


def comments(file: Path) -> Iterator[tuple[str, str]]:
    """Each comment of a module with its place."""
    for token in tokenize.generate_tokens(io.StringIO(file.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield f"{file.relative_to(ROOT)}:{token.start[0]}", token.string


def is_number(node: ast.expr) -> bool:
    """Whether an expression is made of literal numbers."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def constants(text: str) -> Iterator[tuple[str, str]]:
    """The names and values of the numeric constants of a module."""
    for node in ast.parse(text).body:
        target, value = (node.targets[0], node.value) if isinstance(node, ast.Assign) else (
            node.target, node.value) if isinstance(node, ast.AnnAssign) else (None, None)
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for name, number in pairs:
            if isinstance(name, ast.Name) and name.id.isupper() and number is not None and is_number(number):
                yield name.id, ast.unparse(number)


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_name_their_subject_with_a_noun(folder: str) -> None:
    wrong = [f"{place} {text.splitlines()[0]}" for file in files(folder) for place, text in docstrings(file)
             if re.match(r"(What|Those)\b", text) or len(re.findall(r"\bwhat\b", text, re.IGNORECASE)) > 1]
    assert wrong == []


@pytest.mark.parametrize("folder", COMPILER)
def test_verbs_of_docstrings_have_nouns_as_objects(folder: str) -> None:
    """Not "Return what a cell holds", but "Return the object in a cell"."""
    wrong = [f"{place} {text.splitlines()[0]}" for file in files(folder) for place, text in docstrings(file)
             if re.match(r"[A-Z]\w+ (?:back |a copy of )?what\b", text)]
    assert wrong == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_are_in_plain_english(folder: str) -> None:
    found = [file for file in files(folder) if PHRASE.search(" ".join(file.read_text("utf-8").split()))]
    wrong = [f"{place} {phrase!r}" for file in found for texts in (docstrings(file), comments(file))
             for place, text in texts for phrase in PHRASE.findall(" ".join(text.split()))]
    assert wrong == []


def test_pages_are_in_plain_english() -> None:
    pages = [file for pattern in PAGES for file in ROOT.glob(pattern)]
    assert {"limits.md", "README.md", "0024-cuda-kernels.md"} <= {file.name for file in pages}
    wrong = [f"{file.relative_to(ROOT)} {phrase!r}" for file in pages
             for phrase in PHRASE.findall(" ".join(file.read_text("utf-8").split()))]
    assert wrong == []


@pytest.mark.parametrize("folder", COMPILER)
def test_constants_carry_their_units(folder: str) -> None:
    wrong = []
    for file in files(folder):
        name = str(file.relative_to(ROOT))
        found, exempt = {each for each, _ in constants(file.read_text("utf-8"))}, NO_QUANTITIES.get(name, set())
        assert "*" in exempt or exempt <= found, f"no longer in {name}: {sorted(exempt - found)}"
        if "*" not in exempt:
            wrong += [f"{name} {each}" for each in found - exempt
                      if not UNITS.intersection(part.rpartition("_")[2] for part in each.split("_PER_"))]
    assert wrong == []


def test_a_name_of_a_constant_has_one_meaning() -> None:
    values: dict[str, dict[str, str]] = {}
    for file in (file for folder in COMPILER for file in files(folder)):
        for name, value in constants(file.read_text("utf-8")):
            values.setdefault(name, {})[str(file.relative_to(ROOT))] = value
    assert {name: found for name, found in values.items() if len(set(found.values())) > 1} == {}


@pytest.mark.parametrize(("text", "expected"), [
    ("A = 1 << 16", [("A", "1 << 16")]), ("A, _B = 2, -1.5", [("A", "2"), ("_B", "-1.5")]),
    ("A: Final = 3", [("A", "3")]), ("A = (1, 2)", [("A", "(1, 2)")]),
    ("A = True", []), ("A = 'b'", []), ("a = 1", []), ("A = f(1)", [])])
def test_constants_are_found(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(constants(text)) == expected


def test_the_glossary_has_each_term_once_with_its_module() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+) \| (.+) \| `(.+)` \|$", text, re.MULTILINE)
    terms = [term.lower() for term, _, _ in rows]
    assert len(terms) == text.count("\n|") - 2 > 30 and terms == sorted(set(terms))
    assert [f"{term}: {path}" for term, _, path in rows if not (ROOT / path).is_file()] == []
    assert "(glossary.md)" in (ROOT / "docs" / "architecture.md").read_text("utf-8")
