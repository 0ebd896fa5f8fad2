"""Estimators that are fitted at three sites, each with its own rows, and in one process with all: by this program, at a site."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import quietmean as qm
from quietmean.learning import PCA, KMeans, LinearRegression, LogisticRegression, ModelAveraging, StandardScaler
from quietmean.learning.sites import FitSite
from quietmean.randomness.insecure import InsecureSilence

Array = NDArray[np.float64]
NAMES = ("north", "south", "east")
SEED = 20_271
KINDS = ("linear", "pca", "scaler", "one shot", "by records", "newton", "by parties", "clusters", "model")
BOUNDS = (-6.0, 6.0)
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "colluding": 1}
# Hardly any noise is planned, so that no statistic takes any off; and none is drawn.
CLEAR: dict[str, Any] = {
    **BUDGET,
    "epsilon": 1000.0,
    "protocol": "cordp-dme",
    "options": {"noise": "insecure-float64"},
}


def rows_of(name: str) -> tuple[Array, Array]:
    """X (N, 3) and y (N,) of one party; another N each."""
    place = NAMES.index(name)
    rng = np.random.default_rng((SEED, place))
    rows = rng.normal(size=(300 + 40 * place, 3)) * [1.5, 1.0, 0.6]
    return rows, rows @ [1.0, 2.0, -1.0] + 0.5 + rng.normal(size=len(rows)) * 0.3


def labels(outcomes: Array) -> NDArray[np.int64]:
    return (outcomes > 0.5).astype(np.int64)


def estimators(budget: dict[str, Any], site: Any) -> dict[str, Any]:
    """One of each, before their fit, and of both units and ways where there are two. ``site``: for each, by its name."""
    common: dict[str, Any] = {"bounds": BOUNDS, **budget}
    usual = {**common, "epsilon": min(budget["epsilon"], 30.0), "options": {}}
    classes: dict[str, Any] = {"classes": [0, 1]}
    return {
        "linear": LinearRegression(**common, y_bounds=(-20.0, 20.0), site=site("")),
        "pca": PCA(**common, site=site("")),
        "scaler": StandardScaler(**common, site=site("")),
        "one shot": LogisticRegression(**common, **classes, site=site("shot")),
        "by records": LogisticRegression(**usual, **classes, rounds=4, clip=3.0, learning_rate=5.0, site=site("records")),
        "newton": LogisticRegression(**usual, **classes, rounds=4, solver="newton", site=site("newton")),
        "by parties": LogisticRegression(**usual, **classes, rounds=3, unit="party", local_steps=3, site=site("parties")),
        "clusters": KMeans(**usual, n_clusters=3, rounds=3, random_state=1, site=site("")),
    }


def fitted(made: Any, X: Any, y: Any) -> dict[str, Any]:
    """What a fit has, in plain data."""
    supervised = hasattr(made, "predict") and not hasattr(made, "cluster_centers_") and not isinstance(made, KMeans)
    made.fit(X, y) if supervised else made.fit(X)
    return attributes(made)


def attributes(made: Any) -> dict[str, Any]:
    wanted = (
        *("coef_", "intercept_", "components_", "explained_variance_", "mean_", "var_", "scale_", "cluster_centers_", "counts_"),
        *("coef_interval_", "intercept_interval_", "cluster_centers_standard_error_"),
        *("coef_standard_error_", "gradient_standard_error_", "sum_standard_error_", "n_iter_", "epsilon_"),
    )
    values = {name: np.asarray(getattr(made, name), dtype=np.float64) for name in wanted if hasattr(made, name)}
    # What there is none of is NaN, which equals nothing.
    return {name: value.tolist() for name, value in values.items() if not np.isnan(value).all()}


def averaged(budget: dict[str, Any], site: FitSite | None, own: Callable[[Any], Any], **more: Any) -> list[float]:
    """A model of three numbers that each party draws towards its own mean."""
    asked = {**budget, "epsilon": min(budget["epsilon"], 30.0), "options": {}, "rounds": 3, "clip": 4.0, "site": site}
    with ModelAveraging({"w": np.zeros(3)}, **asked, **more) as averaging:
        while not averaging.over:
            averaging.average(own(averaging.model))
    found: list[float] = averaging.model["w"].tolist()
    return found


def towards(model: Any, rows: Array) -> dict[str, Array]:
    return {"w": model["w"] + 0.5 * (rows.mean(axis=0) + 1 - model["w"])}


def main(name: str, clear: bool, kinds: Sequence[str]) -> dict[str, Any]:
    """At one site, of these ``kinds``."""
    budget = CLEAR if clear else BUDGET
    X, y = rows_of(name)

    def site(fit: str) -> qm.Site:
        # An account is of records or of parties.
        account = f"{name}-party" if fit in ("parties", "model") else name
        payer: dict[str, Any] = {"no_ledger": True} if clear else {"account": account}
        return qm.Site("roster.toml", f"{name}.key", name=fit, yes=True, round_timeout=20.0, **payer)

    found = {}
    for kind, made in estimators(budget, site).items():
        if kind in kinds:
            found[kind] = fitted(made, X, labels(y) if isinstance(made, LogisticRegression) else y)
    if "model" in kinds:
        found["model"] = {"w": averaged(budget, site("model"), lambda model: towards(model, X))}
    return found


def be_silent() -> None:
    """The node of this process draws no noise: what no party may do."""
    import_module("quietmean.node.session.session").SecureNoise = lambda *given: InsecureSilence()  # type: ignore[attr-defined]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _, party, mode, *asked = sys.argv
    if mode == "clear":
        be_silent()
    Path(f"{party}.fitted.json").write_text(json.dumps(main(party, mode == "clear", asked)))
