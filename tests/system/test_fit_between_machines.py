"""Estimators between machines: ``fit`` at each of three sites, with its own rows, gives the estimator of all rows at each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import polars
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.folders import data_folder
from quietmean.learning import KMeans, LinearRegression, LogisticRegression
from quietmean.learning.sites import InOneProcess
from quietmean.ledger import Ledger
from quietmean.node import Roster
from quietmean.node.net import format_address
from quietmean.randomness.insecure import InsecureSilence, InsecureSilentPopulation
from quietmean.sessions import MemoryEngine
from quietmean.studies.agreement.sealed import Sealed
from support import fitting
from support.consent import accept as yes_of
from support.fitting import NAMES
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy

PROGRAM = Path(fitting.__file__)
SILENT = InOneProcess(MemoryEngine(lambda round_, parties: InsecureSilentPopulation(parties)))


@pytest.fixture(autouse=True)
def consortium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> None:
    monkeypatch.chdir(tmp_path)
    write_policy(largest_epsilon=1e4, unattended=True)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def start(*arguments: str) -> subprocess.Popen[bytes]:
    paths = [str(Path(qm.__file__).parents[1]), str(PROGRAM.parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def at_all_sites(mode: str, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """What each site has after its program."""
    processes = [start(str(PROGRAM), name, mode, *kinds) for name in NAMES]
    try:
        said = [process.communicate(timeout=120)[1].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0], "\n".join(said)
    return [json.loads(Path(f"{name}.fitted.json").read_text()) for name in NAMES]


def in_one_process(kinds: Sequence[str]) -> dict[str, Any]:
    held = [fitting.rows_of(name) for name in NAMES]
    found = {}
    for kind, made in fitting.estimators(fitting.CLEAR, lambda fit: SILENT).items():
        if kind not in kinds:
            continue
        if isinstance(made, LogisticRegression):
            given: list[Any] = [(X, fitting.labels(y)) for X, y in held]
        else:
            given = held if kind == "linear" else [X for X, _ in held]
        found[kind] = fitting.attributes(made.fit(given))
    if "model" in kinds:
        own = [X for X, _ in held]
        model = fitting.averaged(fitting.CLEAR, SILENT, lambda model: [fitting.towards(model, X) for X in own], parties=3)
        found["model"] = {"w": model}
    return found


def check_against_one_process(sites: Iterable[dict[str, Any]], kinds: Sequence[str]) -> None:
    together = in_one_process(kinds)
    assert set(together) == set(kinds)
    for found in sites:
        assert found.keys() == together.keys()
        for kind, expected in together.items():
            assert found[kind].keys() == expected.keys(), kind
            for name, value in expected.items():
                np.testing.assert_allclose(found[kind][name], value, rtol=1e-6, atol=1e-7, err_msg=f"{kind} {name}")


@pytest.mark.slow
def test_without_noise_each_process_has_what_one_process_has() -> None:
    check_against_one_process(at_all_sites("clear", fitting.KINDS), fitting.KINDS)


def test_without_noise_each_site_has_what_one_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release, and rounds of each unit, by threads."""
    monkeypatch.setattr(import_module("quietmean.node.session.session"), "SecureNoise", lambda *given: InsecureSilence())
    kinds = ("linear", "by records", "newton", "model")
    with ThreadPoolExecutor() as pool:
        check_against_one_process(pool.map(lambda name: fitting.main(name, True, kinds), NAMES), kinds)


EVERY_FIT = tuple(kind for kind in fitting.KINDS if kind != "model")


@pytest.mark.parametrize("kinds", [("one shot", "clusters"), pytest.param(EVERY_FIT, marks=pytest.mark.slow)])
def test_a_site_without_records_takes_part_in_a_fit(kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("quietmean.node.session.session"), "SecureNoise", lambda *given: InsecureSilence())
    full = fitting.rows_of

    def rows_of(name: str) -> Any:
        X, y = full(name)
        return (X, y) if name != NAMES[1] else (X[:0], y[:0])

    monkeypatch.setattr(fitting, "rows_of", rows_of)
    with ThreadPoolExecutor() as pool:
        check_against_one_process(pool.map(lambda name: fitting.main(name, True, kinds), NAMES), kinds)


