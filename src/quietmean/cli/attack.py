"""``quietmean attack``: attack an execution in the best possible way, and compare the outcome with its certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from quietmean.cli.adversary import names_in, parse_parties, parse_party, party_text, read_observations
from quietmean.cli.certify import DELTA
from quietmean.cli.console import out, print_json, progress
from quietmean.cli.newest import execution_or_newest
from quietmean.core.file_kinds import FileKind
from quietmean.core.json_file import read_json
from quietmean.core.readable import epsilon_text
from quietmean.protocols.fields import Hints

if TYPE_CHECKING:
    from quietmean.simulation import AttackResult


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
        How many processes of this machine try; or the address of a Dask scheduler, such as tcp://host:8786.
    """

    trials: int = 100_000
    seed: int = 0
    workers: str = "1"


def attack_command(
    execution: Path | None = None,
    *,
    target: str,
    corrupt: str = "",
    observed: Path | None = None,
    how: TrialOptions = TrialOptions(),
    delta: float | None = None,
    json: bool = False,
) -> None:
    """Attack one party of an execution: run its real party machines many times and try to tell two values apart.

    The attack is the best there is against this adversary. What it achieves bounds the privacy loss from below; the certificate
    bounds it from above. The noise is fresh and can be guessed from --seed; no private value is needed.

    Parameters
    ----------
    execution
        Execution file or receipt (JSON); by default the receipt of the newest run in this folder.
    target
        The party under attack, by its name in the receipt or its number from 0.
    corrupt
        Parties that collude, such as north,east or 0,4,7; default none.
    observed
        JSON file with intercepted messages, a list of [party, round].
    delta
        Bound the epsilon at this delta; default from the receipt, or 1e-6.
    json
        One JSON document on standard output.
    """
    from quietmean.privacy import Adversary
    from quietmean.protocols.execution import Execution
    from quietmean.simulation import attack

    raw = read_json(execution_or_newest(execution), FileKind.RECEIPT, FileKind.SESSION_RECEIPT)
    hinted = Hints.of(raw).delta
    happened = Execution.from_json(raw)
    read = happened.eavesdropper.observed if observed is None else read_observations(observed)
    names = names_in(raw)
    adversary, attacked = Adversary(parse_parties(corrupt, names), read), parse_party(target, names)
    with progress(f"attacking {party_text(attacked, names)}"):
        result = attack(
            happened,
            attacked,
            adversary,
            trials=how.trials,
            seed=how.seed,
            workers=how.workers,
            delta=next(stated for stated in (delta, hinted, DELTA) if stated is not None),
        )
    if json:
        print_json(result.to_json() | {"corrupt": sorted(adversary.corrupt)})
    else:
        _show(result, names)


def _show(result: AttackResult, names: Sequence[str]) -> None:
    mu, certified = _down(result.mu_lower), result.mu_certified
    out.print(
        f"{party_text(result.target, names)} against {result.adversary}, {result.trials} trials with each of two values: "
        f"mu is at least {mu} ({result.confidence:.0%} confidence), certified is {epsilon_text(certified)}"
    )
    out.print(
        f"epsilon at delta {result.delta:g} is at least {_down(result.epsilon_lower)}, certified is "
        f"{epsilon_text(result.epsilon_certified)}"
    )
    if result.flagged:
        out.print(f"this build leaks more than its certificate says (p = {result.p_value_exceeds:.2g})", style="red")
    elif math.isinf(certified):
        out.print("the certificate promises nothing here, and the attack can only show as much as its trials allow")
    else:
        out.print(f"nothing contradicts the certificate (p = {result.p_value_exceeds:.2g})")


def _down(value: float) -> str:
    """A lower bound stays one."""
    return f"{math.floor(value * 1e4) / 1e4:.4f}"
