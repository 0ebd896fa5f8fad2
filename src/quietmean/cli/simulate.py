"""``quietmean simulate`` and ``quietmean verify attack``: runs of a plan on a simulated population, attacks on executions."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from quietmean.cli.common import execution_or_newest
from quietmean.cli.console import NO, OK, print_json, print_lines, progress
from quietmean.cli.screens import BELOW, rows, show_first, unit_of
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_file, read_as, read_json
from quietmean.core.party import PartyId
from quietmean.core.readable import (
    ShortFact,
    count_of,
    epsilon_shown,
    epsilon_text,
    error_text,
    for_terminal,
    number_text,
    some_of,
)
from quietmean.planning.plan import Plan
from quietmean.privacy import Adversary
from quietmean.privacy.coalitions import Effort
from quietmean.privacy.guesses import guess_text, says_nothing
from quietmean.protocols.execution import Execution
from quietmean.protocols.fields import Hints
from quietmean.randomness import Seed
from quietmean.simulation import attack, simulate

if TYPE_CHECKING:
    from quietmean.privacy import PrivacyAnalysis
    from quietmean.simulation import AttackResult, SimulationResult


def simulate_command(
    plan: Path,
    *,
    runs: int = 1000,
    seed: int = 0,
    dropouts: float | None = None,
    gate: bool = False,
    workers: str = "1",
    details: bool = False,
    json: bool = False,
) -> None:
    """Simulate independent runs of a plan on random values: mean squared error against the prediction.

    Parameters
    ----------
    plan
        Plan file, from quietmean plan --out.
    runs
        Number of independent runs. Each has its own schedule, dropouts, values and noise.
    seed
        The same seed gives the same runs.
    dropouts
        Fraction of parties that leave and do not return. Default as planned.
    gate
        Check each run before its release, as parties do. This takes far longer.
    workers
        How many processes of this machine share the work; or the address of a Dask scheduler, such as tcp://host:8786.
    details
        Also show the mean squared errors.
    json
        One JSON document on standard output.
    """
    loaded, began = Plan.from_json(read_json(plan, FileKind.PLAN)), time.monotonic()
    with progress("simulating") as line:
        result = simulate(
            loaded,
            runs=runs,
            seed=seed,
            dropouts=dropouts,
            gate=gate,
            workers=workers,
            progress=lambda done: line.say(f"simulating: {done} of {runs} runs"),
        )
    document = {
        "protocol": loaded.protocol.name,
        "seed": seed,
        "dropouts": loaded.target.dropouts if dropouts is None else dropouts,
        **result.to_json(),
    }
    if json:
        print_json(document)
        return
    show_first(_simulated(loaded, result, seed, time.monotonic() - began), details, lambda: print_lines([_squared(result)]))


def _squared(result: SimulationResult) -> str:
    return (
        f"mean squared error {result.mse:.5g} per coordinate (standard error {result.mse_standard_error:.2g}) "
        f"over {len(result.errors)} runs (predicted {result.prediction:.5g})"
    )


def _simulated(plan: Plan, result: SimulationResult, seed: int, seconds: float) -> list[str]:
    """The first screen of a simulation: its error beside the predicted one, and which runs have no result."""
    of = f"{count_of(plan.target.parties, 'party', 'parties')}, {plan.protocol.name}"
    lines = [f"{count_of(result.runs, 'run')} of {of}, on random values, {seconds:.0f} s"]
    if len(result.estimates):
        # The standard error of a root.
        error = math.sqrt(result.mse)
        spread = result.mse_standard_error / (2 * error) if error > 0 else 0.0
        predicted = math.sqrt(result.prediction) if result.prediction >= 0 else math.nan
        of_one = plan.input_domain.text.replace("1 coordinate", "one number")
        facts = [
            ShortFact(
                "error",
                f"{for_terminal(number_text(error, spread))} root mean squared (standard error {error_text(spread)}), {of_one}",
            )
        ]
        facts.append(ShortFact("predicted", "nothing" if math.isnan(predicted) else for_terminal(number_text(predicted, spread))))
        if spread > 0 and math.isfinite(predicted):
            away = (result.mse - result.prediction) / result.mse_standard_error
            facts.append(ShortFact("apart", f"{abs(away):.1f} standard errors{verdict(away, seed)}"))
        lines += rows(facts)
    refused = "" if result.refused is None else f", {result.refused} of them by the gate"
    lines.append(f"Without a result: {result.failed} of {count_of(result.runs, 'run')}{refused}.")
    return [*lines, *(f"{BELOW}{count} failed: {why}" for why, count in result.failures.items())]


# So many standard errors apart are usual by chance, and what is rarer than once in so many times cannot be distinguished.
_USUAL, _RAREST = 2.0, 1e6


def verdict(away: float, seed: int) -> str:
    """Whether a prediction holds that is so many standard errors ``away``, in words; where it may not, what to do."""
    if abs(away) <= _USUAL:
        return f": agrees with the prediction ({_USUAL:g} or less)"
    chance = math.erfc(abs(away) / math.sqrt(2))
    odds = f"1 in {float(f'{1 / chance:.1g}'):,.0f}" if chance * _RAREST > 1 else f"1 in {_RAREST:,.0f} or less"
    than = "larger" if away > 0 else "smaller"
    return (
        f", {than} than predicted: rare by chance (about {odds}). Repeat with --seed {seed + 1}. If it stays above {_USUAL:g}, "
        "the prediction does not hold."
    )


DELTA = 1e-6
# Seconds of one core.
EFFORT = 180.0
# The most parties that an error names.
_MOST_NAMED = 8


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AdversaryOptions:
    """Against whom: one adversary, or every coalition of a size.

    Parameters
    ----------
    corrupt
        Parties that collude, by their names in the receipt or their numbers, such as north,east or 0,4,7. An empty text ("")
        means none.
    observed
        JSON file with the intercepted messages: a list of [party, round].
    observe_fraction
        Instead, count each message as intercepted with this probability.
    seed
        Seed of the interception; default 0.
    colluding
        How many parties collude. Default: from the receipt, or one party in ten.
    effort
        The most seconds of one core for trying all coalitions, as estimated beforehand. Beyond that, the answer is an upper
        bound. Default 180.
    workers
        How many processes of this machine share the work, default 1; or the address of a Dask scheduler, such as
        tcp://host:8786.
    """

    corrupt: str | None = None
    observed: Path | None = None
    observe_fraction: float | None = None
    seed: int | None = None
    colluding: int | None = None
    effort: float | None = None
    workers: str | None = None

    @property
    def explicit(self) -> bool:
        """One adversary rather than every coalition."""
        return any(value is not None for value in (self.corrupt, self.observed, self.observe_fraction))

    def given(self) -> dict[str, Any]:
        """What was given, by the name of its option."""
        return {name.replace("_", "-"): value for name, value in vars(self).items() if value is not None}

    def require_effect(self, *, matrix: bool) -> None:
        """Raises :class:`InputError` for options of the other way to certify; ``matrix`` is about one adversary."""
        of_coalitions = [name for name in ("colluding", "effort", "workers") if name in self.given()]
        of_one = ["matrix"] if matrix else []
        if useless := (of_coalitions if self.explicit else of_one):
            here, needed = ("with", "without") if self.explicit else ("without", "with")
            raise InputError(
                f"--{useless[0]} has no effect {here} an adversary of --corrupt, --observed or --observe-fraction. Leave it out, "
                f"or type verify receipt {needed} one."
            )
        self.allowed()
        if self.seed is not None and self.observe_fraction is None:
            raise InputError(f"seed {self.seed} has no effect without --observe-fraction. Leave it out, or give that too.")

    def allowed(self) -> Effort:
        """What trying all coalitions may take. Raises :class:`InputError` for impossible numbers."""
        return Effort(EFFORT if self.effort is None else self.effort, 1 if self.workers is None else self.workers)

    def adversary(self, analysis: PrivacyAnalysis, names: Sequence[str] = ()) -> Adversary:
        """The adversary that was named; ``names``: of the parties, where the file has them.

        Messages that are named, or drawn, stand in place of those that the target says are read.
        """
        unsaid = self.observed is None and self.observe_fraction is None
        read = analysis.terms.eavesdropper.observed if unsaid else read_observations(self.observed)
        corrupt = parse_parties(self.corrupt or "", names)
        if self.observe_fraction is not None:
            seed = Seed.public("observe", self.seed or 0)
            read |= Adversary.random_eavesdropper(self.observe_fraction, analysis.transcript, seed).observed
        return Adversary(corrupt, read)


def parse_parties(text: str, names: Sequence[str] = ()) -> frozenset[PartyId]:
    """Parties from a text such as "0,4,7" or "north,east"; ``names``: of the parties, where the file has them.

    Raises :class:`InputError` for anything else.
    """
    return frozenset(parse_party(part.strip(), names) for part in text.split(",") if part.strip())


def parse_party(text: str, names: Sequence[str] = ()) -> PartyId:
    """A party by its name, or by its number from 0. Raises :class:`InputError` for anything else."""
    if text in names:
        return names.index(text)
    with suppress(ValueError):
        return int(text)
    there = f"the file names {some_of(names, _MOST_NAMED)}" if names else "the file has no names, give numbers such as 0,4,7"
    raise InputError(f"{text!r} is not one of the parties: {there}")


def party_text(party: PartyId, names: Sequence[str]) -> str:
    """What a party is called: by its name, where the file has one."""
    return names[party] if party < len(names) else f"party {party}"


def names_in(raw: Mapping[str, Any]) -> list[str]:
    """Return the names of the parties in a receipt; none where it has no name for each."""
    origin = raw.get("origin")
    names = origin.get("names") if isinstance(origin, Mapping) else None
    return [str(name) for name in names] if isinstance(names, list) and len(names) == raw.get("parties") else []


def read_observations(path: Path | None) -> frozenset[tuple[PartyId, int]]:
    """Intercepted messages (party, round) from a JSON file; none without a file. Raises :class:`InputError` for other content."""
    if path is None:
        return frozenset()

    def unreadable(reason: str) -> InputError:
        if (kind := kind_of_file(path)) is not None:
            advice = kind.advice(str(path)) or " Give a JSON file with that list."
            return InputError(f"file {path} holds {kind.words}, not a list of [party, round].{advice}")
        return InputError(f"file {path} cannot be read as a list of [party, round] ({reason}). Correct it.")

    return frozenset(read_as(path, list[tuple[int, int]], unreadable))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """How often it is tried, and who does it.

    Parameters
    ----------
    trials
        Trials with each of the two values.
    seed
        The same seed gives the same trials.
    workers
        How many processes of this machine share the work; or the address of a Dask scheduler, such as tcp://host:8786.
    """

    trials: int = 100_000
    seed: int = 0
    workers: str = "1"


def attack_command(
    execution: Path | None = None,
    *,
    target: str | None = None,
    corrupt: str | None = None,
    observed: Path | None = None,
    how: TrialOptions = TrialOptions(),
    delta: float | None = None,
    details: bool = False,
    json: bool = False,
) -> None:
    """Attack one party of an execution: run its real party machines many times and try to tell two values apart.

    The attack is the best there is against this adversary. What it achieves bounds the privacy loss from below; the certificate
    bounds it from above. The noise is fresh and can be guessed from --seed; no private value is needed.

    Parameters
    ----------
    execution
        A receipt or execution file (JSON). Default: the receipt of the newest run in this folder.
    target
        The party under attack, by its name in the receipt or its number from 0. Default: the first party.
    corrupt
        Parties that collude, such as north,east or 0,4,7. Default: the first others, as many as the promise counts with.
    observed
        JSON file with the intercepted messages: a list of [party, round].
    delta
        Bound the epsilon at this delta. Default: from the receipt, or 1e-6.
    details
        Also show both bounds as mu, and their confidence level.
    json
        One JSON document on standard output.
    """
    raw = read_json(execution_or_newest(execution), FileKind.RECEIPT, FileKind.SESSION_RECEIPT)
    hints = Hints.of(raw)
    happened = Execution.from_json(raw)
    read = happened.eavesdropper.observed if observed is None else read_observations(observed)
    names = names_in(raw)
    named = frozenset[PartyId]() if corrupt is None else parse_parties(corrupt, names)
    able = [party for party in range(happened.parties) if party not in happened.protocol.traits.trusted]
    attacked = next(party for party in able if party not in named) if target is None else parse_party(target, names)
    others = [party for party in able if party != attacked]
    adversary = Adversary(named if corrupt is not None else frozenset(others[: hints.colluding or 0]), read)
    began = time.monotonic()
    with progress(f"attacking {party_text(attacked, names)}"):
        result = attack(
            happened,
            attacked,
            adversary,
            trials=how.trials,
            seed=how.seed,
            workers=how.workers,
            delta=next(stated for stated in (delta, hints.delta, DELTA) if stated is not None),
        )
    if json:
        print_json(result.to_json() | {"corrupt": sorted(adversary.corrupt)})
        return
    screen = _attacked(result, adversary, names, unit_of(raw), time.monotonic() - began)
    show_first(screen, details, lambda: _show(result, names))


def _attacked(result: AttackResult, adversary: Adversary, names: Sequence[str], unit: str, seconds: float) -> list[str]:
    """The first screen of an attack: what it found, what is promised, and what so many trials could have noticed."""
    saw = [" and ".join(party_text(party, names) for party in sorted(adversary.corrupt))] if adversary.corrupt else []
    saw += [count_of(len(adversary.observed), "intercepted message")] if adversary.observed else []
    seen = f"{saw[0]} saw{f' and {saw[1]}' if saw[1:] else ''}" if adversary.corrupt else (saw or ["is published"])[0]
    power, closer, certified = result.power, result.closer, result.epsilon_certified
    lines = [
        f"Attacked {party_text(result.target, names)} with what {seen}, {power.trials:,} runs, {seconds:.0f} s.",
        f"  found     a leak of epsilon {_short(result.epsilon_lower)} or more    promised  at most epsilon "
        + epsilon_shown(certified),
    ]
    p = f"p = {result.p_value_exceeds:.2g}"
    if result.flagged:
        lines.append(f"{NO}This build leaks more than its certificate says ({p}).")
    elif math.isinf(certified):
        lines.append(f"{NO}The certificate promises nothing here, so nothing can contradict it.")
    elif says_nothing(certified):
        lines.append(f"{NO}The promise is not contradicted ({p}), but it hides hardly anything.")
    else:
        lines.append(f"{OK}no contradiction ({p}). An attack that finds nothing proves nothing.")
    if not math.isinf(certified):
        lines.append(f"{BELOW}Promised: {guess_text(certified, result.delta, unit)}")
    if not math.isinf(power.epsilon_noticed):
        lines.append(
            f"{BELOW}If epsilon {epsilon_shown(power.epsilon_noticed)} leaks, 9 of 10 attacks notice it "
            f"(--trials {closer.trials}: {epsilon_shown(closer.epsilon_noticed)})."
        )
    return lines


def _short(bound: float) -> str:
    """A lower bound to two significant digits, rounded down."""
    if not 0 < bound < math.inf:
        return "inf" if bound > 0 else "0"
    unit = 10.0 ** (math.floor(math.log10(bound)) - 1)
    return f"{math.floor(bound / unit + 1e-9) * unit:.2g}"


def _show(result: AttackResult, names: Sequence[str]) -> None:
    mu, certified = _down(result.mu_lower), result.mu_certified
    print_lines(
        [
            f"{party_text(result.target, names)} against {result.adversary}, {result.trials} trials with each of two values: "
            f"mu is at least {mu} ({result.confidence:.0%} confidence), certified is {epsilon_text(certified)}",
            f"epsilon at delta {result.delta:g} is at least {_down(result.epsilon_lower)}, certified is "
            f"{epsilon_text(result.epsilon_certified)}",
        ]
    )
    if result.flagged:
        print_lines([f"this build leaks more than its certificate says (p = {result.p_value_exceeds:.2g})"], style="red")
    elif math.isinf(certified):
        print_lines(["the certificate promises nothing here, and the attack can only show as much as its trials allow"])
    else:
        print_lines([f"nothing contradicts the certificate (p = {result.p_value_exceeds:.2g})"])
    power, closer = result.power, result.closer
    most = f"if the promise is kept, {power.trials:,} runs find epsilon {_short(power.epsilon_found)} at most"
    print_lines([f"{most} (--trials {closer.trials}: {_short(closer.epsilon_found)})"])


def _down(value: float) -> str:
    """A lower bound stays one."""
    return f"{math.floor(value * 1e4) / 1e4:.4f}"
