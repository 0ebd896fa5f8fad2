"""A contract in five sentences, which the page words: what they are about. All terms stand below them, as they are signed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from quietmean.protocols.mechanism import is_private
from quietmean.studies.party import Contract
from quietmean.studies.party.session_contract import SessionContract


@dataclass(frozen=True)
class InShort:
    """``unit``: "record" or another one that is protected. ``epsilon``: at most, rounded up; None where nothing bounds it.

    ``if_all_others``: the same if all others collude. ``expected``: how wide the intervals will be, of the contract itself.
    ``members``: of the committee that opens the sum, of whom ``colluding`` may collude with all other contributors; 0 where there
    is none. Contributions come until ``contribute_by``, besides those of the ``others`` from so many who have ``vouchers``.
    """

    convener: str
    asks: str
    columns: str
    others: str
    protocol: str
    trusts: str
    private: bool
    unit: str
    epsilon: str | None
    delta: str
    colluding: int
    parties: int
    if_all_others: str | None
    decide_by: datetime | None
    expected: str
    members: int = 0
    contribute_by: datetime | None = None
    vouchers: int = 0


def in_short(contract: Contract | SessionContract, convener: str, decide_by: datetime | None) -> InShort:
    """What the five sentences say of a contract."""
    expected = "" if isinstance(contract, SessionContract) else "; ".join(contract.expected())
    protocol = contract.plan.protocol
    committee = None if isinstance(contract, SessionContract) else contract.study.committee
    return InShort(
        convener=convener,
        asks=", ".join(text for _, text in contract.asks_for),
        columns=", ".join(column.name for column in contract.used),
        others=", ".join(party.name for party in contract.others),
        protocol=protocol.name,
        trusts=protocol.traits.trust,
        private=is_private(protocol),
        unit=str(contract.study.unit),
        epsilon=_bound(contract.epsilon_a_priori),
        delta=f"{contract.target.delta:g}",
        colluding=contract.target.colluding,
        parties=contract.target.parties,
        if_all_others=_bound(contract.everybody_else),
        decide_by=decide_by,
        expected=expected,
        members=0 if committee is None else committee.members,
        contribute_by=None if committee is None else committee.contribute_by,
        vouchers=0 if committee is None else committee.vouchers or 0,
    )


def _bound(epsilon: float) -> str | None:
    """Return the bound as text, rounded up; None where nothing bounds it."""
    return None if math.isinf(epsilon) else f"{math.ceil(epsilon * 100 * (1 - 1e-12)) / 100:g}"
