"""A study as a paper has it, of real patients held by eight sites, under one budget; and the same by pooled data beside it.

AIDS Clinical Trials Group study 175 (Hammer et al. 1996), 2139 people with HIV, from lifelines; the sites are made up.
Writes to a directory: report.html, table-1.html, terms.csv, and subgroups.png.

    python examples/actg175.py DIRECTORY
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter

import quietmean as qm
from quietmean.privacy import Charge, compose, mu_of_budget
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.statistics import Column, Estimates

SITES = 8
# Of one patient, for everything on the page together.
EPSILON, DELTA = 4.0, 1e-6
# The part of the squared mu that each of the three analyses has.
PARTS = {"table and subgroups": 0.35, "odds ratios": 0.2, "hazard ratios": 0.45}
EDGES = [0, 400, 800, 1200]
ODDS = "stopped ~ arm + history + low_cd4 + symptoms"
HAZARDS = "~ arm + low_cd4 + symptoms"
ARM = "arm[T.combination]"

COLUMNS: dict[str, Any] = {
    "age": (15, 65),
    "cd4": (0, 800),
    "sex": ["female", "male"],
    "history": ["none", "a year", "longer"],
    "low_cd4": bool,
    "symptoms": bool,
    "arm": ["zidovudine", "combination"],
    "stopped": bool,
    "days": (0, 1200),
    "event": bool,
}
SUBGROUPS = {
    "all patients": "",
    "women": "sex == 'female'",
    "men": "sex == 'male'",
    "never treated before": "history == 'none'",
    "treated before": "history != 'none'",
    "CD4 below 350": "cd4 < 350",
    "CD4 350 or more": "cd4 >= 350",
}


@dataclass(frozen=True)
class Estimate:
    """A ratio with its interval at 95 %; ``low`` 0 and ``high`` infinite: the noise hides it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "hidden by noise" if math.isnan(self.value) else f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


Beside = dict[str, tuple[Estimate, Estimate]]


def patients() -> pd.DataFrame:
    """As the study's columns have them."""
    given = pd.read_csv(str(files("lifelines.datasets") / "ACTG175.csv"))
    return pd.DataFrame(
        {
            "site": [f"site {place % SITES + 1}" for place in range(len(given))],
            "age": given["age"],
            "cd4": given["cd40"],
            "sex": np.where(given["gender"] == 1, "male", "female"),
            "history": np.select([given["strat"] == 1, given["strat"] == 2], ["none", "a year"], "longer"),
            "low_cd4": given["cd40"] < 350,
            "symptoms": given["symptom"] == 1,
            "arm": np.where(given["treat"] == 1, "combination", "zidovudine"),
            "stopped": given["offtrt"] == 1,
            "days": given["days"],
            # A CD4 count that fell by half, AIDS, or death.
            "event": given["cens"] == 1,
        }
    )


def budgets() -> dict[str, float]:
    """The epsilon of each analysis: squares of mu add up, epsilons do not."""
    whole = mu_of_budget(EPSILON, DELTA)
    return {what: epsilon_of_mu(math.sqrt(part) * whole, DELTA) for what, part in PARTS.items()}


def subgroup_text(condition: str) -> str:
    # Rows are the arms: risks are those of the event.
    return f"crosstab(arm, event, where={condition})" if condition else "crosstab(arm, event)"


def study_of(epsilon: float) -> qm.Study:
    statistics = ["table-1(age, cd4, sex, history, symptoms, by=arm)", *map(subgroup_text, SUBGROUPS.values())]
    return qm.Study(COLUMNS, statistics, name="ACTG 175", epsilon=epsilon, delta=DELTA)


def declared() -> list[Column]:
    """The same columns for the models."""
    made = []
    for name, given in COLUMNS.items():
        if given is bool:
            made.append(Column(name=name, boolean=True))
        elif isinstance(given, list):
            made.append(Column(name=name, levels=tuple(given)))
        else:
            made.append(Column(name=name, low=given[0], high=given[1]))
    return made


def ratios_of(estimates: Estimates) -> dict[str, Estimate]:
    """By term, of the population."""
    if estimates.of_population is None:
        raise ValueError("these estimates have no interval of the population")
    return {
        term: Estimate(float(value), *map(float, interval))
        for term, value, interval in zip(estimates.terms, estimates.value, estimates.of_population, strict=True)
    }


def pooled_odds(table: pd.DataFrame) -> dict[str, Estimate]:
    import statsmodels.formula.api as smf

    levels = {"history": "Treatment('none')", "arm": "Treatment('zidovudine')"}
    formula = ODDS
    for name, coding in levels.items():
        formula = formula.replace(f" {name}", f" C({name}, {coding})")
    flags = {name: table[name].astype(int) for name in ("stopped", "low_cd4", "symptoms")}
    fit = smf.logit(formula, table.assign(**flags)).fit(disp=0, cov_type="HC0")
    ends = fit.conf_int()
    named = {name: name.replace("C(history, Treatment('none'))", "history").replace("C(arm, Treatment('zidovudine'))", "arm")
             for name in fit.params.index}  # fmt: skip
    return {
        named[name]: Estimate(*(float(np.exp(value)) for value in (fit.params[name], *ends.loc[name])))
        for name in fit.params.index
    }


def pooled_hazards(table: pd.DataFrame) -> dict[str, Estimate]:
    """Cox's, of the times themselves."""
    own = table[["days", "event", "low_cd4", "symptoms"]].astype(float)
    fit = CoxPHFitter().fit(own.assign(**{ARM: (table["arm"] == "combination").astype(float)}), "days", "event", robust=True)
    ends = fit.confidence_intervals_
    return {
        name: Estimate(*(float(np.exp(value)) for value in (fit.params_[name], *ends.loc[name]))) for name in fit.params_.index
    }


