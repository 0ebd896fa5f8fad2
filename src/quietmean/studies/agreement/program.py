"""The public program that turns one record into the whole numbers that a contributor deals: the same in a form and in a command.

Its digest is in the sealed study. Who takes part makes it again from the study's plan and compares, before anything is signed.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError
from quietmean.core.party import Units
from quietmean.planning import Plan
from quietmean.protocols.committee.layout import Layout, layout_of
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.packed_sharing.spec import BOX
from quietmean.statistics.program import NoProgram, VectorProgram
from quietmean.statistics.workload import Workload

_FORMAT = "quietmean encoding 1"


@dataclass(frozen=True)
class EncodingProgram:
    """``vector``: of a record. Its coordinates v, (d,), become floor((v - ``centre``) / ``step`` + u) + ``shift``, in steps.

    u is uniform in [0, 1). Before rounding they are moved within ``reach`` steps of the centre, afterwards within ``lows`` and
    ``highs``, (d,).

    ``relations``: places, coefficients, low and high of sums of these numbers, which members check where they check anything.

    ``secrets``: how many numbers one polynomial shares.
    """

    vector: VectorProgram
    centre: float
    step: float
    reach: float
    shift: int
    secrets: int
    lows: Ints = field(repr=False)
    highs: Ints = field(repr=False)
    relations: tuple[tuple[tuple[int, ...], tuple[int, ...], int, int], ...] = field(repr=False)

    @classmethod
    def of(cls, workload: Workload, plan: Plan) -> EncodingProgram:
        """Compile the program of a study. Raises :class:`NoProgram` where it has none."""
        sharing = plan.protocol
        if not isinstance(sharing, CommitteeSharing) or plan.value_step:
            raise NoProgram("a study without a committee, or with products, has no encoding program. Use quietmean send.")
        parameters = sharing.parameters(plan.target.parties)
        if parameters.region != BOX:
            raise NoProgram("a study of a model has no encoding program. Let contributors use quietmean send.")
        vector, shift = VectorProgram.of(workload), math.ceil(parameters.clip / parameters.step)
        layout = layout_of(parameters, plan.input_domain.statement, 1.0) if parameters.verified else None
        lows, highs = _bounds(parameters, layout)
        relations = () if layout is None else tuple(_relations(layout))
        reach = parameters.clip / parameters.step
        return cls(vector, parameters.centre, parameters.step, reach, shift, parameters.secrets, lows, highs, relations)

    def numbers(self, records: Array, uniform: Array) -> Units:
        """What each record deals, shape (rows, d), in whole steps; ``uniform`` in [0, 1), of the same shape, rounds."""
        steps = (self.vector.vectors(records) - self.centre) / self.step
        whole = np.floor(np.clip(steps, -self.reach, self.reach) + uniform)
        numbers: Units = np.clip(whole + self.shift, self.lows, self.highs).astype(np.int64)
        return numbers

    def describe(self) -> dict[str, Any]:
        """The program as plain JSON data."""
        return {
            "format": _FORMAT,
            "record": self.vector.describe(),
            "centre": self.centre,
            "step": self.step,
            "reach": self.reach,
            "shift": self.shift,
            "secrets": self.secrets,
            "lows": self.lows.tolist(),
            "highs": self.highs.tolist(),
            "relations": [[list(places), list(factors), low, high] for places, factors, low, high in self.relations],
            "weight": 1.0,
        }

    @cached_property
    def content(self) -> bytes:
        """Its canonical bytes."""
        return canonical_json(self.describe())

    @property
    def digest(self) -> str:
        """SHA-256 of :attr:`content`, hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


def program_digest(workload: Workload, plan: Plan) -> str:
    """The digest of the program of a study with a committee; empty for one that has none."""
    try:
        return EncodingProgram.of(workload, plan).digest
    except NoProgram:
        return ""


def require_program(stated: str, made: str) -> None:
    """Raises :class:`InputError` for a sealed study that states another program than its plan has, or one where that has none.

    Both are digests, empty without a program.
    """
    if stated != made:
        raise InputError(
            "the sealed study states another encoding program than this version makes of it. Use the version of quietmean that "
            "sealed it, or ask its coordinator to seal again."
        )


def _bounds(parameters: CommitteeParameters, layout: Layout | None) -> tuple[Ints, Ints]:
    if layout is None:
        zeros = np.zeros(parameters.dimension, dtype=np.int64)
        return zeros, zeros + parameters.range
    summed = slice(layout.dimension)
    return layout.lows[summed], layout.lows[summed] + layout.spans[summed]


def _relations(layout: Layout) -> list[tuple[tuple[int, ...], tuple[int, ...], int, int]]:
    """The relations of a layout, without the number that each has of its own, which is the last one of its sum."""
    sums, own = layout.sums, slice(layout.dimension, None)
    ends = [*sums.begins[1:].tolist(), len(sums.columns)]
    return [
        (tuple(sums.columns[start : end - 1].tolist()), tuple(sums.factors[start : end - 1].tolist()), int(low), int(low + span))
        for start, end, low, span in zip(sums.begins.tolist(), ends, layout.lows[own], layout.spans[own], strict=False)
    ]
