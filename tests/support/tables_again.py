"""Documents of tables, read again: what a reader of Word, LaTeX, a page or a CSV file has before them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import docx

from quietmean.studies.outcome.tables import Line, tables_of, write_tables
from quietmean.studies.outcome.tables.documents import MADE_BY

Read = list[tuple[list[list[str]], list[str]]]


def read_word(path: Path) -> Read:
    """Of each table its rows of texts; and all paragraphs."""
    found = docx.Document(str(path))
    paragraphs = [one.text for one in found.paragraphs]
    return [([[cell.text for cell in row] for row in rows_of(table)], paragraphs) for table in found.tables]


def rows_of(table: Any) -> list[list[Any]]:
    """Looked up once: rows look all their cells up anew."""
    cells, count = table._cells, len(table.columns)
    return [cells[begin : begin + count] for begin in range(0, len(cells), count)]


class _Page(HTMLParser):
    """Tables, paragraphs, and every tag of a page; what is in a style is no text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[str]]] = []
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag in ("p", "caption"):
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        elif "p" in self.open or "caption" in self.open:
            self.texts[-1] += data


def read_page(path: Path) -> Read:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    assert page.open == []
    assert page.tags <= set(
        "html head meta title style body main h1 table caption thead tbody tr th td bdi sup p em".split()  # noqa: SIM905
    )
    return [(rows, page.texts) for rows in page.tables]


def read_csv(path: Path) -> Read:
    content = path.read_text(encoding="utf-8")
    assert content.startswith("\ufeff")
    rows = list(csv.reader(io.StringIO(content.removeprefix("\ufeff"), newline="")))
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row)
    blocks: list[list[list[str]]] = [[]]
    for row in rows:
        if row:
            blocks[-1].append([cell.removeprefix("'") for cell in row])
        else:
            blocks.append([])
    texts = [cell for row in rows for cell in row]
    assert blocks[-1] == [[MADE_BY]]
    # A title, the heads, and as many lines as have as many cells.
    return [([row for row in block[1:] if len(row) == len(block[1])], texts) for block in blocks[:-1]]


COMMANDS = {
    r"\textbackslash{}": "\\", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&", r"\#": "#", r"\%": "%", r"\_": "_",
    r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|",
    r"\textquotedbl{}": '"', r"\textasciigrave{}": "`", "{[}": "[", "{]}": "]", "-{}": "-", "$-$": "\u2212",
    r"\textendash{}": "\u2013", r"$\pm$": "\u00b1", r"$\infty$": "\u221e", r"$\leq$": "\u2264", r"$\geq$": "\u2265",
    r"\textsuperscript{2}": "\u00b2", r"$\varepsilon$": "\u03b5", r"$\delta$": "\u03b4", r"$\tau$": "\u03c4",
}  # fmt: skip
_COMMAND = re.compile("|".join(map(re.escape, sorted(COMMANDS, key=len, reverse=True))))
_MARK = re.compile(r"\\textsuperscript\{([a-z,]+)\}")
# What LaTeX would read as a command where a text is meant.
_SPECIAL = re.compile(r"[\\{}$&#%_^~]")


def of_latex(text: str) -> str:
    """What LaTeX prints; fails for anything in it that is no letter, and none of the commands for signs."""
    kept = _COMMAND.sub("", _MARK.sub("", text))
    assert not _SPECIAL.search(kept), kept
    assert "--" not in kept
    return _COMMAND.sub(lambda one: COMMANDS[one[0]], text)


def read_latex(path: Path) -> Read:
    content = path.read_text(encoding="utf-8")
    commented = [line for line in content.splitlines() if line.startswith("%")]
    assert commented[0] == f"% {MADE_BY}"
    bare = re.sub(r"\\[{}]", "", content)
    depth = 0
    for sign in bare:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert content.count(r"\begin{longtable}") == content.count(r"\end{longtable}")
    found = []
    for block in content.split(r"\begin{longtable}")[1:]:
        body, below = block.split(r"\end{longtable}")
        columns = re.match(r"\{(lr*)\}\n", body)
        assert columns is not None
        rows = []
        for line in body.splitlines():
            if line.endswith(r" \\") and not line.startswith("\\caption"):
                cells = re.split(r"(?<!\\)&", _MARK.sub("", line.removesuffix(r" \\")))
                assert len(cells) == len(columns[1])
                rows.append([of_latex(cell.strip()) for cell in cells])
        texts = [of_latex(_MARK.sub("", line.removesuffix(r"\par"))) for line in below.splitlines() if line.endswith(r"\par")]
        found.append((rows, texts))
    return found


READERS = {".docx": read_word, ".html": read_page, ".csv": read_csv, ".tex": read_latex}


def check(result: Mapping[str, Any], folder: Path, end: str) -> None:
    """The document says what the tables say, cell by cell and note by note."""
    path = folder / f"tables{end}"
    path.unlink(missing_ok=True)
    write_tables(result, path)
    tables, read = tables_of(result), READERS[end](path)
    assert len(read) == len(tables) >= len(result["statistics"])
    for table, (rows, texts) in zip(tables, read, strict=True):
        assert [[plain(cell) for cell in row[1:]] for row in rows] == [
            [plain(cell) for cell in cells[1:]] for cells in (table.heads, *(line.cells for line in table.lines))
        ]
        for row, line in zip(rows, (Line(table.heads), *table.lines), strict=True):
            assert plain(row[0]).startswith(plain(line.cells[0]))
        everything = "\n".join(map(plain, texts))
        for note in (*table.notes, *(text for _, text in table.footnotes)):
            assert plain(note) in everything


def plain(text: str) -> str:
    """Without the differences of spaces that formats have."""
    return " ".join(text.split())
