"""Names that the field has for statistics: each is one of ours, or leads to what to ask, in words that can be pasted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.errors import InputError
from quietmean.statistics import read_text, registry
from quietmean.statistics.registry import ALIASES
from quietmean.studies import StudyTerms
from quietmean.studies.party.policy import Policy
from support.refusals import refused

COLUMNS: list[dict[str, Any]] = [
    *({"name": name, "low": 0, "high": 100, "missing": "indicator"} for name in ("age", "bmi", "before", "after", "days")),
    {"name": "score", "low": 0, "high": 1}, {"name": "died", "boolean": True}, {"name": "smoker", "boolean": True},
    {"name": "sex", "levels": ["f", "m"]}, {"name": "arm", "levels": ["a", "b"]}, {"name": "site", "levels": ["n", "s", "e"]},
]  # fmt: skip
# What people type, and what it is.
SAME = {
    "median(age)": "quantiles(age, 0.5)", "Median(age, where=sex == 'f')": "quantiles(age, 0.5, where=sex == 'f')",
    "iqr(age)": "quantiles(age)", "quartiles(age)": "quantiles(age)", "quantile(age, 0.9)": "quantiles(age, 0.9)",
    "average(age)": "mean(age)", "avg(age)": "mean(age)", "MEAN(age)": "mean(age)", "total(age)": "sum(age)",
    "n(age)": "count(age)",
    "sd(age)": "variance(age)", "std(age)": "variance(age)", "stdev(age)": "variance(age)", "stddev(age)": "variance(age)",
    "var(age)": "variance(age)", "standard deviation(age)": "variance(age)",
    "t-test(age, by=arm)": "group-means(age, by=arm)", "t.test(age ~ arm)": "group-means(age, arm)",
    "ttest(age, arm)": "group-means(age, arm)", "t_test(age, arm)": "group-means(age, arm)",
    "welch(age, arm)": "group-means(age, arm)",
    "anova(age ~ site)": "group-means(age, site)", "aov(age ~ site)": "group-means(age, site)",
    "smd(age, arm)": "group-means(age, arm)",
    "paired-t-test(before, after)": "paired-difference(before, after)",
    "chi2(smoker, died)": "crosstab(smoker, died)", "chisq(smoker, died)": "crosstab(smoker, died)",
    "chisq.test(smoker, died)": "crosstab(smoker, died)", "chi-squared test(smoker, died)": "crosstab(smoker, died)",
    "chi_square(smoker, died)": "crosstab(smoker, died)", "xtab(smoker, died)": "crosstab(smoker, died)",
    "or(smoker, died)": "crosstab(smoker, died)", "odds-ratio(smoker, died)": "crosstab(smoker, died)",
    "rr(smoker, died)": "crosstab(smoker, died)", "risk-ratio(smoker, died)": "crosstab(smoker, died)",
    "relative_risk(smoker, died)": "crosstab(smoker, died)", "rd(smoker, died)": "crosstab(smoker, died)",
    "cmh(smoker, died, site)": "mantel-haenszel(smoker, died, site)",
    "mantelhaen.test(smoker, died, site)": "mantel-haenszel(smoker, died, site)",
    "prevalence(smoker)": "proportion(smoker)", "freq(sex)": "proportion(sex)", "frequencies(sex)": "proportion(sex)",
    "percent(smoker)": "proportion(smoker)", "hist(age, bins=8)": "histogram(age, bins=8)", "ecdf(age)": "cdf(age)",
    "mann-whitney-u(age, arm)": "mann-whitney(age, arm)", "mannwhitneyu(age, arm)": "mann-whitney(age, arm)",
    "wilcoxon rank-sum(age ~ arm)": "mann-whitney(age, arm)", "kruskal.test(age ~ site)": "kruskal-wallis(age, site)",
    "cor(age, bmi)": "correlation(age, bmi)", "pearson(age, bmi)": "correlation(age, bmi)",
    "cov(age, bmi)": "covariance(age, bmi)",
    "spearmanr(age, bmi)": "spearman(age, bmi)",
    "lm(bmi ~ age + sex)": "linear-regression(bmi ~ age + sex)", "ols(bmi ~ age)": "linear-regression(bmi ~ age)",
    "linear_regression(bmi ~ age)": "linear-regression(bmi ~ age)", "regression(bmi ~ age)": "linear-regression(bmi ~ age)",
    "logit(died ~ age)": "logistic-regression(died ~ age)", "logistic(died ~ age)": "logistic-regression(died ~ age)",
    "km(days, died, by=arm)": "survival(days, died, by=arm)", "kaplan-meier(days, died)": "survival(days, died)",
    "Kaplan Meier(days, died)": "survival(days, died)", "survfit(Surv(days, died) ~ arm)": "survival(days, died, by=arm)",
    "log-rank(days, died, by=arm)": "survival(days, died, by=arm)",
    "survdiff(Surv(days, died) ~ arm)": "survival(days, died, by=arm)",
    "cox(days, died, by=arm)": "hazard-ratio(days, died, by=arm)",
    "coxph(Surv(days, died) ~ arm)": "hazard-ratio(days, died, by=arm)",
    "rmst(days, died, by=arm)": "restricted-mean(days, died, by=arm)", "rate(died, days)": "rates(died, days)",
    "auc(score, died)": "roc(score, died)", "auroc(score, died)": "roc(score, died)",
    "c-statistic(score, died)": "roc(score, died)",
    "table1(age, sex, by=arm)": "table-1(age, sex, by=arm)", "tableone(age, by=arm)": "table-1(age, by=arm)",
    "describe(age)": "table-1(age)", "summary(age)": "table-1(age)", "cohens-kappa(smoker, died)": "kappa(smoker, died)",
    "prcomp(age, bmi)": "pca(age, bmi)", "cochran-armitage(died, site)": "trend(died, site)",
    "metan(of=median(age), by=site)": "meta-analysis(of=quantiles(age, 0.5), by=site)",
}  # fmt: skip
LEADS = (
    "fisher(smoker, died)", "fisher.test(smoker, died)", "Fisher's exact test(smoker, died)", "wilcoxon(age, by=arm)",
    "wilcox.test(age ~ arm)", "signed-rank(before, after)", "kendall(age, bmi)", "ks.test(age, arm)",
    "poisson(died, days)", "min(age)", "max(age)", "range(age)", "mode(age)", "percentile(age, 90)", "percentiles(age, 5 95)",
    "ci(age)",
    "se(age)", "brier(score, died)", "table(sex, smoker)", "tab(sex, smoker)", "linear-regression(bmi, age)",
    "lm(bmi, age, sex)",
    "logit(died, age)",
)  # fmt: skip


def study(*statistics: dict[str, Any]) -> StudyTerms:
    return StudyTerms.parse({"column": COLUMNS, "statistic": list(statistics)})


def can_be_asked(text: str) -> bool:
    try:
        return study(read_text(text)).workload.dimension > 0
    except InputError:
        return False


def test_there_are_sixty() -> None:
    assert len({re.sub(r"[^a-z0-9]+", "-", text.partition("(")[0].lower()) for text in (*SAME, *LEADS)}) >= 60


@pytest.mark.parametrize("text", SAME)
def test_another_name_is_the_same_study(text: str) -> None:
    asked, same = study(read_text(text)), study(read_text(SAME[text]))
    assert asked.tables() == same.tables()
    assert asked.context() == same.context()
    assert asked.workload.statistics == same.workload.statistics


@pytest.mark.parametrize("text", [text for text in SAME if "~" not in text and "(of=" not in text])
def test_another_name_in_a_file_is_the_same_study(text: str) -> None:
    """As a table of a study file, which says the kind as people write it."""
    raw = {**read_text(text), "kind": text.partition("(")[0]}
    assert study(raw).tables() == study(read_text(SAME[text])).tables()


@pytest.mark.parametrize("text", LEADS)
def test_a_name_that_is_none_leads_to_what_can_be_pasted(text: str) -> None:
    told = refused("", read_text, text)
    asked = told.partition("Write ")[2].removesuffix(".").removesuffix(", the outcome first")
    # Of two the columns decide which it can be.
    assert any(map(can_be_asked, re.findall(r"[\w-]+\(.*?\)(?= for | or |$)", asked))), asked


def test_every_other_name_is_one_of_ours() -> None:
    assert set(ALIASES.values()) <= set(registry())
    assert not set(ALIASES) & set(registry())


def test_a_name_that_nobody_knows_lists_those_that_are() -> None:
    refused(r"'meen' is unknown \(did you mean 'mean'", read_text, "meen(age)")


def test_a_policy_allows_kinds_by_their_own_names(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[policy]\nstatistics = ["median"]\n')
    refused(r"another name of quantiles\. Write quantiles\.", Policy.load, path)
