"""How a party's part in a study ended: what could not be settled, and which execution a receipt is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quietmean.core.errors import InputError, NotStarted, in_sentences
from quietmean.core.file_kinds import package_version
from quietmean.node import NodeResult, NodeSettings, Roster
from quietmean.node.monitor import now
from quietmean.node.phase import Phase
from quietmean.studies.party.audit import Auditor, Event, LogHead
from quietmean.studies.party.files import PartyContext
from quietmean.studies.party.payment import ChargedStudy

# Hexadecimal signs of a digest that people read.
_SHOWN = 16


def ended(auditor: Auditor, approval: Mapping[str, Any], **end: Any) -> dict[str, Any]:
    """Write the end into the audit log: what a receipt says of the yes, and how far the log has come.

    A result is not lost to a log that cannot be written: its receipt says so instead.
    """
    try:
        audit: dict[str, Any] = auditor.write(Event.ENDED, end).to_json()
    except InputError as error:
        audit = {"not_written": str(error)}
    return {**approval, "audit": audit}


def not_started(error: NotStarted, charge: ChargedStudy | None) -> NotStarted:
    """Say with it what became of the charge, which is given back unless the ledger knows an attempt of this party."""
    if charge is None:
        return NotStarted(str(error), for_good=error.for_good)
    refund = charge.never_started()
    in_ledger = "What was reserved in the ledger is given back" if refund else "What was reserved stays in the ledger"
    return NotStarted(in_sentences(error, in_ledger), for_good=error.for_good, refunded=refund)


def unsettled(result: NodeResult) -> dict[str, Any]:
    """What the execution could not settle; parties by their place in the roster."""
    return {
        "silent": list(result.silent),
        "unresolved": [list(transfer) for transfer in result.unresolved],
        "counted_twice": [list(transfer) for transfer in result.counted_twice],
        "counted_twice_part": result.counted_twice_part,
        "impossible_releases": [list(release) for release in result.impossible],
        "equivocating": [list(pair) for pair in result.equivocating],
    }


def lies_of(roster: Roster, result: NodeResult) -> list[str]:
    """Who was found to have sent something false, in sentences for the user."""
    notes = list(result.remarks)
    for party, digest in result.impossible:
        notes.append(
            f"{roster.name(party)} released an impossible sum (digest {digest[:_SHOWN]}): values within the "
            "bounds cannot give it. quietmean left it out, as if that party had dropped out. The standard "
            "errors and privacy figures count that"
        )
    for party, digest, other, its_word in result.equivocating:
        notes.append(
            f"{roster.name(party)} released something else to this party (digest {digest[:_SHOWN]}) than to {roster.name(other)} "
            f"(digest {its_word[:_SHOWN]}), or {roster.name(other)} does not say truly what it received: results may differ"
        )
    return notes


def notes_of(roster: Roster, result: NodeResult) -> list[str]:
    """What the execution could not settle, in sentences for the user."""
    notes = []
    if result.gate is not None and not result.gate.published:
        notes.append(f"this party published nothing at the gate before the release: {result.gate.reason}; the others did")
    if result.silent:
        names = ", ".join(roster.name(party) for party in result.silent)
        notes.append(f"{names} sent no report at the end: that part of this execution is known from the others only")
    if missing := _without_release(result):
        names = ", ".join(roster.name(party) for party in missing)
        notes.append(f"nothing published by {names} arrived here: this result is without it, and differs from that of who has it")
    for party in sorted({party for party, _ in result.not_there}):
        others = " and ".join(roster.name(other) for missing, other in result.not_there if missing == party)
        notes.append(f"what {roster.name(party)} published is not in the result of {others}: that differs from this one")
    if in_part := result.in_part_text([entry.name for entry in roster.entries]):
        notes.append(in_part)
    if result.counted_twice:
        places = "; ".join(
            f"round {round_}, {roster.name(sender)} to {roster.name(receiver)}"
            for round_, sender, receiver in result.counted_twice
        )
        notes.append(
            "Parties were cut off from each other until the end. What these messages carried counts twice, with the "
            f"receiver and with the sender: {places}. It is at most {result.counted_twice_part:.2g} of the result's "
            "weight. So a mean is off by at most that part of the distance between its bounds. The privacy figures "
            "take it into account"
        )
    if shares := _places(roster, result, Phase.MIXING):
        notes.append(
            f"own messages were taken back, and nobody said whether their receivers had used them: {shares}. Nothing "
            "that these made of them is in this result. The privacy figures count as seen what came while they may "
            "still have been there"
        )
    if sums := _places(roster, result, Phase.DISSEMINATION):
        notes.append(
            f"own messages of published sums were taken back, and whether their receivers had used them is not known: {sums}. "
            "The results of the parties may differ by what these carried"
        )
    return notes


def _of_result(roster: Roster, result: NodeResult) -> dict[str, Any]:
    said = {"remarks": list(result.remarks), "notes": notes_of(roster, result)}
    return {
        "public_seed": result.public_seed,
        **unsettled(result),
        **{name: texts for name, texts in said.items() if texts},
        **_audits(roster, result),
    }


def _audits(roster: Roster, result: NodeResult) -> dict[str, Any]:
    """How far the others' audit logs had come, as they said: none of them can undo it in this receipt."""
    audits = {}
    for party, raw in result.audits:
        head = LogHead.from_bytes(raw, roster.entries[party].public_key)
        if head is not None:
            audits[roster.name(party)] = head.to_json()
    return {"audits_of_others": audits} if audits else {}


def _without_release(result: NodeResult) -> list[int]:
    """Who was there in the last round, and what it published did not come."""
    protocol, execution = result.execution.protocol, result.execution
    if not protocol.traits.releases_are_public:
        return []
    came = {*result.heard, *(party for party, _ in result.impossible)}
    published = protocol.traits.releasers(execution.parties) - came
    return [party for party in sorted(published) if execution.trace.finished[party]]


def _places(roster: Roster, result: NodeResult, phase: Phase) -> str:
    """Whom the unresolved messages of a phase went to, and when."""
    rounds: dict[int, list[str]] = {}
    for sent_in, round_, receiver in result.unresolved:
        if sent_in == phase:
            rounds.setdefault(receiver, []).append(str(round_))
    return "; ".join(f"to {roster.name(receiver)} in {_rounds(sent)}" for receiver, sent in sorted(rounds.items()))


def _rounds(sent: list[str]) -> str:
    return f"round {sent[0]}" if len(sent) == 1 else f"rounds {', '.join(sent)}"


def origin_of(
    files: PartyContext,
    settings: NodeSettings,
    approval: Mapping[str, Any],
    result: NodeResult | None = None,
    start: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The origin for the receipt: which software, study, plan and parties this execution is of, and what its ``result``
    left open.

    ``start``: who was in at it, of a study that did not wait for all.
    """
    plan = settings.plan
    return {
        "quietmean": package_version(),
        "study": plan.context,
        "target": plan.target.describe(),
        "plan": plan.digest,
        "roster": files.roster.digest,
        "session": settings.study,
        "party": files.party,
        "names": [entry.name for entry in files.roster.entries],
        "links": str(settings.keys.links),
        "finished": now(),
        **approval,
        **(start or {}),
        **({} if result is None else _of_result(files.roster, result)),
    }
