"""What local runs have in common, whether parties are processes or not: who is killed when, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from quietmean.core.errors import InputError, ProtocolFailure, QuietmeanError
from quietmean.core.party import PartyId, Vector
from quietmean.core.readable import but_for_names, grouped
from quietmean.node.session import NodeResult
from quietmean.planning import Plan

LocalReport: TypeAlias = Callable[[str, dict[str, Any]], None]


def report_nothing(name: str, event: dict[str, Any]) -> None:
    """Report nothing, which is the default."""


def names_of(parties: int) -> list[str]:
    return [f"party-{party:0{len(str(parties - 1))}d}" for party in range(parties)]


@dataclass(frozen=True)
class Kill:
    """SIGKILL ``party`` as it enters ``round``; start it again ``restart_after`` seconds later, or never.

    It does nothing of that round, unless ``after`` is given: then it is killed so many seconds later, wherever it is by then, if
    it is still running. A ``phase`` other than mixing requires ``after``. Rounds count anew in each phase; agreement and closing
    have round 0 only. Several kills of one party apply to its consecutive processes, in order.
    """

    party: PartyId
    round: int
    restart_after: float | None = None
    after: float | None = None
    phase: Literal["agreement", "mixing", "dissemination", "closing"] = "mixing"

    def is_due(self, event: dict[str, Any]) -> bool:
        """Whether this event (JSON object) is the beginning of the phase and round."""
        return event.get("phase") == self.phase and event.get("round", 0) == self.round

    @property
    def freeze_round(self) -> int | None:
        """The mixing round at whose beginning the process stops itself: a signal from outside would come too late."""
        return self.round if self.after is None else None


@dataclass(frozen=True)
class LocalOutcome:
    """What came of a study whose parties all ran on this machine.

    ``results`` of the parties that finished, ``failures`` (messages) of those that failed, ``killed`` once for each kill.

    ``messages`` and ``bytes_sent`` are sums over the results; ``seconds`` is wall-clock time.
    """

    results: dict[PartyId, NodeResult]
    failures: dict[PartyId, str]
    killed: tuple[PartyId, ...]
    seconds: float
    messages: int
    bytes_sent: int


def require_run(plan: Plan, values: Vector, kills: Sequence[Kill]) -> None:
    """Raises :class:`InputError` for values of another plan, or kills of nobody."""
    target = plan.target
    if values.shape != (target.parties, target.dimension):
        raise InputError(
            f"the values have shape {values.shape} but the plan is for {(target.parties, target.dimension)}. Make them agree."
        )
    for kill in kills:
        if not 0 <= kill.party < target.parties:
            raise InputError(f"party {kill.party} to be killed does not exist. Choose one of 0..{target.parties - 1}.")
        if kill.after is None and kill.phase != "mixing":
            raise InputError(f"party {kill.party} is to be killed during {kill.phase}. Say how many seconds after its beginning.")


def outcome_of(
    names: Sequence[str],
    results: dict[PartyId, NodeResult],
    errors: Mapping[PartyId, str | QuietmeanError],
    killed: Sequence[PartyId],
    seconds: float,
) -> LocalOutcome:
    """What came of a run; ``errors``: what parties ended with, or said.

    Raises :class:`ProtocolFailure` if no party finished, and of these :class:`GateRefused` if the gate let no result out.
    """
    failures = {party: str(error) for party, error in errors.items()}
    if not results:
        # Only a closed gate has a record.
        for error in errors.values():
            if isinstance(error, QuietmeanError) and hasattr(error, "record"):
                raise error
        reasons = grouped({names[party]: reason for party, reason in sorted(failures.items())}, but_for_names(names))
        raise ProtocolFailure(f"no party finished the study: {reasons or 'all were killed'}")
    return LocalOutcome(
        results=results,
        failures=failures,
        killed=tuple(killed),
        seconds=seconds,
        messages=sum(result.transfers for result in results.values()),
        bytes_sent=sum(result.bytes_sent for result in results.values()),
    )
