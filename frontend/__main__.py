"""``python -m kusari``: see :mod:`kusari.commands`."""

from __future__ import annotations

import sys

from .commands import main

if __name__ == "__main__":
    sys.exit(main())
