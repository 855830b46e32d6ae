"""The call that is traced: the user's code runs once, on what stands for the arguments."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..configuration import config
from ..link.walk import Attributes
from . import random_state
from .given import Given, GivenArray, plain
from .guards import Watch
from .names import noticed
from .reach import MISSING
from .tape import Tape, recording


def call_traced(fn: Callable[..., Any], tape: Tape, watch: Watch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``fn`` under ``tape`` and return its result, or raise what it raises."""
    where = watch.asks_type
    if where is not None:
        tape.note("the type of an argument may be compared, and it is another while a call is traced; use isinstance()",
                  where)
        return fn(*args, **kwargs)
    random = random_state.complete()
    settings = dict(vars(config))
    with recording(tape), noticed():
        given = Given()
        try:
            result = plain(fn(*given(args), **given(kwargs)))
        except Exception as error:
            if not _refused(error, tape) or given.changed() or tape.has_effects or not watch.undo():
                raise
            tape.note(f"code in another language does not take what stands for an array ({error})", watch.where)
        else:
            if given.changed():
                tape.note("a list or dictionary that is an argument changes, which replays cannot repeat", watch.where)
            if settings != (now := dict(vars(config))):
                name = next(k for k in {**settings, **now} if settings.get(k, MISSING) != now.get(k, MISSING))
                tape.note(f"config.{name} changes inside the static function, which replays cannot repeat; use "
                          "using_config", watch.where)
            return result
    random_state.put(random)
    tape.restore_contents()
    Attributes.version = object()
    return fn(*args, **kwargs)


def _refused(error: Exception, tape: Tape) -> bool:
    """Whether an error may have come from code that looked for the memory of an array, or wanted to write there."""
    text = str(error)
    return type(error) in (TypeError, BufferError) or GivenArray.__name__ in text or (
        bool(tape.made_arrays.known) and any(w in text for w in ("read-only", "readonly", "writable", "writeable")))
