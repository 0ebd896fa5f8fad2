"""What a site chooses for itself when its party takes part, from the command line or from Python; no other party needs to know.

Each class has the options of a way to take part, and the ones before it those that more ways have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, Self, TypedDict, runtime_checkable


@dataclass(frozen=True, kw_only=True)
class PaymentOptions:
    """Who pays, and under which rules.

    Parameters
    ----------
    ledger
        The ledger that is charged before the first message leaves, and that refuses a study which its budget does not allow; by
        default the policy's, or this user's own, where the first account is made at the first study.
    no_ledger
        Charge nothing: for rehearsals, and where something else keeps account.
    account
        The ledger's account for the people of these data, in whatever file; by default the name of that file without its ending.
    new_account
        Make an account of this name: these people are in none of the ledger's accounts. Without it no second one is made.
    new_people
        With --account: new people beside those of that account, as in a weekly export of new patients. They get a budget of
        their own, and anyone who is known in an account pays there, too.
    group
        Charge for so many units that change together, by default one: the most rows of one person where the data do not say
        whose they are, or all records of this party for an account that counts per party.
    policy
        What this site takes part in (docs/answer/policy.md); by default policy.toml in the user's folder for settings.
    """

    ledger: Path | None = None
    no_ledger: bool = False
    account: str | None = None
    new_account: str | None = None
    new_people: bool = False
    group: int | None = None
    policy: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ConsentOptions(PaymentOptions):
    """The yes, where it is said in advance.

    Parameters
    ----------
    accept
        Say yes to the study by the digest that site contract prints, or its first 32 digits or more, instead of at the terminal.
    yes
        Say yes without naming the digest: only for a site whose policy says unattended = true.
    approval
        A yes that was signed by the data owner, from site approve; repeat for several.
    compared
        A party with whom the words of the sealed study were compared; repeat for several, or separate them by commas. The
        others count as colluders.
    a_priori_above_target
        Take part although nothing promises beforehand that the study costs no more than its target; refused otherwise.
    """

    accept: str | None = None
    yes: bool = False
    approval: Sequence[Path] | None = None
    compared: Sequence[str] | None = None
    a_priori_above_target: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeOptions(PaymentOptions):
    """Where a party keeps its state, and where the others reach it.

    Parameters
    ----------
    store
        Where this party keeps its state: a file, or a folder; by default STUDY-PARTY.store beside the study.
    listen
        HOST:PORT to listen on here, where it is not the address in the roster: 0.0.0.0:7001 behind a router that forwards a
        port. A party that nobody can dial takes part too, as long as it can dial the others.
    """

    store: Path | None = None
    listen: str | None = None

    def __post_init__(self) -> None:
        # A program may change its folder while its party takes part.
        if self.store is not None:
            object.__setattr__(self, "store", self.store.absolute())


@dataclass(frozen=True, kw_only=True)
class SiteOptions(ConsentOptions, NodeOptions):
    """All of a party whose node runs.

    Parameters
    ----------
    receipt
        Where to write the receipt; by default STUDY-PARTY.receipt.json beside the study.
    folder
        Folder of the study at this site, if its messages are files (docs/take-part/connect.md); by default the policy's.
    once
        Do what can be done now with the files in the folder, and end: with exit code 4 if the study goes on. For a schedule, such
        as cron, that runs the same command again and again.
    """

    receipt: Path | None = None
    folder: str | None = None
    once: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.receipt is not None:
            object.__setattr__(self, "receipt", self.receipt.absolute())

    @classmethod
    def of(cls, keywords: Mapping[str, Any], store: str | Path | None = None, receipt: str | Path | None = None) -> Self:
        """From what Python was given, of which other keywords are left to who knows them."""
        own = {field.name for field in fields(cls)}
        by_field = {"store": store, "receipt": receipt} | {_FIELDS.get(name, name): value for name, value in keywords.items()}
        return cls(**{name: _READ.get(name, lambda value: value)(value) for name, value in by_field.items() if name in own})


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The options of a party that only a session has, and a study does not.

    Parameters
    ----------
    program
        Of a session: the Python program that makes this party's vectors. It has the rounds by qm.joined(), and its end is the
        end of this party's part (docs/models/sessions.md).
    records
        Of a session that protects records: how many this party has in every round, which is public.
    most
        Of a session: take part in so many rounds and pay for no more.
    """

    program: Path | None = None
    records: int | None = None
    most: int | None = None


@runtime_checkable
class _WithDigest(Protocol):
    @property
    def accept_digest(self) -> str: ...


class ConsentKeywords(TypedDict, total=False):
    """The fields of :class:`ConsentOptions` as keywords of Python, where paths are strings too, and a contract its digest."""

    policy: str | Path | None
    ledger: str | Path | None
    no_ledger: bool
    account: str | None
    new_account: str | None
    new_people: bool
    group: int | None
    accept: str | _WithDigest | None
    yes: bool
    approvals: Sequence[str | Path]
    compared: Sequence[str]
    a_priori_above_target: bool


class NodeKeywords(ConsentKeywords, total=False):
    """Keywords of a site's node, and of where a party listens, as in :class:`NodeOptions`."""

    listen: str | None


class FolderKeywords(NodeKeywords, total=False):
    """Keywords of a site's node, and of a study whose messages may be files."""

    folder: str | None
    once: bool


def path_of(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _digest(study: str | _WithDigest | None) -> str | None:
    return study if study is None or isinstance(study, str) else study.accept_digest


# Keywords that have another name than their field, and how fields are read that keywords say in more ways than one.
_FIELDS = {"approvals": "approval"}
_READ: Mapping[str, Any] = {
    **dict.fromkeys(("policy", "ledger", "store", "receipt"), path_of),
    "accept": _digest,
    "approval": lambda given: [Path(approval) for approval in given],
}
