"""Where the parties of a fit are: all of them in this process, or one of them here and the others at other machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId, Vector
from quietmean.learning.kept import RoundsLeft
from quietmean.planning.plan import Plan
from quietmean.sessions import Engine, MemoryEngine, RoundMean, Session, SessionTerms
from quietmean.statistics import Encoded, what_did_not_fit
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import StudyOutcome, conclude


class SiteRounds(AbstractContextManager["SiteRounds"], RoundsLeft, Protocol):
    """The rounds of a session, for the parties that are here. The normal end of a ``with`` statement ends their part for good."""

    @property
    def terms(self) -> SessionTerms: ...
    @property
    def begun(self) -> int: ...
    def mean(
        self,
        vectors: Mapping[PartyId, NDArray[Any]],
        *,
        clip: float | None = None,
        leaves: Mapping[PartyId, int] | None = None,
    ) -> RoundMean[Any]:
        """One round, with the vectors of the parties that are here, by place."""
        ...


@runtime_checkable
class FitSite(Protocol):
    """Where the parties of a fit are. ``quietmean.Site`` is one party between machines, :class:`InOneProcess` all of them."""

    @property
    def members(self) -> int | None:
        """How many parties there are in all; None where the data say it."""
        ...

    def agreed(self, kind: str) -> Mapping[str, Any]:
        """Name and time-outs of a fit of this ``kind``, by the fields of a study file; none where all are here."""
        ...

    def here(self, parties: int) -> Sequence[PartyId]:
        """The places of the parties, of so many, whose data are here."""
        ...

    def rounds(self, fields: Mapping[str, Any], parties: int, records: int | None = None, **more: Any) -> SiteRounds:
        """A session by the fields of a session file; ``records``: of the party that is here. ``more``: ``weights``, ``store``."""
        ...

    def keeps(self, fields: Mapping[str, Any]) -> Path | None:
        """The file in which a fit of such a session is kept after each round; None: nowhere."""
        ...

    def contract(self, study: StudyTerms | Mapping[str, Any]) -> Any:
        """What the party that is here says yes to with a study or a session."""
        ...

    def release(self, study: StudyTerms, plan: Plan, parts: Sequence[Array]) -> tuple[StudyOutcome, Vector, Sequence[str]]:
        """One study of the records of the parties that are here, (rows, columns) each: what came of it, the mean that was
        released, and sentences for the owners of the data."""
        ...


@dataclass(frozen=True)
class InOneProcess:
    """All parties in this process, with real noise of their own. ``engine``: carries out each round."""

    engine: Engine = field(default_factory=MemoryEngine)

    @property
    def members(self) -> int | None:
        return None

    def agreed(self, kind: str) -> Mapping[str, Any]:
        return {}

    def here(self, parties: int) -> Sequence[PartyId]:
        return range(parties)

    def rounds(self, fields: Mapping[str, Any], parties: int, records: int | None = None, **more: Any) -> SiteRounds:
        numbers = {name: value for name, value in fields.items() if name not in ("name", "purpose")}
        return Session(parties=parties, engine=self.engine, **numbers, **more)

    def keeps(self, fields: Mapping[str, Any]) -> Path | None:
        return None

    def contract(self, study: StudyTerms | Mapping[str, Any]) -> Any:
        raise InputError("a contract is for parties between machines, and all are in one process: give a quietmean.Site")

    def release(self, study: StudyTerms, plan: Plan, parts: Sequence[Array]) -> tuple[StudyOutcome, Vector, Sequence[str]]:
        workload = study.workload
        encoded = [workload.encode(part, step=plan.value_step) for part in parts]
        values = {party: plan.admit(site.vector, site.weight).vector for party, site in enumerate(encoded)}
        weights = np.array([site.weight for site in encoded])
        exchanged = self.engine.exchange(plan, 1, values, weights, {})
        return conclude(workload, plan.target, exchanged.execution, exchanged.mean), exchanged.mean, what_did_not_fit(encoded)


@dataclass(frozen=True)
class OnPaper(InOneProcess):
    """So many parties that nobody knows yet: what they would agree on is written down, and nothing is fitted."""

    count: int = 2

    @property
    def members(self) -> int:
        return self.count

    def agreed(self, kind: str) -> Mapping[str, Any]:
        return {"name": kind}

    def contract(self, study: StudyTerms | Mapping[str, Any]) -> AnyStudy:
        """What is agreed on, but who the parties are."""
        return study if isinstance(study, StudyTerms) else SessionStudy.parse(study)


def site_of(given: Any) -> FitSite:
    """All parties here by default. Raises :class:`InputError` for what is not a site."""
    if given is None:
        return InOneProcess()
    if not isinstance(given, FitSite):
        raise InputError(f"site is {given!r}: give a quietmean.Site, or leave it out to have all parties in this process")
    return given


def parties_of(site: FitSite, parties: int | None) -> int:
    """How many there are. Raises :class:`InputError` where nobody says it, or the roster says another number."""
    count = parties if site.members is None else site.members
    if count is None:
        raise InputError("parties is not given: say how many there are, or give a quietmean.Site, whose roster says it")
    if parties not in (None, count):
        raise InputError(f"parties is {parties} and the roster has {count}: leave parties out")
    return count


def clamped_note(parts: Sequence[Array], limits: Array) -> list[str]:
    """What did not fit of records (rows, d) that take no study; ``limits``: bounds, shape (d, 2)."""
    counts = [(int(((part < limits[:, 0]) | (part > limits[:, 1])).sum()), int(np.isnan(part).sum())) for part in parts]
    return what_did_not_fit([Encoded(np.zeros(0), 1.0, *each) for each in counts])
