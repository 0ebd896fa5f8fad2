"""Where the parties of a fit are: all of them in this process, or one of them here and the others at other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, OutOfReach
from quietmean.core.party import PartyId, Vector
from quietmean.planning.plan import Plan
from quietmean.sessions import Engine, MemoryEngine, RoundMean, Session, SessionTerms
from quietmean.statistics import Encoded, what_did_not_fit
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import StudyOutcome, conclude

# How the name of the file ends.
KEPT = ".model.npz"


class Moved(Protocol):
    """What all parties have alike after a round."""

    @property
    def round(self) -> int: ...
    def move(self, mean: RoundMean[Any]) -> Any: ...
    def save(self, path: str | Path) -> None: ...
    def load(self, path: str | Path) -> Any: ...


class RoundsLeft(Protocol):
    """The rounds of a session that was opened, perhaps again."""

    @property
    def over(self) -> bool: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def round(self) -> int:
        """The number of the last round that began here; 0 before the first."""
        ...

    def last(self) -> RoundMean[Any] | None:
        """Return the mean of the last round, also after a restart; None where there is none."""
        ...


class KeptState:
    """The public state of a fit, kept after each round.

    ``state`` in the file ``path`` after each of so many ``rounds``; None: nowhere. The file is public: other parties can go on
    with it.
    """

    def __init__(self, state: Moved, path: Path | None, rounds: int) -> None:
        self._state, self._path, self._rounds = state, path, rounds

    def over(self, means: RoundsLeft) -> bool:
        """Whether no round is left, or the state is that after the last one: another party's file, who stayed to the end."""
        return means.over or (means.round > 0 and self._state.round >= self._rounds)

    def resume(self, means: RoundsLeft) -> None:
        """Go on where this party was, in a session that was opened again.

        Raises :class:`InputError` where it was away in rounds whose means it does not have: another party's file has them.
        """
        if self._path is None:
            return
        if self._path.exists():
            self._state.load(self._path)
        last = means.last()
        if last is not None and last.round == self._state.round + 1:
            self._move(last)
        if means.round > self._state.round + 1:
            raise self._behind(means.round - 1)

    def move(self, mean: Callable[[], RoundMean[Any]]) -> RoundMean[Any]:
        """Move the state by a round, in which ``mean`` takes part. Raises what that raises, and what :meth:`resume` does."""
        try:
            released = mean()
        except OutOfReach as error:
            error.args = (f"{error.text} {self._copy('of one of them')} if they have.",)
            raise
        self._move(released)
        return released

    def _move(self, mean: RoundMean[Any]) -> None:
        if self._path is not None and mean.round > self._state.round + 1:
            raise self._behind(mean.round)
        self._state.move(mean)
        if self._path is not None:
            self._state.save(self._path)

    def _behind(self, needed: int) -> InputError:
        return InputError(
            f"this party has what was released up to round {self._state.round}, and goes on after round {needed}. "
            f"{self._copy('of a party that has taken part since')}."
        )

    def _copy(self, whose: str) -> str:
        return f"Copy the file {whose}, *{KEPT}, to {self._path}, and fit again"


def packed(**arrays: ArrayLike) -> bytes:
    """Arrays by name as the content of a file, which :func:`unpacked` reads."""
    written = BytesIO()
    np.savez(written, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})
    return written.getvalue()


def unpacked(content: bytes, names: Iterable[str]) -> dict[str, Array]:
    """The arrays of these names. Raises :class:`ValueError` for a file that does not hold them."""
    try:
        with np.load(BytesIO(content), allow_pickle=False) as file:
            return {name: np.asarray(file[name], dtype=np.float64) for name in names}
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ValueError(type(error).__name__) from None


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
        raise InputError("a contract is for parties between machines, and all are in one process. Give a quietmean.Site.")

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
        raise InputError(f"site is {given!r}. Give a quietmean.Site, or leave it out to have all parties in this process.")
    return given


def parties_of(site: FitSite, parties: int | None) -> int:
    """The number of parties. Raises :class:`InputError` where nobody says it, or the roster says another number."""
    count = parties if site.members is None else site.members
    if count is None:
        raise InputError("parties is not given. Say how many there are, or give a quietmean.Site, whose roster says it.")
    if parties not in (None, count):
        raise InputError(f"parties is {parties} and the roster has {count}. Leave parties out.")
    return count


def clamped_note(parts: Sequence[Array], limits: Array) -> list[str]:
    """What did not fit of records (rows, d) that take no study; ``limits``: bounds, shape (d, 2)."""
    counts = [(int(((part < limits[:, 0]) | (part > limits[:, 1])).sum()), int(np.isnan(part).sum())) for part in parts]
    return [*what_did_not_fit([Encoded(np.zeros(0), 1.0, *each) for each in counts]), *learned_bounds_note(parts, limits)]


def learned_bounds_note(parts: Sequence[Array], limits: Array) -> list[str]:
    """What is said, to their owner, where the ``limits`` (d, 2) of records (rows, d) seem to be learned from them."""
    rows = np.concatenate(parts)[:, : len(limits)]
    measured = [column for column in range(rows.shape[1]) if _measured(rows[:, column])]
    # Rounding of a scaler.
    alike = (
        np.allclose(limits[column], (rows[:, column].min(), rows[:, column].max()), rtol=1e-9, atol=1e-12) for column in measured
    )
    return [_LEARNED] if measured and all(alike) else []


_LEARNED = (
    "each column reaches both of its bounds exactly: bounds that are learned from the data, as MinMaxScaler does, are not "
    "covered by epsilon. Choose them without looking at the data (for you only)"
)


def _measured(column: Array) -> bool:
    """Does a column hold numbers, all known, that are not all whole? Whole ones often reach both ends of their scale."""
    return len(column) > 1 and bool(np.isfinite(column).all()) and bool((column != np.round(column)).any())


# So many hashes of rows are kept of a fit, and so many that it shares with another make it one of the same records.
_SAMPLE, _SHARED = 512, 0.2
_FEWEST_ROWS = 20


class FittedRecords:
    """Which records fits of this process have used: hashes of some of their rows, under a key that nobody can ask for."""

    def __init__(self) -> None:
        self._samples: list[frozenset[int]] = []

    def sample(self, parts: Sequence[Array]) -> frozenset[int]:
        """The least hashes of rows (N, d): those of two fits that share rows are alike."""
        rows = np.ascontiguousarray(np.concatenate(parts), dtype=np.float64).view(np.uint64)
        # Hashes of texts have a key of this process.
        keys = np.array([hash(f"column {column}") for column in range(rows.shape[1])], dtype=np.int64).view(
            np.uint64
        ) | np.uint64(1)
        return frozenset(np.unique((rows * keys).sum(axis=1))[:_SAMPLE].tolist())

    def before(self, sample: frozenset[int]) -> int:
        """How many fits have used such records."""
        return sum(len(other & sample) >= max(_SHARED * min(len(other), len(sample)), _FEWEST_ROWS) for other in self._samples)

    def add(self, sample: frozenset[int]) -> None:
        self._samples.append(sample)


FITTED = FittedRecords()
