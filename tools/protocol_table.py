"""Write the tables of protocols from what the registered protocols say of themselves: README.md's, and docs/protocols.md.

``python tools/protocol_table.py``; with ``--print`` the page goes to standard output and nothing is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from quietmean.protocols import Protocol, Server, registry

ROOT = Path(__file__).parent.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "protocols.md"
BEGIN, END = "<!-- protocols: written by tools/protocol_table.py -->", "<!-- end of protocols -->"

INTRODUCTION = """# The protocols

This page is made by `python tools/protocol_table.py` from what the protocols say of themselves. Same command, same page; do not
edit it by hand.

Options are those of `quietmean plan` and `quietmean run`. Those in files only have no flag.
"""


def readme_table() -> str:
    """One line a protocol."""
    lines = ["| protocol | who is trusted | in one line |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {_trust(kind)} | {kind.summary} |" for name, kind in registry().items())])


def page() -> str:
    """All protocols, with their options."""
    return "\n".join([INTRODUCTION, *(_section(kind) for kind in registry().values())])


def readme(text: str) -> str:
    """The README with a new table between its two marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{readme_table()}\n{END}{after}"


def main() -> None:
    if "--print" in sys.argv[1:]:
        print(page())
        return
    README.write_text(readme(README.read_text()))
    PAGE.write_text(page())


def _trust(kind: type[Protocol]) -> str:
    return kind.trust if kind.private else f"{kind.trust}; **no differential privacy**"


def _section(kind: type[Protocol]) -> str:
    server = {Server.NONE: "none", Server.AGGREGATOR: "an aggregator", Server.CURATOR: "a curator"}[kind.server]
    lines = [f"## {kind.name}", "", f"{_sentence(kind.summary)}", ""]
    lines += [f"- *Server*: {server}. *Trust*: {_trust(kind)}.", f"- *Guarantee*: {kind.guarantee}."]
    lines += [f"- *Values*: {kind.domain}.", f"- *Parties may leave for good*: {'yes' if kind.tolerates_dropouts else 'no'}.", ""]
    options = [one for one in kind.options().values() if one.flag is not None]
    if options:
        lines += ["| option | in files | meaning |", "|---|---|---|"]
        for one in options:
            choices = f": {', '.join(f'`{choice}`' for choice in one.choices)}" if one.choices else ""
            lines.append(f"| `--{one.flag}` | `{one.key}` | {one.help}{choices} |")
        lines.append("")
    return "\n".join(lines)


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


if __name__ == "__main__":
    main()
