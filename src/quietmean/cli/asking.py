"""Questions at the terminal, to the data owner."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from quietmean.cli.console import err, printable

if TYPE_CHECKING:
    from rich.console import Console

    from quietmean.studies.party import Agreement
    from quietmean.studies.party.accounts import AccountQuestion


class AtTerminal:
    """Answers go to no output: standard output is the result's.

    ``pause``: while a question is asked that comes after the yes, nothing is drawn over it.
    """

    def __init__(self, pause: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._pause = pause

    def can_ask(self) -> bool:
        return sys.stdin.isatty()

    def show(self, contract: Agreement) -> None:
        show_contract(contract, err)

    def compared(self, words: str, others: Sequence[str]) -> list[str]:
        err.print(f"words  {words}")
        err.print(f"other parties: {', '.join(others)}")
        text = _answer("Who of them read the same words to you? Names, separated by commas: ")
        return [name.strip() for name in text.split(",") if name.strip()]

    def yes(self) -> bool:
        return _answer("Take part? Type yes: ") == "yes"

    def account(self, question: AccountQuestion) -> str:
        with self._pause():
            err.print(f"Whose people are these? {printable(question.why[:1].upper() + question.why[1:])}.")
            for place, name in enumerate(question.names, 1):
                err.print(f"  {place}  the same people as in account {printable(name)!r}")
            err.print(f"  0  others: a new account {printable(question.new)!r}, with a budget of its own")
            return _answer("Type a number: ")


def show_contract(contract: Agreement, console: Console) -> None:
    """The contract or terms that are agreed to, in two columns."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    last = ""
    for about, text in contract.lines():
        # All of the text is a stranger's.
        table.add_row("" if about == last else about, printable(text))
        last = about
    console.print(table)


def _answer(question: str) -> str:
    err.print(question, end="")
    return sys.stdin.readline().strip()
