"""The whole replay of a call as straight-line Python: guards, binding, run and result in one function.

Each part of a replay is a function of its own (a short cut, the guards' ``check``, ``Arguments.run``), and for a
schedule of microseconds calling them takes as long as what they do. Here their usual ways are written out one after
the other; whatever is not as usual is left to them.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...configuration import Shared, config
from ...link.walk import Attributes
from ...tape import current, watched
from ...variable import Variable
from ..trees import MISS

if TYPE_CHECKING:
    from .schedule import Schedule

_NAMES: dict[str, Any] = {"config": config, "Shared": Shared, "Attributes": Attributes, "current": current,
                          "watched": watched, "MISS": MISS, "Variable": Variable, "new": Variable.__new__}


def quick_replay(schedule: Schedule, call: Any, first: int, modes: dict[str, Any], connected: bool,
                 slow: Callable[[tuple[Any, ...]], Any]) -> Callable[[tuple[Any, ...]], Any]:
    """Return what replays calls in the configuration of now on the frame of ``call``, or else lets ``slow`` do it.

    ``first`` arguments come before the arrays. ``slow`` itself is returned where there is no usual way.
    """
    ways = call.arguments.ways
    if ways is None:
        return slow
    checks = schedule.recording.checks
    condition, guards = checks.condition, checks.names or {}
    arrays = f"({', '.join(ways.given)},)"
    found = f"[{', '.join(ways.results)}]"
    if connected:
        result = [f"return connect(c, {arrays}, {found}, {arrays})"]
    elif schedule.simple:
        result = ["y = new(Variable)", f"y._array = {ways.results[0]}",
                  f"y._requires_grad = {schedule.recording.requires_grad[0]}", "give(c)", "return y"]
    else:
        result = [f"found = {found}", "give(c)", f"return tree(found, {arrays})"]
    # Guards call what they compare by h, v or d and a number, frames do not.
    names = {**guards, **ways.names, **_NAMES, "slow": slow, "modes": modes, "shared": Shared.version, "call": call,
             "check": schedule.check, "take": schedule.free.pop, "give": schedule.free.append,
             "connect": schedule.connect, "tree": schedule.tree}
    usual = ["Shared.version is shared", "not (current.__dict__ and watched())", *ways.tests]
    if condition:
        usual.append(condition)
    lines = [
        f"def make({', '.join(names)}):",
        "    known = None",
        "    def replay(args):",
        "        nonlocal known",
        "        try:",
        f"            {'_, ' * first}{', '.join(ways.given)}, = args",
        "            if config.__dict__ != modes: return MISS",
        f"            if not ({' and '.join(usual)}): return slow(args)",
        "            version = Attributes.version",
        "            if version is not known:",
        "                if check is not None and not check(): return MISS",
        "                known = version",
        "            c = take()",
        "        except Exception:",
        "            return slow(args)",
        f"        if c is not call or not ({' and '.join(ways.placed)}):",
        "            give(c)",
        "            return slow(args)",
        *(f"        {line}" for line in (*ways.owning, "frame.run()", *result)),
        "    return replay"]
    return _made("\n".join(lines))(**names)


@functools.lru_cache(maxsize=256)
def _made(text: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(text, scope)
    return scope["make"]