@pytest.mark.slow
def test_every_site_has_the_same_estimator_bit_by_bit_and_paid_once_for_all_its_rounds() -> None:
    kinds = fitting.KINDS
    write_policy(largest_epsilon=10.0, budget={"epsilon": 12.0, "delta": 1e-4}, unattended=True)
    north, *others = at_all_sites("noisy", kinds)
    assert set(north) == set(kinds)
    for found in others:
        # As text: what noise hides is NaN everywhere.
        assert json.dumps(found) == json.dumps(north)
    by_party = sum(kind in ("by parties", "model") for kind in kinds)
    for account, fits in (
        (name + unit, fits) for name in NAMES for unit, fits in (("", len(kinds) - by_party), ("-party", by_party))
    ):
        with Ledger.open(data_folder() / "ledger") as book:
            entries = book.account(account).entries
        assert [entry.status for entry in entries] == ["spent"] * fits
        assert all(entry.charged.mu <= entry.reserved.mu for entry in entries)


# -- what differs at one site, and who is away -----------------------------------------------------------------------------------

CLUSTERS: dict[str, Any] = {"n_clusters": 2, "rounds": 3, "bounds": (-6, 6), "epsilon": 8.0, "delta": 1e-6, "random_state": 1}
GRADIENTS: dict[str, Any] = {"classes": [0, 1], "rounds": 3, "bounds": (-6, 6), "epsilon": 8.0, "delta": 1e-6}
LINE: dict[str, Any] = {"bounds": (-6, 6), "y_bounds": (-20, 20), "epsilon": 8.0, "delta": 1e-6}


def site(name: str, **more: Any) -> qm.Site:
    return qm.Site("roster.toml", f"{name}.key", **{"no_ledger": True, "yes": True, "round_timeout": 5.0, **more})


def outcome_of(kind: type, name: str) -> Any:
    y = fitting.rows_of(name)[1]
    return None if kind is KMeans else fitting.labels(y) if kind is LogisticRegression else y


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "same", "other"),
    [
        (KMeans, CLUSTERS, {"random_state": 2}),
        pytest.param(KMeans, CLUSTERS, {"bounds": (-5, 6)}, marks=pytest.mark.slow),
        pytest.param(KMeans, CLUSTERS, {"n_clusters": 3}, marks=pytest.mark.slow),
        (LogisticRegression, GRADIENTS, {"learning_rate": 2.0}),
        pytest.param(LogisticRegression, GRADIENTS, {"classes": [1, 0, 2]}, marks=pytest.mark.slow),
        pytest.param(LogisticRegression, GRADIENTS, {"clip": 2.0}, marks=pytest.mark.slow),
        pytest.param(LinearRegression, LINE, {"bounds": (-5, 6)}, marks=pytest.mark.slow),
        (LinearRegression, LINE, {"delta": 1e-5}),
        pytest.param(LogisticRegression, GRADIENTS, {"columns": "bac"}, marks=pytest.mark.slow),
        (LinearRegression, LINE, {"columns": "bac"}),
        pytest.param(KMeans, CLUSTERS, {"columns": "ab"}, marks=pytest.mark.slow),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else ",".join(map(str, value)) if len(value) == 1 else "",
)
def test_another_parameter_or_other_columns_at_one_site_are_another_fit(
    kind: type, same: dict[str, Any], other: dict[str, Any]
) -> None:
    """By the digest that stands in all labels: no site has a result, and what each would say yes to differs."""
    given = {name: other if name == "east" else {} for name in NAMES}
    columns = {name: str(changed.get("columns", "abc")) for name, changed in given.items()}
    asked = {name: {key: value for key, value in (same | changed).items() if key != "columns"} for name, changed in given.items()}
    made = {name: kind(**asked[name], site=site(name, start_timeout=1.0)) for name in NAMES}
    tables = {name: polars.DataFrame(fitting.rows_of(name)[0], list("abc")).select(list(columns[name])) for name in NAMES}
    digests = {name: made[name].contract(tables[name]).digest for name in NAMES}
    assert digests["north"] == digests["south"] != digests["east"]

    def fit(name: str) -> BaseException | None:
        try:
            made[name].fit(tables[name], outcome_of(kind, name))
        except (ProtocolFailure, InputError) as error:
            return error
        return None

    with ThreadPoolExecutor() as pool:
        ended = dict(zip(NAMES, pool.map(fit, NAMES), strict=True))
    for name, error in ended.items():
        assert "did not start" in str(error), name
        assert not hasattr(made[name], "certificate_")


