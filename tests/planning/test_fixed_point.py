"""The option value_bits = 32: which grid a plan gets, what it says of it, and which mistakes are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.grid import on_grid
from quietmean.core.party import Message, Release
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import rank
from quietmean.privacy import Adversary
from quietmean.protocols import Mechanism, get_protocol
from quietmean.protocols.discrete import NoiseNumbers
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import hidden_variance
from quietmean.protocols.push_sum.fixed_point import COARSEST, FINE, choose_grid, held_deviation
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.testing.examples import certificate_of
from support.command_lines import fails
from support.refusals import refused, refused_rows

TARGET = Target(parties=6, epsilon=1.0, delta=1e-6, dimension=3, colluding=1)


def planned(**options: Any) -> Plan:
    return calibrate(TARGET, IncA.read({"rounds": 4, **options}))


def chosen(star: float, delta: float, largest: float = 0.0, target: Target = TARGET) -> IncA:
    parameters = IncA(rounds=8, sigma_star=star, sigma_delta=delta, value_bits=32, largest_value=largest)
    grid, room = choose_grid(parameters, target)
    return replace(parameters, grid=grid, largest_value=room, dimension=target.dimension)


def inca(protocol: Mechanism) -> IncA:
    assert isinstance(protocol, IncA)
    return protocol


@pytest.mark.slow
def test_whole_numbers_by_default_and_32_bits_with_the_same_noise() -> None:
    plain, short, floats = planned(), planned(value_bits=32), planned(noise="insecure-float64")
    assert len({plain.digest, planned(value_bits=64).digest, short.digest, floats.digest}) == 3
    assert (plain.grid > 0, short.grid > 0, floats.grid) == (True, True, 0.0)
    assert "grid" not in floats.protocol.describe()
    one, other, real = inca(plain.protocol), inca(short.protocol), inca(floats.protocol)
    assert (one.injection, other.injection, real.injection) == ("early", "early", "incremental")
    assert one.sigma_star == pytest.approx(other.sigma_star, rel=1e-5)
    assert one.sigma_delta == pytest.approx(other.sigma_delta, rel=1e-5)
    assert one.sigma_star == pytest.approx(real.sigma_star, rel=0.01)
    assert plain.prediction == short.prediction


@pytest.mark.slow
@pytest.mark.parametrize("injection", ["early", "incremental"])
def test_smallest_scales_have_steps_enough_and_values_lie_on_whole_portions(injection: str) -> None:
    plan = planned(injection=injection)
    protocol = inca(plan.protocol)
    portions = 5 if injection == "incremental" else 1
    assert plan.value_step == portions * plan.grid
    least = min(protocol.sigma_star / portions, protocol.sigma_delta) / plan.grid
    assert 2.0**20 <= least < 2.0**21
    hidden = hidden_variance(replace(protocol, noise=None, grid=0.0))
    assert hidden * (1 - 1e-9) < hidden_variance(protocol) <= hidden
    # Bounds of a coordinate are no multiples of five steps: records are rounded towards zero and stay inside.
    inside = plan.admit(np.full(3, 1.0)).vector
    assert (inside <= plan.input_domain.largest).all()
    assert on_grid(inside, plan.value_step)


def test_injections_that_are_not_whole_are_refused_on_the_grid() -> None:
    halves = {"c": [0.5, 0.25, 0.25], "Z": [[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]}
    refused(r"not a whole \(c, Z\) of determinant 1 or -1", calibrate, TARGET, IncA.read({"injection": halves}))
    raw = {"rounds": 2, "sigma_star": 1.0, "sigma_delta": 3.0, "injection": halves}
    discrete = {"noise": "discrete", "grid": 2.0**-20, "dimension": 1}
    refused("Choose early or incremental", lambda: IncA.read({**raw, **discrete}).resolved(4))
    assert IncA.read(raw).resolved(4).grid == 0.0
    doubled = {"c": [1.0, 0.0, 0.0], "Z": [[2.0, 0.0], [-2.0, 1.0], [0.0, -1.0]]}
    refused("determinant", lambda: IncA.read({**raw, **discrete, "injection": doubled}).resolved(4))
    whole = {"c": [2.0, -1.0, 0.0], "Z": [[1.0, 0.0], [3.0, 1.0], [-4.0, -1.0]]}
    assert IncA.read({**raw, **discrete, "injection": whole}).resolved(4).portions == 1


def test_files_of_before_keep_their_float64_noise() -> None:
    """A grid with 32 bits and no word of noise is rounded float64 noise."""
    raw = {"rounds": 3, "sigma_star": 1.0, "sigma_delta": 3.0, "value_bits": 32, "grid": 2.0**-20, "largest_value": 10.0}
    old = IncA.read({**raw, "dimension": 2}).resolved(4)
    assert not old.whole
    assert old.injection == "incremental"
    assert any(
        "rounding to float64 is not counted" in note.text
        for note in Execution(old, old.draw_schedule(4, insecure_seed(1)), ExecutionTrace.everyone(3, 4), 1.0, np.ones(4))
        .privacy(1e-6)
        .terms.conversion.notes
    )
    assert IncA.read({**raw, "dimension": 2, "noise": "discrete"}).resolved(4).whole


@pytest.mark.slow
def test_the_grid_is_a_power_of_two_far_below_the_noise_and_in_the_plan() -> None:
    plan = planned(value_bits=32)
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again.digest == plan.digest
    assert again.grid == plan.grid == 2.0 ** round(math.log2(plan.grid))
    # Room for the cancelled noise, some twenty times as large here, and eight times that, takes the step some powers of two up.
    protocol = inca(plan.protocol)
    assert plan.grid <= 8 * FINE * min(protocol.sigma_star, protocol.sigma_delta)
    floats = inca(planned(value_bits=32, noise="insecure-float64").protocol)
    assert floats.grid <= 2 * FINE * min(floats.sigma_star, floats.sigma_delta)
    assert protocol.largest_value >= TARGET.sensitivity
    assert protocol.dimension == 3


@pytest.mark.parametrize(("star", "delta"), [(1.0, 0.1), (1.0, 3.0), (0.01, 5.0), (1e6, 1e6)])
def test_there_is_room_for_values_and_noise(star: float, delta: float) -> None:
    for largest in (0.0, 0.5 * star, 40.0 * star):
        found = chosen(star, delta, largest, replace(TARGET, sensitivity=star))
        room = 2**31 * 2 * found.grid
        assert found.largest_value >= max(largest, star)
        assert room >= 8 * (found.largest_value + 12 * held_deviation(found)) * (1 - 1e-6)
        if largest:
            assert room / 2 < 8 * (largest + 12 * held_deviation(found)), "a finer grid has room, too"
    assert held_deviation(found) == pytest.approx(math.sqrt(star**2 + 2 * delta**2))


def test_a_grid_too_coarse_for_the_noise_is_refused() -> None:
    refused(r"values of 1e\+06 make a grid of 0.00195312, too coarse beside noise of 1", chosen, 1.0, 1.0, 1e6)
    assert chosen(1.0, 1.0, 1e5).grid <= COARSEST


@refused_rows("fields_that_do_not_fit_together")
def test_fields_that_do_not_fit_together(fields: dict[str, Any], words: str) -> None:
    inca = {"rounds": 3, "sigma_star": 1.0, "sigma_delta": 1.0, **fields}
    refused(words.replace(".", r"\."), lambda: IncA.read(inca).resolved(5))
    if "dimension" not in fields:
        refused(words.replace(".", r"\."), lambda: get_protocol("gossip").read({"rounds": 3, **fields}).resolved(5))


@pytest.mark.slow
def test_whether_there_is_room_depends_on_the_domain_and_the_weight_and_not_on_the_value() -> None:
    plan = planned(value_bits=32, largest_value=2.0)
    records = replace(plan, target=replace(plan.target, unit=PrivacyUnit.RECORD))
    largest = inca(plan.protocol).largest_value
    noise = InsecurePopulationNoise(0, 6)
    value = np.array([0.0, largest * 1.01, 0.0])
    schedule = plan.schedule(insecure_seed(1))
    plan.machine(schedule, 0, plan.admit(value), noise.party(0))
    weight = 1.01 * largest / plan.input_domain.largest
    for any_value in (value, np.zeros(3)):
        refusal = refused("Plan with the option largest_value", records.admit, any_value, weight)
    assert f"{value[1]:g}" not in refusal
    refused(r"shape \(4,\), but the plan is for 3 coordinates", plan.admit, np.zeros(4))
    with pytest.raises(InputError, match=r"a value has 4 coordinates, and the plan is for 3\. Plan for 4"):
        plan.protocol.TRAITS.inputs.check(plan.protocol, np.zeros(4))
    floats = planned(noise="insecure-float64").protocol
    floats.TRAITS.inputs.check(floats, 1e9 * value)


@pytest.mark.slow
def test_predicted_bytes() -> None:
    """Five others hear the release; each of four rounds has one message."""
    options: tuple[dict[str, Any], ...] = ({"noise": NoiseNumbers.INSECURE_FLOAT64, "injection": "early"}, {"value_bits": 32})
    plain, short = (rank(TARGET, [IncA(rounds=4, **one)])[0].to_json() for one in options)
    assert plain["bytes_per_party"] - short["bytes_per_party"] == (4 + 5) * 3 * 4
    # Other executions are simulated for other noise.
    assert plain["mse"] == pytest.approx(short["mse"], rel=0.01)
    assert 0 < short["grid_over_noise"] <= 8 * FINE
    assert 0 < short["rounding_mu_squared"] < 1e-6
    assert "grid_over_noise" not in plain


@pytest.mark.slow
def test_certificates_count_the_rounding() -> None:
    plan = planned(value_bits=32)
    execution = plan.execution(insecure_seed(3), ExecutionTrace.everyone(4, 6))
    assert not any(
        "in real arithmetic" in note.text or "cut" in note.text for note in execution.privacy(1e-6).terms.conversion.notes
    )
    exact = certificate_of(execution.transcript(), Adversary.collusion({0}), 1.0)
    widened = execution.privacy(1e-6).against({0})
    assert (widened.mu > exact.mu).all()
    np.testing.assert_allclose(widened.mu, exact.mu, rtol=1e-6)
    assert widened.numbers == "upper bound"
    coarse = replace(execution, protocol=replace(inca(plan.protocol), grid=2.0**-5))
    terms = coarse.privacy(1e-6).terms
    extra = replace(execution.privacy(1e-6), terms=terms).against({0}).mu
    assert (extra > 1.05 * exact.mu).all()
    again = Execution.from_json(execution.to_json())
    assert again.privacy(1e-6).terms.conversion.mu(Adversary.collusion({0}), [1], np.full(1, 0.3), 1.0) > 0.3
    refused("dimension is missing", replace(execution, protocol=replace(inca(plan.protocol), dimension=None)).privacy, 1e-6)


@pytest.mark.slow
def test_releases_spread_on_the_grid() -> None:
    """Both ways; push-sum conserves the total to the unit."""
    plan = planned(value_bits=32)
    grid, seed = plan.grid, insecure_seed(2)
    for spread in (plan.dissemination, replace(plan.dissemination, kind="push-sum", rounds=9)):
        study = replace(plan, dissemination=spread)
        releases = [Release(np.array([party, -1.0, 2**20 + party]) * grid, 0.5) for party in range(6)]
        machines = [study.dissemination_machine(party, releases[party], seed) for party in range(6)]
        steps = [machine.start() for machine in machines]
        for _ in range(machines[0].rounds):
            sent: list[Message] = [message for step in steps for message in step.send]
            assert all(on_grid(message.vector, grid) for message in sent)
            inboxes = [[message for message in sent if party in message.recipients] for party in range(6)]
            steps = [
                machine.end_round(step.state, inbox, frozenset().union(*(message.recipients for message in step.send)))
                for machine, step, inbox in zip(machines, steps, inboxes, strict=True)
            ]
        results = [step.release.vector for step in steps if step.release is not None]
        total = sum(release.vector for release in releases)
        found = results[0] if spread.kind == "broadcast" else sum(results)
        np.testing.assert_array_equal(found, total)


@pytest.mark.slow
def test_study_files_take_the_options() -> None:
    raw = {"column": [{"name": "age", "low": 0, "high": 100}], "options": {"value_bits": 32, "rounds": 3, "largest_value": 50.0}}
    plan = StudyTerms.parse(raw).plan(4)
    assert plan.grid > 0
    assert inca(plan.protocol).largest_value >= 50.0
    refused("value_bits", StudyTerms.parse({**raw, "options": {"value_bits": "32"}}).plan, 4)


@pytest.mark.sampled(1)
@refused_rows("bad_options_of_commands")
@pytest.mark.parametrize("command", ["plan", "run"])
def test_bad_options_of_commands(
    command: str, extra: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("age\n" + "".join(f"{20 + row}\n" for row in range(12)))
    start = {
        "plan": ["plan", "--protocol", "inca"],
        "run": ["run", "--data", str(table), "mean(age in 0..100)"],
    }
    fails([*start[command], "--parties", "4", "--with", "rounds=3", *extra], capsys, words)


@pytest.mark.slow
def test_plan_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--parties", "4", "--with", "rounds=3", "--protocol", "inca", "--json"]
    main(["plan", *arguments, "--with", "value-bits=32", "--with", "largest-value=7"])
    candidate = msgspec.json.decode(capsys.readouterr().out)["candidates"][0]
    assert candidate["parameters"]["value_bits"] == 32
    assert candidate["parameters"]["largest_value"] >= 7
