"""What a page of the documentation tells its reader to type."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The blocks of one language in ``docs/page``, in their order. Directives, which include other files, are none."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """The lines of its shell blocks."""
    return [line for block in blocks(page, "sh") for line in block.splitlines() if line]
