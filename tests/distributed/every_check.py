"""The checks of several modules in one start, for many ranks, which take long to start: ``every_check.py MODULE …``."""
from __future__ import annotations

import importlib
import sys

from mpi_ranks import run_all

if __name__ == "__main__":
    for name in sys.argv[1:]:
        run_all(vars(importlib.import_module(name)))
