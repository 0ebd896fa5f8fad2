"""What a round of a session gives to who takes part in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PartyId, Vector
from quietmean.core.readable import counted_text, epsilon_text
from quietmean.core.tables import Tabular
from quietmean.planning.accuracy import stated_variance
from quietmean.protocols.execution import Execution
from quietmean.studies.agreement.session_terms import SessionTerms

# How parties are called: by their places where all are in one process, by their names between machines.
Party = TypeVar("Party", PartyId, str)


@dataclass(frozen=True, eq=False, repr=False)
class RoundMean(Tabular, Generic[Party]):
    """``mean``: shape (d,), in the units of the vectors. ``counted``: the parties whose vectors are in it: their places where all
    are in one process, their names between machines.

    Two parties between machines may count different ones, where one was late. ``not_heard``: whose releases did not arrive here,
    or cannot be, and are left out.
    ``missed``: how many rounds this party missed just before. ``bytes_sent``: by this party in this round.
    """

    round: int
    mean: Vector
    counted: tuple[Party, ...]
    execution: Execution
    not_heard: tuple[Party, ...] = ()
    missed: int = 0
    bytes_sent: int = 0
    # What all parties are called, the units of the vectors, and how many rounds began.
    _parties: tuple[Party, ...] = field(kw_only=True)
    _scale: float = field(kw_only=True)
    _terms: SessionTerms = field(kw_only=True)
    _begun: int = field(kw_only=True)

    @cached_property
    def epsilon(self) -> float:
        """What the session has cost up to this round, at most, at its delta; rounded up."""
        return self._terms.spent_epsilon(self._begun)

    @cached_property
    def standard_error(self) -> float:
        """The standard error of the noise in the mean, per coordinate, in the units of the vectors."""
        return math.sqrt(stated_variance(self.execution)) * self._scale

    @property
    def checked(self) -> str | None:
        """By how many sums of members it was checked, and how many wrong ones would have been noticed, in a sentence; None where
        sums of members do not determine it."""
        from quietmean.studies.outcome.influence import checked_text

        by = self.execution.protocol.traits.checks.by
        return None if by is None else checked_text(by)

    @cached_property
    def in_part(self) -> dict[Party, float]:
        """Who counts in part, and in which: the mean is of vectors so weighted, which ``standard_error`` knows nothing of."""
        return {self._parties[party]: part for party, part in self.execution.in_part.items()}

    def __repr__(self) -> str:
        missed = f", {self.missed} missed before" if self.missed else ""
        counted, by = counted_text(len(self.counted), len(self.in_part)), self.execution.protocol.traits.checks.by
        unchecked = "" if by is None or by["lies_excluded"] else ", unchecked"
        return f"RoundMean(round {self.round}{missed}, {counted}{unchecked}, epsilon so far {epsilon_text(self.epsilon)})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.mean, dtype=dtype, copy=True if copy is None else copy)

    def rows(self) -> list[dict[str, Any]]:
        """One for each coordinate."""
        error = self.standard_error
        return [{"coordinate": index, "mean": float(value), "standard_error": error} for index, value in enumerate(self.mean)]
