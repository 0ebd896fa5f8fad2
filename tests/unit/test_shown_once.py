"""What is typed stands on one page: a block of commands that two pages show is changed on one of them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?:sh|toml|r|dockerfile|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def repeated(texts: dict[str, str]) -> dict[str, list[str]]:
    """Blocks that stand twice, with their pages."""
    places = defaultdict(list)
    for page, text in texts.items():
        for block in BLOCK.findall(text):
            places[block].append(page)
    return {block: pages for block, pages in places.items() if len(pages) > 1}


def test_no_block_stands_on_two_pages() -> None:
    shown = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES if "_build" not in page.parts}
    assert sum(len(BLOCK.findall(text)) for text in shown.values()) > 100
    assert repeated(shown) == {}


def test_a_block_that_is_copied_is_noticed() -> None:
    block = "```sh\nquietmean plan --parties 3\n```\n"
    assert repeated({"a.md": f"# A\n\n{block}", "b.md": f"# B\n\n{block}"}) == {"quietmean plan --parties 3\n": ["a.md", "b.md"]}
