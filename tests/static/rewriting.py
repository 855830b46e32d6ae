"""An observer that does what Python does, and runs of functions with and without it."""
from __future__ import annotations

import builtins
import inspect
import linecache
import operator
import traceback
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from kusari.static.trace.rewrite import NoSource, Refused, rewritten

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
        if name in self._globals:
            return self._globals[name]
        try:
            return getattr(builtins, name)
        except AttributeError:
            raise NameError(f"name '{name}' is not defined") from None

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

    attr = staticmethod(getattr)
    set_attr = staticmethod(setattr)
    del_attr = staticmethod(delattr)
    item = staticmethod(operator.getitem)
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
    except (NoSource, Refused):
        return f


def seen_of(run: Callable[[], Any], log: list[Any], file: str) -> tuple[Any, ...]:
    """What a run returns or raises, with the lines of the traceback in ``file``, and what it has logged."""
    try:
        result = run()
        if inspect.isgenerator(result):
            result = list(result)
        return ("returned", repr(result), log)
    except Exception as error:
        lines: list[tuple[str, int | None]] = []
        for frame in traceback.extract_tb(error.__traceback__):
            where = (frame.name, frame.lineno)
            if frame.filename == file and where not in lines[-1:]:
                lines.append(where)
        return ("raised", type(error).__name__, str(error), repr(error.__cause__), repr(error.__context__), lines, log)


def load(text: str, file: str) -> dict[str, Any]:
    """Run a text as a module whose source is at hand; ``log`` is a list, ``say(x)`` logs and returns ``x``."""
    log: list[Any] = []

    def say(x: Any) -> Any:
        log.append(x)
        return x
    space: dict[str, Any] = {"__name__": "case", "log": log, "say": say}
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec", dont_inherit=True), space)
    return space
