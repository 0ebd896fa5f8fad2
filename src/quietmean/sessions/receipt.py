"""The receipt of one party's part in a session: what all its rounds cost, and how that is computed again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quietmean.core.assumptions import assumptions_json, listing
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import SESSION_RECEIPT, package_version
from quietmean.core.output import Output, json_object
from quietmean.core.readable import count_of, delta_shown, epsilon_shown, epsilon_text, indented, listed, marked
from quietmean.ledger import Account
from quietmean.node import SeriesProgress, Started
from quietmean.planning import Plan
from quietmean.privacy import Charge, compose
from quietmean.privacy.guesses import guess_text
from quietmean.studies.agreement.deadlines import minimum_of
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.session_terms import SessionTerms
from quietmean.studies.party import Grant
from quietmean.studies.party.agreement import against_all_others
from quietmean.studies.party.session_contract import PartOfSession, SessionContract, assumptions_of


def receipt_at(path: Path, contract: SessionContract) -> Output:
    """Where the receipt of this party's part goes: it takes the place of one of the same part, and of nothing else."""

    def own(content: bytes) -> bool:
        fields = json_object(content)
        origin = fields.get("origin")
        approval = origin.get("approval") if isinstance(origin, Mapping) else None
        agreed = approval.get("contract") if isinstance(approval, Mapping) else None
        return (fields.get("format"), fields.get("party"), agreed) == (SESSION_RECEIPT, contract.own.name, contract.digest)

    return Output(path, "the receipt", "receipt", own=own, private=True, ends=(".json",))


def settle(grant: Grant, contract: SessionContract, started: Started | None, progress: SeriesProgress) -> Account | None:
    """Put the rounds of a party that begins no other one in place of all in the ledger, and write the receipt."""
    part = contract.of_those_in(started)
    spent, account = part.terms.charge(progress.begun), None
    if grant.charge is not None:
        colluding = contract.target.colluding
        note = f"{progress.begun} of {count_of(grant.most, 'round')}, each as planned; against any {colluding} together"
        account = grant.charge.settle(spent, note)
    yes = grant.ended(result=progress.results > 0, rounds=progress.begun)
    document = receipt_of(part, progress, spent, {**yes.pop("approval"), **yes})
    receipt_at(grant.receipt, contract).write_json(document)
    return account


def receipt_of(part: PartOfSession, progress: SeriesProgress, spent: Charge, origin: Mapping[str, Any]) -> dict[str, Any]:
    contract, terms = part.contract, part.terms
    counted = dict(zip(part.names, progress.counted, strict=True))
    rounds = {"begun": progress.begun, "with_mean": progress.results, "counted": counted}
    return {
        "party": contract.own.name,
        "parties": [{"name": party.name, "key": party.key} for party in contract.parties],
        **_receipt(contract.study, terms, rounds, spent, contract.epsilon_a_priori, part.everybody_else(progress.begun)),
        **part.start_json(),
        "origin": {"approval": dict(origin), "version": package_version()},
    }


def receipt_of_run(study: SessionStudy, names: Sequence[str], counted: Sequence[int], begun: int) -> dict[str, Any]:
    """Return the receipt of a session whose parties, of these ``names``, are all in this process.

    ``counted``: in how many of the ``begun`` rounds each is.
    """
    terms = study.terms(len(names))
    rounds = {"begun": begun, "with_mean": begun, "counted": dict(zip(names, counted, strict=True))}
    others = against_all_others(terms.plan, 0, study.delta, begun)
    return {
        "parties": [{"name": name} for name in names],
        **_receipt(study, terms, rounds, terms.charge(begun), terms.spent_epsilon(study.rounds), others),
        "origin": {"version": package_version()},
    }


def _receipt(
    study: SessionStudy, terms: SessionTerms, rounds: Mapping[str, Any], spent: Charge, promised: float, others: float
) -> dict[str, Any]:
    """What every receipt of a session states. ``promised``: epsilon of all rounds; ``others``: if everybody else colludes."""
    return {
        "format": SESSION_RECEIPT,
        "session": study.describe(),
        "rounds": {"agreed": study.rounds, **rounds},
        "certificate": {
            "epsilon": terms.spent_epsilon(rounds["begun"]),
            "delta": study.delta,
            "mu": spent.mu,
            "beta": spent.beta,
            "tv": spent.tv,
            "epsilon_a_priori": promised,
            "colluding": terms.whole_target.colluding,
            "unit": str(study.unit),
            "neighbouring": str(terms.whole_target.neighbouring),
            "enforced_by": terms.plan.a_priori.enforced_by,
            "everyone_else_epsilon": "inf" if math.isinf(others) else others,
            "assumptions": assumptions_json(assumptions_of(terms.plan)),
        },
        "plan": terms.plan.to_json(),
    }


