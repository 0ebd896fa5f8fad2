"""What all estimators have in common: who holds which rows, public bounds, the budget, errors that scikit-learn's tools know."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from quietmean.core.arrays import Array
from quietmean.core.codec import to_plain
from quietmean.core.domain import UNITS_OF_VECTORS, Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call, python_class, warn_caller
from quietmean.core.output import Output
from quietmean.core.readable import count_of, epsilon_text
from quietmean.core.schema import nearest, require_known
from quietmean.learning.sites import FITTED, FitSite, OnPaper, SiteRounds, site_of
from quietmean.planning.automatic import AUTO
from quietmean.privacy import Charge, CoalitionCertificate, compose
from quietmean.protocols.execution import Execution
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.outcome.outcome import StudyOutcome


@dataclass(frozen=True, eq=False, repr=False)
class FitCertificate:
    """The privacy of a fit.

    ``epsilon`` at ``delta``: an upper bound for one ``unit``, under replacement, against ``colluding`` parties who put
    together all that they see. ``charge``: the same as a ledger adds it up. ``executions``: what happened, one for each release.
    """

    unit: PrivacyUnit
    delta: float
    colluding: int
    charge: Charge
    executions: tuple[Execution, ...]

    @classmethod
    def of_study(cls, outcome: StudyOutcome) -> Self:
        """The certificate of one release: what its certificate says, or what was promised where that is less."""
        worst = int(outcome.certificate.mu.argmax())
        target = outcome.target
        return cls(target.unit, target.delta, target.colluding, outcome.charge(worst), (outcome.execution,))

    @classmethod
    def of_session(cls, session: SiteRounds, executions: Sequence[Execution]) -> Self:
        """The certificate of the rounds that began, with a result or not; ``executions``: those that this process has seen."""
        terms = session.terms
        return cls(terms.unit, terms.delta, terms.colluding, terms.charge(session.begun), tuple(executions))

    def after(self, before: FitCertificate) -> FitCertificate:
        """The certificate of this fit and one ``before`` it of the same data, against any one coalition for both."""
        return FitCertificate(
            self.unit,
            self.delta,
            max(self.colluding, before.colluding),
            compose([before.charge, self.charge]),
            (*before.executions, *self.executions),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Executions as the plain data that receipts have: a copy of an estimator can go to another process."""
        return {**self.__dict__, "executions": [execution.to_json() for execution in self.executions]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, executions=tuple(map(Execution.from_json, state["executions"])))

    def __repr__(self) -> str:
        cost = f"epsilon {epsilon_text(self.epsilon)} at delta {self.delta:g} for one {self.unit} under {self.neighbouring}"
        return f"FitCertificate({cost}, {len(self.executions)} releases, {self.colluding} colluding)"

    @cached_property
    def epsilon(self) -> float:
        """The epsilon of the fit at this delta, rounded up."""
        return self.charge.epsilon(self.delta)

    @property
    def neighbouring(self) -> str:
        return str(Neighbouring.REPLACEMENT)

    def of_release(self, number: int) -> CoalitionCertificate:
        """The certificate of one release by itself, from 0, against every coalition of the size: exact, and takes its time."""
        return self.executions[number].privacy(self.delta).coalitions(self.colluding)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, without the executions."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": str(self.unit),
            "neighbouring": self.neighbouring,
            "colluding": self.colluding,
            "mu": self.charge.mu,
            "releases": len(self.executions),
        }


Given = ParamSpec("Given")
Result = TypeVar("Result")
Kind = TypeVar("Kind")

OUTCOME = "y"
# Parameters that a session has itself, that are each site's own, or that only lead to what the rounds begin with.
_AGREED_ELSEWHERE = (
    *("epsilon", "delta", "unit", "parties", "colluding", "dropouts", "protocol", "options"),
    *("site", "accept_wide"),
    *("init", "random_state", "warm_start"),
    # Rounds of another solver are of another kind of session.
    "solver",
)

# What to know of a second fit.
_AGAIN = "what they cost adds up, once for each fold of a cross-validation"


class InvalidInput(InputError, ValueError):
    """An :class:`InputError` that is also a ValueError, which scikit-learn's tools look for."""


