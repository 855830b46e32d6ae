"""`Explanation`, the report that ``explain()`` returns: sections as data, from which text and HTML are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kusari.ir.drawing import escaped, preformatted, svg

SUMMARY, ALL = "summary", "all"
WORDS = (SUMMARY, "model", "ir", "plan", "kernels", ALL)
MARKS = ("", "== ", "-- ")  # before the title of a section, by its level
MOST_OPEN_LINES = 20        # of a section in HTML: longer ones are folded


@dataclass(frozen=True)
class Table:
    """Columns and rows of texts; columns of numbers are aligned to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _right(self, column: int) -> bool:
        return all(row[column].lstrip("<")[:1].isdigit() or row[column] in ("", "-") for row in self.rows)

    @property
    def lines(self) -> list[str]:
        """The table as text, a line per row."""
        every = [self.columns, *self.rows] if any(self.columns) else self.rows
        widths = [max((len(row[i]) for row in every), default=0) for i in range(len(self.columns))]
        right = [self._right(i) for i in range(len(self.columns))]
        return ["  " + "  ".join(cell.rjust(n) if r else cell.ljust(n) for cell, n, r in zip(
            row, widths, right, strict=True)).rstrip() for row in every]

    @property
    def html(self) -> str:
        """The table in HTML."""
        right = [self._right(i) for i in range(len(self.columns))]
        head = "".join(f"<th>{escaped(name)}</th>" for name in self.columns if any(self.columns))
        rows = [f"<tr>{head}</tr>"] * bool(head)
        rows += ["<tr>" + "".join(
            f'<td style="white-space: pre; text-align: {"right" if r else "left"}">{escaped(cell)}</td>'
            for cell, r in zip(row, right, strict=True)) + "</tr>" for row in self.rows]
        return f"<table>{''.join(rows)}</table>"


@dataclass(frozen=True)
class Section:
    """A title of some level with texts and tables; ``picture`` is a graph in the DOT language, drawn in HTML only."""

    level: int
    title: str
    content: tuple[str | Table, ...] = ()
    picture: str = ""

    @property
    def lines(self) -> list[str]:
        """The section as text, its title first."""
        content = [line for part in self.content for line in (part.lines if isinstance(part, Table) else [part])]
        return [MARKS[self.level] + self.title, *content]

    @property
    def html(self) -> str:
        """The section in HTML."""
        parts: list[str] = [svg(self.picture)] if self.picture else []
        texts: list[str] = []
        for part in (*self.content, None):
            if isinstance(part, str):
                texts.append(part)
                continue
            if texts:
                parts.append(preformatted("\n".join(texts)))
                texts = []
            if part is not None:
                parts.append(part.html)
        body, title = "".join(parts), escaped(self.title)
        if self.level == 2 and sum(line.count("\n") + 1 for line in self.lines) > MOST_OPEN_LINES:
            return f"<details><summary>{title}</summary>{body}</details>"
        return f"<h{self.level + 3}>{title}</h{self.level + 3}>{body}"


@dataclass(frozen=True, repr=False)
class Explanation:
    """A report: ``str()`` of it is text, at a prompt it shows as that, in a notebook as HTML of the same contents.

    Attributes:
        sections: Its sections in order.

    >>> print(Explanation((Section(0, "costs", (Table(("time", "of"), (("3 ms", "a"), ("12 ms", "b"))),)),)))
    costs
       time  of
       3 ms  a
      12 ms  b
    """

    sections: tuple[Section, ...]

    def __str__(self) -> str:
        return "\n\n".join("\n".join(section.lines) for section in self.sections)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f'<div class="kusari">{"".join(section.html for section in self.sections)}</div>'


def facts(title: str, rows: Sequence[tuple[str, object]], text: str = "") -> Section:
    """Return a section of names and values, and of a text."""
    table = Table(("", ""), tuple((name, str(value)) for name, value in rows))
    return Section(0, title, (table, text) if text else (table,))


def checked(what: str) -> str:
    """Return ``what``; raises ``ValueError`` where ``explain()`` does not know it."""
    if what not in WORDS:
        raise ValueError(f"explain() knows {', '.join(map(repr, WORDS))}, got {what!r}")
    return what


def asks_for(what: str, word: str) -> bool:
    """Whether a report called ``what`` has the part called ``word``; ``"all"`` has every part."""
    return what in (word, ALL)
