"""The attack on the real machines: close to the certificate, never above it, and it notices a wrong build.

Seeds are fixed; every test states how often it fails on correct code if they change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from quietmean.cli.main import main
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Message, NoiseSource, PartyId, PartyMachine, Step, Vector
from quietmean.privacy import Adversary
from quietmean.privacy.conversion import delta_of_mu
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.push_sum import PushSumParty, PushSumState
from quietmean.randomness.insecure import InsecureSilence
from quietmean.simulation import attack
from quietmean.simulation.audit import FLAG_BELOW, _Counts, _noticed, _p_gaussian
from quietmean.testing import example_execution

TRIALS, SEED = 100_000, 20_261_122
Machine = Callable[[PartyId, Vector, NoiseSource], PartyMachine[Any]]

# mu is about 0.5 to 2 in all of them; with dropouts, lost rounds, weights of the mixing, interception.
CASES = {
    "inca": (example_execution("inca", 12, rounds=6, sigma_star=0.6, sigma_delta=2.0), 3, Adversary.collusion({0, 4})),
    "inca, early, two neighbours": (
        example_execution("inca", 9, 2, rounds=5, sigma_star=0.4, sigma_delta=1.5, injection="early", out_degree=2),
        5,
        Adversary.collusion({2, 7, 8}),
    ),
    "inca, dropouts, interception": (
        example_execution("inca", 10, 1, rounds=6, sigma_star=0.5, sigma_delta=1.0, permanent=0.2, temporary=0.2),
        3,
        Adversary(frozenset({0}), frozenset({(1, 0), (6, 2)})),
    ),
    "local-dp": (example_execution("local-dp", 5, sigma=2.0), 1, Adversary.collusion({0, 4})),
    "central-dp": (example_execution("central-dp", 6, sigma=1.0), 3, Adversary.collusion({4})),
}


class _Scaled(InsecureSilence):
    def __init__(self, noise: NoiseSource, factor: float) -> None:
        self._noise, self._factor = noise, factor

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return self._noise.normal(purpose, index, dimension) * self._factor


def scaled(execution: Execution, factor: float) -> Machine:
    """Machines whose noise has another standard deviation than they declare."""
    return lambda party, value, noise: execution.machine(party, value, _Scaled(noise, factor))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_comes_close_to_the_certificate_and_stays_below(name: str) -> None:
    """mu_lower <= certified fails with probability 2.5 %, >= 0.9 of it with less than 1e-6 for mu >= 0.45; the flag with 1e-6."""
    execution, target, adversary = CASES[name]
    result = attack(execution, target, adversary, trials=TRIALS, seed=SEED)
    print(name, result)
    assert 0.45 < result.mu_certified < 2.5
    assert 0.9 * result.mu_certified <= result.mu_lower <= result.mu_certified
    assert 0 < result.epsilon_lower <= result.epsilon_certified
    assert abs(result.mu_estimate - result.mu_certified) < stats.norm.isf(5e-7) * result.mu_standard_error
    assert not result.flagged


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_flags_a_build_with_too_little_noise(name: str) -> None:
    """0.8 of the declared noise at p < 1e-6. More noise than declared is not flagged."""
    execution, target, adversary = CASES[name]
    wrong = attack(execution, target, adversary, trials=TRIALS, seed=SEED, machine=scaled(execution, 0.8))
    assert wrong.flagged
    assert wrong.p_value_exceeds < FLAG_BELOW == 1e-6
    assert wrong.mu_estimate == pytest.approx(wrong.mu_certified / 0.8, rel=0.05)
    more = attack(execution, target, adversary, trials=20_000, seed=SEED, machine=scaled(execution, 1.25))
    assert more.p_value_exceeds > 0.5


@pytest.mark.slow
def test_bounds_hold_as_often_as_they_say() -> None:
    """400 attacks of 1000 trials on mu = 1: both bounds hold in 95 %; wrongly rejected with probability below 1e-6."""
    execution = example_execution("local-dp", 2, sigma=1.0)
    results = [attack(execution, 0, Adversary(), trials=1000, seed=seed, delta=1e-3) for seed in range(400)]
    wrong = sum(result.mu_lower > 1.0 or result.epsilon_lower > result.epsilon_certified for result in results)
    assert wrong <= stats.binom.isf(1e-6, len(results), 0.05)
    # The p-value is valid: not below u more often than u. At u = 0.1, again with error rate 1e-6.
    assert sum(result.p_value_exceeds < 0.1 for result in results) <= stats.binom.isf(1e-6, len(results), 0.1)
    # The test proper, without its factor of two, is uniform: Kolmogorov-Smirnov, error rate 1e-6.
    exact = [_p_gaussian(result.mu_estimate, 1.0, 1000) for result in results]
    assert stats.kstest(exact, "uniform").pvalue > 1e-6


@pytest.mark.slow
def test_the_power_is_what_it_says() -> None:
    """200 attacks of 1000 trials: a leak as large as "would be noticed" is flagged in 90 %; a right build shows what it can."""
    execution = example_execution("local-dp", 2, sigma=1.0)
    real = _noticed(1.0, 1000)
    leaky = [
        attack(execution, 0, Adversary(), trials=1000, seed=seed, delta=1e-3, machine=scaled(execution, 1 / real))
        for seed in range(200)
    ]
    flagged = sum(result.flagged for result in leaky)
    # Both ends with an error rate of 1e-6.
    assert stats.binom.ppf(1e-6, len(leaky), 0.9) <= flagged <= stats.binom.isf(1e-6, len(leaky), 0.9)
    assert leaky[0].power.epsilon_noticed == pytest.approx(execution.privacy(1e-3).epsilon(real), rel=1e-6)
    right = [attack(execution, 0, Adversary(), trials=1000, seed=seed, delta=1e-3) for seed in range(40)]
    # At most about that much: never by more than a tenth, and half of it is usual.
    found = np.array([result.epsilon_lower for result in right]) / right[0].power.epsilon_found
    print(np.sort(found))
    assert found.max() <= 1.1
    assert np.median(found) >= 0.5
    assert right[0].power.epsilon_found < right[0].closer.epsilon_found < right[0].epsilon_certified
    assert right[0].epsilon_certified < right[0].closer.epsilon_noticed < right[0].power.epsilon_noticed


def test_the_gaussian_test_agrees_with_the_noncentral_t_distribution() -> None:
    for mu, excess in ((0.3, 0.1), (1.0, 0.2), (2.0, 0.35), (1.0, 0.5)):
        scale = math.sqrt(500 / 2)
        exact = float(stats.nct.sf((mu + excess) * scale, 998, mu * scale))
        assert _p_gaussian(mu + excess, mu, 500) == pytest.approx(exact, rel=0.1)


def test_lower_bounds_follow_from_the_error_rates() -> None:
    """Two thresholds, 1000 trials; by hand with Clopper and Pearson's bounds."""
    counts = _Counts(1000, np.array([100, 0]), np.array([200, 1000]))
    mu, epsilon = counts.lower_bounds(0.05, 1e-3)
    positive, negative = (float(stats.beta.isf(0.0125, a, 1001 - a)) for a in (101, 201))
    assert mu == pytest.approx(stats.norm.isf(positive) - stats.norm.ppf(negative))
    positive, negative = (float(stats.beta.isf(0.05 / 8, a, 1001 - a)) for a in (101, 201))
    assert epsilon == pytest.approx(math.log(max((1 - 1e-3 - negative) / positive, (1 - 1e-3 - positive) / negative)))


