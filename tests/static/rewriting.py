"""An observer that does what Python does, and runs of functions with and without it."""
from __future__ import annotations

import builtins
import inspect
import linecache
import operator
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from static import rewriting_expressions, rewriting_statements

from kusari.static.trace.copies.instrument import CannotRewrite, NoSource, rewritten

UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "is": operator.is_, "is not": operator.is_not, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b}
BINARY = {"+": (operator.add, operator.iadd), "-": (operator.sub, operator.isub), "*": (operator.mul, operator.imul),
          "@": (operator.matmul, operator.imatmul), "/": (operator.truediv, operator.itruediv),
          "%": (operator.mod, operator.imod), "**": (operator.pow, operator.ipow),
          "<<": (operator.lshift, operator.ilshift), ">>": (operator.rshift, operator.irshift),
          "|": (operator.or_, operator.ior), "^": (operator.xor, operator.ixor), "&": (operator.and_, operator.iand),
          "//": (operator.floordiv, operator.ifloordiv)}
CONVERSIONS: dict[str, Callable[[Any], Any]] = {"": lambda x: x, "r": repr, "s": str, "a": ascii}


class Plain:
    """Does what Python does. Functions it calls are rewritten, too; ``hooks`` are the methods that were called."""

    def __init__(self, module_globals: dict[str, Any], hooks: list[str] | None = None) -> None:
        self._globals = module_globals
        self._hooks = [] if hooks is None else hooks

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._hooks.append(name)
        return object.__getattribute__(self, name)

    def name(self, name: str) -> Any:
        for space in (self._globals, vars(builtins)):
            if name in space:
                return space[name]
        raise NameError(f"name '{name}' is not defined")

    def set_name(self, name: str, value: Any) -> None:
        self._globals[name] = value

    def del_name(self, name: str) -> None:
        if name not in self._globals:
            raise NameError(f"name '{name}' is not defined")
        del self._globals[name]

    def cell(self, name: str, value: Any) -> Any:
        return value

    set_cell = cell

    def del_cell(self, name: str) -> None:
        pass

    def new(self, made: Any) -> Any:
        return made

    attr = counted_attr = staticmethod(getattr)
    set_attr = staticmethod(setattr)
    del_attr = staticmethod(delattr)
    item = counted_item = staticmethod(operator.getitem)
    set_item = staticmethod(operator.setitem)
    del_item = staticmethod(operator.delitem)
    slice = slice
    super = super
    truth = bool

    def binary(self, op: str, a: Any, b: Any) -> Any:
        return BINARY[op][0](a, b)

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        return BINARY[op][1](a, b)

    def unary(self, op: str, a: Any) -> Any:
        return UNARY[op](a)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        return COMPARE[op](a, b)

    def operand(self, x: Any) -> Any:
        return x

    seen = iterate = mapping = generator = function = manager = operand

    def subject(self, x: Any, names: tuple[str, ...]) -> Any:
        assert all(isinstance(name, str) for name in names)
        return x

    def format(self, x: Any, how: str, spec: str) -> str:
        return builtins.format(CONVERSIONS[how](x), spec)

    def decorator(self, f: Any) -> Any:
        return lambda g: self.call(f, g)

    def importing(self) -> None:
        pass

    importing_done = importing

    def imported(self, name: str, level: int) -> None:
        assert isinstance(name, str) and level == 0

    def imported_from(self, module: str, level: int, name: str, value: Any) -> None:
        assert isinstance(module, str) and isinstance(level, int) and isinstance(name, str)

    def call(self, f: Any, /, *args: Any, **kwargs: Any) -> Any:
        if f is globals:
            return self._globals
        if type(f) is MethodType:
            return self.call(f.__func__, f.__self__, *args, **kwargs)
        if type(f) is FunctionType:
            f = copied(f, self._hooks)
        elif type(f) is type and f.__new__ is object.__new__ and type(f.__init__) is FunctionType:
            made = object.__new__(f)
            self.call(f.__init__, made, *args, **kwargs)
            return made
        return f(*args, **kwargs)


