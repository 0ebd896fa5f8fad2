"""The vector of a party, from rows or groups of equal ones, and the quantities of all features from one noisy mean of vectors.

Quantities are read by generalised least squares, with what is known about them exactly.

The engine that holds the data may count groups of equal rows: their vectors are bit for bit those of the rows one by one. A
row's rounded unit is a whole multiple of a power of two, so the sum over rows is that over distinct rows times how many there
are of each. What a feature needs to know of a column is either its cells or between which edges its numbers lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.cells import in_single
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.party import Vector
from quietmean.core.readable import count_of
from quietmean.randomness.stream import BitStream, Seed
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimate import HALF_A_RECORD
from quietmean.statistics.linear import LinearMap, pseudo_inverse, sparser
from quietmean.statistics.statistic import TOTAL, Feature, Released, presence_of, raw
from quietmean.statistics.transforms import Transform

# Where parties count once, less of one is rounding.
_PART_OF_PARTY = 1e-6
# Entries of the matrix below this part of the largest are zeros.
_ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Decoder:
    """From the mean of vectors to quantities: public post-processing, linear.

    ``read``: the matrix (q, d) and ``offset`` (q,) with quantities = read @ mean + offset. ``whole``, ``counted``, ``least``
    and ``sampled``: as of :class:`Released`.
    """

    read: LinearMap
    offset: Array
    places: Mapping[Feature, Ints]
    whole: Array | None = None
    counted: bool = True
    least: float = HALF_A_RECORD
    sampled: bool = True

    @classmethod
    def of(
        cls,
        scales: Mapping[Feature, float],
        parts: Mapping[Feature, Feature],
        steps: Mapping[Feature, float],
        *,
        counted: bool = True,
        once: bool = False,
        sampled: bool = True,
    ) -> Decoder:
        """Make a decoder for features with these factors in the vector, rounded to grids of these ``steps``; ``parts``
        are included in others.

        The best linear unbiased estimate under independent noise of equal size. Equalities: events that several features know
        agree, and where records are publicly ``counted``, the event of all records is 1.
        """
        ends = np.cumsum([feature.size for feature in scales]).tolist()
        places = {feature: np.arange(end - feature.size, end) for feature, end in zip(scales, ends, strict=True)}
        equalities, total = _equalities(list(scales), counted)
        parts_read, offset = [], np.zeros(ends[-1])
        for together, equal, right in _coupled(list(scales), equalities):
            own = np.concatenate([places[feature] for feature in together])
            at = np.split(np.arange(len(own)), np.cumsum([feature.size for feature in together])[:-1])
            inverses = [feature.inverse(scales[feature], steps.get(feature, 0.0)) for feature in together]
            free = LinearMap.of_parts(list(zip(at, inverses, strict=True)))
            # The gain is that of least squares under the covariance of what is read freely.
            known = free.combined(equal)
            del equal
            gain = free.times(known.T) @ pseudo_inverse(known @ known.T)
            offset[own] = gain @ right
            parts_read.append((own, free.plus(np.negative(gain, out=gain), known)))
            del gain, known
        whole = None
        if total is not None:
            whole = np.zeros(ends[-1])
            whole[places[total[0]]] = total[1]
        all_places = places | {part: places[released][released.places_of(part)] for part, released in parts.items()}
        return cls(
            LinearMap.of_parts(parts_read),
            offset,
            all_places,
            whole,
            counted,
            _PART_OF_PARTY if once else HALF_A_RECORD,
            sampled,
        )

    def of_features(self, features: Iterable[Feature]) -> Decoder:
        """What reads these features alone, as well as this one does: from the same mean vector, and with all equalities."""
        needed = np.zeros(len(self.offset), dtype=np.bool_) if self.whole is None else self.whole != 0
        for feature in features:
            needed[self.places[feature]] = True
        kept, place = np.flatnonzero(needed), np.cumsum(needed) - 1
        return Decoder(
            self.read.kept(kept),
            self.offset[kept],
            {feature: place[places] for feature, places in self.places.items() if needed[places].all()},
            None if self.whole is None else self.whole[kept],
            self.counted,
            self.least,
            self.sampled,
        )

    def quantities(self, mean: Array) -> Array:
        """The quantities (q,) of a mean vector (d,)."""
        return np.asarray(self.read.times(mean) + self.offset)

    def released(self, mean: Array, noise: float, weight: float, law: NoiseLaw | None = None) -> Released:
        """What statistics read from a mean vector (d,) with noise of that standard deviation and law on each coordinate."""
        return self.of_quantities(self.quantities(mean), noise, weight, law)

    def features_read(self, places: Mapping[Feature, Ints]) -> list[Feature]:
        """The features of the vector, by their ``places`` in it, whose coordinates count: of others only what rounding leaves.

        All of them where none counts, as what is read is public.
        """
        # What makes nothing of numbers that nobody chose is 0.
        chance, size = (
            BitStream(Seed.public("coordinates that count")).standard_normal(self.read.shape[1]),
            dict[Feature, float](),
        )
        for feature, own in places.items():
            alone = np.zeros_like(chance)
            alone[own] = chance[own]
            size[feature] = float(np.abs(self.read.times(alone)).max(initial=0.0))
        largest = max(size.values(), default=0.0)
        return [feature for feature in places if size[feature] >= _ROUNDING * largest]

    def of_quantities(self, quantities: Array, noise: float, weight: float, law: NoiseLaw | None = None) -> Released:
        """What statistics read from the quantities (q,) themselves."""
        known = (self.places, self.whole, self.counted, self.least, self.sampled)
        return Released(weight, quantities, self.read, noise, *known, law)


# Weights of each feature's quantities, and what their sum is.
_Equality = tuple[dict[Feature, Array], float]


def _equalities(features: Sequence[Feature], counted: bool) -> tuple[list[_Equality], tuple[Feature, Array] | None]:
    """All equalities; and the weights of the event of all records, of one feature that knows it, if not ``counted``.

    Which feature's weights does not matter: they agree.
    """
    known_by: dict[Hashable, list[Feature]] = {}
    for feature in features:
        for event in feature.events():
            known_by.setdefault(event, []).append(feature)
    # Most events of a table are known to it alone, and each has as many weights as the table has cells.
    shared = {event: those for event, those in known_by.items() if len(those) > 1 or event == TOTAL}
    needed = {feature for those in shared.values() for feature in those}
    weights = {
        feature: {event: own for event, own in feature.events().items() if event in shared}
        for feature in features
        if feature in needed
    }
    everybody = shared.pop(TOTAL, [])
    equalities: list[_Equality] = [({feature: weights[feature][TOTAL]}, 1.0) for feature in everybody if counted]
    total = None if counted or not everybody else (everybody[0], weights[everybody[0]][TOTAL])
    events = list(shared.items()) if counted or len(everybody) < 2 else [*shared.items(), (TOTAL, everybody)]
    for event, (first, *others) in events:
        equalities += [({other: weights[other][event], first: -weights[first][event]}, 0.0) for other in others]
    return equalities, total


def _coupled(features: Sequence[Feature], equalities: Sequence[_Equality]) -> Iterator[tuple[list[Feature], Array, Array]]:
    """Features that equalities link, in the order of all, with these: a matrix (m, q) and right sides (m,)."""
    order = {feature: index for index, feature in enumerate(features)}
    linked = [[index] for index in range(len(features))]
    by_first = [(order[next(iter(weights))], weights, right) for weights, right in equalities]
    for first, linking, _ in by_first:
        for other in map(order.__getitem__, linking):
            if linked[other] is not linked[first]:
                linked[first] += linked[other]
                for each in linked[other]:
                    linked[each] = linked[first]
    own_equalities: dict[int, list[_Equality]] = {id(together): [] for together in linked}
    for first, weights, right in by_first:
        own_equalities[id(linked[first])].append((weights, right))
    for together in {id(each): each for each in linked}.values():
        own, by_pair = [features[index] for index in sorted(together)], dict[tuple[Feature, ...], list[_Equality]]()
        for equality in own_equalities[id(together)]:
            by_pair.setdefault(tuple(equality[0]), []).append(equality)
        # Those of the same features one after the other: their events are parts of each other.
        here = [equality for of_pair in by_pair.values() for equality in of_pair]
        # Nothing here keeps the matrix.
        yield own, *_matrix_of(own, here)


def _matrix_of(own: Sequence[Feature], here: Sequence[_Equality]) -> tuple[Array, Array]:
    """The weights of all quantities in each equality, (m, q), and the right sides, (m,)."""
    ends = np.cumsum([0, *(feature.size for feature in own)]).tolist()
    begins = dict(zip(own, ends, strict=False))
    matrix = np.zeros((len(here), ends[-1]))
    for place, (by_feature, _) in enumerate(here):
        for feature, sizes in by_feature.items():
            matrix[place, begins[feature] : begins[feature] + feature.size] = sizes
    return sparser(matrix, np.array([right for _, right in here]))


@dataclass(frozen=True, eq=False)
class Encoded:
    """A party's input to a protocol: its vector (d,) and its public weight, the number of its records, or of its persons.

    Without any, both are 0. Where counts are private, the weight is the room that every party has, and ``beyond`` is how many
    records it has above that. ``clamped`` values were moved to the nearest bound, ``missing`` cells held no value: for the eyes
    of this party only.
    """

    vector: Vector = field(repr=False)
    weight: float
    clamped: int = field(repr=False)
    missing: int = field(repr=False)
    beyond: int = field(default=0, repr=False)


def what_did_not_fit(parts: Sequence[Encoded]) -> list[str]:
    """A sentence for the owner of the data, or none. No result, receipt or event has these numbers."""
    clamped, missing, beyond = (sum(getattr(part, name) for part in parts) for name in ("clamped", "missing", "beyond"))
    outside = count_of(clamped, "value lies outside its bounds and counts", "values lie outside their bounds and count")
    kinds = [
        (clamped, f"{outside} as the nearest bound"),
        (missing, count_of(missing, "cell counts", "cells count") + " as missing"),
        (beyond, f"{count_of(beyond, 'record')} more than most_records may be cut from sums"),
    ]
    phrase = " and ".join(sentence for count, sentence in kinds if count)
    return [f"{phrase} (exact, without noise: for you only)"] if phrase else []


# Rows that are encoded at a time.
_ROWS = 4096


class Asked(Protocol):
    """What is known of a workload here: its columns and its features with their scales, and how rows come inside the bounds."""

    @property
    def unit(self) -> PrivacyUnit: ...
    @property
    def columns(self) -> Columns: ...
    @property
    def scales(self) -> Mapping[Feature, float]: ...

    def inside(self, records: Array, /) -> Mapping[str, Array]: ...
    def outside(self, records: Array, /) -> Mask: ...


@dataclass(frozen=True)
class Question:
    """By which ``columns`` rows are grouped: by their cells, or where ``cuts`` has rising edges, by where numbers lie between
    them.

    Two numbers are in one group if they lie between the same two edges; an edge is in a group of its own.
    """

    columns: tuple[str, ...]
    cuts: tuple[tuple[str, tuple[float, ...]], ...] = ()


class Groups(ABC):
    """Rows of a source as groups; ``len``: how many rows there are."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def at_once(self) -> AbstractContextManager[None]:
        """The context in which all questions are about the rows of one moment, where a source can."""

    @abstractmethod
    def counted(self, question: Question) -> Iterator[tuple[Array, Ints]] | None:
        """A row of each group, (groups, columns), NaN in columns that are not asked for, and how many rows it has, in pieces.

        None where there are too many groups to be worth it: their rows are read then, as what the cells are decides it.
        """

    @abstractmethod
    def rows(self) -> Iterator[Array]:
        """All rows, (rows, columns), in pieces."""


