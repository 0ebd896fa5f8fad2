"""``quietmean key new``, how commands open a key's file, and questions at the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from getpass import getpass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, TextIO

from rich.table import Table

from quietmean.cli.console import at_prompt, err, out, output, print_json, printable
from quietmean.cli.screens import NEXT, OR, with_remark
from quietmean.core.errors import InputError, reason_of
from quietmean.core.readable import indented
from quietmean.core.readable import printable as without_controls
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import PASSPHRASE_FILE, parse_place, require_name
from quietmean.studies.agreement.study_keys import revocation

if TYPE_CHECKING:
    from rich.console import Console

    from quietmean.studies.party import Agreement
    from quietmean.studies.party.accounts import AccountQuestion
    from quietmean.studies.party.first_screen import FirstScreen

DEFAULT_KEY = Path("quietmean.key")
# What the public entry is for.
_PUBLIC = "the lines below, for a roster, a policy or study new --registrar. A registrar goes on with quietmean study vouchers."


def new_command(
    *,
    key: Path = DEFAULT_KEY,
    name: str = "me",
    address: str = "127.0.0.1:7000",
    passphrase: bool = False,
    json: bool = False,
) -> None:
    """Make this party's identity: a private key file (mode 0600), and a public entry to hand to the others.

    A second file, KEY.revocation, is for the day when the key is lost or stolen: anyone who gets it can refuse the key, with
    quietmean key revoke. Keep it apart from the key, on paper or with somebody you trust.

    Parameters
    ----------
    key
        Where to write the private key. An existing file is never overwritten.
    name
        This party's name in the roster.
    address
        HOST:PORT where other parties reach this one; or relay:HOST:PORT, if they reach it through a relay.
    passphrase
        Protect the key file with a passphrase. The command asks for it at the terminal. Or the variable
        QUIETMEAN_PASSPHRASE_FILE names a file, whose first line it is.
    json
        One JSON document on standard output.
    """
    # Before any file is written.
    require_name(name)
    where = parse_place(address)
    identity = make_identity(key, _ask(f"passphrase for {key}", twice=True) if passphrase else b"")
    entry = RosterEntry(name, where, identity.public_key)
    if json:
        document = {"key": str(key), "public_key": identity.public_key, "name": name, "address": address}
        print_json({**document, "revocation": str(_revocation_path(key))})
        return
    steps = [
        f"accept STUDY.invitation --key {quote(str(key))} --name {quote(name)}",
        f"study invite STUDY --key {quote(str(key))}",
    ]
    next_lines = [*with_remark(f"{NEXT}{steps[0]}", "as a party"), *with_remark(f"{OR}{steps[1]}", "as coordinator")]
    for line in (*kept(key), *next_lines, *indented("Public", _PUBLIC)):
        out.print(f"# {without_controls(line)}")
    out.print(Roster.table(entry).rstrip("\n"))


def make_identity(key: Path, passphrase: bytes = b"") -> Identity:
    """A new identity in a file of its own, and the revocation of its key beside it. Raises :class:`InputError`."""
    identity = Identity.generate()
    output(key, "the key", "--key")
    spare = output(_revocation_path(key), "the revocation of the key", "--key", private=True)
    identity.save(key, passphrase)
    spare.write(revocation(identity))
    return identity


def kept(key: Path) -> list[str]:
    """Say what to do with the two files of a new identity."""
    return [
        *indented("Private", f"{key}: this file stays here. Show it to nobody."),
        *indented("Revoke", f"{_revocation_path(key)}: for a stolen key. Keep it elsewhere."),
    ]


def _revocation_path(key: Path) -> Path:
    return key.with_name(f"{key.name}.revocation")


def load_identity(path: Path) -> Identity:
    """The identity in a key file; asks for its passphrase if it has one. Raises :class:`InputError`."""
    return Identity.load(path, lambda: _ask(f"passphrase of {path}", twice=False))


def known_identity(key: Path) -> Identity | None:
    """The identity in a key file; None for the default one where there is none yet.

    Raises :class:`InputError` for a key that was named and is not there: that is a mistake.
    """
    return load_identity(key) if key != DEFAULT_KEY or key.exists() else None


def _ask(subject: str, *, twice: bool) -> bytes:
    """A passphrase, from the file that the environment names or from the terminal. Raises :class:`InputError`."""
    passphrase_file = os.environ.get(PASSPHRASE_FILE)
    if passphrase_file:
        try:
            text = Path(passphrase_file).read_text(encoding="utf-8").partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the passphrase in {passphrase_file} cannot be read ({reason_of(error)}). Mend {PASSPHRASE_FILE}."
            ) from None
    elif sys.stdin.isatty():
        text = at_prompt(lambda: getpass(f"{subject}: "))
        while twice and at_prompt(lambda: getpass("again: ")) != text:
            err.print("The two passphrases are different.")
            text = at_prompt(lambda: getpass(f"{subject}: "))
    else:
        raise InputError(f"the {subject} cannot be asked for without a terminal. Name a file with it in {PASSPHRASE_FILE}.")
    if not text:
        raise InputError("the passphrase is empty. Choose another, or none.")
    return text.encode()


class AtTerminal:
    """Answers go to no output: standard output is the result's.

    ``pause``: while a question is asked that comes after the yes, nothing is drawn over it. ``act``: what a yes does.
    """

    def __init__(self, pause: Callable[[], AbstractContextManager[None]] = nullcontext, act: str = "take part") -> None:
        self._pause, self._act = pause, act

    def can_ask(self) -> bool:
        return sys.stdin.isatty()

    def show(self, screen: FirstScreen) -> None:
        err.print("\n".join(screen.lines()))

    def compared(self, others: Sequence[str]) -> list[str]:
        while True:
            text = _answer(f"Who read the same code to you ({printable(', '.join(others))})? Enter for nobody: ")
            names = [name.strip() for name in text.split(",") if name.strip()]
            if not (unknown := [name for name in names if name not in others]):
                return names
            err.print(printable(f"{unknown[0]!r} is not one of them. Type names as they stand here, with commas between them."))

    def yes(self, contract: Agreement, screen: FirstScreen) -> bool:
        word = screen.answer if screen.is_plain else f'"{screen.answer}"'
        while True:
            err.print("\n".join(screen.marked()))
            said = _answer(f"Type {word} to {self._act}, ? for all terms, anything else to stop: ")
            if said != "?":
                return said == screen.answer
            show_contract(contract, err)

    def account(self, question: AccountQuestion) -> str:
        with self._pause():
            err.print(f"Whose people are these? {printable(question.why)}.")
            for place, name in enumerate(question.names, 1):
                err.print(f"  {place}  the same people as in account {printable(name)!r}")
            err.print(f"  0  others: a new account {printable(question.new)!r}, with a budget of its own")
            while (text := _answer("Type a number: ")) not in map(str, range(len(question.names) + 1)):
                err.print(f"{printable(repr(text))} is not one of these. Choose 0..{len(question.names)}.")
            return text


def show_contract(contract: Agreement, console: Console) -> None:
    """The contract or terms that are agreed to, in two columns."""
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
    return at_prompt(lambda: _line(sys.stdin)).strip()


def _line(stream: TextIO) -> str:
    """The next line. Raises EOFError at the end."""
    if line := stream.readline():
        return line
    raise EOFError
