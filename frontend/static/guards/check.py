"""The test of all guards of a schedule, as one generated function."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...link.namespace import Exposed, entries_of, is_exposed
from ...link.walk import Attributes, Modules
from .guard import SCALARS, TEST_NAMES, Elements, Guard, Names, shown

_VERSIONS: dict[str, type] = {"attributes": Attributes, "modules": Modules}


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


def _still_there(links: Sequence[Any]) -> Callable[[], bool]:
    """Return the test that links have the namespaces they have now; of exposed ones no version stays what it is."""
    found = [(weakref.ref(link), entries_of(link)) for link in links]

    def test() -> bool:
        for reference, entries in found:
            link = reference()
            if link is not None and is_exposed(link):
                if entries_of(link) is not entries:
                    return False
                Attributes.version = object()
        return True
    return test


def checks_of(guards: Sequence[Guard], links: Sequence[Any] = ()) -> Checks:
    """Return the guards with their test; ``links`` are those whose attributes are among them."""
    if not guards:
        return Checks()
    names = Names({**TEST_NAMES, **_VERSIONS, "Exposed": Exposed, "still_there": _still_there(links)})
    tests: dict[str | None, str] = {}
    for version in (*_VERSIONS, None):
        tests[version] = " and ".join([g.condition(names) for g in guards if g.versioned == version])
    seen = [version for version in _VERSIONS if tests[version]]
    lines = [f"def make({', '.join(names)}):", *(f"    seen_{v} = None" for v in seen), "    def check():",
             *(f"        nonlocal seen_{v}" for v in seen), "        try:"]
    for v in seen:
        lines += [f"            version = {v}.version", f"            if version is not seen_{v}:",
                  f"                if not ({tests[v]}): return False"]
        if v == "attributes" and links:
            lines.append("                if Exposed.ever and not still_there(): return False")
        lines.append(f"                seen_{v} = version")
    lines += [f"            return {tests[None] or True}", "        except Exception:", "            return False",
              "    return check"]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    return Checks(tuple(guards), scope["make"](**names), tests[None], names)
