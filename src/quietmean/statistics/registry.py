"""All statistics by name, and by the other names that the field has for them."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.extensions import with_extensions
from quietmean.core.schema import OPEN, parameters_of, require_known
from quietmean.statistics import kinds
from quietmean.statistics.columns import domain_alone
from quietmean.statistics.fields import StatisticReader, install
from quietmean.statistics.models import by_rounds, model_named, read_model
from quietmean.statistics.names import READ_LATER, field_of, split, unquoted
from quietmean.statistics.statistic import Statistic

# One kind by its other names, in small letters with hyphens; "-test" at the end may stand or not.
_OTHER_NAMES = {
    "mean": "average avg",
    "sum": "total",
    "count": "n nobs",
    "variance": "var sd std stdev stddev standard-deviation",
    "quantiles": "quantile quartiles iqr",
    "proportion": "prevalence prop proportions percentage percent freq frequency frequencies",
    "histogram": "hist",
    "cdf": "ecdf",
    "crosstab": "chi2 chisq chi-square chi-squared x2 xtab xtabs crosstabs cross-tab contingency contingency-table or odds-ratio "
    "rr risk-ratio relative-risk rd risk-difference",
    "mantel-haenszel": "cmh mh mantelhaen cochran-mantel-haenszel",
    "group-means": "t ttest t-test welch welch-t student student-t anova aov oneway one-way-anova smd",
    "paired-difference": "paired paired-t paired-ttest ttest-rel",
    "mann-whitney": "mann-whitney-u mwu mannwhitneyu ranksum rank-sum wilcoxon-rank-sum",
    "kruskal-wallis": "kruskal",
    "correlation": "cor corr pearson pearson-r pearsonr",
    "covariance": "cov",
    "spearman": "spearmanr spearman-rho rho",
    "linear-regression": "lm ols linear linreg linear-model regression",
    "logistic-regression": "logit logistic logreg",
    "survival": "km kaplan-meier survfit survdiff log-rank logrank",
    "hazard-ratio": "cox coxph cox-regression cox-ph hr",
    "restricted-mean": "rmst",
    "cumulative-incidence": "cif cuminc competing-risks",
    "rates": "rate incidence incidence-rate rate-ratio irr",
    "roc": "auc auroc roc-auc c-statistic",
    "table-1": "table1 tableone table-one baseline describe summary",
    "bland-altman": "ba",
    "kappa": "cohen-kappa cohens-kappa cohen-s-kappa",
    "icc": "intraclass intraclass-correlation",
    "trend": "cochran-armitage",
    "meta-analysis": "meta metan",
    "first-look": "look bounds limits",
    "synthetic-table": "synthetic synthesize synthesise synthpop synthetic-data",
    "pca": "prcomp princomp principal-components",
}
ALIASES = {alias: kind for kind, aliases in _OTHER_NAMES.items() for alias in aliases.split()}
# What an alias says besides.
_SAYS: Mapping[str, Mapping[str, str]] = {"median": {"probabilities": "0.5"}}
ALIASES["median"] = "quantiles"


@dataclass(frozen=True)
class _Instead:
    """Why a name is not that of a statistic, and what to ask: {0},
    {1} and so on are the values that were given, {} all of them."""

    why: str
    ask: Sequence[str]
    usual: Sequence[str] = field(default=("age", "sex"))


_INSTEAD = {
    "fisher": _Instead("an exact test does not hold for counts with noise", ["crosstab({0}, {1})"], ("smoker", "died")),
    "wilcoxon": _Instead(
        "two tests have this name", ["mann-whitney({0}, {1}) for two groups", "paired-difference({0}, {1}) for pairs"]
    ),
    "signed-rank": _Instead("ranks of differences are not released", ["paired-difference({0}, {1})"], ("before", "after")),
    "kendall": _Instead("pairs of records are not compared", ["spearman({0}, {1})"], ("age", "bmi")),
    "ks": _Instead("distributions are shown, not tested", ["cdf({0})", "mann-whitney({0}, {1})"]),
    "poisson": _Instead(
        "counts are compared by person-time, or have a model by rounds",
        ["rates({0}, {1})", "glm({0} ~ {1}, family=poisson)"],
        ("events", "time"),
    ),
    "min": _Instead("one record decides it, so that nothing hides that record", ["quantiles({0}, 0.01)"]),
    "max": _Instead("one record decides it, so that nothing hides that record", ["quantiles({0}, 0.99)"]),
    "range": _Instead("two records decide it, so that nothing hides them", ["quantiles({0}, 0.01 0.99)"]),
    "mode": _Instead("a histogram shows it", ["histogram({0})"]),
    "percentile": _Instead("probabilities are from 0 to 1", ["quantiles({0}, {1:%})"], ("age", "90")),
    "ci": _Instead("every answer has its interval", ["mean({0})"]),
    "se": _Instead("every answer has its standard error", ["mean({0})"]),
    "brier": _Instead("the score follows from the calibration", ["calibration({0}, {1})"], ("score", "died")),
    "tabulate": _Instead(
        "one column has proportions, two have a table",
        ["proportion({0}) for one", "crosstab({0}, {1}) for two"],
        ("sex", "smoker"),
    ),
}
_INSTEAD_OF = {
    "table": "tabulate", "tab": "tabulate", "wilcox": "wilcoxon", "wilcoxon-signed-rank": "signed-rank",
    "percentiles": "percentile",
    "fisher-exact": "fisher", "fishers-exact": "fisher", "fisher-s-exact": "fisher", "kendall-tau": "kendall", "minimum": "min",
    "maximum": "max", "poisson-regression": "poisson", "ks-2samp": "ks", "kolmogorov-smirnov": "ks",
    "confidence-interval": "ci",
    "stderr": "se", "standard-error": "se", "brier-score": "brier",
}  # fmt: skip


def own_name(name: str, known: Collection[str], given: Sequence[str] = ()) -> str:
    """The name of the kind that an alias or another spelling means; any other name as it is.

    ``given``: the values behind it. Raises :class:`InputError` for a name of the field that is none, with what to ask instead.
    """
    spelling = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    for each in (spelling, spelling.removesuffix("-test"), f"{spelling}-test"):
        if each in known:
            return each
        if each in ALIASES:
            return ALIASES[each]
        if (instead := _INSTEAD.get(_INSTEAD_OF.get(each, each))) is not None:
            values = [value for part in given for value in (values_of(part) if "{0}" in instead.ask[0] else [part])]
            asked = " or ".join(_filled(text, values, instead.usual) for text in instead.ask)
            raise InputError(f"statistic {name!r} is not one of ours: {instead.why}. Write {asked}.")
    return name


def is_kind(name: str) -> bool:
    """Is it the name of a kind of statistic, an alias or another spelling included?"""
    known = registry()
    try:
        return model_named(name) is not None or own_name(name, known) in known
    except InputError:
        # A name of the field, of which it is known what to ask instead.
        return True


def said_by(name: str) -> Mapping[str, str]:
    """The fields that an alias says besides its kind."""
    return _SAYS.get(name.strip().lower(), {})


def _filled(text: str, given: Sequence[str], usual: Sequence[str]) -> str:
    values = [*given, *usual[len(given) :]] if len(given) < len(usual) else list(given)

    def value(match: re.Match[str]) -> str:
        if not match[1]:
            return ", ".join(given or usual)
        own = values[int(match[1])]
        return own if not match[2] else " ".join(f"{float(part) / 100:g}" for part in own.split())

    return re.sub(r"\{(\d?)(:%)?\}", value, text)


def values_of(part: str) -> list[str]:
    """The values of ``score ~ arm`` and ``Surv(time, died) ~ arm``, as R writes tests and curves; of any other text itself."""
    sides = [side.strip() for side in split(part, "~")]
    if len(sides) == 2 and (survival := re.fullmatch(r"Surv\((.*)\)", sides[0])):
        return [*(value.strip() for value in split(survival[1], ",")), f"by={sides[1]}"]
    return sides if len(sides) == 2 else [part]


GROUP = "quietmean.statistics"
_TEXT = re.compile(r"\s*([^()`]+?)\s*\((.*)\)\s*", re.DOTALL)


@cache
def registry() -> dict[str, type[Statistic]]:
    """All statistics by name.

    Raises :class:`InputError` for a distribution whose statistic cannot be loaded or has the name of another one.
    """
    modules = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    classes = [kind for name in modules for kind in _kinds_of(importlib.import_module(f"{kinds.__name__}.{name}"))]
    return with_extensions({kind.name: kind for kind in classes}, GROUP, "statistic", Statistic)


def _kinds_of(module: ModuleType) -> list[type[Statistic]]:
    """The statistics that a module defines."""
    own = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    return [kind for kind in own if issubclass(kind, Statistic) and "name" in vars(kind)]


def get_statistic(name: str, given: Sequence[str] = ()) -> type[Statistic]:
    """The kind of this name, or of a name that the field has for it; ``given``: the values behind it, for sentences.

    Raises :class:`InputError` for an unknown name, with the nearest one that is known.
    """
    if (model := model_named(name)) is not None:
        raise by_rounds(model)
    known = registry()
    return known[require_known("statistic", own_name(name, known, given), known)]


def parse_statistic(raw: Mapping[str, Any]) -> Statistic:
    """Read a statistic from a table ``[[statistic]]`` of a study file. Raises :class:`InputError`."""
    kind = raw.get("kind")
    if not isinstance(kind, str):
        raise InputError(f'a [[statistic]] has no kind. Add kind = "mean" or another of {", ".join(registry())}.')
    own = with_own_name(raw)
    return get_statistic(own["kind"]).parse({name: value for name, value in own.items() if name != "kind"})


def with_own_name(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A table ``[[statistic]]`` with the kind's own name, and what another name says besides."""
    kind, known = raw.get("kind"), registry()
    return dict(raw) if not isinstance(kind, str) or kind in known else {**said_by(kind), **raw, "kind": own_name(kind, known)}


