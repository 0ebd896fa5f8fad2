"""Figures of the papers: the machinery, and the parts of IncA's figures that can be checked another way."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace, make_schedule
from quietmean.planning.accuracy import draw_scenario as planned_scenario
from quietmean.planning.accuracy import linear_estimate
from quietmean.privacy import Adversary
from quietmean.privacy.composition import classical_mu
from quietmean.protocols.gopa.loss import pairwise_sigma
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecureStackedNoise, insecure_seed
from quietmean.testing.examples import certificate_of
from quietmean_reproduction import Claim, Effort, Figure, choose, registry
from quietmean_reproduction.inca import accounts, connectivity, costs, machines, pairwise, preconditions, rounds
from quietmean_reproduction.inca.setting import random_coalition
from quietmean_reproduction.rows import clopper_pearson, kept, read_rows
from quietmean_reproduction.run import reproduce
from quietmean_reproduction.sweeps import Task, Workers

ONE = Workers(1)
FIGURES = registry()


def line(*, seed: int, points: int) -> list[dict[str, Any]]:
    """Rows of a figure that nobody published."""
    return [{"x": float(x), "y": float(x + seed % 2)} for x in range(points)]


def draw_line(rows: pl.DataFrame, canvas: Any) -> None:
    canvas.add_subplot().plot(rows["x"], rows["y"])


def claim_of_line(rows: pl.DataFrame) -> Sequence[Claim]:
    return [
        Claim("it | rises", 2.0, float(rows["y"][-1]), True, "as it\nshould", "m"),
        Claim("it ends", 1.0, math.inf, False),
        Claim("it is", None, None),
    ]


FAKE = Figure(
    "fake-1",
    "Nobody (1900)",
    "A line",
    lambda effort: [Task(line, {"points": 3})],
    draw_line,
    claim_of_line,
    "From here to there.",
)


def test_figures_have_names_and_tasks_of_their_own() -> None:
    for name, figure in FIGURES.items():
        assert name == figure.name == name.lower()
        assert figure.title
        assert figure.paper
        for effort in Effort:
            keys = [task.key(0) for task in figure.tasks(effort)]
            assert len(set(keys)) == len(keys) > 0, f"{name} has the same task twice"


def test_quick_is_smaller_than_full() -> None:
    for figure in FIGURES.values():
        quick, full = (figure.tasks(effort) for effort in (Effort.QUICK, Effort.FULL))
        assert [task.describe() for task in quick] != [task.describe() for task in full], figure.name


def test_figures_are_chosen_by_name_or_paper() -> None:
    assert [figure.name for figure in choose(["inca-2", "inca-1"])] == ["inca-1", "inca-2"]
    assert {figure.name for figure in choose(["inca"])} == {name for name in FIGURES if name.startswith("inca-")}
    with pytest.raises(InputError, match="'inca-9' is unknown"):
        choose(["inca-1", "inca-9"])


def test_a_figure_becomes_files(tmp_path: Path) -> None:
    made = reproduce([FAKE], tmp_path, workers=ONE)
    assert {path.name for path in tmp_path.iterdir()} == {".sweeps", "fake-1.csv", "fake-1.json", "fake-1.png", "summary.md"}
    assert (tmp_path / "fake-1.csv").read_text().splitlines()[:2] == ["seed,size,x,y", "0,quick,0.0,1.0"]
    assert (tmp_path / "fake-1.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((tmp_path / "fake-1.json").read_bytes())
    assert document["claims"][0]["ratio"] == made[0].claims[0].ratio
    assert document["claims"][1]["ours"] == "inf"
    summary = (tmp_path / "summary.md").read_text()
    assert "1 figures. 3 statements of the papers: 1 agree, 1 differ, 1 without a verdict. 0 checks of our own" in summary
    assert "| it \\| rises | 2 m |" in summary
    assert "as it should" in summary
    assert str(tmp_path) not in summary


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((1.1, 1.9), True),
        ((1.0, 2.0), True),
        ((0.9, 1.1), None),
        ((1.9, 2.1), None),
        ((0.5, 3.0), None),
        ((0.1, 0.9), False),
        ((2.1, 9.0), False),
    ],
)
def test_a_verdict_holds_only_if_all_of_its_interval_does(interval: tuple[float, float], verdict: bool | None) -> None:
    claim = Claim("it lies between", ours=sum(interval) / 2, interval=interval, accepted=(1.0, 2.0))
    assert claim.agrees is verdict
    # What fails in another way stays so; without a range to lie in there is no verdict.
    assert replace(claim, agrees=False).agrees is False
    assert replace(claim, agrees=None, accepted=None).agrees is None


def test_kept_rows_come_back_bit_for_bit_with_their_intervals(tmp_path: Path) -> None:
    found = pl.DataFrame(
        {
            "x": [1 / 3, math.inf, 5e-324, None],
            "x_standard_error": [0.1, 0.0, None, None],
            "n": [1, 2, 3, 4],
            "word": ["a", "b", None, "d"],
        }
    )
    rows = kept(FAKE, found, 7, Effort.FULL)
    assert rows.columns == ["seed", "size", "x", "x_standard_error", "x_low", "x_high", "n", "word"]
    assert rows["x_low"].to_list() == [1 / 3 - 0.1 * 1.96, math.inf, None, None]
    rows.write_csv(tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv").equals(rows)
    assert read_rows(tmp_path / "rows.csv").schema == rows.schema
    assert set(rows["seed"]) == {7}
    assert set(rows["size"]) == {"full"}


def test_an_interval_of_a_share_holds_it_as_often_as_it_says() -> None:
    """Clopper-Pearson: of 20 trials at every share, whatever comes out; never fewer than 95 %."""
    counts = np.arange(21)
    low, high = clopper_pearson(counts, np.full(21, 20))
    assert low[0] == 0.0
    assert high[20] == 1.0
    for share in np.linspace(0.01, 0.99, 45):
        chances = np.array([math.comb(20, int(k)) * share**k * (1 - share) ** (20 - k) for k in counts])
        assert chances[(low <= share) & (share <= high)].sum() >= 0.95


def test_a_second_run_changes_no_byte(tmp_path: Path) -> None:
    reproduce([FAKE], tmp_path, workers=ONE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    reproduce([FAKE], tmp_path, workers=ONE)
    reproduce([FAKE], tmp_path / "elsewhere", workers=ONE)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
        assert (tmp_path / "elsewhere" / name).read_bytes() == content


def test_the_summary_keeps_figures_of_earlier_runs(tmp_path: Path) -> None:
    reproduce([FAKE], tmp_path, workers=ONE)
    reproduce([replace(FAKE, name="fake-2")], tmp_path, workers=ONE)
    assert "2 figures. 6 statements of the papers" in (tmp_path / "summary.md").read_text()


def test_the_command_lists_and_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["reproduce", "--list", "--json"])
    assert {one["name"] for one in json.loads(capsys.readouterr().out)} == set(FIGURES)
    for arguments, words in (
        ([], "which figures is not clear. Name some, or say --all"),
        (["--all", "inca-1"], "which figures is not clear. Name some, or say --all"),
        (["inca-1", "--quick", "--full"], "exclude each other"),
        (["inca-0"], "unknown"),
        (["inca-1", "--workers", "0"], "Choose 1 to"),
        (["inca-1", "--workers", "cloud"], "such as tcp://host:8786"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["reproduce", *arguments])
        assert stop.value.code == 2
        assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_told_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quietmean_reproduction.run.reproduce", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "inca-1", "--out", str(tmp_path)])
    assert stop.value.code == 130
    assert "the same command continues" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inca-2", "inca-5"])
def test_figures_of_inca_agree_with_the_paper(name: str, tmp_path: Path) -> None:
    made = reproduce([FIGURES[name]], tmp_path, workers=Workers(2))
    assert all(claim.agrees is not False for claim in made[0].claims), made[0].claims


# Connectivity


def ranks_of_stars(schedule: Any, corrupt: Any, observed: Any) -> int:
    """The definition, row by row."""
    honest = [party for party in range(schedule.parties) if not corrupt[party]]
    stars = []
    for round_, party in itertools.product(range(schedule.rounds), honest):
        others = schedule.recipients(round_ + 1, party)
        if not any(corrupt[other] for other in others) and not (observed is not None and observed[round_, party]):
            star = np.zeros(schedule.parties)
            star[list(others)] = 1.0
            star[party] = -len(others)
            stars.append(star)
    return int(np.linalg.matrix_rank(np.array(stars))) if stars else 0


@pytest.mark.parametrize("out_degree", [1, 2, 3])
def test_the_precondition_is_the_rank(out_degree: int) -> None:
    outcomes = []
    for number in range(40):
        draws = np.random.default_rng([number, out_degree])
        schedule = make_schedule("uniform", insecure_seed(number, "rank"), 12, int(draws.integers(1, 7)), out_degree)
        corrupt = draws.random(12) < draws.choice([0.0, 0.3])
        corrupt[0] = False
        corrupt[1] = False
        observed = draws.random((schedule.rounds, 12)) < draws.choice([0.0, 0.4])
        full = ranks_of_stars(schedule, corrupt, observed) == (~corrupt).sum() - 1
        assert connectivity.meets_precondition(schedule, corrupt, observed) == full
        outcomes.append(full)
    assert 3 <= sum(outcomes) <= 37


def test_isolated_parties_are_as_many_as_expected() -> None:
    """n = 30, half corrupt, 4 rounds, 3000 runs: within 5 standard errors (error rate 6e-7; counts are almost Poisson)."""
    runs, rounds_, total = 3000, 4, 0
    corrupt = np.arange(30) < 15
    for number in range(runs):
        schedule = make_schedule("never-same", insecure_seed(number, "isolated"), 30, rounds_)
        _, senders = connectivity.unseen_messages(schedule, corrupt)
        rows, _ = connectivity.unseen_messages(schedule, corrupt)
        receivers = schedule.neighbours[rows, senders, 0]
        total += int((~corrupt).sum()) - np.union1d(senders, receivers).size
    expected = runs * connectivity.expected_isolated(30, 15, rounds_)
    assert abs(total - expected) < 5 * math.sqrt(expected)
    # Leaving out that others may send to a party would be found out.
    assert abs(total - expected * (1 - rounds_ / 29) ** -14) > 5 * math.sqrt(expected)


def test_more_rounds_isolate_fewer() -> None:
    found = [connectivity.expected_isolated(5000, 2500, T) for T in range(1, 30)]
    assert all(later < earlier for earlier, later in itertools.pairwise(found))
    assert connectivity.rounds_without_failure(5000, 2500, 100_000) == 17
    assert connectivity.expected_isolated(10, 2, 3) == 0.0


def test_counts_of_runs_add_up() -> None:
    rows = rounds.connect(seed=1, parties=40, runs=20, block=0)
    for share in rounds.SHARES:
        assert sum(row["runs"] for row in rows if row["corrupt"] == share) == 20
    one = preconditions.succeed(seed=1, adversary="collusion", out_degree=1, rounds=8, runs=5)[0]
    assert 0 <= one["succeeded"] <= one["runs"] == 5


# Noise under dropouts


@pytest.mark.parametrize(("out_degree", "schedule"), [(1, "uniform"), (2, "permutation")])
def test_scenarios_are_those_of_planning(out_degree: int, schedule: str) -> None:
    """Same seeds, two ways of computing: the exact view and Theorem 4.7."""
    setting = accounts.Setting(20, 0.2, 0.1, 0.2, 6, out_degree, schedule)
    template = template_of(IncA(rounds=6, schedule=schedule, out_degree=out_degree), setting.target)
    for number in range(3):
        seed = insecure_seed(number, "scenario")
        here = accounts.draw_scenario(setting, seed, 0.2)
        there = planned_scenario(setting.target, template, seed, 1)
        for ratio in (0.5, 3.0, 30.0):
            assert here.worst_information(ratio) == pytest.approx(there.worst_information(ratio), rel=1e-6)
        np.testing.assert_allclose(here.paper_star, there.paper_star, rtol=1e-9)
        np.testing.assert_allclose(here.paper_delta, there.paper_delta, rtol=1e-5, atol=1e-15)
        assert here.estimate.noise_variance(1.0, 2.0) == pytest.approx(there.estimate.noise_variance(1.0, 2.0))


def test_calibrations_of_one_account_are_in_order() -> None:
    rows = accounts.Account.draw(accounts.Setting(30, 0.2, 0.1, 0.1, 8), 4, 1).rows()
    mse = {row["calibration"]: row["mse"] for row in rows}
    assert mse["exact"] < mse["exact-view"] <= mse["paper"]


@pytest.mark.parametrize("published", [True, False])
def test_what_gopa_leaves_behind(published: bool) -> None:
    """As the real machines leave it: with early dropouts if the late ones have published before, else with those who stay."""
    found = 0
    for number in range(5):
        seed = insecure_seed(number, "gopa")
        graph, counted, left_over = pairwise._draw(seed, 30, 0.1, 0.2, 0.1, 4, published)
        execution, order = pairwise.gopa_execution(seed, 30, 0.2, 0.1, 4, published)
        late, early = set(order[:3].tolist()), set(order[3:6].tolist())
        assert counted == 30 - len(early | (set() if published else late)) == execution.contributors().sum()
        others = early if published else set(range(30)) - late - early
        pairs = execution.schedule.pairs.tolist()
        expected = sum((one in late and other in others) or (one in others and other in late) for one, other in pairs)
        assert left_over == pytest.approx(expected, rel=1e-12)
        found += expected
        traced = linear_estimate(execution.traced_transcript(), execution.weights)
        assert traced.delta_variance is not None
        assert traced.delta_variance * counted**2 == pytest.approx(left_over, rel=1e-12)
        # Pair noise keeps whoever colludes below what the paper counts.
        assert graph.shape[0] <= counted
        worst = certificate_of(execution.traced_transcript(), Adversary(_corrupt(seed, order)), 1.0)
        graph_mu2 = pairwise._Spectrum.of(graph).worst(1.0, 1.0)
        # Late parties that published nothing hide others, too: the paper does not count that.
        assert worst.max_mu**2 <= graph_mu2 * (1 + 1e-9)
    assert found > 0


def _corrupt(seed: Seed, order: NDArray[np.int64]) -> frozenset[int]:
    stream = BitStream(seed.derive("who"))
    stream.permutation(order.size)
    return frozenset(stream.permutation(order.size)[: round(0.1 * order.size)].tolist())


def test_gopa_loses_more_if_nothing_is_released_before_the_second_round() -> None:
    silent, published = (pairwise.gopa_rows(30, 0.2, 0.1, 0.2, 0.1, 6, 4, 1, reading)[0]["mse"] for reading in (False, True))
    assert silent > 2 * published


def test_cordp_dme_with_the_noise_of_gopa_is_worse_than_its_own_design() -> None:
    """At n = 200, gamma = 0.1 by hand: 160 honest stay, sigma_p^2 = 15.763466, 20 uncancelled terms for each of 180."""
    unit = 1.0 / classical_mu(0.2, 1e-5) ** 2
    rows = {row["method"]: row for row in pairwise.cordp_rows(200, 0.1, 0.1, unit)}
    like_gopa = rows["cordp-dme-as-gopa"]
    assert like_gopa["sigma_star2"] == pytest.approx(4.767778, rel=1e-6)
    assert like_gopa["sigma_delta2"] == pytest.approx(15.763466, rel=1e-6)
    assert like_gopa["mse"] == pytest.approx((4.767778 + 20 * 15.763466) / 180, rel=1e-6)
    assert rows["cordp-dme"]["mse"] < like_gopa["mse"]


def test_pair_noise_for_many_graphs_is_that_of_the_worst() -> None:
    graphs = [pairwise._draw(insecure_seed(number, "graph"), 24, 0.1, 0.2, 0.1, 4, True)[0] for number in range(4)]
    alone = [pairwise_sigma(graph, 3.0, 0.15) for graph in graphs]
    together = pairwise.least_pair_sigma([pairwise._Spectrum.of(graph) for graph in graphs], 3.0, 0.15)
    assert together == pytest.approx(max(alone), rel=1e-9)
    with pytest.raises(InputError, match="not hidden by any"):
        pairwise.least_pair_sigma([pairwise._Spectrum.of(graphs[0])], 0.1, 0.15)


def test_gopa_with_exact_accounting_needs_less() -> None:
    for published in (True, False):
        paper, exact = pairwise.gopa_rows(30, 0.2, 0.1, 0.2, 0.1, 6, 4, 1, published)
        assert exact["mse"] < paper["mse"]
        if published:
            assert paper["sigma_star2"] / exact["sigma_star2"] > 1


# Costs


def test_meters_count_every_byte() -> None:
    """k = 1: a message of 8 d bytes and a weight of 8 a round; nobody sends after the last."""
    protocol = IncA(rounds=3, sigma_star=1.0, sigma_delta=1.0)
    schedule, noise = protocol.draw_schedule(6, insecure_seed(1)), InsecureStackedNoise(1, 6)
    meter = machines.Meter.of(6)
    value = np.zeros(5)
    meter.drive(
        [protocol.machine(schedule, party, value, 1.0, noise.party(party)) for party in range(6)],
        ExecutionTrace.everyone(3, 6).online,
    )
    assert meter.sent.tolist() == [3 * 48.0] * 6
    assert (meter.seconds > 0).all()
    assert sorted(meter.releases) == list(range(6))


def test_costs_of_both_protocols_are_rows() -> None:
    mine = costs.inca(seed=1, parties=12, dimension=3, rounds=4, dropouts=0.2, repeat=0)[0]
    assert mine["megabytes_sent"] > 0
    # So few neighbours promise no delta of 1e-5: what they cost can be measured all the same.
    theirs = costs.secagg(seed=1, parties=40, dimension=3, degree=6, dropouts=0.1, repeat=0)[0]
    assert theirs["finished"]
    assert theirs["seconds_waiting"] >= 0


def test_crossings_are_found_between_points() -> None:
    rows = [{"method": "inca", "dimension": d, "y": float(d)} for d in (1, 10, 100, 1000)]
    rows += [{"method": "secagg", "dimension": d, "y": 30.0} for d in (1, 10, 100, 1000)]
    assert costs.crossing(pl.DataFrame(rows), "y") == pytest.approx(30.0)
    never = [row | ({"y": 1e9} if row["method"] == "secagg" else {}) for row in rows]
    assert costs.crossing(pl.DataFrame(never), "y") is None


def test_coalitions_are_subsets_of_one_size() -> None:
    drawn = {random_coalition(10, 3, seed) for seed in range(30)}
    assert {len(coalition) for coalition in drawn} == {3}
    assert len(drawn) > 15
