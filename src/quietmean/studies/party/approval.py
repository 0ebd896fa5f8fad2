"""The yes of the data owner, before anything leaves this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from quietmean.core.errors import InputError, named
from quietmean.core.site_options import ConsentOptions
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.party.accounts import AccountQuestion
from quietmean.studies.party.agreement import Agreement
from quietmean.studies.party.audit import Auditor, Event
from quietmean.studies.party.fingerprint import fingerprint
from quietmean.studies.party.owner_approval import OwnerApproval, require_approvals
from quietmean.studies.party.policy import Policy

# Hexadecimal digits of the digest that --accept needs: no search finds another study with the same ones.
_FEWEST_DIGITS = 32


class Questions(Protocol):
    """Whom to ask: a person at a terminal, for instance."""

    def can_ask(self) -> bool: ...

    def show(self, contract: Agreement) -> None: ...

    def compared(self, words: str, others: Sequence[str]) -> list[str]:
        """Which of the ``others`` read the same words."""
        ...

    def yes(self) -> bool:
        """Whether to take part."""
        ...

    def account(self, question: AccountQuestion) -> str:
        """Whose people these are: the place of their account, from 1 on, or 0 for others."""
        ...


class NobodyToAsk:
    """No question is asked: a yes is said in advance."""

    def can_ask(self) -> bool:
        return False

    def show(self, contract: Agreement) -> None:
        """Nobody sees it."""

    def compared(self, words: str, others: Sequence[str]) -> list[str]:
        """With nobody."""
        return []

    def yes(self) -> bool:
        return False

    def account(self, question: AccountQuestion) -> str:
        return ""


@dataclass(frozen=True)
class ConsentInAdvance:
    """What was said in advance.

    ``accept``: the digest of the contract, or its first 32 digits or more; ``yes``: without naming it. ``compared``: names of
    parties who read out the same words of a sealed study; the others count as colluders. ``approvals``: signed by those whom
    the policy names. ``a_priori_above_target``: that no promise keeps the target.
    """

    accept: str | None = None
    compared: Sequence[str] = ()
    yes: bool = False
    approvals: Sequence[OwnerApproval] = ()
    a_priori_above_target: bool = False

    @classmethod
    def of(cls, options: ConsentOptions) -> ConsentInAdvance:
        """With the approvals that are in files. Raises :class:`InputError` for one that cannot be read."""
        approvals = [OwnerApproval.load(path) for path in options.approval or ()]
        compared = tuple(options.compared or ())
        return cls(options.accept, compared, options.yes, approvals, options.a_priori_above_target)


@dataclass(frozen=True)
class Consent:
    """How a site comes to a yes: its rules, what was said in advance, whom to ask and inform.

    ``account``: what the ledger calls the data. ``keys``: of this party for a sealed study. ``begun``: this party has said yes
    before, and continues. ``auditor`` gets what was shown, refused and said.
    """

    policy: Policy
    answer: ConsentInAdvance
    questions: Questions
    warn: Callable[[str], None]
    account: str = ""
    keys: StudyKeys | None = None
    begun: bool = False
    auditor: Auditor | None = None

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
            raise InputError(f"{named('compared')} is about the words of a sealed study, this one is not sealed: leave it out")
        begun = self.begun or (keys is not None and keys.sealed is not None)
        if not begun:
            for plan in contract.plans:
                plan.require_target_kept(answer.a_priori_above_target)
        if answer.accept is not None:
            require_digest(answer.accept, contract)
        if answer.yes:
            require_unattended(policy)
        approvers = require_approvals(answer.approvals, contract, policy, self.account, begun=begun)
        answered = begun or approvers or answer.accept or answer.yes
        ask = not answered and _somebody_to_ask(contract, policy, self.questions)
        if ask:
            if self.auditor is not None:
                self.auditor.write(Event.SHOWN)
            self.questions.show(contract)
        words = self._compare(contract, ask)
        if ask and not self.questions.yes():
            raise InputError("you did not say yes: nothing has left this machine")
        if keys is not None:
            keys.bind(contract.digest, words.get("compared_with", ()))
        if self.auditor is not None:
            by = "approvers" if approvers else "a person at the terminal" if ask else _said_before(answer, begun)
            self.auditor.write(Event.YES, {"by": by, **approvers, "policy": policy.digest, "account": self.account})
        approval = {"contract": contract.digest, "policy": policy.digest, **approvers}
        return {"approval": approval, **({"sealed": words} if words else {})}

    def _compare(self, contract: Agreement, ask: bool) -> dict[str, Any]:
        """With whom the words of a sealed study were compared, and for whose keys its convener is trusted."""
        sealed = contract.sealed
        if sealed is None or self.keys is None:
            return {}
        # Of a study with a committee its members: all who contribute besides may collude anyway.
        others = [entry.name for entry in sealed.computing if entry.name != self.keys.entry.name]
        names = _separated(self.answer.compared, others)
        if ask and not names:
            names = self.questions.compared(fingerprint(sealed.digest).spoken, others)
        unknown = sorted(set(names) - set(others))
        if unknown:
            raise InputError(
                f"{unknown[0]!r} is none of the other parties: choose from {', '.join(others)}; separate several "
                "by commas, or repeat the option"
            )
        compared = sorted({*names, *self.keys.compared})
        unconfirmed = [name for name in others if name not in compared]
        trusted = unconfirmed if len(unconfirmed) > contract.plan.target.colluding else []
        self.policy.refuse_trust(trusted)
        if trusted:
            self.warn(f"nobody compared the words with {', '.join(trusted)}: I trust the convener for their keys")
        return {"digest": sealed.digest, "compared_with": compared, "trusts_convener_for": trusted}


def _said_before(answer: ConsentInAdvance, begun: bool) -> str:
    if answer.accept is not None:
        return "the digest of the contract"
    if answer.yes:
        return "the policy, unattended"
    return "this party before, it continues" if begun else "who gave study and roster"


def require_digest(accept: str, contract: Agreement) -> None:
    """Raises :class:`InputError` unless ``accept`` names the contract by enough of its digest."""
    if len(accept) < _FEWEST_DIGITS or not contract.digest.startswith(accept.lower()):
        read = "after you compared the words with other parties" if contract.sealed else "after you read quietmean contract"
        raise InputError(
            f"{named('accept', accept)} is not the digest of this study: give at least {_FEWEST_DIGITS} digits of "
            f"{contract.digest}, "
            f"{read}"
        )


def require_unattended(policy: Policy) -> None:
    """Raises :class:`InputError` where the site's policy does not say that nobody need be asked."""
    if not policy.rules.unattended:
        where = f"{policy.path} does not" if policy.path else "this site has no policy"
        raise InputError(
            f"{named('yes')} is for a site whose policy says unattended = true, and {where}: give "
            f"{named('accept', 'DIGEST')}, from quietmean "
            "contract, or answer at a terminal"
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
        "nobody said yes to this study, nothing has left this machine: give "
        f"{named('accept', contract.digest[:_FEWEST_DIGITS])} after "
        "you read quietmean contract, or join at a terminal"
    )


def _separated(listed: Sequence[str], known: Sequence[str]) -> list[str]:
    """Names, of which several may stand in one text with commas between them."""
    names: list[str] = []
    for text in listed:
        names += [text] if text in known else [name.strip() for name in text.split(",") if name.strip()] or [text]
    return names
