"""Random programs with state, each run static and define-by-run: ``python tests/static/programs.py 1000 [first]``.

A program is the source text of a module with globals, closures, helpers, classes and a model, whose static ``forward``
reads and stores a mixture of them, and of changes that happen between calls. A seed is one program for ever, as long as
the lists in ``program_parts.py`` stay as they are.
"""
from __future__ import annotations

import linecache
import os
import random
import re
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from static.observed.harness import Run, difference
from static.program_parts import KINDS, RARE_STATEMENTS, RESULTS, STATEMENTS

CALLS = 6
VALUES = ("0.5", "1.0", "1.5", "2.0", "-1.0")
WORDS = ("a", "b", "c")
FUNCTIONS = ("F.relu", "F.tanh", "F.sigmoid", "F.softplus")
OPTIMIZERS = ("SGD(0.05)", "MomentumSGD(0.02)", "SGD(0.1)")
HEAD = """from __future__ import annotations
import argparse, collections, contextvars, dataclasses, enum, fractions, functools, itertools, operator, random
import threading, types, warnings, weakref
import numpy as np
import kusari
import kusari.functions as F
import kusari.links as L
NAMES = {'a': 'relu', 'b': 'tanh', 'c': 'sigmoid'}
Point = collections.namedtuple('Point', 'a b')
class Mode(enum.Enum):
    A = 1.0
    B = 2.0
@dataclasses.dataclass
class Data:
    k: float
    many: list
    def __float__(self):
        return self.k
class Shared:
    k = 1.0
SHARED = Shared()
def raise_if(condition, text):
    if condition:
        raise ValueError(text)
"""


@dataclass(frozen=True)
class Spec:
    """A program.

    Attributes:
        places: Kinds of places that hold state, by their numbers.
        bodies: Statements of ``forward`` and of what it calls, by name.
        changes: What happens before the call of a number.
        modes: For each call whether it is followed by a backward and by an update, or is a whole step.
    """

    seed: int
    places: tuple[tuple[int, str, tuple[str, ...]], ...]
    bodies: tuple[tuple[str, tuple[str, ...]], ...]
    changes: tuple[tuple[int, str], ...]
    modes: tuple[str, ...]
    result: str
    optimizer: str

    def source(self) -> str:
        """Return the text of the module."""
        sections: dict[str, list[str]] = {"module": [], "make": [], "of_class": [], "init": []}
        for _, _, texts in self.places:
            for section, text in zip(sections, texts, strict=True):
                sections[section].append(text)
        bodies = dict(self.bodies)
        of_module = [_function(n, "h, x", body) for n, body in bodies.items() if n.startswith("helper_")]
        of_class = [_function(n, "self, h, x", body) for n, body in bodies.items() if n.startswith("method_")]
        forward = _function("forward", "self, x", ("h = self.first(x)", *bodies["forward"]), self.result)
        lines = [
            HEAD, *sections["module"], *of_module, "def make(decorate):", *_indented(sections["make"], 1),
            "    class Model(kusari.Chain):", *_indented(sections["of_class"], 2),
            "        def __init__(self):", "            super().__init__()", "            with self.init_scope():",
            "                self.first, self.second = L.Linear(4, 4), L.Linear(4, 4)", *_indented(sections["init"], 3),
            *_indented(of_class, 2), "        @decorate", *_indented([forward], 2),
            "        @decorate", "        def loss(self, x):", "            y = self.forward(x)",
            "            while not isinstance(y, kusari.Variable):",
            "                y = y['h'] if isinstance(y, dict) else y[0]", "            return F.sum(F.arctan(y))",
            "    model = Model()", f"    optimizer = kusari.optimizers.{self.optimizer}.setup(model)",
            *(f"    held{n}.append(optimizer)" for n, kind, _ in self.places if kind == "optimizer"),
            "    def change(i):",
            *(line for i, text in self.changes for line in (f"        if i == {i}:", *_indented([text], 3))),
            "        return None", f"    names = {self._names()!r}", "    def state():",
            "        kept = {k: v for k, v in model.__getstate__().items() if k[:1] != '_' and k[:3] != 'opt'}",
            "        return [{k: globals()[k] for k in names if k in globals()}, kept, vars(Model).copy(),",
            f"                [{', '.join(self._closures())}]]",
            "    return model, optimizer, change, state"]
        return "\n".join(lines) + "\n"

    def _names(self) -> list[str]:
        found = (re.findall(r"^([A-Z])\d+ = ", texts[0], re.M) for _, _, texts in self.places)
        return [f"{name}{n}" for (n, _, _), names in zip(self.places, found, strict=True)
                for name in names if name in "GTSDPNOEQXBV"]

    def _closures(self) -> list[str]:
        return [name for _, kind, texts in self.places if kind.startswith("closure")
                for name in re.findall(r"^(\w+) = ", texts[1], re.M)]


def _indented(texts: Any, levels: int) -> Iterator[str]:
    for text in texts:
        for line in text.splitlines():
            yield "    " * levels + line