def certified(receipt: Mapping[str, Any], delta: float | None = None) -> dict[str, Any]:
    """What the rounds of a receipt cost at most, computed again from its plan; at the session's ``delta`` by default.

    Raises :class:`InputError` for a file whose parts do not belong together, or that states less than its rounds cost.
    """
    try:
        study, begun = SessionStudy.parse(receipt["session"]), int(receipt["rounds"]["begun"])
        parties, stated = len(receipt["parties"]), float(receipt["certificate"]["epsilon"])
        plan = Plan.from_json(receipt["plan"])
        inside = len(receipt["start"]["members"]) if study.starts_with_quorum else parties
    except (KeyError, TypeError, ValueError):
        raise InputError("this receipt of a session is not as quietmean writes it. Ask its party for it again.") from None
    terms = study.terms(parties)
    planned, expected = plan.target, replace(terms.whole_target, parties=inside)
    if not (inside == parties or minimum_of(study.minimum, parties, terms.colluding) <= inside < parties):
        raise InputError("the session in this receipt may not start with so many parties. Ask its party for it again.")
    fields = ("parties", "dimension", "sensitivity", "colluding", "dropouts", "unit", "neighbouring")
    if any(getattr(planned, name) != getattr(expected, name) for name in fields) or not 0 <= begun <= study.rounds:
        raise InputError("the plan in this receipt is not that of a round of its session. Ask its party for it again.")
    spent = compose([plan.charge] * begun)
    cost = spent.epsilon(study.delta) if begun else 0.0
    if stated < cost:
        raise InputError(
            f"this receipt states epsilon {stated:g}, and its {count_of(begun, 'round costs', 'rounds cost')} "
            f"{cost:g}, so it was changed. Ask for it again."
        )
    at = study.delta if delta is None else delta
    return {
        "session": study.name,
        "rounds": {"agreed": study.rounds, "begun": begun},
        "mu": spent.mu,
        "beta": spent.beta,
        "tv": spent.tv,
        "epsilon": spent.epsilon(at) if begun else 0.0,
        "delta": at,
        "adversary": f"any coalition of {count_of(planned.colluding, 'party', 'parties')}, the same in all rounds",
        "unit": str(planned.unit),
        "neighbouring": str(planned.neighbouring),
        "enforced_by": plan.a_priori.enforced_by,
    }


def has_failed(receipt: Mapping[str, Any]) -> bool:
    """Did rounds of the session begin, and none of them end with a mean?"""
    return int(receipt["rounds"]["begun"]) > 0 and not int(receipt["rounds"]["with_mean"])


def screen_of(receipt: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The first screen of a session that has ended: the lines of its rounds and their cost, and those that must not be missed.

    Raises :class:`InputError` as :func:`certified`.
    """
    cost, parties = certified(receipt), len(receipt["parties"])
    rounds, counted, absent = cost["rounds"], receipt["rounds"]["counted"], _absent(receipt)
    missed = [f"{name} ({means} of {rounds['begun']})" for name, means in counted.items() if means < rounds["begun"]]
    price = f"epsilon {epsilon_shown(cost['epsilon'])} (delta {delta_shown(cost['delta'])}) per {cost['unit']}"
    price += f", guaranteed, against any {receipt['certificate']['colluding']} of {parties}"
    begun = f"Session {cost['session']!r}: {rounds['begun']} of {count_of(rounds['agreed'], 'round')} began."
    answers = f"{receipt['rounds']['with_mean']} of {count_of(rounds['begun'], 'round')} gave an answer"
    means = guess_text(float(cost["epsilon"]), float(cost["delta"]), str(cost["unit"]))
    rows = [("Answers", answers), ("Privacy", price), (" ", means)]
    if has_failed(receipt):
        begun, rows = f"No answer. {begun}", [("Cost", price)]
    marks = [
        *(marked("AWAY", f"{listed(absent)} took no part: not in at the start.") if absent else []),
        *(marked("AWAY", f"Not in every mean: {listed(missed)}.") if missed else []),
        *(
            []
            if cost["unit"] == PrivacyUnit.PARTY
            else marked("SITE", f"Each {cost['unit']} is protected. A site as a whole is not.")
        ),
    ]
    return [*indented("", begun, 0), *(line for row in rows for line in indented(*row))], marks


def _absent(receipt: Mapping[str, Any]) -> list[str]:
    start = receipt.get("start")
    return [str(name) for name in start.get("not_in_at_start", ())] if isinstance(start, Mapping) else []


def details_of(receipt: Mapping[str, Any]) -> list[str]:
    """All the rest that is to be said of a session: against whom and by what its figures hold, and what they assume."""
    cost, stated = certified(receipt), receipt["certificate"]
    return [
        f"one {cost['unit']} ({cost['neighbouring']}): at most epsilon {epsilon_text(cost['epsilon'])} at delta "
        f"{cost['delta']:g}, guaranteed",
        f"against {cost['adversary']}; enforced by {cost['enforced_by']}",
        f"{count_of(cost['rounds']['agreed'], 'round')} together: epsilon {epsilon_text(float(stated['epsilon_a_priori']))}",
        *listing(stated["assumptions"], "the receipt"),
    ]