def test_a_fit_that_has_ended_is_what_it_was_and_says_so() -> None:
    def fit(name: str) -> KMeans:
        return KMeans(**CLUSTERS, site=site(name)).fit(fitting.rows_of(name)[0])

    with ThreadPoolExecutor() as pool:
        first = list(pool.map(fit, NAMES))
    # Without the others, and whatever the rows.
    with pytest.warns(UserWarning, match="this fit had ended before"):
        again = KMeans(**CLUSTERS, site=site("north")).fit(fitting.rows_of("north")[0])
    assert again.cluster_centers_.tolist() == first[0].cluster_centers_.tolist()
    assert (again.epsilon_, again.n_iter_) == (first[0].epsilon_, 3)
    # Nor is what was released taken for that of a fit which has no store.
    for path in Path().glob("kmeans-north.store*"):
        path.unlink()
    with pytest.raises(InputError, match="is of another fit"):
        KMeans(**CLUSTERS, site=site("north")).fit(fitting.rows_of("north")[0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "same", "other", "field"),
    [
        (KMeans, CLUSTERS, {"epsilon": 4.0}, "session.epsilon"),
        pytest.param(
            LogisticRegression, GRADIENTS, {"learning_rate": 2.0}, "session.purpose.learning_rate", marks=pytest.mark.slow
        ),
        (LinearRegression, LINE, {"bounds": (-5, 6)}, "column"),
    ],
    ids=["clusters", "gradients", "line"],
)
def test_a_fit_that_a_convener_sealed(kind: type, same: dict[str, Any], other: dict[str, Any], field: str) -> None:
    """Written by its estimator, invited to and sealed by the commands; each site has words to compare, and hybrid links."""
    north = fitting.rows_of("north")[0]
    kind(**same).save_study("fit.toml", north, parties=3)
    with pytest.raises(InputError, match="exists already"):
        kind(**same | other).save_study("fit.toml", north, parties=3)
    places = {entry.name: format_address(entry.address) for entry in Roster.load(Path("roster.toml")).entries}
    main(["study", "invite", "fit.toml", "--key", "north.key", "--quiet"])
    for name, place in places.items():
        main(["accept", "fit.invitation", "--key", f"{name}.key", "--name", name, "--address", place, "--quiet"])
    main(["study", "seal", "fit.invitation", *(f"{name}.entry" for name in NAMES), "--key", "north.key", "--quiet"])
    digest = Sealed.load("fit.sealed").digest

    def at(name: str) -> qm.Site:
        return qm.Site(
            "fit.sealed",
            f"{name}.key",
            no_ledger=True,
            accept=yes_of(name, "fit.sealed"),
            compared=[one for one in NAMES if one != name],
        )

    assert kind(**same, site=at("south")).contract(north).digest == digest
    with pytest.raises(InputError, match=f"is signed for another fit .*{field}"):
        kind(**same | other, site=at("south")).fit(north, outcome_of(kind, "north"))

    def fit(name: str) -> Any:
        return kind(**same, site=at(name)).fit(fitting.rows_of(name)[0], outcome_of(kind, name))

    with ThreadPoolExecutor() as pool:
        first, *others = map(fitting.attributes, pool.map(fit, NAMES))
    assert all(json.dumps(one) == json.dumps(first) for one in others)
    origins = [json.loads(path.read_text())["origin"] for path in Path().glob("*.receipt.json")]
    assert len(origins) == 3
    assert all(origin["approval"]["contract"] == digest for origin in origins)


