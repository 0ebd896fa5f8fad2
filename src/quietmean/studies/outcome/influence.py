"""How far one party can move the answers of a study by what it sends: before the start, and of a result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from quietmean.core.party import Vector
from quietmean.core.readable import Fact, bound_text, percent_text, some_of
from quietmean.planning.influence import Checked, Influence, planned_influence
from quietmean.planning.plan import Plan
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.statistics import Workload
from quietmean.statistics.answers import Answer
from quietmean.statistics.influence_bounds import Shift
from quietmean.statistics.moves import Move, moves
from quietmean.studies.agreement.study import StudyTerms

_HOW = {
    Checked.EACH_RELEASE: "each release is held against the bounds by itself",
    Checked.EACH_CONTRIBUTION: "each contribution is held against the bounds, though nobody learns it",
    Checked.RESULT: "only the result is held against the bounds: within them and the noise it can be anything",
    Checked.NOTHING: "nothing bounds what is possible",
}
# Digits of a bound for people, which is rounded up.
_DIGITS = 3
# So many terms of a statistic are named one by one.
_FEW = 3


@dataclass(frozen=True)
class StudyInfluence:
    """How far one party can move the answers of a study.

    ``moves``: of each term, how far one party moves it at most, in its units. ``share``: of the largest party in all weight.

    A bound on what a party can do by what it sends, whatever that is, to a result that is shown. It is about lies that pass; true
    values move a result as far as their weight does, and not farther.
    """

    checked: Checked
    share: float
    moves: tuple[Move, ...]
    # As if no cell were missing.
    before: bool = False
    unnoticed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        workload: Workload,
        influence: Influence,
        step: float,
        mean: Vector | None = None,
        noise: float = 0.0,
        answers: Sequence[Answer] = (),
    ) -> Self:
        """The influence on a result, or before the start.

        ``mean``: the mean vector, (d,), of a result, with the standard deviation of the ``noise`` on a coordinate and its
        ``answers``; None before the start. ``step``: of the plan's grid."""
        largest = max(noise, influence.noise)
        shift = Shift(influence.mean, influence.total, influence.weight, largest, influence.records, noise)
        moved = moves(workload, shift, step, mean, answers)
        return cls(influence.checked, influence.share, moved, unnoticed=influence.unnoticed)

    @classmethod
    def planned(cls, workload: Workload, plan: Plan, records: float | None, share: float | None = None) -> Self | None:
        """The influence before the start, as if no cell were missing; None without a number of records, or for many parties.

        ``share``: the most of all records that one party may have, by default as many as every other one.
        """
        if records is None:
            return None
        influence = planned_influence(plan, records, share)
        return None if influence is None else replace(cls.of(workload, influence, plan.protocol.numbers().step), before=True)

    @classmethod
    def of_study(cls, study: StudyTerms, plan: Plan, records: int | None = None) -> Self | None:
        """Bound it by what a study says of records: how many there are, how few and how many one party may have.

        Of the least number that this leaves, and the largest part of one party: a bound falls with one and rises with the other.
        """
        parties, total = plan.target.parties, study.public_records(plan.target.parties, records)
        share = study.share_of(parties)
        if study.records_per_party is not None:
            total = min(total or math.inf, float(parties * study.records_per_party[0]))
        return cls.planned(study.workload, plan, total, share)

    def most(self, statistic: str) -> float | None:
        """Return the bound of the only term of a statistic, by its text. None where it is not known, or has several."""
        bounds = [move.most for move in self.moves if move.statistic == statistic]
        return bounds[0] if len(bounds) == 1 else None

    def sentences(self) -> list[str]:
        """The sentences for people: one for each term of few, else the largest of a statistic's."""
        sentences = []
        by_statistic: dict[str, list[Move]] = {}
        for move in self.moves:
            by_statistic.setdefault(move.statistic, []).append(move)
        for statistic, own in by_statistic.items():
            if len(own) > _FEW:
                sentences.append(f"any term of {statistic} {_farthest(own)}")
                continue
            sentences += [f"{move.label} {_bounded(move)}" for move in own]
        missing = ", as if no cell were missing" if self.before else ""
        return [
            *sentences,
            *self.unnoticed,
            f"{_HOW[self.checked]}; the largest party counts {percent_text(self.share)}{missing}",
        ]

    @property
    def fact(self) -> Fact:
        """Say it in one sentence: of few terms how far, else where all are. It is about false values that pass."""
        known = [move.most for move in self.moves if move.most is not None]
        farthest, condition = max(known, default=math.nan), f"the largest party counts {percent_text(self.share)}"
        if not known or math.isinf(farthest):
            sentence = "nobody checks whether parties send true values; the report says how far a false one can move each answer"
        elif len(self.moves) > _FEW:
            sentence = "false values of one party can move the answers; the report says how far each"
        else:
            sentence = f"false values of one party can move {'; '.join(f'{move.label} {_bounded(move)}' for move in self.moves)}"
        return Fact("influence", farthest, UPPER_BOUND, condition, sentence)

    def to_json(self) -> dict[str, Any]:
        return {
            "checked": str(self.checked),
            "largest_share": self.share,
            "moves": [_move_json(move) for move in self.moves],
            **({"unnoticed": list(self.unnoticed)} if self.unnoticed else {}),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`, of what a result holds."""
        read = [
            Move(
                move["statistic"],
                move["term"],
                None if move["most"] is None else float(move["most"]),
                (float(move["range"][0]), float(move["range"][1])) if "range" in move else None,
            )
            for move in raw["moves"]
        ]
        return cls(
            Checked(raw["checked"]), float(raw["largest_share"]), tuple(read), unnoticed=tuple(map(str, raw.get("unnoticed", ())))
        )


def coordinate_json(influence: Influence, clip: float) -> dict[str, Any]:
    """State how far one party moves the coordinate that it moves most, in a mean of vectors of L2 norm ``clip``."""
    stated = {"checked": str(influence.checked), "largest_share": influence.share, "largest": clip * influence.largest}
    return stated | ({"unnoticed": list(influence.unnoticed)} if influence.unnoticed else {})


def coordinate_text(influence: Influence, clip: float) -> str:
    """Say :func:`coordinate_json` in a sentence."""
    moved, how = bound_text(clip * influence.largest), _HOW[influence.checked]
    share = percent_text(influence.share)
    return (
        f"a coordinate of a round's mean by at most {moved} if all are there; {how}; the largest party counts {share}"
        + "".join(f"; {sentence}" for sentence in influence.unnoticed)
    )


def _move_json(move: Move) -> dict[str, Any]:
    whole = {} if move.range is None else {"range": list(move.range)}
    return {"statistic": move.statistic, "term": move.term, "most": move.most, **whole}


def _bounded(move: Move) -> str:
    if move.range is not None:
        low, high = move.range
        return f"to anything from {low:.{_DIGITS}g} to {high:.{_DIGITS}g}, or beyond, which no values are"
    if move.most == math.inf:
        return "by any amount"
    return f"by at most {bound_text(move.most)}"


def _farthest(terms: Sequence[Move]) -> str:
    """Say how far the term that moves most does, in its units; where some have no bound, which ones."""
    known = [term for term in terms if term.most is not None]
    bounded = [move for move in known if math.isfinite(move.most or 0.0)]
    if not known or not bounded:
        return _bounded(terms[0])
    farthest = _bounded(max(bounded, key=lambda move: move.most or 0.0))
    if len(bounded) == len(known):
        return farthest
    endless = some_of([move.term for move in known if move not in bounded], _FEW)
    return f"{farthest}, but {endless} {_bounded(Move('', '', math.inf))}"


def stated_influence(receipt: Mapping[str, Any]) -> tuple[str, ...]:
    """What the result in a receipt says of it, in sentences; nothing where it says nothing, or in another form."""
    try:
        certificate = receipt["result"]["certificate"]
        sentences = StudyInfluence.from_json(certificate["influence"]).sentences()
        return (*sentences, *([checked_text(certificate["checked_by"])] if "checked_by" in certificate else []))
    except (LookupError, TypeError, ValueError):
        return ()


def checked_text(by: Mapping[str, Any]) -> str:
    """Say :attr:`Checks.by` in a sentence."""
    sums, needed, lies = (int(by[name]) for name in ("sums", "needed", "lies_excluded"))
    if not lies:
        return f"unchecked: {sums} sums of members came, as many as the result needs, so that nobody would notice a wrong one"
    wrong = "one wrong sum" if lies == 1 else f"up to {lies} wrong sums"
    return (
        f"checked by {sums} sums of members, of which {needed} determine the result: {wrong} would have been noticed for certain"
    )