def _function(name: str, arguments: str, body: tuple[str, ...], result: str = "h") -> str:
    return "\n".join([f"def {name}({arguments}):", *_indented(body, 1), f"    return {result}"])


class _Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rs = random.Random(seed)
        self.rare = self.rs.random() < 0.25  # whether it does what replays cannot repeat
        names = self.rs.sample(list(KINDS), self.rs.choice((2, 3, 3, 4, 5)))
        self.places = [(i, name, KINDS[name]) for i, name in enumerate(names)]

    def fill(self, text: str, number: int | None = None) -> str:
        """Put values in place of ``$v``, ``$w`` and ``$f``, and a place's number."""
        text = text if number is None else re.sub(r"(?<=\S)@", str(number), text)
        return re.sub(r"\$[vwf]", lambda m: self.rs.choice({"$v": VALUES, "$w": WORDS, "$f": FUNCTIONS}[m[0]]), text)

    def read(self, of: str, scope: str) -> str | None:
        """Return a read of some place: ``reads``, ``conditions``, ``functions`` or ``stores``, if there is one."""
        found = []
        for i, _, kind in self.places:
            if scope == "helper" and not kind.everywhere:
                continue
            texts = getattr(kind, of)
            if self.rare and self.rs.random() < 0.3:
                texts = {"reads": kind.rare, "stores": kind.rare_stores}.get(of, ()) or texts
            if texts:
                found.append((i, self.rs.choice(texts)))
        if not found:
            return None
        i, text = self.rs.choice(found)
        return self.put(self.fill(text, i), scope)

    def put(self, text: str, scope: str) -> str:
        """Put reads in place of ``$e``, ``$b`` and ``$g``."""
        def number(_: Any) -> str:
            return self.read("reads", scope) or self.rs.choice(VALUES)

        def condition(_: Any) -> str:
            found = self.read("conditions", scope) if self.rs.random() < 0.7 else None
            return f"({found})" if found else f"({number(_)} > 1.0)"

        text = re.sub(r"\$e", number, text)
        text = re.sub(r"\$b", condition, text)
        return re.sub(r"\$g", lambda _: self.read("functions", scope) or self.rs.choice(FUNCTIONS), text)

    def body(self, scope: str, length: int) -> tuple[str, ...]:
        lines = []
        for _ in range(length):
            text = self.read("stores", scope) if self.rs.random() < 0.2 else None
            if text is None:
                pool = RARE_STATEMENTS if self.rare and self.rs.random() < 0.1 else STATEMENTS
                text = self.rs.choice([s for s in pool if scope != "helper" or "self" not in s])
            lines.append(self.put(self.fill(text), scope))
        return tuple(lines)

    def write(self) -> Spec:
        rs = self.rs
        places = tuple((i, name, tuple(self.fill(t, i) for t in (kind.module, kind.make, kind.of_class, kind.init)))
                       for i, name, kind in self.places)
        bodies: dict[str, tuple[str, ...]] = {}
        calls = []
        if rs.random() < 0.5:
            bodies["helper_a"] = self.body("helper", rs.randint(1, 2))
            calls.append("h = helper_a(h, x)")
        if rs.random() < 0.5:
            bodies["method_b"] = self.body("method", rs.randint(1, 2))
            calls.append("h = self.method_b(h, x)")
        forward = [*self.body("forward", rs.randint(2, 5)), *calls]
        rs.shuffle(forward)
        bodies["forward"] = tuple(forward)
        at = rs.sample(range(1, CALLS), rs.choice((1, 2, 2, 3)))
        changes = [(i, self.change()) for i in sorted(at) for _ in range(rs.choice((1, 1, 2)))]
        modes = rs.choice((("update",) * CALLS, ("backward",) * CALLS, ("step",) * CALLS, ("forward",) * CALLS,
                           tuple(rs.choice(("update", "backward", "step", "forward")) for _ in range(CALLS))))
        result = self.put(self.fill(rs.choice(RESULTS)), "forward")
        return Spec(self.seed, places, tuple(bodies.items()), tuple(changes), modes, result, rs.choice(OPTIMIZERS))

    def change(self) -> str:
        i, kind = self.rs.choice([(i, kind) for i, _, kind in self.places if kind.changes])
        return self.fill(self.rs.choice(kind.changes), i)


def generate(seed: int) -> Spec:
    """Return the program of a seed."""
    return _Writer(seed).write()


