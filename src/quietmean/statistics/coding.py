"""The vector of a party, and the quantities of all features from one noisy mean of vectors.

Quantities are read by generalised least squares, with what is known about them exactly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.party import Vector
from quietmean.core.readable import count_of
from quietmean.statistics.estimate import HALF_A_RECORD
from quietmean.statistics.statistic import TOTAL, Feature, Released

# Eigenvalues of the restrictions below this part of the largest belong to redundant equalities.
_REDUNDANT = 1e-10
# Where parties count once, less of one is rounding.
_PART_OF_PARTY = 1e-6
# Entries of the matrix below this part of the largest are zeros.
_ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Decoder:
    """From the mean of vectors to quantities: public post-processing, linear.

    ``read``: the matrix (q, d) and ``offset`` (q,) with quantities = read @ mean + offset. ``spread``: (q, q), their covariance
    where the noise on every coordinate of the mean is 1. ``whole``, ``counted`` and ``least``: as of
    :class:`Released`.
    """

    read: Array
    offset: Array
    spread: Array
    places: Mapping[Feature, Ints]
    whole: Array | None = None
    counted: bool = True
    least: float = HALF_A_RECORD

    @classmethod
    def of(
        cls,
        scales: Mapping[Feature, float],
        parts: Mapping[Feature, Feature],
        steps: Mapping[Feature, float],
        *,
        counted: bool = True,
        once: bool = False,
    ) -> Decoder:
        """Make a decoder for features with these factors in the vector, rounded to grids of these ``steps``; ``parts``
        are included in others.

        The best linear unbiased estimate under independent noise of equal size. Equalities: events that several features know
        agree, and where records are publicly ``counted``, the event of all records is 1.
        """
        ends = np.cumsum([feature.size for feature in scales]).tolist()
        places = {feature: np.arange(end - feature.size, end) for feature, end in zip(scales, ends, strict=True)}
        free, spread = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], ends[-1]))
        for feature, scale in scales.items():
            own = np.linalg.inv(feature.response(scale, steps.get(feature, 0.0))) / scale
            block = np.ix_(places[feature], places[feature])
            free[block], spread[block] = own, own @ own.T
        equal, right, total = _equalities(list(scales), places, ends[-1], counted)
        gain = spread @ equal.T @ _pseudo_inverse(equal @ spread @ equal.T)
        # The gain is that of least squares: what equalities take from the covariance is this one product.
        restricted = spread - gain @ (equal @ spread)
        all_places = places | {part: places[released][places_in(part, released)] for part, released in parts.items()}
        return cls(
            free - gain @ (equal @ free),
            gain @ right,
            (restricted + restricted.T) / 2,
            all_places,
            total,
            counted,
            _PART_OF_PARTY if once else HALF_A_RECORD,
        )

    def of_features(self, features: Iterable[Feature]) -> Decoder:
        """What reads these features alone, as well as this one does: from the same mean vector, and with all equalities."""
        needed = np.zeros(len(self.offset), dtype=np.bool_) if self.whole is None else self.whole != 0
        for feature in features:
            needed[self.places[feature]] = True
        kept, place = np.flatnonzero(needed), np.cumsum(needed) - 1
        return Decoder(
            self.read[kept],
            self.offset[kept],
            self.spread[np.ix_(kept, kept)],
            {feature: place[places] for feature, places in self.places.items() if needed[places].all()},
            None if self.whole is None else self.whole[kept],
            self.counted,
            self.least,
        )

    def released(self, mean: Array, noise: float, weight: float) -> Released:
        """What statistics read from a mean vector (d,) with noise of that standard deviation on each coordinate."""
        return self.of_quantities(self.read @ mean + self.offset, noise, weight)

    def features_read(self, places: Mapping[Feature, Ints]) -> list[Feature]:
        """The features of the vector, by their ``places`` in it, whose coordinates count: of others only what rounding leaves."""
        size = np.abs(self.read).max(axis=0, initial=0.0)
        return [feature for feature, own in places.items() if size[own].max() > _ROUNDING * size.max()]

    def of_quantities(self, quantities: Array, noise: float, weight: float) -> Released:
        """What statistics read from the quantities (q,) themselves."""
        return Released(weight, quantities, noise**2 * self.spread, self.places, self.whole, self.counted, self.least)


def places_in(part: Feature, released: Feature) -> Ints:
    """Where the quantities of a feature are in those of what is released instead of it, shape (part.size,)."""
    return np.arange(part.size) if part.family() is None else released.places_of(part)


def _equalities(
    features: Sequence[Feature], places: Mapping[Feature, Ints], size: int, counted: bool
) -> tuple[Array, Array, Array | None]:
    """Matrix (m, q) and right sides (m,) of all equalities; and the weights (q,) of the event of all records, if not ``counted``.

    Which feature's weights does not matter: they agree.
    """
    rows_by_event: dict[Hashable, list[Array]] = {}
    for feature in features:
        for event, weights in feature.events().items():
            row = np.zeros(size)
            row[places[feature]] = weights
            rows_by_event.setdefault(event, []).append(row)
    rows = [(row, 1.0) for row in rows_by_event.pop(TOTAL, [])] if counted else []
    total = None if counted else next(iter(rows_by_event.get(TOTAL, [])), None)
    rows += [(other - first, 0.0) for first, *others in rows_by_event.values() for other in others]
    matrix, right = np.array([row for row, _ in rows]).reshape(-1, size), np.array([value for _, value in rows])
    return matrix, right, total


def _pseudo_inverse(matrix: Array) -> Array:
    """The inverse of a symmetric positive semidefinite matrix outside its null space, as far as rounding shows that."""
    if not len(matrix):
        return matrix
    size = np.sqrt(np.diag(matrix))
    values, vectors = np.linalg.eigh(matrix / np.outer(size, size))
    inverse = np.where(values > _REDUNDANT * values[-1], 1 / np.maximum(values, _REDUNDANT * values[-1]), 0.0)
    pseudo_inverse: Array = (vectors * inverse) @ vectors.T / np.outer(size, size)
    return pseudo_inverse


@dataclass(frozen=True, eq=False)
class Encoded:
    """A party's input to a protocol: its vector (d,) and its public weight, the number of its records, or of its persons.

    Without any, both are 0. Where counts are private, the weight is the room that every party has, and ``beyond`` is how many
    records it has above that. ``clamped`` values were moved to the nearest bound, ``missing`` cells held no number: for the eyes
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
        (missing, count_of(missing, "cell holds no number", "cells hold no number")),
        (beyond, f"{count_of(beyond, 'record')} more than most_records may be cut from sums"),
    ]
    phrase = " and ".join(sentence for count, sentence in kinds if count)
    return [f"{phrase} (for you only: who else learns these numbers learns something about the data)"] if phrase else []
