"""Digests of sources: any change of a file, its name or its folder gives another."""
from __future__ import annotations

from pathlib import Path

from kusari.ir.sources import digest_of_sources


def package(folder: Path, **files: str) -> str:
    for name, text in files.items():
        file = folder / f"{name.replace('_', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return str(folder / "a.py")


def test_other_sources_have_another_digest(tmp_path: Path) -> None:
    same = [digest_of_sources(package(tmp_path / name, a="1", b_c="2")) for name in ("first", "second")]
    other = [digest_of_sources(package(tmp_path / name, **files)) for name, files in {
        "content": {"a": "1", "b_c": "3"}, "name": {"a": "1", "b_d": "2"}, "place": {"a": "1", "c": "2"},
        "more": {"a": "1", "b_c": "2", "d": ""}, "fewer": {"a": "1"}}.items()]
    assert same[0] == same[1]
    assert len({*same, *other}) == 6


def test_what_is_not_source_does_not_count(tmp_path: Path) -> None:
    found = [package(tmp_path / name, a="1") for name in ("without", "with")]
    (tmp_path / "with" / "__pycache__").mkdir()
    (tmp_path / "with" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    (tmp_path / "with" / "notes.txt").write_bytes(b"x")
    assert digest_of_sources(found[0]) == digest_of_sources(found[1])
