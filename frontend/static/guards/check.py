"""The test of all guards of a schedule, as one generated function."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...link.walk import Attributes
from .guard import TEST_NAMES, Elements, Guard, Names, SCALARS, shown


@dataclass(frozen=True)
class Checks:
    """The guards of a schedule. ``test`` says whether all hold, None where there are none.

    ``condition`` is the test of those that no version stands for, as text over ``names``.
    """

    guards: tuple[Guard, ...] = ()
    test: Callable[[], bool] | None = None
    condition: str = ""
    names: Names | None = None

    def changes(self) -> str:
        """Return a text that names the guards that do not hold now."""
        return ", ".join([_change(g) for g in self.guards if not g.holds()]) or "something"


def _change(guard: Guard) -> str:
    if isinstance(guard, Elements) or not isinstance(guard.value, SCALARS):
        return guard.what
    return f"{guard.what} ({guard.value!r} became {shown(guard.now())})"


def checks_of(guards: Sequence[Guard]) -> Checks:
    """Return the guards with their test."""
    if not guards:
        return Checks()
    names = Names(TEST_NAMES)
    names["Attributes"] = Attributes
    versioned = " and ".join([g.condition(names) for g in guards if g.versioned])
    others = " and ".join([g.condition(names) for g in guards if not g.versioned])
    lines = [f"def make({', '.join(names)}):", "    seen = None", "    def check():", "        nonlocal seen",
             "        try:"]
    if versioned:
        lines += ["            version = Attributes.version", "            if version is not seen:",
                  f"                if not ({versioned}): return False", "                seen = version"]
    lines += [f"            return {others or True}", "        except Exception:", "            return False",
              "    return check"]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    return Checks(tuple(guards), scope["make"](**names), others, names)
