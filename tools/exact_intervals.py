"""What somebody with the records themselves would say: estimates with 95 % intervals, without noise, bins or bounds.

They survive the wrong model where there is a usual way to: Welch's variances, sandwiches, DeLong. Each function takes columns of
the same length and gives (estimate, low, high) by term.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import statsmodels.api as sm
from lifelines import CoxPHFitter, KaplanMeierFitter
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logit

Array = NDArray[np.float64]
Interval = tuple[float, float, float]
Intervals = Mapping[str, Interval]

Z = 1.959963984540054


def normal(value: float, error: float, degrees: float = math.inf) -> Interval:
    reach = (Z if math.isinf(degrees) else float(stats.t.ppf(0.975, degrees))) * error
    return value, value - reach, value + reach


def ratio(log: float, error: float) -> Interval:
    return math.exp(log), math.exp(log - Z * error), math.exp(log + Z * error)


def mean(x: Array, *, term: str = "") -> Intervals:
    return {term: normal(float(x.mean()), float(x.std(ddof=1)) / math.sqrt(len(x)), len(x) - 1)}


def group_means(x: Array, group: Array, *, levels: tuple[str, ...]) -> Intervals:
    """Student's of each, and Welch's of the difference of two."""
    each = [x[group == place] for place in range(len(levels))]
    found = {level: mean(own)[""] for level, own in zip(levels, each, strict=True)}
    if len(levels) == 2:
        parts = [float(own.var(ddof=1)) / len(own) for own in each]
        degrees = sum(parts) ** 2 / sum(part**2 / (len(own) - 1) for part, own in zip(parts, each, strict=True))
        found["difference"] = normal(float(each[1].mean() - each[0].mean()), math.sqrt(sum(parts)), degrees)
    return found


def quantiles(x: Array) -> Intervals:
    """Woodruff's, by order statistics."""
    ordered, count = np.sort(x), len(x)
    found = {}
    for level in (0.25, 0.5, 0.75):
        reach = Z * math.sqrt(count * level * (1 - level))
        low, high = max(math.floor(count * level - reach), 0), min(math.ceil(count * level + reach), count - 1)
        value = float(np.quantile(ordered, level, method="inverted_cdf"))
        found[f"{level:g}"] = (value, float(ordered[low]), float(ordered[high]))
    return found


def rates(events: Array, time: Array, group: Array, *, levels: tuple[str, ...]) -> Intervals:
    """With the variance of events minus rate times time."""
    found, logs = {}, []
    for place, level in enumerate(levels):
        e, t = events[group == place], time[group == place]
        rate = float(e.sum() / t.sum())
        variance = float(((e - rate * t) ** 2).sum()) / float(t.sum()) ** 2
        found[level] = normal(rate, math.sqrt(variance))
        logs.append((math.log(rate), variance / rate**2))
    found["rate-ratio"] = ratio(logs[1][0] - logs[0][0], math.sqrt(logs[0][1] + logs[1][1]))
    return found


def slope(x: Array, y: Array, term: str, kind: str = "HC3") -> Intervals:
    """Robust by default; ``nonrobust`` is model-based."""
    fit = sm.OLS(y, sm.add_constant(x)).fit(cov_type=kind)
    return {term: normal(float(fit.params[1]), float(fit.bse[1]), len(x) - 2)}


def correlation(x: Array, y: Array, *, term: str) -> Intervals:
    """With the variance of its influence function, on the scale of Fisher's z."""
    a, b = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    value = float((a * b).mean())
    error = float((a * b - value / 2 * (a**2 + b**2)).std()) / math.sqrt(len(x)) / (1 - value**2)
    low, high = math.tanh(math.atanh(value) - Z * error), math.tanh(math.atanh(value) + Z * error)
    return {term: (value, low, high)}


def area(p: Array, y: Array) -> Intervals:
    """DeLong's."""
    ranks = stats.rankdata(p)
    with_it, without = p[y == 1], p[y == 0]
    m, n = len(with_it), len(without)
    own = (ranks[y == 1] - stats.rankdata(with_it)) / n
    other = 1 - (ranks[y == 0] - stats.rankdata(without)) / m
    return {"auc": normal(float(own.mean()), math.sqrt(float(own.var(ddof=1)) / m + float(other.var(ddof=1)) / n))}


