"""Questions at the terminal, to who answers for the data."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from quietmean.cli.console import err


class AtTerminal:
    """Answers go to no output: standard output is the result's."""

    def can_ask(self) -> bool:
        return sys.stdin.isatty()

    def compared(self, words: str, others: Sequence[str]) -> list[str]:
        err.print(f"words  {words}", markup=False)
        err.print(f"other parties: {', '.join(others)}", markup=False)
        text = _answer("Who of them read the same words to you? Names, separated by commas: ")
        return [name.strip() for name in text.split(",") if name.strip()]

    def yes(self) -> bool:
        return _answer("Take part? Type yes: ") == "yes"


def _answer(question: str) -> str:
    err.print(question, end="", markup=False)
    return sys.stdin.readline().strip()
