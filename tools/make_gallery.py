"""Write docs/gallery.md and its pictures: ``python tools/make_gallery.py DIR``, after ``quietmean reproduce --all --out DIR``."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def main(source: Path) -> None:
    pictures = DOCS / "gallery"
    pictures.mkdir(exist_ok=True)
    for picture in sorted(source.glob("*.png")):
        shutil.copyfile(picture, pictures / picture.name)
    text = (source / "summary.md").read_text()
    text = re.sub(r"\]\(([\w-]+\.png)\)", r"](gallery/\1)", text)
    # The numbers behind the pictures are made by the command, not kept here.
    text = re.sub(r"Numbers: \[[\w-]+\.csv\]\([\w-]+\.csv\), (\w+) size\.", r"Drawn at \1 size.", text)
    note = "Made by `quietmean reproduce --all` and `python tools/make_gallery.py`; see [how to](how-to/reproduce.md).\n"
    heading, rest = text.split("\n", 1)
    (DOCS / "gallery.md").write_text(f"{heading}\n\n{note}{rest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
