"""Make docs/measurements/learning-tables.md: how well models do that are learned together, measured with fixed seeds.

    python tools/learning_tables.py [--seeds N] [--jobs N]

The estimators of ``quietmean.learning`` with every party in this process; noise from public seeds, so that the page comes out the
same again. It takes 13 minutes of one core. The data are those of the extras ``sklearn`` and ``examples``. What falls short
stands there with its reason.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from page_figures import ending
from page_parts import DOCS, Line, table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression as PlainRegression
from sklearn.metrics import log_loss, roc_auc_score

from quietmean.core.party import PartyId, PopulationNoise, Vector
from quietmean.learning import LogisticRegression
from quietmean.learning.sites import InOneProcess
from quietmean.planning.plan import Plan
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilentPopulation
from quietmean.sessions import Engine, MemoryEngine, RoundRelease

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Measure = dict[str, float]

PAGE = DOCS / "measurements/learning-tables.md"
SEED, SEEDS = 20_261, 30
TRAINED, CONCENTRATION = 1500, 0.5
# Two-sided 95 % of Student's t is close to this from 30 seeds on.
T = 2.05

HEAD = """# Accuracy of what is learned together

This page is made by `python tools/learning_tables.py`. Same command, same page; do not edit it by hand. Every line is the mean
over {seeds} seeds with its 95 % interval; a seed decides which records are held out, who holds which, and all noise. Differences
are between runs of the same seed. Each model is fitted by `qm.learning.LogisticRegression` as everybody calls it, all parties in
one process; only the noise comes from public seeds. Reasons of what falls short are what we think, not tested.

- **together**: without a curator, by the protocol that is taken by default (`protocol="auto"`);
- **curator of the same variance**: normal noise of the variance that *together* states, added to the exact mean;
- **curator**: a trusted one that calibrates for the same epsilon (`protocol="central-dp"`);
- **local**: each party for itself (`protocol="local-dp"`);
- **no privacy**: the same rounds and clipping without noise.