def test_noise_that_is_not_gaussian_is_caught_by_its_error_rates() -> None:
    """Uniform noise of the declared variance: the means are no farther apart, but tails give values away."""
    execution = example_execution("local-dp", 2, sigma=1.0)

    class Uniform(InsecureSilence):
        def __init__(self, noise: NoiseSource) -> None:
            self._noise = noise

        def normal(self, purpose: str, index: int, dimension: int) -> Vector:
            uniform: Vector = stats.norm.cdf(self._noise.normal(purpose, index, dimension))
            return (uniform - 0.5) * math.sqrt(12)

    wrong = attack(
        execution,
        0,
        Adversary(),
        trials=TRIALS,
        seed=SEED,
        machine=lambda p, value, noise: execution.machine(p, value, Uniform(noise)),
    )
    assert wrong.mu_estimate == pytest.approx(1.0, rel=0.02)
    assert wrong.epsilon_lower > wrong.epsilon_certified
    assert wrong.flagged


def test_values_in_the_clear_are_told_apart_perfectly() -> None:
    execution = example_execution("gossip", 5, rounds=3)
    result = attack(execution, 3, Adversary.collusion({4}), trials=TRIALS, seed=SEED)
    assert math.isinf(result.mu_certified)
    assert math.isinf(result.mu_estimate)
    assert 7.5 < result.mu_lower < 9
    assert 9 < result.epsilon_lower < 12
    assert result.false_positive_rate == result.false_negative_rate == 0
    assert not result.flagged, "a certificate that promises nothing cannot be broken"


def test_machines_without_noise_break_a_finite_certificate() -> None:
    execution, target, adversary = CASES["inca"]
    result = attack(execution, target, adversary, trials=1000, seed=SEED, machine=scaled(execution, 0.0))
    assert result.flagged
    assert result.mu_lower > result.mu_certified


def test_who_leaves_no_trace_cannot_be_attacked() -> None:
    execution = example_execution("central-dp", 4, sigma=1.0)
    trace = type(execution.trace)(np.array([[True] * 4, [True, False, True, True]]))
    result = attack(execution.with_trace(trace), 1, Adversary.collusion({2}), trials=1000)
    assert result.mu_certified == result.mu_lower == result.epsilon_lower == result.mu_estimate == 0
    assert result.p_value_exceeds == 1


class _Talkative(PushSumParty):
    """Sends its first message to everybody."""

    def start(self) -> Step[PushSumState]:
        step = super().start()
        return Step(step.state, (*step.send, *(_to_all(message) for message in step.send)))


