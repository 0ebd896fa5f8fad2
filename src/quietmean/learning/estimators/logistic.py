"""Logistic regression: in one shot, or by rounds of gradients, or of Newton's, in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from quietmean.core.arrays import Array
from quietmean.core.readable import count_of
from quietmean.core.schema import require_known
from quietmean.learning.averaging import ModelAveraging
from quietmean.learning.estimators.base import OUTCOME, FitCertificate, InvalidInput, estimator, filled, public
from quietmean.learning.estimators.one_study import OneStudy
from quietmean.learning.models import GeneralizedLinearModel
from quietmean.learning.sites import clamped_note, parties_of, site_of
from quietmean.protocols.execution import Execution
from quietmean.statistics import Column

GRADIENT, NEWTON = "gradient", "newton"
# Why coefficients have neither standard errors nor intervals, of records and of whole parties.
_NO_INFORMATION = (
    "rounds of gradients release no information of the coefficients. For standard errors and intervals of two classes, choose "
    "solver='newton'. Of more classes, fit one against another"
)
_NO_INFORMATION_OF_PARTIES = (
    "averages of what whole parties fit by themselves release no information of the coefficients. Protect records with "
    "solver='newton'"
)


def _has_gradients(estimator: Any) -> bool:
    return bool(estimator.rounds != 0 and estimator.solver == GRADIENT)


@estimator
class LogisticRegression(ClassifierMixin, OneStudy):  # type: ignore[misc]
    """Log odds that are linear in the columns: in one shot, or by ``rounds`` of gradients in a session.

    One shot (``rounds=0``) is the statistic ``logistic-regression`` of one study, for two classes: least squares, scaled as
    linear discriminant analysis scales it. With rounds, the columns are scaled to [-1, 1] by their bounds, and in each the
    gradients of the log likelihood at the public model, one for each record, are shortened to the length ``clip`` and averaged
    (Abadi et al. 2016). With ``unit="party"`` each party takes ``local_steps`` of size ``local_rate`` by itself, and the
    shortened differences of the models are averaged (McMahan et al. 2018). More than two classes have a vector of coefficients
    each (softmax).

    ``solver="newton"``, with rounds of records and two classes: in each round score and information of all records are released,
    as of :class:`~quietmean.learning.GeneralizedLinearModel` (the extra ``models``), and coefficients have standard errors and
    intervals. Six rounds are usual. ``clip``, ``learning_rate``, ``momentum``, ``penalty`` and ``warm_start`` are of gradients.

    Privacy unit: one record, or a whole party with ``unit="party"``. Neighbouring relation: replacement of one unit; ``epsilon``
    and ``delta`` are those of the fit, over all of its rounds.

    ``bounds``: public (low, high) of the columns, required; ``classes``: the public labels, required, and a row with another
    one counts as one with a missing value (in rounds with a gradient of 0). ``learning_rate`` and ``momentum`` are applied to
    what was released. ``penalty``: with rounds, so many times half the squared length of the coefficients of the scaled
    columns is added to the mean negative log likelihood; 1 / (C N) for scikit-learn's C and N records. ``warm_start``: rounds
    begin with the coefficients there are, and ``epsilon_`` is that of both fits together. Everything else as in
    :class:`~quietmean.learning.estimators.base.Private`.

    Fitted: ``coef_`` (1, d), or (classes, d) of more than two, ``intercept_``, ``classes_``, ``certificate_``, ``epsilon_``,
    ``delta_``. In one shot also ``coef_standard_error_``, ``intercept_standard_error_`` of the noise and ``estimates_``; with
    rounds ``n_iter_`` and ``gradient_standard_error_``, that of the noise on each coordinate of what a round released, in the
    units of the scaled columns. After Newton's rounds there are ``coef_standard_error_`` and ``intercept_standard_error_`` of the
    noise, 95 % intervals of the population ``coef_interval_`` (1, d, 2) and ``intercept_interval_`` (1, 2), which hold whatever
    the model is (sandwich errors), and ``estimates_``; what the noise hides is NaN, with a warning. Coefficients after rounds of
    gradients have no errors, as what is released does not tell how well the data determine them, and one shot has no intervals:
    these are NaN, and ``no_errors_`` and ``no_intervals_`` say why.
    """

    classes: ArrayLike | None = None
    rounds: int = 0
    clip: float = 1.0
    learning_rate: float = 1.0
    momentum: float = 0.0
    penalty: float = 0.0
    local_steps: int = 20
    local_rate: float = 0.5
    warm_start: bool = False
    solver: str = GRADIENT

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = _has_gradients(self)
        return tags

    @public
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One release, or ``rounds`` of them. ``X``: a list with the (X, y) of each party; or X (N, d) and y (N,), with
        ``groups`` (N,), a party's label for each row, or the parameter ``parties``. Raises :class:`InputError`, a ValueError
        too, before anything is released, and :class:`ProtocolFailure` for a round without a result: the model
        is that of the round before.
        """
        rows, outcomes, limits = self._given(X, y, groups, reset=True)
        self._averaging: ModelAveraging | None = None
        penalty = self._number("penalty", least=0)
        if self.solver != GRADIENT:
            return self._by_newton(rows, outcomes, limits)
        if self.rounds == 0:
            if penalty:
                raise InvalidInput(
                    "penalty is for rounds of learning, and this fit has none. Leave it out, or choose for example rounds=30."
                )
            return self._one_shot(rows, outcomes, limits)
        self._begin(rows, limits)
        with self._session() as averaging:
            self._take_over(averaging, limits)
            while not averaging.over:
                self._round(rows, outcomes, limits)
        del self._averaging
        return self

    @available_if(_has_gradients)  # type: ignore[untyped-decorator]
    @public
    def partial_fit(self, X: Any, y: Any = None, groups: Any = None, classes: Any = None) -> Self:
        """One round of the session that the first call begins, with the data that are given. As :meth:`fit`; the parties stay.
        ``classes`` are those of the constructor. One shot has no such method, nor of Newton's rounds.

        Raises :class:`InputError` once all ``rounds`` are over: their budget is spent.
        """
        first = getattr(self, "_averaging", None) is None
        rows, outcomes, limits = self._given(X, y, groups, reset=first)
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise InvalidInput("classes are not those that the estimator was made with. Leave them out here.")
        if first:
            self._begin(rows, limits)
        self._round(rows, outcomes, limits)
        if self._session().over:
            # Of a party between machines it ends for good.
            self._session().__exit__(None, None, None)
        return self

    @public
    def decision_function(self, X: Any) -> Array:
        """Log odds, shape (N,), or (N, classes) of more than two, up to a sum that all share. Nothing is released."""
        scores: Array = self._complete(X) @ self._known(self.coef_, "the regression").T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @public
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class for each row, shape (N, classes)."""
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.column_stack([expit(-odds), expit(odds)])
        probabilities: Array = softmax(odds, axis=1)
        return probabilities

    @public
    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest of ``classes_`` for each row, shape (N,)."""
        odds = self.decision_function(X)
        places = (odds > 0).astype(np.intp) if odds.ndim == 1 else odds.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def _given(self, X: Any, y: Any, groups: Any, reset: bool) -> tuple[list[Array], list[Array], Array]:
        """Rows, indices of labels in the classes (NaN for another label), and limits."""
        rows, outcomes = self._held(X, y, groups, supervised=True, reset=reset)
        for outcome in outcomes:
            check_classification_targets(outcome)
        self._whole("rounds", least=0)
        require_known("solver", str(self.solver), (GRADIENT, NEWTON))
        classes = _classes(self.classes, _has_gradients(self))
        limits = self._limits(self.bounds, rows[0].shape[1])
        self._budget()
        self.classes_ = classes
        places = [_places(np.asarray(outcome), classes) for outcome in outcomes]
        if others := sum(int(np.isnan(place).sum()) for place in places):
            self._tell(
                [
                    count_of(
                        others,
                        "row has a label that is not in classes, and counts",
                        "rows have a label that is not in classes, and count",
                    )
                    + " as missing (for you only)"
                ]
            )
        return rows, places, limits

    def _one_shot(self, rows: list[Array], outcomes: list[Array], limits: Array) -> Self:
        parts = [np.column_stack(pair) for pair in zip(rows, outcomes, strict=True)]
        released = self._release(limits, parts)
        (coefficients,), (predictor,) = released.estimates, released.predictors
        # The last term is the area under the curve.
        self.intercept_, self.coef_ = predictor.value[:1], predictor.value[None, 1:-1]
        self.intercept_standard_error_ = coefficients.standard_error[:1]
        self.coef_standard_error_ = coefficients.standard_error[None, 1:-1]
        self._missing_errors("", coefficients.reason)
        return self

    def _by_newton(self, rows: list[Array], outcomes: list[Array], limits: Array) -> Self:
        model = self._newton(limits)
        held = [np.column_stack([np.clip(one, *limits.T), other]) for one, other in zip(rows, outcomes, strict=True)]
        session = model.fit_parts(held)
        coefficients = model.coefficients
        places = [coefficients.terms.index(name) for name in ("Intercept", *self._names(len(limits)))]
        value, error, ends = (
            coefficients.value[places],
            coefficients.standard_error[places],
            np.asarray(coefficients.of_population)[places],
        )
        self.intercept_, self.coef_ = value[:1], value[None, 1:]
        self.intercept_standard_error_, self.coef_standard_error_ = error[:1], error[None, 1:]
        self.intercept_interval_, self.coef_interval_ = ends[:1], ends[None, 1:]
        self._missing_errors("", "")
        self.estimates_, self.n_iter_ = (coefficients,), session.begun
        self._certify(FitCertificate.of_session(session, model.executions))
        self._tell([*clamped_note(rows, limits), *dict.fromkeys(flag.message for flag in coefficients.flags)])
        return self

    def _newton(self, limits: Array) -> GeneralizedLinearModel:
        """The model whose rounds they are. Raises :class:`InputError` for what it has not."""
        usual = type(self)()
        for name in ("clip", "learning_rate", "momentum", "penalty", "local_steps", "local_rate", "warm_start"):
            if getattr(self, name) != getattr(usual, name):
                raise InvalidInput(f"{name} is for rounds of gradients. Leave it out, or leave out solver={NEWTON!r}.")
        if self.unit != "record" or not self.rounds:
            raise InvalidInput(f"solver={NEWTON!r} is for rounds that protect records. Choose rounds=6 and leave unit out.")
        names = self._names(len(limits))
        columns = [Column(name=name, low=low, high=high) for name, (low, high) in zip(names, limits.tolist(), strict=True)]
        budget = {name: value for name, value in self._budget().items() if name != "unit"}
        return GeneralizedLinearModel(
            f"{OUTCOME} ~ {' + '.join(names)}",
            [*columns, Column(name=OUTCOME, boolean=True)],
            rounds=int(self.rounds),
            site=self.site,
            **budget,
        )

    def _questions(self, columns: int) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
        formula = f"{OUTCOME} ~ {' + '.join(self._names(columns))}"
        return [{"kind": "logistic-regression", "formula": formula}], {"boolean": True}

    def _contract(self, limits: Array) -> Any:
        self.classes_ = _classes(self.classes, _has_gradients(self))
        if self.solver != GRADIENT:
            return self._newton(limits).contract
        return super()._contract(limits) if self.rounds == 0 else self._averaged(limits, None).contract

    # -- rounds ----------------------------------------------------------------------------------------------------------------

    def _session(self) -> ModelAveraging:
        session: ModelAveraging | None = getattr(self, "_averaging", None)
        if session is None:
            raise InvalidInput("no session was begun. Call partial_fit first.")
        return session

    def _begin(self, rows: list[Array], limits: Array) -> None:
        self._before: FitCertificate | None = None
        if self.warm_start and hasattr(self, "coef_"):
            self._before = self.certificate_
        self._averaging = self._averaged(limits, rows)
        self._executions: list[Execution] = []
        self._tell(clamped_note(rows, limits))

    def _averaged(self, limits: Array, rows: list[Array] | None) -> ModelAveraging:
        """The session, which is not begun; ``rows``: of the parties that are here, if somebody will begin it."""
        budget = self._budget()
        self._whole("local_steps")
        self._number("local_rate")
        site, by_record, start = site_of(self.site), self.unit == "record", self._start(limits)
        penalty = self._number("penalty", least=0)
        here = rows is None or site.members is not None
        return ModelAveraging(
            start,
            parties=parties_of(site, None if here or rows is None else len(rows)),
            rounds=int(self.rounds),
            clip=self._number("clip"),
            learning_rate=self._number("learning_rate"),
            momentum=self._number("momentum", least=0),
            # Whole parties have it in what they make by themselves.
            decay={"w": np.full_like(start["w"], penalty if by_record else 0.0), "b": np.zeros_like(start["b"])},
            site=site,
            own_records=len(rows[0]) if rows is not None and here and by_record else None,
            purpose=self._purpose(len(limits), start),
            name="logisticregression",
            **budget,
        )

    def _start(self, limits: Array) -> dict[str, Array]:
        """The model to begin with, of the scaled columns."""
        size = 1 if len(self.classes_) == 2 else len(self.classes_)
        if not (self.warm_start and hasattr(self, "coef_")):
            return {"w": np.zeros((len(limits), size)), "b": np.zeros(size)}
        if self.coef_.shape != (size, len(limits)) or not np.isfinite(self.coef_).all():
            raise InvalidInput("the coefficients there are do not fit these data. Leave warm_start out, or clone the estimator.")
        half, centre = _scales(limits)
        return {"w": self.coef_.T * half[:, None], "b": self.intercept_ + self.coef_ @ centre}

    def _round(self, rows: list[Array], outcomes: list[Array], limits: Array) -> None:
        averaging = self._session()
        half, centre = _scales(limits)
        scaled = [(rows_of_party - centre) / half for rows_of_party in filled(rows, limits)]
        # A row with a missing value has no target, and with it no gradient.
        labelled = [np.where(np.isnan(one).any(axis=1), np.nan, other) for one, other in zip(rows, outcomes, strict=True)]
        held = [(one, _targets(other, averaging.model["b"].size)) for one, other in zip(scaled, labelled, strict=True)]
        vectors = [(self._trained if self.unit == "party" else _gradients)(averaging.model, *own) for own in held]
        (averaging.average if self.unit == "party" else averaging.descend)(vectors if averaging.all_here else vectors[0])
        if averaging.last is not None:
            self._executions.append(averaging.last.execution)
        self._take_over(averaging, limits)

    def _take_over(self, averaging: ModelAveraging, limits: Array) -> None:
        """What was released so far; nothing before the first round."""
        last = averaging.session.last()
        if not averaging.session.begun:
            return
        half, centre = _scales(limits)
        if last is not None:
            self.gradient_standard_error_ = last.standard_error * averaging.clip
        self.coef_ = averaging.model["w"].T / half
        self.intercept_ = averaging.model["b"] - self.coef_ @ centre
        self._missing_errors(*[_NO_INFORMATION_OF_PARTIES if self.unit == "party" else _NO_INFORMATION] * 2)
        self.n_iter_ = averaging.session.begun
        certificate = FitCertificate.of_session(averaging.session, self._executions)
        self._certify(certificate if self._before is None else certificate.after(self._before))

    def _trained(self, model: dict[str, Array], rows: Array, targets: Array) -> dict[str, Array]:
        """What a party makes of the public model by itself: nothing else, without records."""
        for _ in range(self.local_steps if len(rows) else 0):
            wrong = _wrong(model, rows, targets)
            model = {
                "w": model["w"] - self.local_rate * (rows.T @ wrong / len(rows) + self.penalty * model["w"]),
                "b": model["b"] - self.local_rate * wrong.mean(axis=0),
            }
        return model


