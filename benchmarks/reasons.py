"""A plugin of pytest's that prints why a test fails as soon as it does: a run that is stopped tells it, too."""

from __future__ import annotations

import os
from typing import Any


def pytest_runtest_logreport(report: Any) -> None:
    """Print the message of a failure, in one line."""
    if report.failed:
        tell(report.nodeid, report.longrepr)


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be imported is a failure, too."""
    if report.failed:
        print(f"\n{report.nodeid}::collection ERROR", end="")
        tell(f"{report.nodeid}::collection", report.longrepr)


def tell(name: str, longrepr: Any) -> None:
    """Print the first line of a message, or the last one of a traceback, and its place."""
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        message, place = crash.message.strip().partition("\n")[0], f" ({os.path.basename(crash.path)}:{crash.lineno})"
    else:
        message, place = (str(longrepr).strip().splitlines() or [""])[-1], ""
    print(f"\nbecause {name} :: {message[:240]}{place}", flush=True)
