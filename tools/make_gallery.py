"""Write docs/gallery.md and its pictures: ``python tools/make_gallery.py DIR``, after ``quietmean reproduce --all --out DIR``.

Figures that are not in DIR stay as they are on the page.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from page_figures import ending, without

from quietmean_reproduction.summary import OWN, heading

DOCS = Path(__file__).parent.parent / "docs"
NOTE = "Made by `quietmean reproduce --all` and `python tools/make_gallery.py`; see [how to](how-to/reproduce.md).\n"
_VERDICT = re.compile(r"\| (yes|\*\*no\*\*|–) \| (?:[^|\\]|\\.)*\|$", re.MULTILINE)


def main(source: Path) -> None:
    pictures, page = DOCS / "gallery", DOCS / "gallery.md"
    pictures.mkdir(exist_ok=True)
    for picture in sorted(source.glob("*.png")):
        shutil.copyfile(picture, pictures / picture.name)
    text = (source / "summary.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(([\w-]+\.png)\)", r"](gallery/\1)", text)
    # The numbers behind the pictures are made by the command, not kept here.
    text = re.sub(r"Numbers: \[[\w-]+\.csv\]\([\w-]+\.csv\), full size\.\n\n?", "", text)
    text = re.sub(r"Numbers: \[[\w-]+\.csv\]\([\w-]+\.csv\), (\w+) size\.", r"Drawn at \1 size.", text)
    sections = (sections_of(page.read_text(encoding="utf-8")) if page.exists() else {}) | sections_of(text)
    page.write_text(whole(sections) + ending("gallery.md"), encoding="utf-8")


def whole(sections: dict[str, str]) -> str:
    """The page of these figures, those of one paper together."""
    ordered = [sections[name] for name in sorted(sections, key=lambda name: (sections[name].splitlines()[2].split(".")[0], name))]
    tables = [re.split(rf"^\| {OWN} \|", one, flags=re.MULTILINE) for one in ordered]
    stated = [cell for table, *_ in tables for cell in _VERDICT.findall(table)]
    own = [cell for _, *checks in tables for table in checks for cell in _VERDICT.findall(table)]
    first, counted = heading(len(ordered), stated, own).split("\n", 1)
    return f"{first}\n\n{NOTE}{counted}\n" + "\n".join(ordered)


def sections_of(text: str) -> dict[str, str]:
    parts = re.split(r"^(?=## )", without(text), flags=re.MULTILINE)[1:]
    return {part.split(":")[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