def pooled_subgroup(table: pd.DataFrame, condition: str) -> Estimate:
    inside = table.query(condition) if condition else table
    cells = pd.crosstab(inside["event"], inside["arm"]).to_numpy(dtype=float)
    # Rows: no event, event; columns: combination, zidovudine.
    log = math.log(cells[1, 0] * cells[0, 1] / (cells[1, 1] * cells[0, 0]))
    half = 1.959964 * math.sqrt(float((1 / cells).sum()))
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half))


def named(private: Mapping[str, Estimate], pooled: Mapping[str, Estimate]) -> Beside:
    """What both have, in the order of the private one: booleans are called ``x[T.True]`` by statsmodels."""
    known = {name.removesuffix("[T.True]"): estimate for name, estimate in pooled.items()}
    return {
        name: (estimate, known[short])
        for name, estimate in private.items()
        if (short := name.removesuffix("[T.yes]").removesuffix("[T.True]")) in known and short != "Intercept"
    }


def table_1(summary: Mapping[str, Any]) -> str:
    """Of characteristics by arm, as the study's own tables have it."""
    groups = summary["groups"]
    lines = [" | ".join(["", *(summary["heads"][group] for group in groups), "p", "SMD"]), "|".join(["---"] * (len(groups) + 3))]
    for line in summary["table"]:
        cells = [line["cells"].get(group, "") for group in groups]
        lines.append(" | ".join([line["row"], *cells, line.get("p", ""), line.get("smd", "")]))
    return "\n".join(f"| {line} |" for line in lines)


@dataclass(frozen=True)
class Paper:
    """All answers, the private ones before the pooled ones, and what they cost one patient."""

    study: Any
    odds: Beside
    hazards: Beside
    subgroups: Beside
    charge: Charge

    @property
    def epsilon(self) -> float:
        return self.charge.epsilon(DELTA)

    def text(self) -> str:
        parts = [
            f"{SITES} sites, epsilon {self.epsilon:.2f} of one patient for all of this together, delta {DELTA:g}",
            table_1(self.study.outcome.answers[0].estimates.summary),
        ]
        for title, beside in (
            ("Adjusted odds ratios of stopping the treatment", self.odds),
            ("Adjusted hazard ratios of the event", self.hazards),
            ("Odds ratios of the event, combination to zidovudine alone", self.subgroups),
        ):
            lines = [f"| {title} | eight sites, with noise | pooled |", "|---|---|---|"]
            lines += [f"| {name} | {private} | {pooled} |" for name, (private, pooled) in beside.items()]
            parts.append("\n".join(lines))
        return "\n\n".join(parts)


def whole_study(table: pd.DataFrame) -> Paper:
    budget, columns = budgets(), declared()
    model = qm.learning.GeneralizedLinearModel(ODDS, columns, epsilon=budget["odds ratios"], delta=DELTA)
    cox = qm.learning.ProportionalHazards(
        HAZARDS, columns, time="days", event="event", edges=EDGES, epsilon=budget["hazard ratios"], delta=DELTA
    )
    with warnings.catch_warnings():
        # Those above the bounds: for the owners of the data, who are no readers of the paper.
        warnings.simplefilter("ignore", UserWarning)
        result = study_of(budget["table and subgroups"]).run(table, party_column="site")
        model.fit(table, party_column="site")
        cox.fit(table, party_column="site")
    subgroups = {
        name: (ratios_of(answer.estimates)["odds-ratio"], pooled_subgroup(table, condition))
        for (name, condition), answer in zip(SUBGROUPS.items(), result.outcome.answers[1:], strict=True)
    }
    spent = compose(
        [max((result.outcome.charge(party) for party in range(SITES)), key=lambda one: one.mu), model.charge, cox.charge]
    )
    return Paper(
        result,
        named(ratios_of(model.ratios), pooled_odds(table)),
        named(ratios_of(cox.ratios), pooled_hazards(table)),
        subgroups,
        spent,
    )


def draw(subgroups: Beside, path: Path) -> None:
    """A forest plot, the pooled estimates in grey below the private ones."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 0.52 * len(subgroups) + 1.1), layout="constrained")
    for place, pair in enumerate(subgroups.values()):
        for estimate, colour, shift, what in zip(pair, ("#0b5394", "#8a8a8a"), (-0.14, 0.14), ("private", "pooled"), strict=True):
            height = place + shift
            axes.plot([max(estimate.low, 0.1), min(estimate.high, 3)], [height] * 2, color=colour, lw=1.8)
            axes.plot([estimate.value], [height], "s" if what == "private" else "o", color=colour, label=None if place else what)
        axes.text(3.3, place, str(pair[0]), va="center", fontsize=8)
    axes.axvline(1, color="black", lw=0.8)
    axes.set(xscale="log", xlim=(0.1, 3), xlabel="odds ratio of the event, combination to zidovudine alone")
    axes.set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.set_yticks(range(len(subgroups)), list(subgroups))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main(target: Path) -> Paper:
    target.mkdir(parents=True, exist_ok=True)
    paper = whole_study(patients())
    paper.study.save_report(target / "report.html", force=True)
    paper.study.to_table(target / "table-1.html", force=True)
    lines = ["part,term,estimate,low,high,pooled,pooled low,pooled high"]
    for part in ("odds", "hazards", "subgroups"):
        for name, pair in getattr(paper, part).items():
            numbers = [f"{number:.6g}" for one in pair for number in (one.value, one.low, one.high)]
            lines.append(",".join([part, name, *numbers]))
    (target / "terms.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(paper.subgroups, target / "subgroups.png")
    (target / "paper.md").write_text(paper.text() + "\n", encoding="utf-8")
    return paper


if __name__ == "__main__":
    print(main(Path(sys.argv[1])).text())
