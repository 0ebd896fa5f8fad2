"""How far one party can move the answers of a study by what it sends: before the start, and of a result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from quietmean.core.party import Vector
from quietmean.core.readable import percent_text
from quietmean.planning.influence import Checked, Influence, planned_influence
from quietmean.planning.plan import Plan
from quietmean.statistics import Workload
from quietmean.statistics.moves import Move, Shift, moves
from quietmean.studies.agreement.study import StudyTerms

_HOW = {
    Checked.EACH_RELEASE: "each release is held against the bounds by itself",
    Checked.RESULT: "only the result is held against the bounds: within them and the noise it can be anything",
    Checked.NOTHING: "nothing bounds what is possible",
}
# Digits of a bound for people, which is rounded up.
_DIGITS = 3
# So many terms of a statistic are told one by one.
_FEW = 3


@dataclass(frozen=True)
class StudyInfluence:
    """``moves``: of each term, how far one party moves it at most, in its units. ``share``: of the largest party in all weight.

    A bound on what a party can do by what it sends, whatever that is, to a result that is shown. It is about lies that pass; true
    values move a result as far as their weight does, which is no more.
    """

    checked: Checked
    share: float
    moves: tuple[Move, ...]
    # As if no cell were missing.
    before: bool = False

    @classmethod
    def of(cls, workload: Workload, influence: Influence, step: float, mean: Vector | None = None) -> Self:
        """``mean``: the mean vector, (d,), of a result; None before the start. ``step``: of the plan's grid."""
        shift = Shift(influence.mean, influence.total, influence.weight)
        return cls(influence.checked, influence.share, moves(workload, shift, step, mean))

    @classmethod
    def planned(cls, workload: Workload, plan: Plan, records: float | None, share: float | None = None) -> Self | None:
        """Before the start, as if no cell were missing; None where nobody said how many records there are, or for many parties.

        ``share``: the most of all records that one party may have, by default as many as every other one.
        """
        if records is None:
            return None
        influence = planned_influence(plan, records, share)
        return None if influence is None else replace(cls.of(workload, influence, plan.protocol.numbers().step), before=True)

    @classmethod
    def of_study(cls, study: StudyTerms, plan: Plan, records: int | None = None) -> Self | None:
        """The same with what a study says of records: how many there are, how few and how many one party may have.

        Of the least number that this leaves, and the largest part of one party: a bound falls with one and rises with the other.
        """
        parties, total = plan.target.parties, study.public_records(plan.target.parties, records)
        share = study.share_of(parties)
        if study.records_per_party is not None:
            total = min(total or math.inf, float(parties * study.records_per_party[0]))
        return cls.planned(study.workload, plan, total, share)

    def most(self, statistic: str, term: str = "") -> float | None:
        """Of a term of a statistic, by its text; the only one where none is named. None where it is not known."""
        found = [one.most for one in self.moves if one.statistic == statistic and term in ("", one.term)]
        return found[0] if len(found) == 1 else None

    def sentences(self) -> list[str]:
        """For people: one for each term of few, else the largest of a statistic's."""
        found = []
        by_statistic: dict[str, list[Move]] = {}
        for move in self.moves:
            by_statistic.setdefault(move.statistic, []).append(move)
        for statistic, own in by_statistic.items():
            if len(own) > _FEW:
                known = [one.most for one in own if one.most is not None]
                own = [Move(f"any term of {statistic}", own[0].term, max(known, default=None))] if known else own[:1]
                found.append(f"any term of {statistic} by at most {bound_text(own[0].most)}")
                continue
            found += [f"{one.label} by at most {bound_text(one.most)}" for one in own]
        missing = ", as if no cell were missing" if self.before else ""
        return [*found, f"{_HOW[self.checked]}; the largest party counts {percent_text(self.share)}{missing}"]

    def to_json(self) -> dict[str, Any]:
        return {
            "checked": str(self.checked),
            "largest_share": self.share,
            "moves": [{"statistic": one.statistic, "term": one.term, "most": one.most} for one in self.moves],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`, of what a result holds."""
        read = [Move(one["statistic"], one["term"], None if one["most"] is None else float(one["most"])) for one in raw["moves"]]
        return cls(Checked(raw["checked"]), float(raw["largest_share"]), tuple(read))


def checked_text(by: Mapping[str, Any]) -> str:
    """Of :attr:`Mechanism.checked_by`, a sentence."""
    sums, needed, lies = (int(by[name]) for name in ("sums", "needed", "lies_excluded"))
    if not lies:
        return f"unchecked: {sums} sums of members came, and {needed} determine the result, so that a wrong one is not noticed"
    wrong = "one wrong sum" if lies == 1 else f"up to {lies} wrong sums"
    return (
        f"checked by {sums} sums of members, of which {needed} determine the result: {wrong} would have been noticed for certain"
    )


def bound_text(most: float | None) -> str:
    """Rounded up."""
    if most is None:
        return "a number that is not known"
    if math.isinf(most):
        return "infinitely much"
    if most <= 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(most)) - _DIGITS + 1)
    return f"{math.ceil(most / unit * (1 - 1e-12)) * unit:.{_DIGITS}g}"