PROGRAM_OF_EAST = """
import sys, json, warnings, polars
warnings.simplefilter("ignore")
import quietmean as qm
from support import fitting
from quietmean.learning import KMeans
site = qm.Site("roster.toml", "east.key", no_ledger=True, yes=True, round_timeout=10.0)
made = KMeans(**json.loads(sys.argv[1]), site=site).fit(fitting.rows_of("east")[0])
print(json.dumps([made.cluster_centers_.tolist(), made.n_iter_, made.epsilon_]))
"""
AWAY: dict[str, Any] = CLUSTERS | {"rounds": 6, "dropouts": 0.34, "protocol": "cordp-dme"}


def kept_round(name: str) -> int:
    """How far a party is in what it has on disk."""
    try:
        with np.load(f"kmeans-{name}.model.npz") as file:
            return int(file["round"])
    except (OSError, ValueError, KeyError, BadZipFile):
        return 0


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


def status(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(f"kmeans-{name}.store.status.json").read_text())
    return document


class East:
    """A process of east, which others know again by when it started."""

    def __init__(self) -> None:
        before = self._started() if Path("kmeans-east.store.status.json").exists() else ""
        self.process = start("-c", PROGRAM_OF_EAST, json.dumps(AWAY))
        self._before = before

    def wait(self) -> None:
        """Until north has heard of it."""
        wait_until(lambda: self._started() > self._before and self._heard() > self._started())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    @staticmethod
    def _started() -> str:
        try:
            return str(status("east")["started"])
        except (OSError, ValueError):
            return ""

    @staticmethod
    def _heard() -> str:
        try:
            return next(peer["last_heard"] or "" for peer in status("north")["peers"] if peer["name"] == "east")
        except (OSError, ValueError):
            return ""


@pytest.mark.slow
def test_a_site_that_is_killed_goes_on_and_one_that_was_away_goes_on_with_what_another_has() -> None:
    made = {name: KMeans(**AWAY, site=site(name, round_timeout=10.0)) for name in NAMES[:2]}

    def one_round(name: str) -> None:
        made[name].partial_fit(fitting.rows_of(name)[0])

    with ThreadPoolExecutor() as pool:
        east = East()
        for _ in range(2):
            list(pool.map(one_round, NAMES[:2]))
        wait_until(lambda: kept_round("east") == 2)
        east.kill()
        # It is there again before a round that it would miss, and goes on by itself.
        east = East()
        east.wait()
        list(pool.map(one_round, NAMES[:2]))
        wait_until(lambda: kept_round("east") == 3)
        east.kill()
        # It misses the fourth.
        list(pool.map(one_round, NAMES[:2]))
        east = East()
        east.wait()
        list(pool.map(one_round, NAMES[:2]))
        said = east.process.communicate(timeout=60)[1].decode()
        assert east.process.returncode == 1
        assert "released up to round 3, and goes on after round 5" in said
        assert "kmeans-east.model.npz" in said
        Path("kmeans-east.model.npz").write_bytes(Path("kmeans-north.model.npz").read_bytes())
        east = East()
        east.wait()
        list(pool.map(one_round, NAMES[:2]))
        printed, said_last = east.process.communicate(timeout=60)
    assert east.process.returncode == 0, said_last.decode()
    centres, rounds, epsilon = json.loads(printed)
    for one in made.values():
        assert one.cluster_centers_.tolist() == centres
        assert one.n_iter_ == 6
    # It may have begun the fourth before it was killed, and has paid for it then.
    assert rounds in (5, 6)
    assert (epsilon == made["north"].epsilon_) == (rounds == 6)