def copied(f: FunctionType, hooks: list[str] | None = None) -> FunctionType:
    """The rewritten function, or the function itself where it is refused."""
    try:
        return rewritten(f.__code__, f.__globals__).make(f, Plain(f.__globals__, hooks))
    except (NoSource, CannotRewrite):
        return f


def seen_of(run: Callable[[], Any], log: list[Any], file: str) -> tuple[Any, ...]:
    """What a run returns or raises, with the lines of the traceback in ``file``, and what it has logged."""
    try:
        result = run()
        if inspect.isgenerator(result):
            result = list(result)
        return ("returned", *_texts(result, log))
    except Exception as error:
        lines: list[tuple[str, int | None]] = []
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == file:
                lines.append((frame.name, frame.lineno))
        return ("raised", *_texts(error, str(error), error.__cause__, error.__context__, lines, log))


def _texts(*values: Any) -> list[str]:
    return [re.sub(" at 0x[0-9a-f]*", "", repr(x)) for x in values]


class Loud:
    """Logs everything that is done to it, and is false where its name ends with 0."""

    def __init__(self, name: str, log: list[Any]) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_log", log)

    def _did(self, what: str) -> Loud:
        self._log.append(f"{self._name}{what}")
        return Loud(f"{self._name}{what}", self._log)

    def __repr__(self) -> str:
        return self._name

    def __bool__(self) -> bool:
        self._did(" bool")
        return not self._name.endswith("0")

    def __iter__(self) -> Any:
        self._did(" iter")
        return iter([self._did(f"<{i}>") for i in range(2)])

    def __enter__(self) -> Loud:
        return self._did(" enter")

    def __exit__(self, kind: Any, *rest: object) -> bool:
        self._did(f" exit {kind and kind.__name__}")
        return self._name.startswith("quiet")

    def __setattr__(self, name: str, value: Any) -> None:
        self._did(f".{name} = {value!r}")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._did(f"[{key!r}] = {value!r}")

    def __format__(self, spec: str) -> str:
        return repr(self._did(f":{spec}"))

    def __call__(self, *args: Any, **kwargs: Any) -> Loud:
        return self._did(f"{args!r}{kwargs!r}")

    def __contains__(self, x: Any) -> bool:
        self._did(f" has {x!r}")
        return False

    def __hash__(self) -> int:
        self._did(" hash")
        return hash(self._name)

    def keys(self) -> list[str]:
        self._did(" keys")
        return ["one", "two"]


def _logging(name: str) -> Any:
    return lambda self, *args: self._did(f" {name} {args!r}")


for _name in ("getattr delattr getitem delitem add radd sub mul matmul truediv mod pow lshift rshift or xor and "
              "floordiv iadd imul imatmul neg pos invert eq ne lt le gt ge").split():
    setattr(Loud, f"__{_name}__", _logging(_name))


def load(text: str, file: str) -> dict[str, Any]:
    """Run a text as a module whose source is at hand; ``log`` is a list, ``say(x)`` logs and returns ``x``.

    ``loud("x")`` makes an object that logs all that is done to it.
    """
    log: list[Any] = []

    def say(x: Any) -> Any:
        log.append(repr(x))
        return x
    space: dict[str, Any] = {"__name__": "case", "log": log, "say": say, "loud": lambda name: Loud(name, log)}
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, file, "exec", dont_inherit=True), space)
    return space


CASES: dict[str, str] = {}
for _part in (rewriting_expressions.TEXT + rewriting_statements.TEXT).split("\n# ")[1:]:
    _name, _, _code = _part.partition("\n")
    _needs = re.search(r"\(3\.(\d+)\)$", _name)  # what only newer Pythons have says so
    if _needs is None or sys.version_info >= (3, int(_needs[1])):
        CASES[_name] = f"{_code}\n"
