"""Write docs/measurements/gallery.md and its pictures from the rows in docs/gallery: ``python tools/make_gallery.py``.

``python tools/make_gallery.py DIR COMMIT`` copies the rows first that ``quietmean reproduce --full --out DIR`` computed, with the
code of COMMIT. A figure without rows stays as it is, and the page names it.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from page_figures import ending, without

from quietmean.core.codec import to_plain
from quietmean_reproduction import Effort, Figure, registry
from quietmean_reproduction.rows import read_rows
from quietmean_reproduction.run import PROCESSOR_SECONDS, SWEEPS, draw
from quietmean_reproduction.summary import OWN, heading, section

DOCS = Path(__file__).parent.parent / "docs"
NOTE = "Made by `quietmean reproduce --all --full` and `python tools/make_gallery.py`; see [how to](../research/reproduce.md).\n"
# Of each figure with rows: what computed them, and in how much processor time.
MADE = "made.csv"
_VERDICT = re.compile(r"\| (yes|\*\*no\*\*|–) \| (?:[^|\\]|\\.)*\|$", re.MULTILINE)


def main(arguments: list[str]) -> None:
    if arguments:
        copy_rows(Path(arguments[0]), arguments[1])
    for name in with_rows():
        draw(registry()[name], rows_of(name), rows_of(name).with_suffix(".png"))
    (DOCS / "measurements/gallery.md").write_text(page() + ending("measurements/gallery.md"), encoding="utf-8")


def copy_rows(source: Path, commit: str) -> None:
    """Take over the rows of all figures in ``source``, at full size only."""
    (DOCS / "gallery").mkdir(exist_ok=True)
    known = made()
    for name in registry():
        path = source / f"{name}.csv"
        if path.exists() and set(read_rows(path)["size"]) == {str(Effort.FULL)}:
            shutil.copyfile(path, rows_of(name))
            seconds = (source / SWEEPS / f"{name}-{Effort.FULL}" / PROCESSOR_SECONDS).read_text().strip()
            known[name] = {"figure": name, "commit": commit, "processor_seconds": seconds}
    with (DOCS / "gallery" / MADE).open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ("figure", "commit", "processor_seconds"), lineterminator="\n")
        table.writeheader()
        table.writerows(known[name] for name in sorted(known))


def rows_of(name: str) -> Path:
    return DOCS / "gallery" / f"{name}.csv"


def with_rows() -> list[str]:
    """The figures whose rows are kept."""
    return [name for name in registry() if rows_of(name).exists()]


def made() -> dict[str, dict[str, str]]:
    """By figure, what :data:`MADE` says of it."""
    path = DOCS / "gallery" / MADE
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["figure"]: row for row in csv.DictReader(file)}


def page() -> str:
    """The page but for its ending, from the rows; a figure without rows as it is on the page now."""
    path, known = DOCS / "measurements/gallery.md", made()
    earlier = sections_of(path.read_text(encoding="utf-8")) if path.exists() else {}
    sections = earlier | {name: section_of(registry()[name], known[name]) for name in with_rows()}
    return whole(sections)


def section_of(figure: Figure, known: Mapping[str, str]) -> str:
    """What the rows of a figure say."""
    rows = read_rows(rows_of(figure.name))
    claims = to_plain([claim.to_json() for claim in figure.claims(rows)])
    seed = rows["seed"][0]
    where = (
        f"Numbers: [{figure.name}.csv](../gallery/{figure.name}.csv), {rows['size'][0]} size, seed {seed}, "
        f"{known['processor_seconds']} s of processor time, commit {known['commit'][:10]}."
    )
    document = {"name": figure.name, "title": figure.title, "paper": figure.paper, "caption": figure.caption, "claims": claims}
    return section(document, where, "../gallery/")


def whole(sections: dict[str, str]) -> str:
    """The page of these figures, those of one paper together."""
    ordered = [sections[name] for name in sorted(sections, key=lambda name: (sections[name].splitlines()[2].split(".")[0], name))]
    tables = [re.split(rf"^\| {OWN} \|", one, flags=re.MULTILINE) for one in ordered]
    stated = [cell for table, *_ in tables for cell in _VERDICT.findall(table)]
    own = [cell for _, *checks in tables for table in checks for cell in _VERDICT.findall(table)]
    first, counted = heading(len(ordered), stated, own).split("\n", 1)
    return f"{first}\n\n{NOTE}{counted}\n{_kept(sections)}\n" + "\n".join(ordered)


def _kept(sections: Mapping[str, str]) -> str:
    """Which figures have rows, and what these took."""
    known = {name: row for name, row in made().items() if name in sections}
    hours = sum(float(row["processor_seconds"]) for row in known.values()) / 3600
    kept_rows = f"The rows of {len(known)} figures are kept at full size: {hours:.2f} hours of processor time."
    missing = ", ".join(f"`{name}`" for name in sorted(set(sections) - set(known)))
    return kept_rows + (f" Rows are missing of {missing}: what is here of them is of an earlier run.\n" if missing else "\n")


def sections_of(text: str) -> dict[str, str]:
    parts = re.split(r"^(?=## )", without(text), flags=re.MULTILINE)[1:]
    return {part.split(":")[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}


if __name__ == "__main__":
    main(sys.argv[1:])
