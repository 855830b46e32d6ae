"""Object code on disk: private, whole or absent, bounded, and never in the way."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kusari.runtime.cache as cache_module
from kusari.ir import Facts
from kusari.runtime.cache import Entry, ObjectCache, default_directory

ENTRY = Entry("symbol", bytes(range(256)) * 8, Facts("name", 64, 3, 5, True), ("expf",))
posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX")


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_said", [])


def file_of(cache: ObjectCache, key: str = "k") -> Path:
    assert cache.directory is not None
    return cache.directory / f"{key}.o"


def test_what_was_put_is_got(cache: ObjectCache) -> None:
    assert cache.get("k") is None
    assert cache.put("k", ENTRY)
    assert cache.get("k") == ENTRY
    assert ObjectCache(cache.directory).get("k") == ENTRY
    assert (cache.hits, cache.misses) == (1, 1)


@posix
def test_the_directory_is_private(cache: ObjectCache) -> None:
    cache.put("k", ENTRY)
    assert cache.directory is not None
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(cache).stat().st_mode) == 0o600
    assert [p.name for p in cache.directory.iterdir()] == ["k.o"]


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:20], lambda data: data[:-1], lambda data: data + b"x",
    lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], lambda data: b"another format\n" + data,
    lambda data: bytes(len(data)),
], ids=["empty", "head", "cut", "longer", "bit", "format", "zeros"])
def test_damaged_files_are_ignored_and_replaced(cache: ObjectCache, damage) -> None:
    cache.put("k", ENTRY)
    path = file_of(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("k") is None
    assert not path.exists()
    cache.put("k", ENTRY)
    assert cache.get("k") == ENTRY


def test_the_file_of_another_kernel_is_ignored(cache: ObjectCache) -> None:
    cache.put("k", ENTRY)
    cache.put("other", Entry("other", b"code", ENTRY.facts))
    os.replace(file_of(cache, "other"), file_of(cache))
    assert cache.get("k") is None


@posix
@pytest.mark.parametrize("make", [os.mkdir, getattr(os, "mkfifo", None)])
def test_no_file_in_the_place_of_one(cache: ObjectCache, make: Callable[[Path], None]) -> None:
    cache.put("k", ENTRY)
    file_of(cache).unlink()
    make(file_of(cache))
    assert cache.get("k") is None  # without waiting for a writer
    cache.put("k", ENTRY)


@posix
def test_a_cache_that_is_of_no_use_is_said_once(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    for _ in range(3):
        cache = ObjectCache(tmp_path / "file" / "kernels")
        assert not cache.put("k", ENTRY) and cache.get("k") is None
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "each process compiles its own" in record.getMessage() and "KUSARI_CACHE_DIR" in record.getMessage()


@posix
def test_a_directory_others_can_write_to_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    cache = ObjectCache(shared)
    with caplog.at_level(logging.WARNING, "kusari.cache"):
        assert not cache.put("k", ENTRY)
    assert "not be writable by others" in caplog.text
    assert list(shared.iterdir()) == []


@posix
def test_a_directory_of_somebody_else_is_refused(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put("k", ENTRY)
    monkeypatch.setattr(os, "getuid", lambda: 123456)
    assert ObjectCache(cache.directory).get("k") is None


@posix
def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert not ObjectCache(tmp_path / "link").put("k", ENTRY)


def test_no_directory_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file" / "kernels")
    assert not cache.put("k", ENTRY)
    assert cache.get("k") is None
    cache.discard("k")
    cache.prune()


def test_a_full_disk_leaves_nothing_behind(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put("k", ENTRY)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert not cache.put("other", ENTRY)
    assert cache.directory is not None
    assert [p.name for p in cache.directory.iterdir()] == ["k.o"]


def test_the_oldest_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "kernels", limit=12_000)
    for i in range(8):
        cache.put(f"k{i}", ENTRY)
        os.utime(file_of(cache, f"k{i}"), (i, i))
    cache.prune()
    left = [i for i in range(8) if cache.get(f"k{i}")]
    assert left == [4, 5, 6, 7]


def test_many_writers(cache: ObjectCache) -> None:
    seen: list[Entry | None] = []

    def work() -> None:
        own = ObjectCache(cache.directory)
        for _ in range(20):
            own.put("k", ENTRY)
            seen.append(own.get("k"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(seen) == 80 and all(e == ENTRY for e in seen)


@pytest.mark.parametrize(("environ", "expected"), [
    ({"KUSARI_CACHE": "0"}, None),
    ({"KUSARI_CACHE": "off", "KUSARI_CACHE_DIR": "/x"}, None),
    ({"KUSARI_CACHE_DIR": "/x"}, Path("/x/kernels")),
])
def test_where_it_is(environ: dict[str, str], expected: Path | None) -> None:
    assert default_directory(environ) == expected


def test_the_default_is_in_the_users_cache() -> None:
    found = default_directory({})
    assert found is not None and found.name == "kernels" and "kusari" in str(found).lower()


def test_a_size_that_is_no_number_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CACHE_SIZE", "much")
    assert ObjectCache.from_environment().limit > 1 << 20