def _to_all(message: Message) -> Message:
    return Message(message.sender, message.recipients, message.round, message.vector * 2, message.weight)


class _Hasty(PushSumParty):
    """Injects half of its value more than declared."""

    def start(self) -> Step[PushSumState]:
        step = super().start()
        message = step.send[0]
        louder = Message(message.sender, message.recipients, 1, message.vector + self._noisy_value * 0.5, message.weight)
        return Step(step.state, (louder,))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (_Talkative, "shows the adversary a message in round 1 that the protocol does not declare"),
        (_Hasty, "holds 0.571429 of the target's value, and the protocol declares 0.0714286"),
    ],
)
def test_machines_that_send_something_else_are_not_what_was_certified(build: type[PushSumParty], words: str) -> None:
    execution, _, _ = CASES["inca"]
    protocol, receiver = execution.protocol, execution.schedule.recipients(1, 3)[0]
    assert isinstance(protocol, IncA)

    def machine(party: PartyId, value: Vector, noise: NoiseSource) -> PushSumParty:
        return build(protocol, execution.schedule, party, value, 1.0, noise)

    with pytest.raises(ProtocolFailure, match=words):
        attack(execution, 3, Adversary.collusion({receiver}), trials=1000, machine=machine)


@pytest.mark.slow
def test_trials_in_blocks_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, each with noise of its own: 5 standard errors, error rate below 1e-6."""
    monkeypatch.setattr("quietmean.simulation.adversary_view._BLOCK", 12 * 1500)
    execution, target, adversary = CASES["inca"]
    result = attack(execution, target, adversary, trials=20_000, seed=SEED)
    assert abs(result.mu_estimate - result.mu_certified) < 5 * result.mu_standard_error


def test_refuses_what_makes_no_sense() -> None:
    execution, _, adversary = CASES["inca"]
    dropped = CASES["inca, dropouts, interception"][0]
    gone = int(np.nonzero(~dropped.trace.finished)[0][0])
    wrong: list[tuple[Execution, int, Adversary, dict[str, Any], str]] = [
        (execution, 4, adversary, {}, "target 4 is corrupt"),
        (execution, 12, adversary, {}, "Choose one of 0..11"),
        (execution, -1, adversary, {}, "target -1"),
        (execution, 3, Adversary.collusion({99}), {}, "corrupt party 99"),
        (execution, 3, adversary, {"trials": 99}, "99 trials"),
        (execution, 3, adversary, {"delta": 0.0}, "delta is 0"),
        (execution, 3, adversary, {"workers": 0}, "workers are 0"),
        (dropped, 3, Adversary(frozenset(), frozenset({(gone, 5)})), {}, "Leave .* out"),
    ]
    for where, target, who, options, words in wrong:
        with pytest.raises(InputError, match=words):
            attack(where, target, who, **options)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execution, target, _ = CASES["inca"]
    path, seen = tmp_path / "execution.json", tmp_path / "seen.json"
    execution.save(path)
    seen.write_text("[[1, 2]]")
    common = ["verify", "attack", str(path), "--target", str(target), "--corrupt", "0,4", "--trials", "2000"]
    main([*common, "--observed", str(seen), "--delta", "1e-5", "--seed", "7", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["delta"] == 1e-5
    assert document["corrupt"] == [0, 4]
    assert document["mu_lower"] <= document["mu_certified"]
    assert delta_of_mu(document["mu_certified"], document["epsilon_certified"]) == pytest.approx(1e-5, rel=1e-6)
    assert not document["flagged"]
    main(common)
    words = capsys.readouterr().out
    assert words.count("\n") <= 7
    assert max(map(len, words.splitlines())) <= 80
    assert "OK  no contradiction" in words
    main([*common, "--details"])
    words = " ".join(capsys.readouterr().out.split())
    assert "nothing contradicts the certificate" in words
    assert f"if the promise is kept, {document['power']['trials']:,} runs find epsilon" in words
    for extra, word in (
        (["--target", "0", "--corrupt", "0"], "target 0 is corrupt"),
        (["--target", "3", "--trials", "9"], "9 trials"),
        (["--target", "3", "--corrupt", "x"], "not one of the parties"),
        (["--target", "3", "--observed", str(path)], "list of [party, round]"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["verify", "attack", str(path), *extra])
        assert stop.value.code == 2
        assert word in capsys.readouterr().err


def test_same_seed_same_attack() -> None:
    execution, target, adversary = CASES["central-dp"]
    first, again, other = (attack(execution, target, adversary, trials=500, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.mu_estimate != other.mu_estimate


@pytest.mark.slow
def test_echo_subtracts_exactly_what_the_coalition_adds() -> None:
    """Everybody but the target colludes: mu is that of the target's own noise, whatever the others add."""
    execution = example_execution("inca", 6, rounds=4, sigma_star=1.0, sigma_delta=50.0)
    result = attack(execution, 2, Adversary.everyone_but(2, 6), trials=TRIALS, seed=SEED)
    assert result.mu_certified == pytest.approx(1.0)
    assert abs(result.mu_estimate - 1.0) < 5 * result.mu_standard_error
