"""What a page tells its reader: of the documentation what to type, of a report all words."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def blocks(page: str, language: str, section: str = "") -> list[str]:
    """The blocks of one language in ``docs/page``, in their order. Directives, which include other files, are none."""
    text = (DOCS / page).read_text()
    if section:
        (text,) = re.findall(rf"(?ms)^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(page: str, section: str = "") -> list[str]:
    """Return the lines of a page's shell blocks without comments; ``section``: only below this heading of the second level."""
    return [line for block in blocks(page, "sh", section) for line in block.splitlines() if line and not line.startswith("#")]


def head(page: str) -> dict[str, str]:
    """The items below the title of ``docs/page``, by their label: for whom it is, how long it takes, and so on."""
    (items,) = re.findall(r"(?m)\A# .+\n\n((?:- .+\n(?:  .+\n)*)+)\n", (DOCS / page).read_text("utf-8"))
    return dict(re.findall(r"(?m)^- \*\*(.+?)\*\*:? (.+)$", items))


@dataclass(frozen=True, order=True)
class Installed:
    """What a page's head says to install: quietmean with these extras, other packages, and whether in a clone."""

    extras: tuple[str, ...]
    others: tuple[str, ...]
    clone: bool


def installed(page: str) -> Installed | None:
    """Read the line that installs what ``docs/page`` needs; ``make demo`` is one, in a clone."""
    needed = head(page)["You need"]
    found = re.search(r"`pip install ([^`]+)`", needed)
    if found is None:
        return Installed(("report",), (), True) if "`make demo`" in needed else None
    first, *others = shlex.split(found[1])
    named = re.fullmatch(r"(PATH-OF-THE-WHEEL|\.)(?:\[([a-z0-9,-]+)\])?", first)
    assert named is not None, (page, first)
    return Installed(tuple(sorted((named[2] or "").split(","))) if named[2] else (), tuple(others), "in a clone" in needed)


def words_of(page: str) -> str:
    """What a reader sees, without markup."""
    seen: list[str] = []

    class Collector(HTMLParser):
        def handle_data(self, data: str) -> None:
            seen.append(data)

    Collector().feed(page)
    return " ".join(" ".join(seen).split())