class _Module:
    """A program as ``Run`` takes it: each run executes the module anew."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.name = self.__module__ = f"program_{spec.seed}"
        sys.modules[self.name] = types.ModuleType(self.name)
        text, file = spec.source(), f"{self.name}.py"
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        self.code = compile(text, file, "exec")

    def __call__(self, decorate: Any) -> Any:
        module = sys.modules[self.name]
        exec(self.code, vars(module))
        model, optimizer, change, state = module.make(decorate)

        def call(i: int, x: Any) -> Any:
            change(i)
            mode = self.spec.modes[i]
            if mode == "step":
                optimizer.update(model.loss, x)
                return "step", optimizer.t, model, state()
            y = model(x)
            if mode != "forward":
                model.cleargrads()
                _loss(y).backward()
            if mode == "update":
                optimizer.update()
            return y, optimizer.t, model, state()
        return call


def _loss(y: Any) -> Any:
    import kusari.functions as F
    from kusari import Variable
    while not isinstance(y, Variable):
        y = y["h"] if isinstance(y, dict) else y[0]
    return F.sum(F.arctan(y))


@dataclass(frozen=True)
class Outcome:
    """Whether a program is ``equal``, and whether it ``replays``, ``falls back`` or neither; or what ``differs``."""

    verdict: str
    text: str = ""


def compare(spec: Spec, tolerance: float = 1e-4) -> Outcome:
    """Run a program both ways."""
    from kusari import static_graph
    module = _Module(spec)
    try:
        plain, static = (Run(module, decorate, CALLS) for decorate in (lambda f: f, static_graph))
    finally:
        linecache.cache.pop(f"{module.name}.py", None)
        sys.modules.pop(module.name, None)
    for i, (a, b) in enumerate(zip(plain.calls, static.calls, strict=True)):
        found = difference(a, b, tolerance)
        if found is not None:
            return Outcome("differs", f"call {i}: {found} {static.aside}")
    return Outcome("falls back" if static.aside else "replays" if static.replays else "neither")


def _smaller(spec: Spec) -> Iterator[Spec]:
    """Yield programs with one part less, or a simpler one."""
    for i in range(len(spec.changes)):
        yield replace(spec, changes=spec.changes[:i] + spec.changes[i + 1:])
    bodies = dict(spec.bodies)
    for name, body in bodies.items():
        for i in range(len(body)):
            yield replace(spec, bodies=tuple({**bodies, name: body[:i] + body[i + 1:]}.items()))
            for line in _simpler(body[i]):
                yield replace(spec, bodies=tuple({**bodies, name: (*body[:i], line, *body[i + 1:])}.items()))
        if name != "forward" and not any(name in line for line in bodies["forward"]):
            yield replace(spec, bodies=tuple((n, b) for n, b in spec.bodies if n != name))
    for i in range(len(spec.places)):
        yield replace(spec, places=spec.places[:i] + spec.places[i + 1:])
    if spec.result != "h":
        yield replace(spec, result="h")
    for mode in ("forward", "backward"):
        if spec.modes != (mode,) * CALLS and spec.modes != ("forward",) * CALLS:
            yield replace(spec, modes=(mode,) * CALLS)


def _simpler(line: str) -> Iterator[str]:
    """Yield statements with less in them: one branch, or a product with one of the numbers that are read."""
    if "\n" in line:
        for inner in re.findall(r"^ {4}(\S.*)$", line, re.M):
            if "k" not in re.split(r"\W", inner):
                yield inner
    condition = re.match(r"(?:if|h = .* if) \(?(.*?)\)?(?: else .*|:)$", line.split("\n")[0])
    if condition and line != f"h = h * 2.0 if {condition[1]} else F.tanh(h)":
        yield f"h = h * 2.0 if {condition[1]} else F.tanh(h)"


def shrink(spec: Spec) -> Spec:
    """Drop statements, changes and places as long as what is left still differs, and no name is missing."""
    while True:
        for smaller in _smaller(spec):
            try:
                outcome = compare(smaller)
            except (SyntaxError, NameError, AttributeError):
                continue
            if outcome.verdict == "differs" and not re.search("NameError|AttributeError", outcome.text):
                spec = smaller
                break
        else:
            return spec


def report(spec: Spec) -> str:
    """Return the seed, what differs and the text of a program without what all have."""
    return f"seed {spec.seed}: {compare(spec).text[:400]}\n{spec.modes}\n{spec.source()[len(HEAD):]}"


def check(seed: int) -> str:
    """Check one program; returns the verdict, raises ``AssertionError`` with all that is needed to look into it."""
    outcome = compare(generate(seed))
    if outcome.verdict == "differs":
        raise AssertionError(f"the program of seed {seed} differs (`python tests/static/programs.py 1 {seed}` shows "
                             f"it): {outcome.text[:300]}")
    return outcome.verdict


def main(arguments: list[str]) -> int:
    """Check so many programs from a first seed on."""
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    counts: dict[str, int] = {}
    start = time.perf_counter()
    for seed in range(first, first + count):
        outcome = compare(generate(seed))
        counts[outcome.verdict] = counts.get(outcome.verdict, 0) + 1
        if outcome.verdict == "differs":
            text = outcome.text[:300] if os.environ.get("PROGRAMS_BRIEF") else report(shrink(generate(seed)))
            print(f"-- seed {seed}\n{text}", flush=True)
    seconds = time.perf_counter() - start
    equal = count - counts.get("differs", 0)
    print(f"{count} programs in {seconds:.1f} s: {equal} equal; {counts}")
    return 1 if counts.get("differs") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
