"""Files that appear whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[str]:
    """Context that gives a temporary path next to ``path`` and moves what was written there to ``path``.

    When the block raises, ``path`` is as it was and nothing is left behind.
    """
    path = os.fspath(path)
    directory = os.path.dirname(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix="partial-", dir=directory, ignore_cleanup_errors=True) as folder:
        temporary = os.path.join(folder, os.path.basename(path))
        yield temporary
        os.replace(temporary, path)
