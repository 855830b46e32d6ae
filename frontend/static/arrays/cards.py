"""CuPy as the user's code applies it in a traced call: arrays of numbers are constants, all else is for functions.

Replays run no CuPy of the user's. So whatever looks at elements of an array of a card, or makes one of others, is a
reason to stay define-by-run; shapes and dtypes may be read, as they are part of the signature.
"""
from __future__ import annotations

import sys
from typing import Any

from ...backends.cuda import is_cupy_array

FREE = frozenset(("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "device", "__class__"))
_MAKING = frozenset(("zeros", "ones", "full", "arange", "eye", "identity", "linspace", "tri"))  # of numbers alone
_FREE_CALLS = (isinstance, len, type, issubclass, hasattr, id, getattr, setattr)
_READING = frozenset(("builtins", "math", "cmath", "operator", "_operator", "itertools"))


def is_of_cupy(f: Any) -> bool:
    """Whether a function, a class or an object that is called is one of CuPy's; False as long as it is not imported."""
    if "cupy" not in sys.modules:
        return False
    module = getattr(f, "__module__", None)
    module = module if isinstance(module, str) else type(f).__module__
    return module.partition(".")[0] in ("cupy", "cupyx")


def holds_card(tree: Any) -> bool:
    """Whether there is an array of a card among arguments."""
    if isinstance(tree, (tuple, list)):
        return any(map(holds_card, tree))
    return is_cupy_array(tree)


def reads(tape: Any, what: str, *operands: Any) -> bool:
    """Note a fault if one of some operands is an array of a card, whose elements ``what`` reads or writes."""
    if "cupy" not in sys.modules or not any(map(is_cupy_array, operands)):
        return False
    tape.note_at_user(f"{what} reads or writes elements of an array on a graphics card, which replays would not "
                      "do again; use functions instead (shapes and dtypes may be read freely), or do it outside the "
                      "static function")
    return True


def called(tape: Any, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of CuPy's: arrays that it makes of numbers are constants, anything else is a fault."""
    name = getattr(f, "__name__", type(f).__name__)
    made = f(*args, **kwargs)
    if not holds_card((args, tuple(kwargs.values()))) and name in _MAKING and is_cupy_array(made):
        tape.constants.add(made)
    elif not tape.observation.off:
        tape.note_at_user(f"cupy.{name} is called inside the static function, which replays would not do again; use "
                          "functions, or do it outside")
    return made


def refuses(tape: Any, f: Any, args: tuple[Any, ...]) -> None:
    """Note a fault where a function of Python's own is given an array of a card, unless it asks for its type only."""
    if getattr(f, "__module__", None) in _READING and f not in _FREE_CALLS:
        reads(tape, f"{f.__name__}()", *args)
