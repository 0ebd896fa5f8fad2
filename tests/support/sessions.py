"""Parties that take part from one program: all at the same time, what is charged to each, and the receipt that it keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from quietmean.core.folders import data_folder
from quietmean.ledger import Account, Ledger, LedgerEntry
from quietmean.node import Identity
from quietmean.studies.agreement.sealed import Sealed
from support.meeting import meet

Party = TypeVar("Party")
Result = TypeVar("Result")
NAMES = ("north", "south", "east")
Part = Callable[[Party], Coroutine[Any, Any, Result]]


def together(part: Part[Party, Result], parties: Iterable[Party]) -> list[Result]:
    """Run the parts of all these parties at the same time, and return what each has."""

    async def all_of_them() -> list[Result]:
        return list(await asyncio.gather(*map(part, parties)))

    return asyncio.run(all_of_them())


def endings(part: Part[Party, Result], parties: Iterable[Party]) -> list[Result | BaseException]:
    """Run the parts of all these parties at the same time, and return how each ends, be it by an error."""

    async def all_of_them() -> list[Result | BaseException]:
        return list(await asyncio.gather(*map(part, parties), return_exceptions=True))

    return asyncio.run(all_of_them())


def account_of(name: str, ledger: Path | None = None) -> Account:
    """Return an account of this ledger, or of the one that counts where none is named."""
    with Ledger.open(ledger or data_folder() / "ledger") as book:
        return book.account(name)


def entry_of(name: str, ledger: Path | None = None) -> LedgerEntry:
    """Return the only entry of an account."""
    (found,) = account_of(name, ledger).entries
    return found


def receipt_of(study: str, name: str) -> dict[str, Any]:
    """Return the receipt that a party keeps in this folder."""
    document: dict[str, Any] = json.loads(Path(f"{study}-{name}.receipt.json").read_text())
    return document


def sealed_by_north(terms: Mapping[str, Any], addresses: dict[str, str], at: Path) -> Sealed:
    """Seal a session of the three parties whose keys are in this folder, and write the file ``at`` a place."""
    known = {name: Identity.load(Path(f"{name}.key")) for name in NAMES}
    sealed = meet(Path(), NAMES, {"session": terms}, known, addresses).seal()
    at.write_bytes(sealed.signed.to_file())
    return sealed
