"""The yes of the data owner, before anything leaves this machine, and the words of a study that people compare by telephone.

A person at the terminal says it, options that accept a study in advance, or approvers that the policy names.

These are eight words of a sealed study, or twenty characters. Who convenes a study writes the whole of it, and could look for
two versions with the same words: a birthday search, which for b bits needs 2^(b/2) trials. So the words have 88 bits, and each
trial takes scrypt with N = 2^17, r = 8, p = 1: half a second and 128 MiB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

import msgspec

from quietmean.core.errors import InputError, named
from quietmean.core.file_kinds import package_version
from quietmean.core.readable_days import by_this_clock
from quietmean.core.site_options import ConsentOptions
from quietmean.node import Identity
from quietmean.node.net import Purpose
from quietmean.studies.agreement.signed import Signed, read_signed, signed_in
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.party.accounts import AccountQuestion
from quietmean.studies.party.agreement import Agreement
from quietmean.studies.party.audit import Auditor, Event
from quietmean.studies.party.first_screen import NOTHING_OWN, FirstScreen, OwnData
from quietmean.studies.party.policy import Policy

WORDS, WORD_BITS = 8, 11
CHARACTERS, CHARACTER_BITS = 20, 5
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
# The first bits of the same 13 bytes are spelt in both ways.
_BYTES = 13
_SALT = b"quietmean words 1\0"
_COST, _BLOCK, _PARALLEL = 2**17, 8, 1
_MEMORY = 256 * 2**20
Stretch: TypeAlias = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Fingerprint:
    """A digest in words and characters, for people to compare.

    ``words``: 8 of the BIP-39 list, 88 bits; ``characters``: 20 of base32, 100 bits, of which the first 88 are the words.
    """

    words: tuple[str, ...]
    characters: str

    @property
    def spoken(self) -> str:
        """The words, to be read out."""
        return " ".join(self.words)

    @property
    def grouped(self) -> str:
        """The characters in fives, to be read out."""
        return "-".join(self.characters[start : start + 5] for start in range(0, CHARACTERS, 5))


def stretched(digest: bytes) -> bytes:
    """13 bytes that take scrypt to compute (N = 2^17, r = 8, p = 1)."""
    return hashlib.scrypt(digest, salt=_SALT, n=_COST, r=_BLOCK, p=_PARALLEL, maxmem=_MEMORY, dklen=_BYTES)


def fingerprint(digest: str, stretch: Stretch = stretched) -> Fingerprint:
    """Return the words for the digest of a sealed study (hexadecimal). ``stretch``: makes 13 bytes of its 32."""
    bits = int.from_bytes(stretch(bytes.fromhex(digest)), "big")
    words, total = _word_list(), 8 * _BYTES
    return Fingerprint(
        tuple(words[number] for number in _parts(bits, total, WORDS, WORD_BITS)),
        "".join(_BASE32[number] for number in _parts(bits, total, CHARACTERS, CHARACTER_BITS)),
    )


def _parts(bits: int, total: int, count: int, width: int) -> list[int]:
    """The first ``count`` groups of ``width`` bits of a number of ``total`` bits."""
    return [bits >> (total - width * (index + 1)) & (2**width - 1) for index in range(count)]


@cache
def _word_list() -> list[str]:
    from mnemonic import Mnemonic

    return Mnemonic("english").wordlist


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is signed. ``account``: what the ledger calls the data; ``until``: the last day, ISO 8601, in UTC."""

    contract: str
    plan: str
    account: str
    columns: tuple[str, ...]
    policy: str
    version: str
    party: str
    until: str
    approver: str


_NAMES = {
    "contract": "another contract",
    "plan": "another plan",
    "account": "another data set",
    "columns": "other columns",
    "policy": "another policy of this site",
    "version": "another version of quietmean",
    "party": "another party",
}