def _classes(given: ArrayLike | None, several: bool) -> NDArray[Any]:
    """The public labels, sorted. Raises :class:`InvalidInput` without any: they are never read from the data."""
    if given is None:
        raise InvalidInput(
            "classes is not given. Name the public labels, for example classes=[0, 1]; they are not read from data."
        )
    listed = np.asarray(given)
    if listed.dtype.kind == "U" and not all(isinstance(label, str) for label in given):  # type: ignore[union-attr]
        raise InvalidInput("classes are texts and numbers. Give all as texts, or all as numbers.")
    classes: NDArray[Any] = np.unique(listed)
    if listed.ndim != 1 or len(classes) != len(listed) or len(classes) < 2:
        raise InvalidInput("classes is not a list of different labels. Give two or more.")
    if len(classes) > 2 and not several:
        raise InvalidInput(
            f"one shot and solver={NEWTON!r} are for two classes and there are {len(classes)}. Choose rounds of gradients, for "
            "example rounds=30."
        )
    return classes


def _places(labels: NDArray[Any], classes: NDArray[Any]) -> Array:
    """The indices of labels (N,) in the classes; NaN for one that is none of them."""
    encoded = np.full(len(labels), np.nan)
    for index, label in enumerate(classes.tolist()):
        encoded[np.asarray(labels == label, dtype=bool)] = index
    return encoded


def _scales(limits: Array) -> tuple[Array, Array]:
    """Half the width and the middle of the bounds, (d,) each."""
    return (limits[:, 1] - limits[:, 0]) / 2, limits.mean(axis=1)


def _targets(places: Array, size: int) -> Array:
    """What the probabilities should be, (N, size); NaN for rows that do not count."""
    if size == 1:
        return places[:, None]
    targets = np.asarray(places[:, None] == np.arange(size), dtype=np.float64)
    targets[np.isnan(places)] = np.nan
    return targets


def _wrong(model: Mapping[str, Array], rows: Array, targets: Array) -> Array:
    """Probabilities less what they should be, (N, size); 0 where that is unknown."""
    odds = rows @ model["w"] + model["b"]
    likely = expit(odds) if targets.shape[1] == 1 else softmax(odds, axis=1)
    return np.where(np.isnan(targets), 0.0, likely - targets)


def _gradients(model: Mapping[str, Array], rows: Array, targets: Array) -> dict[str, Array]:
    """The gradients of the negative log likelihood of each row, (N, d, size) and (N, size)."""
    wrong = _wrong(model, rows, targets)
    return {"w": rows[:, :, None] * wrong[:, None, :], "b": wrong}
