"""A whole study on this machine: run all parties, in this process or as real ones, and conclude."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.blocking import blocking
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import PartyId, Vector
from quietmean.core.readable import count_of
from quietmean.node.local import Kill, LocalOutcome, run_local, run_together
from quietmean.planning.plan import Plan
from quietmean.randomness import BitStream, Seed
from quietmean.statistics import Answer, Encoded, Workload
from quietmean.statistics.kinds.first_look import FirstLook
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import StudyOutcome, StudyRun, conclude_possible, opened_of

Report = Callable[[str, dict[str, Any]], None]


# How long (s) local parties wait in every round for one whose process has ended, at least and for each party: it is never started
# again, and what it had sent is read before they learn that nobody listens at its address.
_GONE, _GONE_EACH = 0.05, 0.0025
# Seconds on one machine: of the start, in which each connects to each, for each pair, and at least. A party that ends before the
# start is noticed at once: what is waited for is the machine, which may have other work.
_PAIR, _START = 0.15, 300.0


def _remark(differing: int, network: LocalOutcome) -> str:
    """Say of how many parties the result is not the one that is shown; empty where all agree."""
    if not differing:
        return ""
    return (
        f"{count_of(differing, 'party', 'parties')} of {len(network.results)} did not receive all releases in time, "
        "on a busy machine for example. They ended with a result of fewer parties. Shown is the one of the most"
    )


def senders(network: LocalOutcome, parties: int) -> str:
    """Whose messages and bytes ``network`` counts, in words: how many a killed party sent nobody knows."""
    finished = len(network.results)
    # A committee's rehearsal has no processes, and counts all files.
    if not finished:
        return "all who took part"
    return f"all {parties} parties" if finished == parties else f"the {finished} parties that finished"


def choose_kills(plan: Plan, dropouts: float) -> list[Kill]:
    """Draw who drops out: each is killed permanently as it enters a random mixing round of a usual run."""
    rounds = plan.protocol.traits.usual_rounds or plan.protocol.rounds
    if rounds == 0:
        return []
    stream = BitStream(Seed.from_os())
    leaving = choose_dropouts(plan, dropouts, stream)
    return [Kill(party, int(last) + 1) for party, last in zip(leaving, stream.integers(rounds, len(leaving)), strict=True)]


def choose_dropouts(plan: Plan, dropouts: float, stream: BitStream) -> list[int]:
    """A fraction of the parties, rounded down, drawn from those that the protocol can do without."""
    staying = plan.protocol.traits.indispensable
    able = [int(party) for party in stream.permutation(plan.target.parties) if int(party) not in staying]
    return able[: int(dropouts * plan.target.parties + 1e-9)]


def run_study(
    study: StudyTerms,
    plan: Plan,
    encoded: Sequence[Encoded],
    names: Sequence[str],
    *,
    kills: Sequence[Kill],
    round_timeout: float | None,
    report: Report,
    processes: bool = False,
) -> StudyRun:
    """Run all parties of ``plan`` in this process, or as ``processes``, and conclude from what the survivors know.

    Processes share this machine: without a ``round_timeout`` it grows with the parties and with how long one takes to start.
    That of the start grows with the pairs of them. In one process nobody waits for a clock.
    """
    parties = len(encoded)
    values: Vector = np.array([part.vector for part in encoded])
    weights = np.array([part.weight for part in encoded])
    # Before any process starts.
    for part in encoded:
        plan.admit(part.vector, part.weight)
    if processes:
        with tempfile.TemporaryDirectory(prefix="quietmean-") as scratch:
            # The temporary keys and the values are deleted with the directory.
            network = blocking(
                run_local(
                    plan,
                    values,
                    Path(scratch) / "parties",
                    weights=weights,
                    round_timeout=round_timeout,
                    start_timeout=max(_START, _PAIR * parties * (parties - 1) / 2),
                    gone_timeout=max(_GONE, _GONE_EACH * parties),
                    kills=kills,
                    report=report,
                )
            )
    else:
        network = run_together(plan, values, weights=weights, kills=kills, report=report)
    shown = max(network.results, key=lambda party: (len(network.results[party].heard), -party))
    result, heard_less = network.results[shown], list[PartyId]()
    # Where every party computes the mean by itself, each has its own rounding, or its own quantisation error.
    if plan.protocol.traits.releases_are_public and plan.dissemination.kind == "broadcast":
        heard_less = [party for party, other in network.results.items() if set(other.heard) != set(result.heard)]
        means = {party: other.mean for party, other in network.results.items() if party not in heard_less}
        apart = [party for party, mean in means.items() if not np.array_equal(mean, result.mean, equal_nan=True)]
        if apart:
            raise ProtocolFailure(f"parties {apart} ended with another result than party {shown}. Run again.")
    execution, opened = opened_of(result, plan)
    outcome = conclude_possible(plan, study.workload, execution, opened, result.gate)
    return run_of(study, plan, encoded, names, outcome, network, _remark(len(heard_less), network))


def run_of(
    study: StudyTerms,
    plan: Plan,
    encoded: Sequence[Encoded],
    names: Sequence[str],
    outcome: StudyOutcome,
    network: LocalOutcome,
    remark: str = "",
) -> StudyRun:
    """The record of a run on this machine, with what it gives without noise."""
    return StudyRun(
        study,
        outcome,
        tuple(names),
        network.messages,
        network.bytes_sent,
        network.seconds,
        sent_by=senders(network, len(encoded)),
        truth=truth_of(plan, study.workload, encoded, outcome),
        killed=network.killed,
        remark=remark,
    )


def truth_of(plan: Plan, workload: Workload, encoded: Sequence[Encoded], outcome: StudyOutcome) -> tuple[Answer, ...]:
    """What the parties that count in the ``outcome`` give without noise: of first looks, for the bounds that are proposed."""
    values: Vector = np.array([part.vector for part in encoded])
    weights = np.array([part.weight for part in encoded])
    parts = outcome.execution.parts
    counted = float(parts @ weights)
    # What rounding to the grid may hide is taken for noise.
    mean, noise = parts @ values / (counted or 1.0), plan.value_step / 2
    exact = workload.decode(mean, noise, counted, step=plan.value_step)
    released = workload.decoder(plan.value_step).released(mean, noise, counted or 1.0)
    return tuple(
        replace(own, estimates=workload.with_columns(shown.statistic.within(shown.estimates)).decode(released))
        if isinstance(shown.statistic, FirstLook) and counted
        else own
        for own, shown in zip(exact, outcome.answers, strict=True)
    )