@dataclass(frozen=True)
class OwnerApproval:
    """An owner's signed yes to a study.

    ``place``: the file that it is from, for a sentence.
    """

    signed: Signed
    terms: Terms
    place: str

    @classmethod
    def sign(cls, contract: Agreement, policy: Policy, account: str, until: date, owner: Identity) -> Self:
        """Sign an approval of a study.

        Raises :class:`InputError` for a study that the policy refuses, and for a day that is over.
        """
        policy.refuse(contract)
        if until < _today():
            raise InputError(f"the approval would be void since {until}. Choose a day that is not over.")
        terms = terms_of(contract, policy, account, until.isoformat(), owner.public_key)
        return cls(Signed.sign(Purpose.APPROVAL, msgspec.to_builtins(terms), owner), terms, "the approval")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an owner approval from a file. Raises :class:`InputError` unless it is as its approver signed it."""
        signed = read_signed(Purpose.APPROVAL, path)
        terms = signed.decode(Terms)
        if not signed.is_by(terms.approver):
            raise InputError(
                f"approval {path} does not match the signature of {terms.approver}: it was changed. Ask for it again."
            )
        return cls(signed, terms, f"approval {path}")

    def takes_the_place_of(self, content: bytes) -> bool:
        """Whether a file is an earlier approval by the same approver, of the same contract for the same data set."""
        try:
            replaced = signed_in(Purpose.APPROVAL, content).decode(Terms)
        except InputError:
            return False
        return all(getattr(replaced, name) == getattr(self.terms, name) for name in ("contract", "account", "approver"))

    def require(self, terms: Terms, *, begun: bool = False) -> None:
        """Raises :class:`InputError` that names what it is about instead, or that it is void, unless the study has ``begun``."""
        for name, other in _NAMES.items():
            if getattr(self.terms, name) != getattr(terms, name):
                raise InputError(f"{self.place} is for {other} than this study's. Ask its approver to sign again.")
        try:
            void = date.fromisoformat(self.terms.until) < _today()
        except ValueError:
            void = True
        if void and not begun:
            today = by_this_clock(datetime.now(UTC))
            raise InputError(f"{self.place} was good until {self.terms.until}. Ask its approver to sign again ({today}).")


def terms_of(contract: Agreement, policy: Policy, account: str, until: str = "", approver: str = "") -> Terms:
    """What an approval of this site's part has to say."""
    return Terms(
        contract=contract.digest,
        plan=contract.plan.digest,
        account=account,
        columns=tuple(sorted(column.name for column in contract.used)),
        policy=policy.digest,
        version=package_version(),
        party=contract.own.name,
        until=until,
        approver=approver,
    )


def require_approvals(
    approvals: Sequence[OwnerApproval], contract: Agreement, policy: Policy, account: str, *, begun: bool = False
) -> dict[str, list[str]]:
    """The keys of the policy's approvers who signed, and the digests of what they signed; empty without.

    Raises :class:`InputError` if they are too few, or one does not fit.

    A study that has ``begun`` was approved before: it may go on without them, and after their last day.
    """
    terms, approvers = terms_of(contract, policy, account), policy.rules.approvers
    signed: dict[str, str] = {}
    for yes in approvals:
        if yes.terms.approver not in approvers:
            raise InputError(f"{yes.place} is by {yes.terms.approver}, who is not an approver of {policy.place}. Ask one who is.")
        if yes.terms.approver in signed:
            raise InputError(f"{yes.place} is a second approval by {yes.terms.approver}. Give one of each approver.")
        yes.require(terms, begun=begun)
        signed[yes.terms.approver] = yes.signed.digest
    least = policy.rules.least_approvals
    if len(signed) < least and not begun:
        raise InputError(
            f"{least} of the approvers of {policy.place} must sign this study, {len(signed)} did; nothing has left this machine. "
            f"Give {named('approval', 'FILE')}, from quietmean site approve."
        )
    return {"approvers": list(signed), "approvals": list(signed.values())} if signed else {}


def _today() -> date:
    return datetime.now(UTC).date()


# Hexadecimal digits of the digest that --accept needs: no search finds another study with the same ones.
DIGITS = 32


class Questions(Protocol):
    """Whom to ask: a person at a terminal, for instance."""

    def can_ask(self) -> bool: ...

    def show(self, screen: FirstScreen) -> None: ...

    def compared(self, others: Sequence[str]) -> list[str]:
        """Which of the ``others`` read the same safety code."""
        ...

    def yes(self, contract: Agreement, screen: FirstScreen) -> bool:
        """Whether to take part, after all that must be seen before it."""
        ...

    def account(self, question: AccountQuestion) -> str:
        """Whose people these are: the place of their account, from 1 on, or 0 for others."""
        ...


