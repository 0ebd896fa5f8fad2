"""Models that are fitted by rounds of a session, of all parties in this process or of one party between machines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Required, Self, TypedDict

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.keywords import warn_caller
from quietmean.core.output import Output
from quietmean.core.party import PartyId
from quietmean.learning.models.answers import Fit, ratios_of
from quietmean.learning.models.families import Binomial, Scaled
from quietmean.learning.models.formulas import ModelDesign
from quietmean.learning.models.newton import Newton
from quietmean.learning.models.scored import ScoredRounds
from quietmean.learning.models.state import DesignRows, FitState
from quietmean.learning.sites import FitSite, KeptState, OnPaper, RoundsLeft, SiteRounds, parties_of, site_of
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.protocols.execution import Execution
from quietmean.sessions import RoundMean
from quietmean.statistics import Column, Columns, Estimates
from quietmean.statistics.conditions import RowCondition, by_columns
from quietmean.statistics.models import model_text
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.session_study import MODEL, SessionStudy
from quietmean.studies.data import Source, read_columns
from quietmean.studies.data.sources import parties_of_data
from quietmean.studies.outcome.forecast import noise_of_total
from quietmean.studies.party.planned import PlannedStudy, Wanted

# The version of what parties send in a round and make of its mean: who changes that changes it, so that all agree on it.
VERSION = 6


class OwnRounds(RoundsLeft, Protocol):
    """The rounds of a session for one party."""

    def mean(self, vector: Array, *, clip: float | None = None) -> RoundMean[Any]: ...


class ModelKeywords(TypedDict, total=False):
    """What every model is given besides its own, as :class:`GeneralizedLinearModel` says."""

    epsilon: Required[float]
    delta: Required[float]
    colluding: int | None
    dropouts: float
    protocol: str
    options: Mapping[str, Any] | None
    site: FitSite | None


_INTERCEPT = "Intercept"


class ModelByRounds:
    """What all models have in common. See :class:`GeneralizedLinearModel` and :class:`ProportionalHazards`."""

    # How its session and files are called.
    kind = ""
    # What the rounds that began have cost; of :meth:`fit`.
    charge: Charge
    # For sentences about parties, in their order; none where nobody knows them.
    names_of_parties: Sequence[str] = ()

    def __init__(
        self,
        columns: Iterable[Column | Mapping[str, Any]],
        rounds: int,
        general: ModelKeywords,
        where: str = "",
    ) -> None:
        self.columns = Columns([column if isinstance(column, Column) else Column.model_validate(column) for column in columns])
        self.where = where
        self._condition = RowCondition(where) if where else None
        if self._condition is not None:
            self._condition.require_of(self.columns)
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            raise InputError(f"rounds is {rounds!r}. Choose a whole number of at least 1.")
        self.rounds = rounds
        self._site = site_of(general.pop("site", None))
        stated = {name: value for name, value in general.items() if value is not None}
        self._budget: dict[str, Any] = {"unit": str(PrivacyUnit.RECORD), **stated}
        self._fit: Fit | None = None

    # -- what a model says -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What all parties have to do alike, in plain data."""

    @abstractmethod
    def _design_for(self, parties: int) -> ModelDesign: ...

    @property
    @abstractmethod
    def family(self) -> Binomial | Scaled: ...

    @abstractmethod
    def _rows(self, design: ModelDesign, records: Array, place: int) -> DesignRows:
        """The rows of the records (N, columns) of the party at this place."""

    # -- between parties ---------------------------------------------------------------------------------------------------------

    def fit(self, data: Source | Sequence[Source], *, parties: int | None = None, party_column: str | None = None) -> Self:
        """All rounds, under one budget. ``data``: a path or a data frame whose rows are dealt out to so many ``parties``, or
        belong to those that ``party_column`` names, or a list with one for each party; at a site the one of this party.

        Warns of what was not understood, for the owner of the data only. Raises :class:`InputError` before anything is released,
        and :class:`ProtocolFailure` for a round without a result.
        """
        notes: list[str] = []
        parts = self._parts(data, parties, party_column, notes)
        for note in notes:
            warn_caller(f"{note} (for you only)")
        self.fit_parts(parts)
        return self

    def fit_parts(self, parts: Sequence[Array], leaves: Callable[[Plan], Mapping[PartyId, int]] = lambda plan: {}) -> SiteRounds:
        """All rounds, of the records (N, columns) of each party that is here: their session, which is over.

        ``leaves``: who leaves a round of this plan after so many of its steps, to try it. Raises as :meth:`fit` does.
        """
        here = self._site.members is not None
        count = parties_of(self._site, None if here else len(parts))
        design = self._design_for(count)
        fields = self._asked(design)
        places = self._site.here(count)
        rows = {place: self._rows(design, part, place) for place, part in zip(places, parts, strict=True)}
        state = self._begin(design)

        with self._site.rounds(fields, count, len(parts[0]) if here else None) as session:

            def mean() -> RoundMean[Any]:
                vectors = {place: state.vectors(own) for place, own in rows.items()}
                return session.mean(vectors, clip=1.0, leaves=leaves(session.terms.plan))

            self._fit_by(session, mean, state, design, self._site.keeps(fields))
            self.charge = session.terms.charge(session.begun)
        return session

    def fit_in(self, rounds: OwnRounds, records: Array, place: int, parties: int, kept: Path | None) -> Self:
        """The part of one of so many ``parties`` in a session that runs, with its records (N, columns); what was released is kept
        in a public file. Raises as :meth:`fit` does."""
        design = self._design_for(parties)
        state, rows = self._begin(design), self._rows(design, records, place)
        self._fit_by(rounds, lambda: rounds.mean(state.vectors(rows), clip=1.0), state, design, kept)
        return self

    def _fit_by(
        self, rounds: RoundsLeft, mean: Callable[[], RoundMean[Any]], state: FitState, design: ModelDesign, kept: Path | None
    ) -> None:
        """All rounds that are left, each by its ``mean``."""
        fit, executions = KeptState(state, kept, self.rounds), list[Execution]()
        fit.resume(rounds)
        while not fit.over(rounds):
            executions.append(fit.move(mean).execution)
        self.epsilon, self.executions = rounds.epsilon, tuple(executions)
        self._fit = self.fit_of(design, state)

    def read(self, data: Source, tell: Callable[[str], None]) -> Array:
        """The records of one party, (N, columns). Raises :class:`InputError` for what is not a table with these columns."""
        return read_columns(data, self.columns, tell)

    def fit_of(self, design: ModelDesign, state: FitState) -> Fit:
        """What the state of its rounds says about the terms."""
        groups, headline = self._groups(design), tuple(self._headline(design))
        levels = design.levels if self.family.separates else ()
        names = design.names, groups, self.family.ratio, headline, levels
        return Fit(state, state.scaled(design.scaling), *names, self.names_of_parties, bool(self.where))

    def _parts(self, data: Any, parties: int | None, party_column: str | None, notes: list[str]) -> Sequence[Array]:
        if self._site.members is not None:
            if parties is not None or party_column is not None or isinstance(data, list | tuple | Mapping):
                raise InputError(
                    "at a site the data are the rows of this party alone. Leave out lists, dicts, parties and party_column."
                )
            return [read_columns(data, self.columns, notes.append)]
        self.names_of_parties, parts = parties_of_data(data, self.columns, parties, party_column, notes.append)
        return [np.asarray(part) for part in parts]

    def _begin(self, design: ModelDesign) -> FitState:
        if isinstance(self.family, Scaled):
            return ScoredRounds(self.family, design.size, design.constant, self.rounds, self._largest_offset, self._most_rows)
        return Newton(self.family, design.size, design.constant, self.rounds)

    @property
    def by_party(self) -> bool:
        """Whether there are coefficients of each party, so that their number is part of the model."""
        return False

    @property
    def _most_rows(self) -> int:
        """How many rows a record has at most."""
        return 1

    @property
    def _largest_offset(self) -> float:
        """The largest that is added to a predictor besides the terms, by public bounds."""
        return 0.0

    @property
    def epsilon_of_all(self) -> float:
        """What all rounds together may cost."""
        return float(self._budget["epsilon"])

    @property
    def text(self) -> str:
        """The question that this model answers, without the domains of its columns."""
        return model_text({"kind": self.kind, **self.describe(), "rounds": self.rounds})

    def session_study(self, parties: int, **more: Any) -> SessionStudy:
        """Return what so many parties agree on, but who they are; ``more``: further fields of a session file.

        Raises :class:`InputError` for what cannot be.
        """
        return SessionStudy.parse(self._asked(self._design_for(parties), OnPaper(count=parties)) | more)

    def _asked(self, design: ModelDesign, site: FitSite | None = None) -> dict[str, Any]:
        """A session, by the fields of its file."""
        agreed = (self._site if site is None else site).agreed(self.kind)
        state = self._begin(design)
        return {
            "dimension": state.dimension,
            "rounds": self.rounds,
            **self._budget,
            **agreed,
            "purpose": {
                "kind": MODEL,
                "model": self.kind,
                "version": VERSION,
                "schedule": list(state.schedule),
                **self.describe(),
            },
        }

    @property
    def contract(self) -> Any:
        """What this party says yes to, at a site; nothing is sent. Raises :class:`InputError` where all are in one process."""
        members = self._site.members
        if members is None:
            raise InputError("a contract is for parties between machines, and all are in one process. Give a quietmean.Site.")
        return self._site.contract(self._asked(self._design_for(members)))

    def expect(self, made_up: Source, parties: int, *, records: int | None = None) -> Estimates:
        """The coefficients of a made-up table, with the errors and flags to expect of a fit by so many ``parties`` of as many
        records as it has, or of so many ``records``. Nothing is charged: the table is made up, and no noise is added to it.

        Raises :class:`InputError` for what :meth:`fit` refuses.
        """
        given = read_columns(made_up, self.columns, lambda note: None)
        count = len(given) if records is None else records
        if not len(given) or isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError("nothing is to be expected of no records. Give a made-up table of some, and records of at least 1.")
        noise = noise_of_total(self.session_study(parties).terms(parties).plan) / count
        return self._fit_alone(np.array_split(given, parties), noise, float(count)).coefficients

    def plan(
        self, parties: int, *, records: int | None = None, width: float | None = None, power: float | None = None
    ) -> PlannedStudy:
        """Plan its session as :meth:`quietmean.Study.plan` does a study: what it costs, and how wide its intervals will be."""
        wanted = Wanted(records, width, power)
        return wanted.plan(self.session_study(parties), parties, hope=False)

    def without_noise(self, parts: Sequence[Array]) -> Fit:
        """Return what all rounds would answer of the records (N, columns) of all parties without noise, for who has them all."""
        return self._fit_alone(parts, 0.0, float(sum(map(len, parts))))

    def _fit_alone(self, parts: Sequence[Array], noise: float, records: float) -> Fit:
        """All rounds, to which no noise is added, as of so many records with so much of it in each mean."""
        return next(self.drawn_fits(parts, np.full((1, sum(map(len, parts))), 1 / sum(map(len, parts))), noise, records))

    def drawn_fits(
        self, parts: Sequence[Array], weights: Array, noise: float, records: float, added: Array | None = None
    ) -> Iterator[Fit]:
        """Fits of so many ``records``, each when it is asked for, whose rounds release weighted sums of those of all parties.

        ``parts``: the records (N, columns) of each. ``weights``, (fits, all records): one row for each fit. ``noise``: its
        deviation in each coordinate. ``added``: noise for a deviation of 1, (fits, rounds, coordinates); by default none is
        added.
        """
        design, ends = self._design_for(len(parts)), np.cumsum([len(part) for part in parts])[:-1]
        rows = [self._rows(design, part, place) for place, part in enumerate(parts)]
        for fit, own in enumerate(weights):
            state, by_party = self._begin(design), np.split(own, ends)
            for number in range(1, self.rounds + 1):
                mean = np.sum([each @ state.vectors(row) for each, row in zip(by_party, rows, strict=True)], axis=0)
                if added is not None:
                    mean += noise * added[fit, number - 1]
                state.moved(number, mean, noise, records)
            yield self.fit_of(design, state)

    def dimension_for(self, parties: int) -> int:
        """How many coordinates a vector of so many parties has."""
        return self._begin(self._design_for(parties)).dimension

    def save_study(self, path: str | Path, parties: int) -> None:
        """Write what so many ``parties`` agree on by :meth:`fit`, for ``quietmean study invite``; ``quietmean join`` then fits it
        with ``--data``. Nothing is overwritten. Raises :class:`InputError` for a file that exists."""
        Output(Path(path), "the study", "").write(study_text(self.session_study(parties)).encode())

    # -- what comes of it --------------------------------------------------------------------------------------------------------

    @property
    def _fitted(self) -> Fit:
        if self._fit is None:
            raise InputError("the model is not fitted yet. Call fit first.")
        return self._fit

    @property
    def coefficients(self) -> Estimates:
        """The coefficients, with intervals of the noise and of the population. Raises :class:`InputError` before a fit."""
        return self._fitted.coefficients

    @property
    def ratios(self) -> Estimates:
        """The exponentials of the coefficients: odds ratios, rate ratios, hazard ratios.

        Raises :class:`InputError` before a fit, and for a gaussian model.
        """
        if not self.family.ratio:
            raise InputError("a gaussian model has differences of means, not ratios. Read coefficients.")
        return self._fitted.ratios

    def to_json(self) -> dict[str, Any]:
        """Return the answer in plain JSON data. Raises :class:`InputError` before a fit."""
        ratio = self.family.ratio
        ratios = {"are": ratios_of(ratio), "ratios": self.ratios.to_json()} if ratio else {}
        return {"kind": self.kind, "name": self.text, "coefficients": self.coefficients.to_json(), **ratios}

    def _headline(self, design: ModelDesign) -> Iterable[str]:
        return (name for name in design.names if name != _INTERCEPT)

    def _groups(self, design: ModelDesign) -> dict[str, Sequence[int]]:
        return design.terms.groups

    def _complete(self, records: Array, names: Sequence[str]) -> Mask:
        """Which records (N, columns) meet its condition and have a value in all of these columns."""
        places = [self.columns.names.index(name) for name in names]
        values = records[:, places]
        levels = np.array([not self.columns[name].numeric for name in names], dtype=bool)
        complete = (np.isfinite(values) & ~(levels & (values < 0))).all(axis=1)
        if self._condition is not None:
            complete &= self._condition.holds(self.columns, by_columns(self.columns, records))
        return np.asarray(complete)
