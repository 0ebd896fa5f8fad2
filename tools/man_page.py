"""Write the manual page of all commands, from what the command line library knows: ``make man``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docutils.core import publish_string

from quietmean import __version__
from quietmean.cli.common import EXAMPLES, epilogue
from quietmean.cli.main import COMMANDS, make_app

# A label, and a table of contents that a manual page has no use for.
_NOT_FOR_MAN = re.compile(r"^\.\. (_cyclopts-[^\n]*|contents::[^\n]*(\n   :[^\n]*)*)\n", re.MULTILINE)
_TITLE = re.compile(r"\A\s*=+\nquietmean\n=+\n")


def man_page() -> str:
    """The page in troff."""
    text = _NOT_FOR_MAN.sub("", make_app("run").generate_docs(output_format="rst"))
    purpose = "statistics of private records of several parties, without a server"
    line = "-" * len(purpose)
    title = f"=========\nquietmean\n=========\n\n{line}\n{purpose}\n{line}\n\n:Version: {__version__}\n:Manual section: 1\n\n"
    examples = "\n".join(f"- ``{example}``" for name, example in sorted(EXAMPLES.items()) if name in COMMANDS)
    common, codes = epilogue("").split("\n\n")
    rest = f"\n\nOptions of all commands\n-----------------------\n\n{common}\n\nExit codes\n----------\n\n{codes}\n"
    text = _TITLE.sub(lambda _: title, text) + rest + f"\nExamples\n--------\n\n{examples}\n"
    # Nothing that docutils remarks goes into the page; what it cannot read ends the program.
    settings = {"report_level": 5, "halt_level": 4, "input_encoding": "unicode", "output_encoding": "unicode"}
    made: str = publish_string(text, writer="manpage", settings_overrides=settings)
    return made


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(man_page(), encoding="utf-8")
