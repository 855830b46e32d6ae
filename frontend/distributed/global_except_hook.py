"""The end of all ranks where one of them fails: ``MPI_Abort`` after the traceback of an uncaught exception.

The package adds the hook where there are several ranks, as without it the others would wait for ever; before MPI runs
they wait for this one in ``MPI_Init``, and a launcher only ends them when it ends by a signal. A rank that a signal
like SIGSEGV ends prints its traceback, too (`faulthandler`).
``CHAINERMN_FORCE_ABORT_ON_EXCEPTION=1`` adds it at once, ``CHAINERMN_FORCE_ABORT_ON_EXCEPTION=0`` never.
"""
from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any

from .transport.channel import launched_ranks

__all__ = ["abort", "add_by_default", "add_hook"]

FORWARDING_SECONDS = 0.5  # for the launcher to pass on what was printed, before it ends all
_VARIABLE = "CHAINERMN_FORCE_ABORT_ON_EXCEPTION"
_state: dict[str, Any] = {"hook": None, "by default": False}


def _handle(kind: type[BaseException], value: BaseException, traceback: Any) -> None:
    """Show an exception as it would be shown, then end all ranks."""
    try:
        _state["hook"](kind, value, traceback)
    finally:
        abort()


def _handle_in_thread(given: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(given)
    if given.exc_type is not SystemExit:
        abort()


def abort() -> None:
    """End all ranks, if the hook has been added and MPI has not ended."""
    if _state["hook"] is None:
        return
    sys.stdout.flush()
    if "mpi4py.MPI" not in sys.modules:
        if launched_ranks() > 1:
            print("\nkusari.distributed: uncaught exception before MPI_Init(); SIGTERM ends all ranks.",
                  file=sys.stderr, flush=True)
            time.sleep(FORWARDING_SECONDS)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        return
    from mpi4py import MPI

    if not MPI.Is_initialized() or MPI.Is_finalized():
        return
    print(f"\nkusari.distributed: uncaught exception on rank {MPI.COMM_WORLD.rank}; MPI_Abort() ends all ranks.",
          file=sys.stderr, flush=True)
    time.sleep(FORWARDING_SECONDS)
    MPI.COMM_WORLD.Abort(1)


def _add() -> None:
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # signals that end a rank: the launcher names one of all that have ended
    _state["hook"] = sys.excepthook
    sys.excepthook = _handle
    threading.excepthook = _handle_in_thread


def add_hook() -> None:
    """End all ranks when this one ends by an exception; where ``create_communicator`` has not done so already.

    Warns:
        UserWarning: It was called before.
    """
    if _state["hook"] is None:
        _add()
    elif not _state["by default"]:
        warnings.warn("global_except_hook.add_hook() seems to be called multiple times. Ignoring.", stacklevel=2)
    _state["by default"] = False


def add_by_default() -> None:
    """Add the hook unless there is one, or the environment forbids it."""
    if _state["hook"] is None and os.environ.get(_VARIABLE) != "0":
        _add()
        _state["by default"] = True


def add_if_enabled() -> None:
    """Add the hook where the environment asks for it, and by default where a launcher has started several ranks."""
    asked = os.environ.get(_VARIABLE, "") or os.environ.get(f"{_VARIABLE}S", "")
    if asked not in ("", "0") and _state["hook"] is None:
        _add()
    elif launched_ranks() > 1:
        add_by_default()