def public(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A method whose unknown keywords are refused, and whose :class:`InputError` is a ValueError, too."""
    checked = python_call(function)

    @wraps(function)
    def with_value_errors(*arguments: Given.args, **keywords: Given.kwargs) -> Result:
        try:
            return checked(*arguments, **keywords)
        except InputError as error:
            if isinstance(error, ValueError):
                raise
            raise InvalidInput(str(error)) from None

    return with_value_errors


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(kind: type[Kind]) -> type[Kind]:
    """A class whose annotated fields are its parameters, with their defaults: by keyword only, and a misspelt one is refused.

    Its signature has them all, also those of its base, as scikit-learn's rules want it.
    """
    return python_class(dataclass(kw_only=True, eq=False, repr=False)(kind))


@estimator
class Private(BaseEstimator):  # type: ignore[misc]
    """The parameters that every estimator has. Nothing is looked at before ``fit``, as scikit-learn's rules want it.

    ``bounds``: a public (low, high) for all columns or, shape (d, 2), one for each, chosen without looking at the data. Values
    beyond count as the nearest bound, and a row with a missing one counts as nothing. ``epsilon``, ``delta``: the budget of one
    fit for one ``unit``, a record or a whole party, under replacement. ``parties``: without labels, rows are dealt out to so
    many, row r to party r mod n. ``colluding``, ``dropouts``, ``protocol``, ``options`` as in :class:`~quietmean.Study`;
    ``accept_wide``: fit although the noise hides what the bounds do not tell.

    ``site``, a :class:`quietmean.Site`: this party's part between machines. ``fit`` then takes the rows of this party alone, is
    called at each site, and gives the same estimator at all; by default all parties are in this process.
    """

    bounds: ArrayLike | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str = "record"
    parties: int | None = None
    colluding: int | None = None
    dropouts: float = 0.0
    protocol: str = AUTO
    options: Mapping[str, Any] | None = None
    accept_wide: bool = False
    site: FitSite | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        return tags

    def set_params(self, **params: Any) -> Self:
        """Set parameters as scikit-learn does.

        Raises :class:`InputError`, a ValueError too, for an unknown name, with the nearest known.
        """
        names = sorted(self.get_params(deep=False))
        for name in params:
            if name not in names:
                raise InvalidInput(
                    f"{type(self).__name__} has no parameter {name!r}{nearest(name, names)}. Choose one of {', '.join(names)}."
                )
        return super().set_params(**params)  # type: ignore[no-any-return]

    # -- what is given ---------------------------------------------------------------------------------------------------------

    def _held(self, X: Any, y: Any, groups: Any, *, supervised: bool, reset: bool = True) -> tuple[list[Array], list[Any]]:
        """The rows (N, d) and outcomes (N,) of each party that is here; outcomes are None without.

        Warns of records that an earlier fit of this process has used. Raises :class:`InvalidInput`.
        """
        parts, outcomes = self._of_parties(X, y, groups, supervised=supervised, reset=reset)
        if reset:
            self._sample = FITTED.sample(parts)
            if before := FITTED.before(self._sample):
                self._tell([f"this fit spends its budget again on records of {count_of(before, 'earlier fit')}: {_AGAIN}"])
        return parts, outcomes

    def _of_parties(self, X: Any, y: Any, groups: Any, *, supervised: bool, reset: bool) -> tuple[list[Array], list[Any]]:
        if site_of(self.site).members is not None:
            if groups is not None or self.parties is not None or (supervised and y is None):
                raise InvalidInput("at a site X and y are the rows of this party alone. Leave out lists, groups and parties.")
            rows, outcome = self._checked(X, y, supervised, reset, least=0)
            return [rows], [outcome]
        listed = _listed(X, supervised) if y is None else None
        if listed is not None:
            if groups is not None:
                raise InvalidInput("a list has the data of one party each. Leave out groups, or give one table.")
            held = [
                self._checked(part, other, supervised, reset and not index, least=0) for index, (part, other) in enumerate(listed)
            ]
            self._require_parties(len(held))
            return [part for part, _ in held], [other for _, other in held]
        rows, outcome = self._checked(X, y, supervised, reset)
        holder = self._holders(len(rows), groups)
        count = int(holder.max()) + 1
        parts = [rows[holder == party] for party in range(count)]
        return parts, [None if outcome is None else outcome[holder == party] for party in range(count)]

    def _checked(self, X: Any, y: Any, supervised: bool, reset: bool, least: int = 1) -> tuple[Array, Any]:
        """Check data by scikit-learn's rules, but no message quotes a cell. ``least``: so many rows, none of one party's."""
        more = {"dtype": np.float64, "ensure_all_finite": False, "ensure_min_samples": least, **({"y": y} if supervised else {})}
        try:
            validated = validate_data(self, X, reset=reset, **more)
        except ValueError as error:
            if "could not convert" in str(error) or "invalid literal" in str(error):
                raise InvalidInput("X holds texts, not numbers only. Encode them as numbers between public bounds.") from None
            raise
        return (np.asarray(validated[0]), validated[1]) if supervised else (np.asarray(validated), None)

    def _holders(self, rows: int, groups: Any) -> NDArray[np.intp]:
        """The number of each row's party, shape (rows,). Raises :class:`InvalidInput` if that is not clear."""
        if groups is None:
            if self.parties is None:
                raise InvalidInput(
                    "who holds which rows is not clear. Give groups, a party's label for each row. Or give a list with the data "
                    "of each party, or parties to deal the rows out."
                )
            self._require_parties(self.parties)
            if rows < self.parties:
                raise InvalidInput(
                    f"{count_of(rows, 'sample')} cannot be dealt out to {self.parties} parties. Choose fewer parties, or give "
                    "more rows."
                )
            return np.arange(rows) % self.parties
        labels = column_or_1d(groups)
        if len(labels) != rows:
            raise InvalidInput(
                f"there are {count_of(len(labels), 'group')} for {count_of(rows, 'row')}. Give its party's label for each row."
            )
        if any(label is None or label != label for label in labels.tolist()):
            raise InvalidInput("a row has no party in groups. Name the party that each row belongs to.")
        names, holder = np.unique(labels, return_inverse=True)
        self._require_parties(len(names))
        return np.asarray(holder)

    def _require_parties(self, count: Any) -> None:
        if isinstance(count, bool) or not isinstance(count, int | np.integer):
            raise InvalidInput(f"parties is {count!r}. Choose a whole number of at least 2.")
        if count < 2:
            raise InvalidInput(f"{count} party has nobody to compute with. Give at least 2 parties.")

    def _limits(self, bounds: Any, columns: int, name: str = "bounds") -> Array:
        """Public bounds, shape (columns, 2). Raises :class:`InvalidInput` without any: they are never computed from data."""
        if bounds is None:
            raise InvalidInput(
                f"{name} is not given. Name a public (low, high), without looking at the data, for all columns or for each."
            )
        try:
            limits = np.asarray(bounds, dtype=np.float64)
        except (TypeError, ValueError):
            limits = np.zeros(0)
        if limits.shape == (2,):
            limits = np.tile(limits, (columns, 1))
        if limits.shape != (columns, 2):
            raise InvalidInput(
                f"{name} has another shape than the columns. Give one (low, high), or {columns} of them, one for each column."
            )
        if not (np.isfinite(limits).all() and (limits[:, 0] < limits[:, 1]).all()):
            raise InvalidInput(f"{name} is not made of rising bounds. Give finite numbers with low < high.")
        return limits

    def _budget(self) -> dict[str, Any]:
        """The budget of a fit, and whom it protects against. Raises :class:`InvalidInput` unless epsilon and delta are named."""
        for name in ("epsilon", "delta"):
            if getattr(self, name) is None:
                raise InvalidInput(f"{name} is not given. Name the budget of one fit, for example epsilon=1.0, delta=1e-6.")
        require_known("unit", str(self.unit), tuple(map(str, UNITS_OF_VECTORS)))
        if not isinstance(self.options, Mapping | None):
            raise InvalidInput(f"options is {self.options!r}. Give a dict, the protocol's parameters by name.")
        site_of(self.site)
        return {
            "epsilon": self._number("epsilon"),
            "delta": self._number("delta"),
            "unit": str(self.unit),
            "dropouts": self._number("dropouts", least=0),
            "protocol": str(self.protocol),
            "options": dict(self.options or {}),
            **({} if self.colluding is None else {"colluding": self._whole("colluding", least=0)}),
        }

    def _number(self, name: str, *, least: float | None = None) -> float:
        """A parameter that is a finite number, > 0 or not below ``least``. Raises :class:`InvalidInput`."""
        value = getattr(self, name)
        range_ = "> 0" if least is None else f">= {least:g}"
        number = not isinstance(value, bool) and isinstance(value, int | float | np.integer | np.floating)
        if not (number and math.isfinite(value) and (value > 0 if least is None else value >= least)):
            raise InvalidInput(f"{name} is {value!r}. Choose a finite number {range_}.")
        return float(value)

    def _whole(self, name: str, *, least: int = 1) -> int:
        """A parameter that is a whole number. Raises :class:`InvalidInput`."""
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InvalidInput(f"{name} is {value!r}. Choose a whole number of at least {least}.")
        return int(value)

    # -- what comes of it ------------------------------------------------------------------------------------------------------

    def _names(self, columns: int) -> list[str]:
        """What the columns are called in what is agreed on: at a site as in its data frame, if it has one.

        Raises :class:`InvalidInput` for headings that cannot stand in a formula.
        """
        named = site_of(self.site).members is not None and hasattr(self, "feature_names_in_")
        names = [str(name) for name in self.feature_names_in_] if named else [f"x{number}" for number in range(columns)]
        wrong = [name for name in names if not name.isidentifier() or name == OUTCOME]
        if wrong:
            raise InvalidInput(
                f"column {wrong[0]!r} cannot stand in a formula, and {OUTCOME} is the outcome. Rename it at all sites to "
                "letters, digits and _, or give an array."
            )
        return names

    @abstractmethod
    def _contract(self, limits: Array) -> Any:
        """The contract of a fit of columns with these bounds, at a site."""

    @public
    def contract(self, X: Any) -> Any:
        """What this party says yes to by :meth:`fit` with such data, of which only the columns are looked at; nothing is sent.

        Its ``digest`` is what a :class:`quietmean.Site` takes as ``accept``. Raises :class:`InputError`, a ValueError too, where
        all parties are in one process.
        """
        return self._agreement(X)

    @public
    def save_study(self, path: str | Path, X: Any, parties: int) -> None:
        """Write what ``parties`` parties agree on by :meth:`fit` with such data, for ``quietmean study invite``: sites that fit
        under the seal give the sealed file to their :class:`quietmean.Site`. Nothing is overwritten.

        Raises :class:`InputError`, a ValueError too, for a file that exists, and for what cannot be fitted.
        """
        agreed = self._agreement(X, OnPaper(count=parties))
        Output(Path(path), "the study", "").write(study_text(agreed).encode())

    def _agreement(self, X: Any, site: FitSite | None = None) -> Any:
        # No estimator that is fitted changes by a question.
        estimator = clone(self)
        estimator.site = self.site if site is None else site
        rows, _ = estimator._checked(X, None, False, reset=True)
        return estimator._contract(estimator._limits(estimator.bounds, rows.shape[1]))

    def _purpose(self, columns: int, start: Mapping[str, Array]) -> dict[str, Any]:
        """What all parties have to do alike in the rounds of a session, in plain data; ``start``: what they begin with."""
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in _AGREED_ELSEWHERE}
        plain = {name: to_plain(np.asarray(value)) if np.ndim(value) else value for name, value in own.items()}
        numbers = b"".join(array.astype("<f8").tobytes() for array in start.values())
        begin = hashlib.sha256(numbers).hexdigest()
        stated = {name: value for name, value in plain.items() if value is not None}
        return {"estimator": type(self).__name__, "columns": self._names(columns), **stated, "start": begin}

    def _certify(self, certificate: FitCertificate) -> None:
        if (sample := self.__dict__.pop("_sample", None)) is not None:
            FITTED.add(sample)
        self.certificate_ = certificate
        self.epsilon_ = certificate.epsilon
        self.delta_ = certificate.delta

    def _missing_errors(self, noise: str, population: str) -> None:
        """Why coefficients have no standard errors of the noise, and no intervals of the population; "" where they have.

        What there is none of is NaN: of an earlier fit nothing is left.
        """
        self.no_errors_, self.no_intervals_ = noise, population
        for name in ("coef", "intercept"):
            shape = np.shape(getattr(self, f"{name}_"))
            if noise:
                setattr(self, f"{name}_standard_error_", np.full(shape, np.nan)[()])
            if population:
                setattr(self, f"{name}_interval_", np.full((*shape, 2), np.nan))

    def _tell(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            warn_caller(sentence)

    def _known(self, array: Any, subject: str) -> Any:
        """These numbers, all of which have to be known. Raises :class:`InvalidInput` where noise left nothing to use."""
        if not np.isfinite(array).all():
            raise InvalidInput(f"noise hides {subject}. Fit with a larger epsilon, with more records, or with narrower bounds.")
        return array

    def _rows(self, X: Any) -> Array:
        """Rows (N, d) to use a fitted estimator on; what is missing is NaN."""
        check_is_fitted(self)
        rows: Array = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return rows

    def _complete(self, X: Any) -> Array:
        """Rows that are asked about, with the middle of the bounds for what is missing: each has an answer."""
        rows = self._rows(X)
        return np.where(np.isnan(rows), self._limits(self.bounds, rows.shape[1]).mean(axis=1), rows)


def filled(parts: Sequence[Array], limits: Array) -> list[Array]:
    """Rows within ``limits``, shape (d, 2): what is beyond at the nearest bound, what is missing in the middle."""
    return [np.clip(np.where(np.isnan(part), limits.mean(axis=1), part), limits[:, 0], limits[:, 1]) for part in parts]


def _is_table(table: Any) -> bool:
    return len(getattr(table, "shape", ())) == 2


def _listed(X: Any, supervised: bool) -> list[tuple[Any, Any]] | None:
    """The (X, y) of each party if X is a list of them; None where it is one table."""
    if not isinstance(X, list | tuple) or not X:
        return None
    if supervised:
        pairs = all(isinstance(table, list | tuple) and len(table) == 2 and _is_table(table[0]) for table in X)
        return [(table[0], table[1]) for table in X] if pairs else None
    return [(table, None) for table in X] if all(map(_is_table, X)) else None