class NobodyToAsk:
    """No question is asked: a yes is said in advance."""

    def can_ask(self) -> bool:
        return False

    def show(self, screen: FirstScreen) -> None:
        """Show nothing: nobody sees it."""

    def compared(self, others: Sequence[str]) -> list[str]:
        """Compare the safety code with nobody."""
        return []

    def yes(self, contract: Agreement, screen: FirstScreen) -> bool:
        return False

    def account(self, question: AccountQuestion) -> str:
        return ""


@dataclass(frozen=True)
class ConsentInAdvance:
    """What was said in advance.

    ``accept``: the digest that is printed with the contract, or its first 32 digits or more; ``yes``: without naming it.
    ``compared``: names of parties who read out the same words of a sealed study; the others count as colluders.
    ``approvals``: signed by those whom the policy names. ``a_priori_above_target``: that no promise keeps the target.
    """

    accept: str | None = None
    compared: Sequence[str] = ()
    yes: bool = False
    approvals: Sequence[OwnerApproval] = ()
    a_priori_above_target: bool = False

    @classmethod
    def of(cls, options: ConsentOptions) -> ConsentInAdvance:
        """The consent with the approvals that are in files. Raises :class:`InputError` for one that cannot be read."""
        approvals = [OwnerApproval.load(path) for path in options.approval or ()]
        compared = tuple(options.compared or ())
        return cls(options.accept, compared, options.yes, approvals, options.a_priori_above_target)


@dataclass(frozen=True)
class Consent:
    """How a site comes to a yes: its rules, what was said in advance, whom to ask and inform.

    ``account``: what the ledger calls the data. ``keys``: of this party for a sealed study. ``begun``: this party has said yes
    before, and continues. ``auditor`` gets what was shown, refused and said; ``own``: what the owner of the data sees besides.
    """

    policy: Policy
    answer: ConsentInAdvance
    questions: Questions
    warn: Callable[[str], None]
    account: str = ""
    keys: StudyKeys | None = None
    begun: bool = False
    auditor: Auditor | None = None
    own: Callable[[], OwnData] = field(default=lambda: NOTHING_OWN, repr=False)

    def to(self, contract: Agreement) -> dict[str, Any]:
        """Require that the policy allows what is asked, and a yes to it; bind the keys. Returns what a receipt says of it.

        Raises :class:`InputError` for a broken rule, for a target that nothing promises to keep, and without a yes.
        """
        with nullcontext() if self.auditor is None else self.auditor.refusals():
            return self._to(contract)

    def _to(self, contract: Agreement) -> dict[str, Any]:
        policy, answer, keys = self.policy, self.answer, self.keys
        policy.refuse(contract)
        if contract.sealed is None and answer.compared:
            raise InputError(
                f"{named('compared')} is about the words of a sealed study, and the study is not sealed. Leave it out."
            )
        begun = self.begun or (keys is not None and keys.sealed is not None)
        said = begun or answer.approvals or answer.accept is not None or answer.yes
        # A person who is asked types that there is no promise.
        if not begun and (said or not self.questions.can_ask()):
            for plan in contract.plans:
                plan.require_target_kept(answer.a_priori_above_target)
        if answer.accept is not None:
            require_digest(answer.accept, contract)
        if answer.yes:
            require_unattended(policy)
        approvers = require_approvals(answer.approvals, contract, policy, self.account, begun=begun)
        ask = not said and _somebody_to_ask(contract, policy, self.questions)
        own = self._show(contract) if ask else NOTHING_OWN
        words = self._compare(contract, ask)
        screen = FirstScreen.of(contract, compared=words.get("compared_with", ()))
        if ask and not self.questions.yes(contract, replace(screen, always=own.marked_with(screen.always))):
            raise InputError("you did not say yes. Nothing has left this machine. Give the command again to take part.")
        if keys is not None:
            keys.bind(contract.digest, words.get("compared_with", ()))
        if self.auditor is not None:
            by = "approvers" if approvers else "a person at the terminal" if ask else _said_before(answer, begun)
            shown = screen if ask else FirstScreen.of(contract)
            seen = {"seen": shown.to_json()["always"]} if ask or answer.accept is not None else {}
            self.auditor.write(Event.YES, {"by": by, **approvers, "policy": policy.digest, "account": self.account, **seen})
        approval = {"contract": contract.digest, "policy": policy.digest, **approvers}
        return {"approval": approval, **({"sealed": words} if words else {})}

    def _show(self, contract: Agreement) -> OwnData:
        """Show it, to its owner with what nobody else sees."""
        own, screen = self.own(), screen_of(contract)
        if self.auditor is not None:
            self.auditor.write(Event.SHOWN, screen.to_json())
        self.questions.show(replace(FirstScreen.of(contract, own), code=screen.code))
        return own

    def _compare(self, contract: Agreement, ask: bool) -> dict[str, Any]:
        """With whom the words of a sealed study were compared, and for whose keys its convener is trusted."""
        sealed = contract.sealed
        if sealed is None or self.keys is None:
            return {}
        # Of a study with a committee its members: all who contribute besides may collude anyway.
        others = [entry.name for entry in sealed.computing if entry.name != self.keys.entry.name]
        names = _separated(self.answer.compared, others)
        if ask and not names:
            names = self.questions.compared(others)
        unknown = sorted(set(names) - set(others))
        if unknown:
            raise InputError(
                f"{unknown[0]!r} is not one of the other parties. Choose from {', '.join(others)}; separate several "
                "by commas, or repeat the option."
            )
        compared = sorted({*names, *self.keys.compared})
        unconfirmed = [name for name in others if name not in compared]
        trusted = unconfirmed if len(unconfirmed) > contract.plan.target.colluding else []
        self.policy.refuse_trust(trusted)
        if trusted and not ask:
            self.warn(f"nobody compared the safety code with {', '.join(trusted)}. Call them, else their keys may be false")
        return {"digest": sealed.digest, "compared_with": compared, "trusts_convener_for": trusted}