class SeenRecords(Mapping[str, Array]):
    """Records that remember which columns a feature looks at."""

    def __init__(self, records: Mapping[str, Array], columns: Columns) -> None:
        self._records, self.names = records, set[str]()
        self._names = {key(column.name): column.name for column in columns for key in (str, raw, presence_of)}

    def __getitem__(self, key: str) -> Array:
        self.names.add(self._names[key])
        return self._records[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


def sums_of(workload: Asked, groups: Groups, step: float) -> tuple[Array, int, int, int]:
    """The sum of all rows' vectors, (d,), how many rows there are, values outside their bounds, and missing cells.

    Raises :class:`InputError` where records are not the unit, and where the source has other rows meanwhile.
    """
    if workload.unit != PrivacyUnit.RECORD:
        raise InputError(f"groups of rows do not say whose they are, and the unit is {workload.unit}. Read the rows instead.")
    sums = _Sums(workload, groups, step)
    with groups.at_once():
        sums.by_groups()
        if sums.left or not sums.notes_by_groups():
            sums.by_rows()
    outside, missing = sums.strange.sum(axis=1).tolist()
    return np.concatenate(list(sums.totals.values())), len(groups), outside, missing


class _Sums:
    """The sums of features over rows that a source has grouped.

    ``totals``: of each feature; ``left``: features that need too many groups, and whose rows have to be read.

    ``strange``: how many values are outside, and missing, by column, (2, columns); -1 where that is not known yet.
    """

    def __init__(self, workload: Asked, groups: Groups, step: float) -> None:
        self._workload, self._groups, self._step = workload, groups, step
        self.totals = {feature: np.zeros(feature.size) for feature in workload.scales}
        self.left: list[Feature] = []
        self.strange = np.full((2, len(workload.columns)), -1, dtype=np.int64)

    def by_groups(self) -> None:
        columns = self._workload.columns
        tried = self._workload.inside(np.full((1, len(columns)), np.nan))
        by_question: dict[Question, list[Feature]] = {}
        for feature in self.totals:
            by_question.setdefault(question_of(feature, columns, tried), []).append(feature)
        for question, features in by_question.items():
            if not self._counted(question, features):
                self.left += features

    def notes_by_groups(self) -> bool:
        """Whether the notes on columns that no feature looks at could be made of groups."""
        columns = self._workload.columns
        unseen = [column for place, column in enumerate(columns) if self.strange[0, place] < 0]
        return all(self._counted(question_about(column, columns), []) for column in unseen)

    def by_rows(self) -> None:
        """What is left, and all notes."""
        seen, count = np.zeros_like(self.strange), 0
        for rows in self._groups.rows():
            ones = np.ones(len(rows), dtype=np.int64)
            self._add(rows, ones, self.left)
            seen += strange_cells(self._workload, rows, ones)
            count += len(rows)
        self._require_all(count)
        self.strange = seen

    def _counted(self, question: Question, features: list[Feature]) -> bool:
        pieces = self._groups.counted(question)
        if pieces is None:
            return False
        seen, count = np.zeros_like(self.strange), 0
        for rows, counts in pieces:
            self._add(rows, counts, features)
            seen += strange_cells(self._workload, rows, counts)
            count += int(counts.sum())
        self._require_all(count)
        counted = [column.name in question.columns for column in self._workload.columns]
        self.strange[:, counted] = seen[:, counted]
        return True

    def _add(self, rows: Array, counts: Ints, features: list[Feature]) -> None:
        # So few at a time that memory does not grow with the table.
        for start in range(0, len(rows) if features else 0, _ROWS):
            inside, here = self._workload.inside(rows[start : start + _ROWS]), counts[start : start + _ROWS]
            for feature in features:
                self.totals[feature] += feature.sums(inside, here.astype(np.float64), self._workload.scales[feature], self._step)

    def _require_all(self, count: int) -> None:
        if count != len(self._groups):
            raise InputError(
                "the data were changed while their rows were counted. Wait until their program has written all of them."
            )


def strange_cells(workload: Asked, rows: Array, counts: Ints) -> Ints:
    """How many values are outside their bounds, and how many are missing, by column: (2, columns)."""
    # A cell that holds none of the levels counts as missing: it has no nearest one.
    outside, levels = workload.outside(rows), np.array([not column.numeric for column in workload.columns])
    strange: Ints = np.array([counts @ (outside & ~levels), counts @ (np.isnan(rows) | outside & levels)], dtype=np.int64)
    return strange


def question_of(feature: Feature, columns: Columns, records: Mapping[str, Array]) -> Question:
    """What has to be known of rows to encode them. ``records``: some, of all columns, which the feature is tried on."""
    # Of each column that it looks at, the edges that numbers are compared with; none where the number itself counts.
    edges: dict[str, tuple[float, ...]] = {}
    for part in feature.looks_at():
        seen, cuts = SeenRecords(records, columns), part.cuts()
        part.encode(seen)
        for name in seen.names:
            own = cuts.get(name, ())
            edges[name] = own if edges.get(name, own) == own else ()
    needed = with_sources(set(edges), columns)
    questioned = [column for column in columns if column.name in needed]
    cuts = {
        column.name: _with_codes((*edges[column.name], column.low, column.high), column)
        for column in questioned
        if edges.get(column.name) and not column.origin
    }
    return Question(tuple(column.name for column in questioned), tuple((name, cut) for name, cut in cuts.items() if cut))


def question_about(column: Column, columns: Columns) -> Question:
    """Which values of one of the columns are missing, and which lie outside of its bounds."""
    cut = _with_codes((column.low, column.high), column) if column.numeric and not column.origin else ()
    needed = with_sources({column.name}, columns)
    return Question(tuple(each.name for each in columns if each.name in needed), ((column.name, cut),) if cut else ())


def _with_codes(edges: tuple[float, ...], column: Column) -> tuple[float, ...]:
    """Add the codes for missing, each of which is in a group of its own; none where one of them is not a number."""
    try:
        codes = [float(code) for code in column.missing_codes]
        return tuple(sorted({*edges, *codes, *map(in_single, codes)}))
    except ValueError:
        return ()


def with_sources(names: set[str], columns: Columns) -> set[str]:
    """The names of columns, with those that their transforms are computed from."""
    needed = set(names)
    for column in reversed(list(columns)):
        if column.name in needed and column.origin:
            needed |= set(Transform(column.origin).sources)
    return needed
