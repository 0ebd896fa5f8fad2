"""What a committee opened, as a study's result: whose contributions are in it, what follows, and all of it on one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.readable import count_of
from quietmean.graphs import ExecutionTrace
from quietmean.node.committee import rehearse
from quietmean.node.local import LocalOutcome
from quietmean.planning.influence import ReleasedSum
from quietmean.planning.plan import Plan
from quietmean.protocols.committee.result import CheckedResult
from quietmean.randomness import BitStream, Seed
from quietmean.statistics import Encoded, Workload
from quietmean.studies.agreement.contribution import sharing_of
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.voucher import vouching_of
from quietmean.studies.outcome.local import choose_dropouts, run_of
from quietmean.studies.outcome.outcome import StudyOutcome, StudyRun, conclude_possible

# No schedule of it is drawn: any seed gives the same one.
_NO_SEED = Seed.public("opened by a committee")


def outcome_of(plan: Plan, workload: Workload, checked: CheckedResult, counted: Mapping[int, float]) -> StudyOutcome:
    """The outcome of an opened sum. ``counted``: the public weight of each contribution in it, by its contributor's place.

    Raises :class:`ImpossibleResult` for a sum that no values within the bounds and no noise of the plan's size give.
    """
    parties = plan.target.parties
    weights = np.ones(parties)
    weights[list(counted)] = list(counted.values())
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, parties)
    execution = plan.execution(_NO_SEED, everyone, weights).without(frozenset(range(parties)) - counted.keys())
    carried_out = replace(execution, protocol=execution.protocol.ending(checked).protocol)
    return conclude_possible(plan, workload, carried_out, ReleasedSum(checked.total, checked.weight))


@dataclass(frozen=True)
class OpenedByVoucher:
    """Vouchers of a ``registrar``, ``number`` in all, of which so many were ``used``: their contributions count."""

    registrar: str
    number: int
    used: int

    @property
    def note(self) -> str:
        """The note on who was admitted by voucher, in a sentence."""
        return (
            f"{self.used} of these contributions came by vouchers of the registrar {self.registrar}, who could certify up to "
            f"{self.number}: if it lies, they may all be its own"
        )


def names_of(sealed: Sealed) -> list[str]:
    """Name all who may contribute: those with an entry; those with a voucher, whom nobody can name, by number."""
    return [*(entry.name for entry in sealed.entries), *_numbered(sealed.admitted - len(sealed.entries))]


def _numbered(number: int) -> list[str]:
    return [f"by voucher {place}" for place in range(1, number + 1)]


@dataclass(frozen=True, eq=False)
class OpenedStudy:
    """A study whose result a committee opened.

    ``digests``: of the headers of the contributions that count, hexadecimal, by name. ``left_out``: (name, why) of those that
    came and do not count, as far as is known here; ``uncounted``: names of those who are listed to contribute and are not in it.
    ``wrong``: members whose sums were wrong; ``sums``: how many members' sums it is from. ``by_voucher``: of a study that has
    vouchers."""

    outcome: StudyOutcome
    digests: Mapping[str, str]
    left_out: tuple[tuple[str, str], ...]
    uncounted: tuple[str, ...]
    wrong: tuple[str, ...]
    sums: int
    by_voucher: OpenedByVoucher | None = None

    @classmethod
    def of(cls, sealed: Sealed, plan: Plan, checked: CheckedResult, left_out: Sequence[tuple[str, str]] = ()) -> OpenedStudy:
        """Read the answers from a checked result.

        ``checked``: the result that holds. ``left_out``: as the members said.

        Raises :class:`ImpossibleResult` for a sum that no values within the bounds and no noise of the plan's size give.
        """
        places = {entry.identity: place for place, entry in enumerate(sealed.entries)}
        names = names_of(sealed)
        by_voucher = sorted(key for _, key, _ in checked.counted if key not in places)
        places |= {key: len(sealed.entries) + place for place, key in enumerate(by_voucher)}
        counted = {places[key]: digest.hex() for digest, key, _ in checked.counted}
        without = frozenset(range(len(names))) - counted.keys()
        weights = {places[key]: weight for _, key, weight in checked.counted}
        outcome = outcome_of(plan, sealed.study.workload, checked, weights)
        excluded = {name for name, _ in left_out}
        members = {entry.name for entry in sealed.computing}
        listed = [names[place] for place in sorted(without) if place < len(sealed.entries)]
        uncounted = [name for name in listed if name not in members or name in excluded]
        vouching = vouching_of(sealed.invitation)
        return cls(
            outcome,
            {names[place]: digest for place, digest in sorted(counted.items())},
            tuple(left_out),
            tuple(uncounted),
            tuple(sealed.computing[member].name for member in checked.wrong),
            checked.sums,
            None if vouching is None else OpenedByVoucher(vouching.registrar, vouching.number, len(by_voucher)),
        )

    @property
    def missing(self) -> list[str]:
        """List the contributors of whom nothing came, as far as is known here."""
        excluded = {name for name, _ in self.left_out}
        return [name for name in self.uncounted if name not in excluded]

    @property
    def headline(self) -> str:
        """How many contributions are in it, and by name whose are not; of files that cannot count there are notes."""
        rest = f"; NOT in it: {', '.join(sorted(self.uncounted))}" if self.uncounted else ""
        there = count_of(len(self.digests), "contribution is", "contributions are")
        return f"{there} in this result, opened from the sums of {self.sums} members{rest}"

    def to_json(self) -> dict[str, Any]:
        """What stands beside the answers."""
        target = self.outcome.target
        colluding = None if target.committee is None else target.committee.colluding
        return {
            "headline": self.headline,
            "contributions": {
                "counted": len(self.digests),
                "digests": dict(self.digests),
                "left_out": [{"name": name, "why": why} for name, why in self.left_out],
                "missing": self.missing,
                **({} if self.by_voucher is None else {"by_voucher": asdict(self.by_voucher)}),
            },
            "privacy": {
                "epsilon_a_priori": self.outcome.epsilon_a_priori,
                "delta": target.delta,
                "colluding_members": colluding,
                "contributors_colluding": "all others",
            },
            "members": {"sums": self.sums, "wrong": list(self.wrong)},
        }

    @property
    def notes(self) -> list[str]:
        """The notes of the study for people, in sentences."""
        notes = [f"the sum of {name} was wrong and is corrected: that member, or its machine, lies" for name in self.wrong]
        notes += [] if self.by_voucher is None else [self.by_voucher.note]
        notes += [f"left out {name}: {why}" for name, why in self.left_out]
        if (committee := self.outcome.target.committee) is not None:
            moved = (
                "by up to 8 standard deviations of their noise each" if committee.verified else "by any noise that they made up"
            )
            notes.append(
                f"if members lie, up to {committee.colluding} of them can have left contributions out, and moved each number "
                f"{moved}, besides the interval"
            )
        return notes


def run_with_committee(study: StudyTerms, plan: Plan, encoded: Sequence[Encoded], names: Sequence[str]) -> StudyRun:
    """Contributors with these ``encoded`` values each make one file, and the members of the plan's committee open one sum.

    The files of the fraction of contributors that the study lets drop out, rounded down, never come: those are ``killed``. Raises
    :class:`ImpossibleResult` for a sum that cannot be, and :class:`ProtocolFailure` if too few come.
    """
    parameters = sharing_of(plan).parameters(plan.target.parties)
    absent = sorted(choose_dropouts(plan, study.dropouts, BitStream(Seed.from_os())))
    came = [place for place in range(len(encoded)) if place not in absent]
    admitted = [plan.admit(part.vector, part.weight) for part in encoded]
    rehearsal = rehearse(
        parameters,
        np.array([admitted[place].vector for place in came]),
        [admitted[place].weight for place in came],
        statement=plan.input_domain.statement if parameters.verified else None,
    )
    counted = {came[number]: admitted[came[number]].weight for number in rehearsal.counted}
    outcome = outcome_of(plan, study.workload, rehearsal.checked, counted)
    seconds = sum(rehearsal.seconds)
    network = LocalOutcome({}, {}, tuple(absent), seconds, rehearsal.messages, rehearsal.bytes_sent)
    return run_of(study, plan, encoded, names, outcome, network)
