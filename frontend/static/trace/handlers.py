"""Handlers around what a traced call applies: code that sees an exception, and goes on or does more."""
from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from kusari.ir import TensorType, Value

from ...callsite import user_frame

_parse: Any = getattr(dis, "_parse_exception_table", None)  # from Python 3.11 on


def is_handled(inputs: Sequence[Value]) -> bool:
    """Whether code of the user's within the traced call has a handler, a clause of ``try``, where it is at work now.

    Asked of functions whose ``inputs`` have integers, which may be indices that are out of range.
    """
    if not any([isinstance(v.type, TensorType) and v.type.dtype.kind in "iu" for v in inputs]):
        return False
    frame: FrameType | None = user_frame()
    while frame is not None and frame.f_code.co_name != "call_traced":
        at = frame.f_lasti
        if not frame.f_globals.get("__name__", "").startswith("kusari.") and any(
                first <= at < end for first, end in _handled(frame.f_code)):
            return True
        frame = frame.f_back
    return False


@lru_cache(maxsize=1024)
def _handled(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return where in some code exceptions are handled; before Python 3.11 everywhere, if at all."""
    listed = list(dis.get_instructions(code))
    if _parse is None:
        return ((0, sys.maxsize),) * any(x.opname == "SETUP_FINALLY" for x in listed)
    names = {x.offset: (x.opname, after.opname) for x, after in pairwise(listed)}
    return tuple([(entry.start, entry.end) for entry in _parse(code)
                  if names[entry.target][0] == "PUSH_EXC_INFO" and names[entry.target][1] != "WITH_EXCEPT_START"])
