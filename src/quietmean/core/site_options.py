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
        The ledger, which holds your privacy budgets. It is charged before the first message leaves, and refuses a study beyond
        the budget. Default: the policy's ledger, or this user's own, which the first study creates.
    no_ledger
        Charge no budget: for rehearsals, or if another system keeps the budget.
    account
        The budget account for the people in these data. All files about the same people use one account. Default: the file's
        name without its ending.
    new_account
        Make a new budget account with this name, for people who are in no account of the ledger. Without this, no second
        account is made.
    new_people
        With --account: these data also have new people, as in a weekly export of new patients. They get their own budget. A
        person known from an earlier account is charged there too.
    group
        How many units can change together; the charge covers them all. Default 1. Give the most rows of one person, if the data
        do not name persons. For an account per party, give all records of this party.
    policy
        This site's rules for taking part (docs/answer/policy.md). Default: policy.toml in the user's settings folder.
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
        Say yes without being asked: give the digest that site contract prints, or at least its first 32 digits.
    yes
        Say yes without a digest. Only if the site's policy has unattended = true.
    approval
        A yes that the data owner signed with site approve. Repeat for several.
    compared
        A party with whom you compared the safety code. Repeat for several, or separate them by commas. All other parties count
        as colluders.
    a_priori_above_target
        Take part although the cost is known only afterwards: no guarantee keeps it within the target. Refused otherwise.
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
        Where this party keeps its state: a file, or a folder. Default: STUDY-PARTY.store beside the study.
    listen
        HOST:PORT to listen on, if it differs from the address in the roster. Example: 0.0.0.0:7001 behind a router that
        forwards a port. A party that others cannot reach can still take part, if it can reach them.
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
        Where to write the receipt. Default: STUDY-PARTY.receipt.json beside the study.
    folder
        This site's folder for the messages, if the study goes through a folder (docs/take-part/connect.md). Default: the
        policy's.
    once
        For a study through a folder: do what is possible now, then end. The exit code is 4 if the study goes on. Let a
        schedule, such as cron, repeat the command.
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
        For a session: the Python program that makes this party's vectors. It gets the rounds from qm.joined(). When it ends,
        this party has left (docs/models/sessions.md).
    records
        For a session that protects records: how many records this party has in every round. This number is public.
    most
        For a session: the most rounds to take part in, and to pay for.
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
