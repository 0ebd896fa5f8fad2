"""Write what protocols say of themselves: reference/protocols.md, reference/references.md and CITATION.cff.

``python tools/protocol_table.py``; with ``--print`` the page goes to standard output and nothing is written.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from release import newest

from quietmean.core.schema import options_of
from quietmean.protocols import Mechanism, Server, registry
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.literature import Publication

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference/protocols.md"
REFERENCES, CITATION = ROOT / "docs" / "reference/references.md", ROOT / "CITATION.cff"

INTRODUCTION = """# The protocols

This page is made by `python tools/protocol_table.py` from what the protocols say of themselves. Same command, same page; do not
edit it by hand.

Where nothing else is said there is no server, values lie in any bounded set, and parties may leave for good. Sources in full are
among the [references](references.md). Options are those of `quietmean plan` and `quietmean run`, with their names in files.
"""
USUAL_DOMAIN = "any bounded set"


def overview() -> str:
    """One line a protocol."""
    lines = ["| protocol | who is trusted | in one line |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {_trust(kind)} | {kind.TRAITS.summary} |" for name, kind in _all().items())])


def _all() -> dict[str, type[Mechanism]]:
    """Those that can be named, and what a study with a committee takes."""
    return dict(sorted([*registry().items(), (CommitteeSharing.name, CommitteeSharing)]))


def page() -> str:
    """All protocols, with their options."""
    return "\n".join([INTRODUCTION, overview(), "", *(_section(kind) for kind in _all().values()), _options()])


LITERATURE = """# References

This page is made by `python tools/protocol_table.py` from what the protocols say of themselves, as are `CITATION.cff` and the
sources on [the page of protocols](protocols.md). Same command, same page; do not edit it by hand.

quietmean is independent of all of these authors. Who publishes with it should cite the publications of the protocol that ran.
What the texts at hand do not say, a year or a venue, is left out.
"""


def references() -> str:
    """All publications, each with the protocols that come from it."""
    lines = [LITERATURE]
    for source, names in _publications().items():
        lines.append(f"- {source.citation} Here: {', '.join(f'`{name}`' for name in names)}.")
    return "\n".join(lines) + "\n"


def citation() -> str:
    """How to cite this program, and what it is made from, in the Citation File Format; a JSON text is YAML, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        "# Written by tools/protocol_table.py.",
        "cff-version: 1.2.0",
        "message: If you use this software, please cite it, and the publications of the protocol that you ran.",
        f"title: {project['name']}",
        f"version: {newest(ROOT)[0]}",
        f"license: {project['license']}",
        f"abstract: {json.dumps(project['description'])}",
        "authors:",
        *(f"  - name: {json.dumps(one['name'])}" for one in project["authors"]),
        "references:",
    ]
    for source in _publications():
        lines += _entry(source)
    return "\n".join(lines) + "\n"


def _publications() -> dict[Publication, list[str]]:
    """With the names of the protocols that come from each."""
    found: dict[Publication, list[str]] = {}
    for name, kind in _all().items():
        for source in kind.TRAITS.sources:
            found.setdefault(source, []).append(name)
    return dict(sorted(found.items(), key=lambda one: (one[0].authors[0].family, one[0].year or 0, one[0].title)))


def _entry(source: Publication) -> list[str]:
    lines = [f"  - type: {source.kind}", f"    title: {_quoted(source.title)}", "    authors:"]
    for author in source.authors:
        lines += [f"      - family-names: {_quoted(author.family)}", f"        given-names: {_quoted(author.given)}"]
    place = "collection-title" if source.kind == "conference-paper" else "journal"
    known = {
        "year": source.year,
        place: source.venue and _quoted(source.venue),
        "volume": source.volume and _quoted(source.volume),
        "start": source.pages and source.pages[0],
        "end": source.pages and source.pages[1],
        "doi": source.doi,
        "url": source.arxiv and f"https://arxiv.org/abs/{source.arxiv}",
    }
    return [*lines, *(f"    {key}: {value}" for key, value in known.items() if value)]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def main() -> None:
    if "--print" in sys.argv[1:]:
        print(page())
        return
    PAGE.write_text(page())
    REFERENCES.write_text(references())
    CITATION.write_text(citation())


def _trust(kind: type[Mechanism]) -> str:
    return kind.TRAITS.trust if kind.TRAITS.private else f"{kind.TRAITS.trust}; **no differential privacy**"


def _section(kind: type[Mechanism]) -> str:
    server = {Server.NONE: "", Server.AGGREGATOR: "an aggregator", Server.CURATOR: "a curator"}[kind.TRAITS.server]
    lines = [f"## {kind.name}", ""]
    lines += [f"- *Source*: {'; '.join(source.short for source in kind.TRAITS.sources)}."] if kind.TRAITS.sources else []
    lines += [f"- *Also named*: {', '.join(map(_alias, kind.TRAITS.aliases.items()))}."] if kind.TRAITS.aliases else []
    lines += [f"- *Server*: {server}."] if server else []
    lines += [f"- *Guarantee*: {kind.TRAITS.guarantee}."]
    lines += [f"- *Values*: {kind.TRAITS.domain}."] if kind.TRAITS.domain != USUAL_DOMAIN else []
    lines += [] if kind.TRAITS.tolerates_dropouts else ["- No party may leave for good."]
    return "\n".join([*lines, ""])


def _options() -> str:
    """All options, each once, with the protocols that have it."""
    owners: dict[str, list[str]] = {}
    for name, kind in _all().items():
        for one in options_of(kind).values():
            if one.flag is not None:
                choices = f": {', '.join(f'`{choice}`' for choice in one.choices)}" if one.choices else ""
                owners.setdefault(f"| `--with {one.flag}=...` | `{one.key}` | {one.help}{choices} |", []).append(f"`{name}`")
    rows = [f"{row} {', '.join(names)} |" for row, names in sorted(owners.items())]
    return "\n".join(["## Options", "", "| option | in files | meaning | of |", "|---|---|---|---|", *rows]) + "\n"


def _alias(named: tuple[str, Mapping[str, Any]]) -> str:
    alias, implied = named
    with_options = " with " + ", ".join(f"`{key}` {value:g}" for key, value in implied.items()) if implied else ""
    return f"`{alias}`{with_options}"


if __name__ == "__main__":
    main()