def calibration(p: Array, y: Array) -> Intervals:
    fit = sm.Logit(y, sm.add_constant(logit(np.clip(p, 1e-6, 1 - 1e-6)))).fit(disp=False, warn_convergence=False)
    both = {name: normal(float(fit.params[place]), float(fit.bse[place])) for place, name in enumerate(("intercept", "slope"))}
    return {"brier": mean((p - y) ** 2)[""], "in-the-large": mean(y - p)[""], **both}


class Curve:
    """Kaplan and Meier's: steps at ``times`` from 0 on, ``survival`` after each with its ends, Greenwood's sum ``hazards``."""

    def __init__(self, time: Array, event: Array) -> None:
        fit = KaplanMeierFitter().fit(time, event)
        self.times, self.survival = fit.timeline, fit.survival_function_.to_numpy()[:, 0]
        ends = fit.confidence_interval_.to_numpy().T
        self.low, self.high = np.where(np.isfinite(ends).all(axis=0) & (self.survival > 0), ends, self.survival)
        died, at_risk = fit.event_table[["observed", "at_risk"]].to_numpy().T
        self.hazards = np.cumsum(np.where(died < at_risk, died / (at_risk * np.maximum(at_risk - died, 1)), 0.0))

    def first_below(self, values: Array, level: float) -> float:
        places = np.nonzero(values <= level + 1e-12)[0]
        return float(self.times[places[0]]) if len(places) else math.inf

    def at(self, time: float) -> Interval:
        place = int(np.searchsorted(self.times, time, side="right")) - 1
        return float(self.survival[place]), float(self.low[place]), float(self.high[place])

    def area(self, horizon: float) -> tuple[float, float]:
        """The restricted mean and its variance."""
        inside = self.times < horizon
        pieces = np.diff(self.times[inside], append=horizon) * self.survival[inside]
        later = pieces[1:][::-1].cumsum()[::-1]
        return float(pieces.sum()), float((later**2 * np.diff(self.hazards[inside])).sum())


def survival(time: Array, event: Array, arm: Array, *, arms: tuple[str, ...], edges: tuple[float, ...] = ()) -> Intervals:
    """Quartiles by Brookmeyer and Crowley, and the curve at edges."""
    found: dict[str, Interval] = {}
    for place, name in enumerate(arms):
        curve = Curve(time[arm == place], event[arm == place])
        for term, level in (("lower-quartile", 0.75), ("median", 0.5), ("upper-quartile", 0.25)):
            ends = [curve.first_below(values, level) for values in (curve.survival, curve.low, curve.high)]
            found[f"{term} {name}"] = (ends[0], ends[1], ends[2])
        found |= {f"{name} {edge:g}": curve.at(edge) for edge in edges}
    return found


def one_survival(time: Array, event: Array, edges: tuple[float, ...]) -> Intervals:
    """Everybody together, as ``all``."""
    return survival(time, event, np.zeros(len(time)), arms=("all",), edges=edges)


def restricted_means(time: Array, event: Array, arm: Array, *, arms: tuple[str, ...], horizon: float) -> Intervals:
    own = [Curve(time[arm == place], event[arm == place]).area(horizon) for place in range(len(arms))]
    found = {name: normal(value, math.sqrt(variance)) for name, (value, variance) in zip(arms, own, strict=True)}
    difference = own[1][0] - own[0][0]
    return {**found, "difference": normal(difference, math.sqrt(own[0][1] + own[1][1]))}


def hazard_ratio(time: Array, event: Array, arm: Array, *, term: str) -> Intervals:
    """Cox's, of two arms, with Efron's ties."""
    fit = CoxPHFitter().fit(pd.DataFrame({"t": time, "e": event, "g": arm}), "t", "e")
    return {term: ratio(float(fit.params_["g"]), float(fit.standard_errors_["g"]))}
