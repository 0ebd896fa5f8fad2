"""How far one party can move the answers of a study by what it sends: before the start, and of a result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from quietmean.core.party import Vector
from quietmean.core.readable import Fact, bound_text, percent_text, some_of
from quietmean.planning.influence import Checked, Influence, planned_influence
from quietmean.planning.plan import Plan
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.statistics.answers import Answer
from quietmean.statistics.coding import Decoder
from quietmean.statistics.estimate import WHOLE
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.influence_bounds import Around, Shift, TermReading
from quietmean.statistics.statistic import Statistic
from quietmean.statistics.workload import Workload
from quietmean.studies.agreement.study import StudyTerms

# Records of which answers are made up, for their terms and ranges: as many values of each column as there are levels or more.
_MADE_UP = 64
_STRIDE = 27
# A divisor that moves by less is a public number.
_FIXED = 1e-9


@dataclass(frozen=True)
class Move:
    """How far one term of a statistic moves.

    ``most``: how far a term moves at most, infinite where nothing bounds it; None where an older document does not say.

    ``range``: where it can be anything between these two numbers, which no values give anything beyond: what is shown beyond by
    noise or a lie says so itself, and counts as the end.
    """

    statistic: str
    term: str
    most: float | None
    range: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        return self.statistic if self.term == WHOLE else f"{self.statistic} {self.term}"


def moves(
    workload: Workload, shift: Shift, step: float, mean: Vector | None = None, answers: Sequence[Answer] = ()
) -> tuple[Move, ...]:
    """How far each term of each statistic moves: what follows from the bounds of features through its estimator, or its whole
    range.

    ``mean``: the mean vector, (d,), with its ``answers``; without it, before the start, ratios are of records that all have a
    value. ``step``: as for :meth:`Workload.decode`.
    """
    decoder = workload.decoder(step)
    estimates = {answer.statistic.text: answer.estimates for answer in answers}
    return tuple(_moves(workload, around_of(decoder, shift, mean), decoder, estimates))


def around_of(decoder: Decoder, shift: Shift, mean: Vector | None) -> Around:
    quantities = None if mean is None else decoder.quantities(mean)
    return Around(decoder.read, decoder.places, shift, decoder.offset, quantities)


def _moves(workload: Workload, around: Around, decoder: Decoder, answers: Mapping[str, Estimates]) -> Iterator[Move]:
    made_up: dict[str, Estimates] = {}
    for statistic in workload.statistics:
        features_of = workload.with_columns(statistic)
        seen = features_of.around(around, decoder.whole)
        if readings := features_of.readings:
            # Ratios are released as they come out, beyond the ends of their range too: it bounds nothing.
            yield from (Move(statistic.text, reading.term, _moved(seen, reading)) for reading in readings)
            continue
        bounds = dict(features_of.statistic.moved(seen, features_of.seen))
        if statistic.text not in answers and not made_up:
            made_up = _made_up(workload)
        estimates = (answers or made_up)[statistic.text]
        if around.is_bounded:
            yield from _within_ranges(statistic, bounds, estimates)
        else:
            # Nothing that is shown need be within a range then.
            yield from (Move(statistic.text, term, math.inf) for term in estimates.terms)


def _within_ranges(statistic: Statistic, bounds: Mapping[str, float], estimates: Estimates) -> Iterator[Move]:
    for term, low, high in zip(estimates.terms, estimates.low.tolist(), estimates.high.tolist(), strict=True):
        most, width = bounds.get(term, math.inf), high - low
        yield (
            Move(statistic.text, term, most)
            if most < width or math.isinf(width)
            else Move(statistic.text, term, width, (low, high))
        )


def _made_up(workload: Workload) -> dict[str, Estimates]:
    """Answers of public records that are nobody's: their terms, and between what each lies whatever the data."""
    places = np.arange(_MADE_UP)
    columns = []
    for index, column in enumerate(workload.columns):
        order = places * (_STRIDE + 2 * index) % _MADE_UP
        columns.append(
            column.low + column.width * (order + 0.5) / _MADE_UP
            if column.numeric
            else (order % len(column.categories)).astype(np.float64)
        )
    mean = workload.sums(np.column_stack(columns), np.full(_MADE_UP, 1 / _MADE_UP))
    return {answer.statistic.text: answer.estimates for answer in workload.decode(mean, 0.0, float(_MADE_UP))}


def _moved(around: Around, reading: TermReading) -> float:
    """How far a term moves that is read from quantities directly; infinite where nothing bounds it."""
    feature, top, bottom = reading.feature, reading.top, reading.bottom
    if not around.is_bounded:
        return math.inf
    if reading.adds_up:
        places = around.places[feature]
        return around.moved_total(feature, top) + abs(float(top @ around.offset[places])) * around.shift.weight
    if bottom is None:
        return float(around.moved(feature, top))
    moved = float(around.moved(feature, bottom))
    if moved < _FIXED * max(1.0, float(around.shift.mean.max())):
        return float(around.moved(feature, top)) / float(bottom @ around.offset[around.places[feature]])
    if around.quantities is None:
        # All is present, and the ratio at whichever end moves more.
        if not around.of_all or not all(map(math.isfinite, reading.ends)) or moved >= 1:
            return math.inf
        return max(float(around.moved(feature, top - end * bottom)) for end in reading.ends) / (1 - moved)
    return around.ratio(feature, top, bottom)


# Of terms without a bound in a result that is checked.
_ENDLESS = "what moves by any amount is one number divided by another, which a lie can bring near 0"
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
        """The sentences for people: how far it moves what, and what bounds that."""
        return [*self.moved(), *self.notes()]

    def moved(self) -> list[str]:
        """How far it moves each term of few, else the largest of a statistic's."""
        sentences = []
        by_statistic: dict[str, list[Move]] = {}
        for move in self.moves:
            by_statistic.setdefault(move.statistic, []).append(move)
        for statistic, own in by_statistic.items():
            if len(own) > _FEW:
                sentences.append(f"any term of {statistic} {_farthest(own)}")
                continue
            sentences += [f"{move.label} {_bounded(move)}" for move in own]
        return sentences

    def notes(self) -> list[str]:
        """What nobody notices of a lie, and what bounds it."""
        missing = ", as if no cell were missing" if self.before else ""
        endless = self.checked != Checked.NOTHING and any(move.most == math.inf for move in self.moves)
        return [
            *([_ENDLESS] if endless else []),
            *self.unnoticed,
            f"{self.checked.sentence}; the largest party counts {percent_text(self.share)}{missing}",
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
    moved, how = bound_text(clip * influence.largest), influence.checked.sentence
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
        return f"to any number from {low:.{_DIGITS}g} to {high:.{_DIGITS}g}, and to impossible ones outside"
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
        return f"unchecked: the result needs all {sums} sums that came, so nobody would notice a wrong one"
    wrong = "One wrong sum" if lies == 1 else f"Up to {lies} wrong sums"
    others = "other one checks" if sums - needed == 1 else f"other {sums - needed} check"
    return (
        f"checked: {sums} sums came, {needed} are enough for the result, and the {others} it. {wrong} would have been noticed "
        "for certain"
    )
