"""Object code on disk: compiled once per machine, read back in a fraction of a millisecond.

One file per kernel in a private directory. Every file carries a checksum of itself and its name; a file that does not
fit is ignored and replaced. Files are written under another name and renamed, so readers never see half of one. Nothing
here raises: without a usable directory the cache is empty and keeps nothing.
"""
from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kusari.ir import Facts

MAGIC = b"kusari-object-4\n"
PRUNE_WRITES = 512  # from one look at the directory's size to the next, on average
DEFAULT_LIMIT_BYTES = 512 << 20
_log = logging.getLogger("kusari.cache")
_said: list[object] = []


@dataclass(frozen=True)
class Entry:
    """The object code of one kernel and its facts.

    ``symbol`` is the code's entry point, ``needs`` the names it takes from the process. ``parts`` are objects that
    other kernels have as well, by the name of the function that each defines.
    """

    symbol: str
    code: bytes
    facts: Facts
    needs: tuple[str, ...] = ()
    parts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def default_directory(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return where object code is kept by default; None when ``KUSARI_CACHE=0`` turns the cache off."""
    if environ.get("KUSARI_CACHE", "1").strip().lower() in ("0", "off", "false", "no"):
        return None
    if chosen := environ.get("KUSARI_CACHE_DIR"):
        return Path(chosen).expanduser() / "kernels"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "kusari" / "kernels"


def _pack(key: str, entry: Entry) -> bytes:
    about = {"symbol": entry.symbol, "needs": entry.needs, "facts": asdict(entry.facts),
             "parts": {name: len(code) for name, code in entry.parts.items()}}
    head = json.dumps(about).encode()
    body = b"".join([len(head).to_bytes(4, "little"), head, *entry.parts.values(), entry.code])
    return MAGIC + _checksum(key, body) + body


def _checksum(key: str, body: bytes | memoryview) -> bytes:
    """A checksum by which ``body`` is whole and was kept under ``key``."""
    found = hashlib.sha256(key.encode())
    found.update(body)
    return found.digest()


def _unpack(key: str, data: bytes) -> Entry | None:
    start = len(MAGIC)
    body = memoryview(data)[start + 32:]
    if data[:start] != MAGIC or _checksum(key, body) != data[start:start + 32]:
        return None
    size = int.from_bytes(body[:4], "little")
    head = json.loads(bytes(body[4:4 + size]))
    at, parts = 4 + size, dict[str, bytes]()
    for name, length in head["parts"].items():
        parts[name] = bytes(body[at:at + length])
        at += length
    return Entry(head["symbol"], bytes(body[at:]), Facts(**head["facts"]), tuple(head["needs"]), parts)


@dataclass
class ObjectCache:
    """A directory of object code; ``directory`` None keeps nothing. ``limit`` is its size in bytes.

    Invariant: ``get`` returns an entry that some process ``put`` under that key, whole.
    """

    directory: Path | None
    limit: int = DEFAULT_LIMIT_BYTES
    hits: int = 0
    misses: int = 0
    _ready: bool | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls) -> ObjectCache:
        """The cache that ``KUSARI_CACHE``, ``KUSARI_CACHE_DIR`` and ``KUSARI_CACHE_SIZE`` (bytes) describe."""
        try:
            limit = int(os.environ.get("KUSARI_CACHE_SIZE", DEFAULT_LIMIT_BYTES))
        except ValueError:
            limit = DEFAULT_LIMIT_BYTES
        return cls(default_directory(), limit)

    def _usable(self) -> bool:
        """Whether the directory is ours alone: its contents are run."""
        if self._ready is None:
            self._ready = self.directory is not None and self._claim(self.directory)
        return self._ready

    def _claim(self, directory: Path) -> bool:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = directory.lstat()
        except OSError as error:
            _say(error)
            return False
        if not stat.S_ISDIR(facts.st_mode):
            _say(f"{directory} is not a directory")
            return False
        if hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):
            _say(f"{directory} must belong to this user and not be writable by others")
            return False
        return True

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / f"{key}.o"

    def has(self, key: str) -> bool:
        """Whether there is a file of that name; what is in it is seen by ``get``."""
        return self._usable() and self._path(key).exists()

    def get(self, key: str) -> Entry | None:
        """Return the entry kept under ``key``, or None."""
        entry = None
        if self._usable():
            path = self._path(key)
            try:
                data = _contents(path)
                entry = None if data is None else _unpack(key, data)
                if entry is None:
                    path.unlink()
            except (OSError, ValueError, KeyError, TypeError):
                entry = None
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
        return entry

    def put(self, key: str, entry: Entry) -> bool:
        """Keep ``entry`` under ``key``; return whether it was written."""
        if not self._usable():
            return False
        import tempfile  # not needed if everything is on the disk already
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix="new-")
            with os.fdopen(handle, "wb") as file:
                file.write(_pack(key, entry))
            os.replace(temporary, self._path(key))
        except OSError as error:
            _say(error)
            if temporary is not None:
                _remove(Path(temporary))
            return False
        # Looking at a hundred thousand files takes a second: one write in many does, in whatever process it happens.
        if int.from_bytes(os.urandom(4), "little") % PRUNE_WRITES == 0:
            self.prune()
        return True

    def discard(self, key: str) -> None:
        """Remove the entry kept under ``key``."""
        if self._usable():
            _remove(self._path(key))

    def prune(self) -> None:
        """Remove the oldest files until the directory is within its limit, down to nine tenths of it."""
        if not self._usable():
            return
        assert self.directory is not None
        files: list[tuple[float, int, Path]] = []
        try:
            with os.scandir(self.directory) as found:
                for item in found:
                    try:
                        facts = item.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    files.append((facts.st_mtime, facts.st_size, Path(item.path)))
        except OSError:
            return
        total = sum(size for _, size, _ in files)
        if total <= self.limit:
            return
        for _, size, path in sorted(files):
            _remove(path)
            total -= size
            if total <= self.limit * 0.9:
                return


def _contents(path: Path) -> bytes | None:
    """Return the bytes of a file; None of what is no file, as a pipe, at which reading would wait for a writer."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def _say(text: object) -> None:
    """Warn that the cache is of no use, once in a process."""
    if _said:
        _log.info("kernels are not kept on disk: %s", text)
    else:
        _said.append(text)
        _log.warning("kernels are not kept on disk, so that each process compiles its own: %s; KUSARI_CACHE_DIR "
                     "names another folder, KUSARI_CACHE=0 does without", text)


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass
