"""What pages show of a contract, in five sentences that a template words, and of a receipt: answers, or rounds and their cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import SESSION_RECEIPT
from quietmean.core.readable import count_of, epsilon_text
from quietmean.protocols.mechanism import is_private
from quietmean.report.pictures import pictures_of
from quietmean.sessions.receipt import certified
from quietmean.statistics.printed import in_all
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.outcome.tables import Line, ResultTable, tables_of
from quietmean.studies.party import Contract
from quietmean.studies.party.session_contract import SessionContract


def in_short(contract: Contract | SessionContract, convener: str, decide_by: datetime | None) -> dict[str, Any]:
    """What the five sentences say of a contract.

    ``epsilon``: at most, rounded up, and ``if_all_others``, if all others collude; None where nothing bounds it. ``members``: of
    the committee that opens the sum, of whom ``colluding`` may collude with all other contributors; 0 where there is none.
    Contributions come until ``contribute_by``, besides those of the ``others`` from so many who have ``vouchers``.
    ``expected``: how wide the intervals will be, of the contract itself.
    """
    study, protocol, target = contract.study, contract.plan.protocol, contract.target
    committee = None if isinstance(study, SessionStudy) else study.committee
    return {
        "convener": convener,
        "asks": ", ".join(text for _, text in contract.asks_for),
        "columns": ", ".join(column.name for column in contract.used),
        "others": ", ".join(party.name for party in contract.others),
        "protocol": protocol.name,
        "trusts": protocol.traits.trust,
        "private": is_private(protocol),
        "unit": str(study.unit),
        "epsilon": _bound(contract.epsilon_a_priori),
        "delta": f"{target.delta:g}",
        "colluding": target.colluding,
        "parties": target.parties,
        "if_all_others": _bound(contract.everybody_else),
        "decide_by": decide_by,
        "expected": "" if isinstance(contract, SessionContract) else "; ".join(contract.expected()),
        "members": 0 if committee is None else committee.members,
        "contribute_by": None if committee is None else committee.contribute_by,
        "vouchers": 0 if committee is None else committee.vouchers or 0,
    }


def _bound(epsilon: float) -> str | None:
    """Return the bound as text, rounded up; None where nothing bounds it."""
    return None if math.isinf(epsilon) else f"{math.ceil(epsilon * 100 * (1 - 1e-12)) / 100:g}"


def result_of(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the page of a result. Raises :class:`InputError` for the receipt of a session that somebody has changed."""
    is_session = receipt.get("format") == SESSION_RECEIPT
    tables = _rounds(receipt) if is_session else _answers(receipt)
    origin = _field(receipt, "origin")
    return {
        "title": _title(receipt),
        "is_session": is_session,
        "tables": tables,
        "pictures": pictures_of(receipt["result"]) if tables and not is_session else [],
        # Notes that all tables share are shown once; a table that is used alone has them itself.
        "shared": in_all([table.notes for table in tables]),
        "finished": _field(origin, "finished"),
        "version": _field(origin, "quietmean") or _field(origin, "version"),
        "contract": _field(origin, "approval", "contract"),
        "plan": _field(origin, "plan"),
    }


def _title(receipt: Mapping[str, Any]) -> Any:
    """The name of the study or session; None where the receipt does not say."""
    if receipt.get("format") == SESSION_RECEIPT:
        return _field(receipt, "session", "name")
    # A study may be asked for with its columns or alone.
    title = _field(receipt, "origin", "study")
    return title.get("study") if isinstance(title, dict) else title


def _answers(receipt: Mapping[str, Any]) -> list[ResultTable]:
    """The tables of the answers; none for a receipt of a study without a result, and one that somebody has changed."""
    result = receipt.get("result")
    with suppress(InputError):
        return tables_of(result) if isinstance(result, dict) else []
    return []


def _rounds(receipt: Mapping[str, Any]) -> list[ResultTable]:
    """Which rounds there were, and whose vectors are in their means; the cost is computed again."""
    certificate = certified(receipt)
    wrong = InputError("this receipt of a session is not as quietmean writes it: ask its party for it again")
    results = convert(_field(receipt, "rounds", "with_mean"), int, lambda reason: wrong)
    counted = convert(_field(receipt, "rounds", "counted"), dict[str, int], lambda reason: wrong)
    rounds, delta = certificate["rounds"], f"{certificate['delta']:g}"
    lines = [("agreed on", rounds["agreed"]), ("that began here", rounds["begun"]), ("with a mean", results)]
    cost = f"epsilon {epsilon_text(certificate['epsilon'])} at delta {delta} at most, for one {certificate['unit']}"
    notes = [
        f"{rounds['begun']} of {count_of(rounds['agreed'], 'round')} began: {cost}, under "
        f"{certificate['neighbouring']}, whatever happened",
        f"against {certificate['adversary']}; enforced by {certificate['enforced_by']}",
    ]
    return [
        ResultTable.of("Rounds", ("rounds", "number"), [Line((name, f"{count}")) for name, count in lines], notes=notes),
        ResultTable.of(
            "In how many means each party is", ("party", "means"), [Line((name, f"{count}")) for name, count in counted.items()]
        ),
    ]


def _field(document: Any, *path: str) -> Any:
    """The field of a document at a path; None where there is none."""
    for part in path:
        document = document.get(part) if isinstance(document, Mapping) else None
    return document