"""


class SameVariance:
    """A curator who adds normal noise of the variance that the protocol of the plan states."""

    def __init__(self, seed: int) -> None:
        self._exact = MemoryEngine(silent)
        self._rng = np.random.default_rng((SEED, seed, 1))

    def exchange(
        self, plan: Plan, round_: int, values: Mapping[PartyId, Vector], weights: Vector, leaves: Mapping[PartyId, int]
    ) -> RoundRelease:
        found = self._exact.exchange(plan, round_, values, weights, leaves)
        noise = self._rng.standard_normal(len(found.mean)) * found.variance**0.5
        return RoundRelease(found.mean + noise, found.execution)


def silent(round_: int, parties: int) -> PopulationNoise:
    return InsecureSilentPopulation(parties)


def seeded(seed: int) -> Engine:
    return MemoryEngine(lambda round_, parties: InsecurePopulationNoise(SEED + 10_000 * seed + round_, parties))


ARMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "together": lambda seed: {"site": InOneProcess(seeded(seed))},
    "curator of the same variance": lambda seed: {"site": InOneProcess(SameVariance(seed))},
    "curator": lambda seed: {"site": InOneProcess(seeded(seed)), "protocol": "central-dp"},
    "local": lambda seed: {"site": InOneProcess(seeded(seed)), "protocol": "local-dp"},
    "no privacy": lambda seed: {"site": InOneProcess(MemoryEngine(silent))},
}


# -- digits ----------------------------------------------------------------------------------------------------------------------

# Bounds twice as wide as the grey values, 0 to 16, scale them to [0, 1].
DIGITS: dict[str, Any] = {"bounds": (-16, 16), "classes": range(10), "delta": 1e-5}
BY_PARTY = {"unit": "party", "rounds": 5, "local_steps": 100, "local_rate": 0.5, "clip": 3.0}
# The rates are those with which the curator did best of 4, 8 and 16.
BY_RECORD = {"unit": "record", "rounds": 40, "clip": 1.0}


@dataclass(frozen=True)
class Setting:
    """One table: what is protected, with how many parties, at which epsilon."""

    title: str
    parties: int
    epsilon: float
    asked: Mapping[str, Any]


SETTINGS = (
    Setting("Digits, 20 parties, whole parties protected, epsilon 8", 20, 8.0, BY_PARTY),
    Setting("Digits, 100 parties, whole parties protected, epsilon 8", 100, 8.0, BY_PARTY),
    Setting("Digits, 20 parties, records protected, epsilon 8", 20, 8.0, {**BY_RECORD, "learning_rate": 8.0}),
    Setting("Digits, 20 parties, records protected, epsilon 2", 20, 2.0, {**BY_RECORD, "learning_rate": 4.0}),
)


@cache
def digits() -> tuple[Array, Labels]:
    images, labels = load_digits(return_X_y=True)
    return images, labels


def holders(labels: Labels, parties: int, rng: np.random.Generator) -> Labels:
    """Who holds each record: a Dirichlet part of each class to each party; nobody is left without a record."""
    holder = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        holder[rows] = rng.choice(parties, len(rows), p=rng.dirichlet(np.full(parties, CONCENTRATION)))
    for party in range(parties):
        counts = np.bincount(holder, minlength=parties)
        if not counts[party]:
            holder[np.flatnonzero(holder == counts.argmax())[0]] = party
    return holder


def digits_run(job: tuple[int, str, int]) -> Measure:
    place, arm, seed = job
    setting, (images, labels) = SETTINGS[place], digits()
    rng = np.random.default_rng((SEED, setting.parties, seed))
    order = rng.permutation(len(labels))
    train, test = order[:TRAINED], order[TRAINED:]
    groups = holders(labels[train], setting.parties, rng)
    estimator = LogisticRegression(**DIGITS, **setting.asked, epsilon=setting.epsilon, **ARMS[arm](seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(images[train], labels[train], groups=groups)
    protocol = estimator.certificate_.executions[0].protocol.name
    return {"right": 100 * estimator.score(images[test], labels[test]), "epsilon": estimator.epsilon_, protocol: 1.0}


# -- fair ------------------------------------------------------------------------------------------------------------------------

FAIR_COLUMNS = {
    "rate_marriage": (1, 5),
    "age": (17, 43),
    "yrs_married": (0, 25),
    "children": (0, 6),
    "religious": (1, 4),
    "educ": (9, 20),
    "occupation": (1, 6),
    "occupation_husb": (1, 6),
}
FAIR: dict[str, Any] = {"bounds": list(FAIR_COLUMNS.values()), "classes": [0, 1], "epsilon": 1.0, "delta": 1e-6, "parties": 20}
FAIR_WAYS: dict[str, dict[str, Any]] = {
    "one shot": {},
    "10 rounds": {"rounds": 10, "learning_rate": 4.0},
    "30 rounds": {"rounds": 30, "learning_rate": 4.0},
    "100 rounds": {"rounds": 100, "learning_rate": 4.0},
}
PLAIN = "scikit-learn, no privacy"


@cache
def fair() -> tuple[Array, Labels]:
    from statsmodels.datasets import fair as data

    frame = data.load_pandas().data
    return frame[list(FAIR_COLUMNS)].to_numpy(dtype=np.float64), (frame["affairs"] > 0).to_numpy(dtype=np.int64)


def fair_run(job: tuple[str, str, int]) -> Measure:
    way, arm, seed = job
    rows, labels = fair()
    order = np.random.default_rng((SEED, seed)).permutation(len(labels))
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if way == PLAIN:
            centre = rows[train].mean(axis=0)
            scores = (
                PlainRegression(C=1e6, max_iter=1000).fit(rows[train] - centre, labels[train]).predict_proba(rows[test] - centre)
            )
        else:
            estimator = LogisticRegression(**FAIR, **FAIR_WAYS[way], accept_wide=True, **ARMS[arm](seed))
            scores = estimator.fit(rows[train], labels[train]).predict_proba(rows[test])
    likely = np.clip(scores[:, 1], 1e-6, 1 - 1e-6)
    return {
        "right": 100 * float(((likely > 0.5) == labels[test]).mean()),
        "auc": 100 * float(roc_auc_score(labels[test], likely)),
        "loss": float(log_loss(labels[test], likely)),
    }


# -- the page --------------------------------------------------------------------------------------------------------------------


def interval(found: Sequence[float] | Array, digits_: int = 1) -> str:
    values = np.asarray(found)
    return f"{values.mean():.{digits_}f} ± {T * values.std(ddof=1) / len(values) ** 0.5:.{digits_}f}"


def digits_part(found: Mapping[tuple[int, str], list[Measure]]) -> Iterator[str]:
    for place, setting in enumerate(SETTINGS):
        right = {arm: np.array([one["right"] for one in found[place, arm]]) for arm in ARMS}
        protocol = next(name for name in found[place, "together"][0] if name not in ("right", "epsilon"))
        asked = ", ".join(f"{name} {value}" for name, value in setting.asked.items() if name != "unit")
        rows = [
            [arm, interval(values), interval(values - right["together"])]
            if arm != "together"
            else [f"{arm} ({protocol})", interval(values), ""]
            for arm, values in right.items()
        ]
        epsilon = max(one["epsilon"] for one in found[place, "together"])
        yield f"## {setting.title}\n"
        yield f"{TRAINED} records, of each class a Dirichlet({CONCENTRATION}) part to each party; 297 are held out."
        yield f"Softmax regression; {asked}; delta 1e-5; `epsilon_` {epsilon:.4g} at most.\n"
        yield table(["", "right, %", "less *together*, points"], rows)


def fair_part(found: Mapping[tuple[str, str], list[Measure]]) -> Iterator[str]:
    yield "## `fair`, records protected, epsilon 1: one shot and rounds\n"
    yield (
        "Fair's survey of 6366 women: whether there was an affair, on eight columns with bounds as asked in the survey. A fifth\n"
        "is held out, 20 parties share the rest alike; delta 1e-6; learning rate 4, clip 1.\n"
    )
    rows = [
        [
            f"{way}, {arm}" if arm else way,
            *(interval([one[name] for one in runs], 1 if name != "loss" else 3) for name in MEASURES),
        ]
        for (way, arm), runs in found.items()
    ]
    yield table(["", "area under the curve, %", "right, %", "log loss"], rows)
    best = min((way for way in FAIR_WAYS if way != "one shot"), key=lambda way: _mean(found[way, "together"], "loss"))
    for name, label in (("auc", "area under the curve, points"), ("loss", "log loss")):
        apart = [one[name] - two[name] for one, two in zip(found[best, "together"], found["one shot", "together"], strict=True)]
        difference = interval(apart, 1 if name == "auc" else 3)
        yield f"The rounds with the best log loss ({best}) less one shot, both together: {label} {difference}.\n"
    yield "It was expected that rounds are not better than one shot.\n"


MEASURES = ("auc", "right", "loss")


def _mean(runs: Sequence[Measure], name: str) -> float:
    return float(np.mean([one[name] for one in runs]))


FEW = "this model bears the local noise better than was thought"


def bars(found: Mapping[tuple[int, str], list[Measure]]) -> Iterator[Line]:
    def right(place: int, arm: str) -> Array:
        return np.array([one["right"] for one in found[place, arm]])

    def apart(place: int, other: str) -> tuple[float, float, str]:
        values = right(place, "together") - right(place, other)
        return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5), interval(values)

    for place, points, above in ((0, None, 20), (1, 2, 40), (2, 1, 4), (3, 2, 20)):
        title = SETTINGS[place].title
        mean, error, difference = apart(place, "curator of the same variance")
        what = f"{title}: less a curator of the same variance"
        reason = "more than chance allows: the noise of the protocol is not what is stated"
        yield Line(what, "0, within 2 standard errors", difference, abs(mean) <= 2 * error, reason)
        if points is not None:
            mean, error, difference = apart(place, "curator")
            kept = mean >= -points
            yield Line(
                f"{title}: less a curator", f"no more than {points} below", difference, kept, "its noise is larger, see above"
            )
        mean, error, difference = apart(place, "local")
        yield Line(f"{title}: above local", f"{above} or more", difference, mean >= above, FEW)


def page(seeds: int, jobs: int) -> str:
    with ProcessPoolExecutor(jobs) as pool:
        tasks = [(place, arm, seed) for place in range(len(SETTINGS)) for arm in ARMS for seed in range(seeds)]
        digits_found: dict[tuple[int, str], list[Measure]] = {}
        for (place, arm, _), measure in zip(tasks, pool.map(digits_run, tasks, chunksize=5), strict=True):
            digits_found.setdefault((place, arm), []).append(measure)
        ways = [(way, arm) for way in FAIR_WAYS for arm in ("together", "curator", "no privacy")]
        asked = [(way, arm, seed) for way, arm in [*ways, (PLAIN, "")] for seed in range(seeds)]
        fair_found: dict[tuple[str, str], list[Measure]] = {}
        for (way, arm, _), measure in zip(asked, pool.map(fair_run, asked, chunksize=5), strict=True):
            fair_found.setdefault((way, arm), []).append(measure)
    lines = [
        "## What it is held to\n",
        "| what, in points | bar | measured | |\n|---|---|---:|---|",
        *map(str, bars(digits_found)),
        "",
    ]
    return "\n".join([HEAD.format(seeds=seeds).rstrip("\n") + "\n", *lines, *digits_part(digits_found), *fair_part(fair_found)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    given.page.write_text(page(given.seeds, given.jobs) + ending(f"measurements/{PAGE.name}"))
    sys.stdout.write(f"{given.page}\n")


if __name__ == "__main__":
    main()