def is_statistic(text: str) -> bool:
    """Is it of the form ``kind(values)``?"""
    return _TEXT.fullmatch(text) is not None


def read_text(text: str) -> dict[str, Any]:
    """The table that ``kind(value, ..., name=value, ...)`` means. Raises :class:`InputError`."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InputError(
            f"statistic {text!r} is not of the form kind(column, name=value). Write for example mean(age in 0..110)."
        )
    parts = [part.strip() for part in split(match[2], ",") if part.strip()]
    if (model := model_named(match[1])) is not None:
        return read_model(model, text, parts)
    kind = get_statistic(match[1], [part.partition("=")[2].strip() if field_of(part) else part for part in parts])
    raw: dict[str, Any] = {"kind": kind.name, **said_by(match[1])}
    places = [name for name in kind.by_place if name not in raw]
    if "formula" not in kind.by_place:
        parts = [value for part in parts for value in values_of(part)]
    for part in parts:
        name = field_of(part)
        value = part.partition("=")[2].strip() if name is not None else part
        if name is None and "where" in raw:
            raise InputError(
                f"statistic {text!r} has {part!r} behind its condition. Write it before where, as what {kind.name} is of. "
                f"{domain_alone(part)} if the condition alone needs it."
            )
        if name is None:
            if kind.takes_all and len(places) <= 1:
                raw.setdefault(kind.by_place[-1], []).append(unquoted(part))
                places = []
                continue
            if not places:
                raise _too_many(text, kind, parts)
            name = places.pop(0)
        if name in raw:
            raise InputError(f"statistic {text!r} gives {name} twice. Give it once.")
        raw[name] = _data(kind, name, value)
    raw = kind.meant_in_words(raw) | raw
    needed = [each.key for each in parameters_of(kind).values() if each.required and each.default is OPEN]
    if lacks := [key for key in kind.by_place if key in needed and key not in raw]:
        whole = "outcome ~ column" if "formula" in lacks else ", ".join(key for key in kind.by_place if key in needed)
        raise InputError(f"statistic {text!r} lacks {' and '.join(lacks)}. Write {kind.name}({whole}).")
    return raw


def _too_many(text: str, kind: type[Statistic], parts: Sequence[str]) -> InputError:
    if kind.by_place == ("formula",):
        outcome, *others = [part for part in parts if field_of(part) is None]
        formula = f"{outcome} ~ {' + '.join(others)}"
        return InputError(f"statistic {text!r} has no formula. Write {kind.name}({formula}), the outcome first.")
    listed = ", ".join(kind.by_place) or "none"
    return InputError(f"statistic {text!r} has too many values without a name. Give {kind.name} only {listed}.")


def _data(kind: type[Statistic], key: str, text: str) -> Any:
    """JSON data for a field. An unknown field is kept as text and reported later, together with the known fields."""
    declared = next((parameter for parameter in parameters_of(kind).values() if parameter.key == key), None)
    if declared is None:
        return text
    is_name = declared.read is None and key not in READ_LATER
    return unquoted(text) if is_name and unquoted(text) != text else declared.data(text)


install(StatisticReader(read_text, parse_statistic))