def screen_of(contract: Agreement) -> FirstScreen:
    """The first screen, of a sealed study with its safety code."""
    return FirstScreen.of(contract, code="" if contract.sealed is None else fingerprint(contract.sealed.digest).spoken)


def _said_before(answer: ConsentInAdvance, begun: bool) -> str:
    if answer.accept is not None:
        return "the digest of the contract"
    if answer.yes:
        return "the policy, unattended"
    return "this party before, it continues" if begun else "who gave study and roster"


def require_digest(accept: str, contract: Agreement) -> None:
    """Raises :class:`InputError` unless ``accept`` is enough of what was printed with all that has to be seen before a yes."""
    if len(accept) < DIGITS or not contract.accept_digest.startswith(accept.lower()):
        raise InputError(
            f"{named('accept', accept)} is not the digest of this study with all that has to be seen before a yes. Take the "
            f"one that quietmean site contract prints, {DIGITS} digits of it or more."
        )


def require_unattended(policy: Policy) -> None:
    """Raises :class:`InputError` where the site's policy does not say that nobody need be asked."""
    if not policy.rules.unattended:
        where = f"{policy.path} does not" if policy.path else "this site has no policy"
        raise InputError(
            f"{named('yes')} is for a site whose policy says unattended = true, and {where}. Give "
            f"{named('accept', 'DIGEST')}, from quietmean site contract, or answer at a terminal."
        )


def _somebody_to_ask(contract: Agreement, policy: Policy, questions: Questions) -> bool:
    """Raises :class:`InputError` where a yes is needed and nobody can be asked.

    Who gives a study file and a roster of their own to a command that nobody watches has read them; not so for what a convener
    sealed, and not at a site with a policy of its own.
    """
    if questions.can_ask():
        return True
    if contract.sealed is None and policy.path is None:
        return False
    raise InputError(
        "nobody said yes to this study, and nothing has left this machine. Read quietmean site contract, then give "
        f"{named('accept', 'DIGEST')} with the digest below it, or join at a terminal."
    )


def _separated(listed: Sequence[str], known: Sequence[str]) -> list[str]:
    """Names, of which several may stand in one text with commas between them."""
    names: list[str] = []
    for text in listed:
        names += [text] if text in known else [name.strip() for name in text.split(",") if name.strip()] or [text]
    return names
