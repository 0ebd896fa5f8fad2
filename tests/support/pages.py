"""What a page tells its reader: of the documentation what to type, of a report all words."""

from __future__ import annotations

import re
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


def words_of(page: str) -> str:
    """What a reader sees, without markup."""
    seen: list[str] = []

    class Collector(HTMLParser):
        def handle_data(self, data: str) -> None:
            seen.append(data)

    Collector().feed(page)
    return " ".join(" ".join(seen).split())
