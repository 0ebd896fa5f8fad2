"""Write docs/measurements/committee-bars.md: what a committee was asked to reach, and what it reaches.

``python tools/committee_bars.py ROWS.jsonl``: the rows are what ``tools/committee_scale.py`` printed, a line each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from equal_promises import central, error
from packed_bars import benchmark
from page_figures import ending
from page_parts import DOCS, table

from quietmean.core.statement import StatedValue
from quietmean.core.workers import one_thread
from quietmean.node.committee import IdentitySigner, MailboxOpener, MailboxSealer, PublicKeys, rehearse
from quietmean.node.mailbox import mailbox_bytes, open_with, seal_to
from quietmean.node.net import Identity, Purpose, is_signed
from quietmean.planning import Plan
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import excerpt, make_contribution, open_excerpt, read_header
from quietmean.protocols.committee.design import encode, predicted_error
from quietmean.protocols.committee.keys import raw_key
from quietmean.protocols.committee.lists import check_numbers
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.randomness import Seed
from quietmean.simulation import simulate
from quietmean.statistics.columns import Column
from quietmean.statistics.complete_records import moments_of
from quietmean.statistics.features import ColumnBlock, Vertex
from quietmean.statistics.statistic import Feature, presence_of
from quietmean.studies.agreement.contribution import sharing_of

PAGE = DOCS / "measurements/committee-bars.md"
EPSILON, DELTA, CONTRIBUTORS, COORDINATES, RUNS = 1.0, 1e-6, 60, 2000, 8
DROPOUTS = (0.0, 0.5, 0.9)
# Times are the least of so many rounds.
ROUNDS = 5


@dataclass(frozen=True)
class ErrorBar:
    """A committee, and the error over the curator's that it was asked to reach."""

    committee: Committee
    bar: float

    @property
    def name(self) -> str:
        asked = self.committee
        size = "verified" if asked.verified else str(asked.size)
        return f"{asked.members}, {asked.colluding}, {asked.gone}, {size}"

    @property
    def plan(self) -> Plan:
        return calibrate(target(CONTRIBUTORS, COORDINATES, self.committee), CommitteeSharing())


def target(contributors: int, dimension: int, committee: Committee) -> Target:
    return Target(
        contributors, EPSILON, DELTA, dimension, float(np.sqrt(dimension)), colluding=committee.colluding, committee=committee
    )


# Of which the first four have contributions verified. Errors over the curator's, from the design.
ERRORS = (
    ErrorBar(Committee(5, 1, 1, verified=True), 1.33),
    ErrorBar(Committee(9, 2, 2, verified=True), 1.40),
    ErrorBar(Committee(15, 3, 3, verified=True), 1.33),
    ErrorBar(Committee(31, 6, 6, verified=True), 1.32),
    ErrorBar(Committee(5, 1, 1), 1.33),
    ErrorBar(Committee(15, 3, 3), 1.33),
)


def error_row(asked: ErrorBar) -> tuple[str, ...]:
    plan = asked.plan
    ratio = error(plan) / central(plan.target)
    simulated = [simulated_over_predicted(plan, dropouts) for dropouts in DROPOUTS]
    return asked.name, f"{asked.bar:g}", f"{ratio:.3f}", *(f"{value:.3f} ({deviation:.3f})" for value, deviation in simulated)


def simulated_over_predicted(plan: Plan, dropouts: float) -> tuple[float, float]:
    """Simulated over predicted squared error, given who came; with its standard error."""
    values = np.tile(np.linspace(0, 1, COORDINATES), (CONTRIBUTORS, 1))
    squares = []
    for seed in range(RUNS):
        run = simulate(plan, values, runs=1, seed=seed + round(1000 * dropouts), dropouts=dropouts)
        came = int(run.first.contributors().sum())
        squares.append(run.errors**2 / predicted_error(sharing_of(plan).parameters(CONTRIBUTORS), came))
    ratios = np.array(squares)
    return float(ratios.mean()), float(ratios.std() / np.sqrt(ratios.size))


# -- one contribution ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """``bits``: a value lies in 0..2^bits - 1 whole steps where it is verified; bars in milliseconds of one core.

    ``record``: a feature of one record, (0.5, 0.25, 0.75) in columns from 0 to 1, whose products are checked.
    """

    what: str
    committee: Committee
    dimension: int
    contributor_bar: float | None = None
    member_bar: float | None = None
    bits: int = 8
    record: Feature | None = None


COLUMNS = tuple(Column(name=name, low=0.0, high=1.0) for name in "abc")
PRESENT = {presence_of(column.name): np.ones(1) for column in COLUMNS} | {
    column.name: np.array([value]) for column, value in zip(COLUMNS, (0.5, 0.25, 0.75), strict=True)
}
CHECKED = Committee(5, 1, 1, verified=True, products=True)
CASES = (
    Case("1000 numbers, 15 members", Committee(15, 3, 3), 1000, 10.0, 0.25),
    Case("100,000 numbers, 15 members", Committee(15, 3, 3), 100_000, 60.0),
    Case("1,000,000 numbers, 15 members", Committee(15, 3, 3), 1_000_000),
    Case("verified, 20 numbers of 8 bits, 5 members", Committee(5, 1, 1, verified=True), 20, None, 0.3),
    Case("verified, 1000 numbers of 8 bits, 15 members", Committee(15, 3, 3, verified=True), 1000, None, 1.5),
    Case("products, a column's powers, 5 members", CHECKED, 5, record=ColumnBlock(COLUMNS[0])),
    Case("products, correlations of 3 columns, 5 members", CHECKED, 10, record=moments_of(tuple(map(Vertex, COLUMNS)))),
)
# Whole sessions in one process: numbers, contributors and a committee of which one member is gone.
WHOLE = ((1000, 100, Committee(15, 3, 3)), (100_000, 5, Committee(15, 3, 3)), (1_000_000, 3, Committee(15, 3, 3)))


def milliseconds(call: Callable[[], Any], times: int) -> float:
    measured: float = benchmark("measuring").milliseconds(call, times)
    return measured


def case_row(case: Case) -> tuple[str, ...]:
    """Processor time and bytes of one contribution; encoding apart."""
    sharing, statement = sharing_for(case)
    parameters = sharing.parameters(1000)
    members = [Identity.generate() for _ in range(parameters.members)]
    boxes = [(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()) for _ in members]
    contributors = [Identity.generate() for _ in range(1000)]
    session = CommitteeSession(
        bytes(32),
        parameters,
        tuple(identity.public_key for identity in members),
        tuple(map(mailbox_bytes, boxes)),
        {identity.public_key: 1.0 for identity in contributors},
        PublicKeys(),
        statement,
    )
    signer, seed = IdentitySigner(contributors[0]), Seed(bytes(32))
    if case.record is None:
        numbers = encode(parameters, np.linspace(0, 1, case.dimension) * parameters.clip, 1.0, seed)
    else:
        layout = session.layout_of(False, 1.0, raw_key(signer.public_key))
        numbers = encode(parameters, case.record.encode(PRESENT)[0], 1.0, seed, layout)

    def contribute() -> bytes:
        return make_contribution(session, signer, MailboxSealer(), numbers, 1.0, seed)

    content = contribute()
    member, opener = parameters.members // 2, MailboxOpener(boxes[parameters.members // 2])
    own = excerpt(session, content, member)

    def take() -> None:
        header = read_header(session, own)
        check_numbers(session, header.digest, open_excerpt(session, header, own, member, opener))

    times = max(2, 50_000 // (case.dimension * case.bits))
    return (
        case.what,
        "" if case.contributor_bar is None else f"{case.contributor_bar:g} ms",
        f"{milliseconds(contribute, max(2, times // 10)):.2f} ms",
        f"{len(content):,}",
        "" if case.member_bar is None else f"{case.member_bar:g} ms",
        f"{milliseconds(take, times):.2f} ms",
    )


def sharing_for(case: Case) -> tuple[CommitteeSharing, StatedValue | None]:
    """For 1000 contributors; and what is stated of them where that is more than bounds."""
    if case.record is not None:
        domain = case.record.for_single_record(of_party=False).domain
        asked = replace(target(1000, domain.size, case.committee), sensitivity=domain.diameter)
        planned = CommitteeSharing.planned(asked, case.committee, domain).protocol
        if not isinstance(planned, CommitteeSharing):
            raise SystemExit("a committee is planned by another protocol")
        return planned, domain.statement
    sharing = sharing_of(calibrate(target(1000, case.dimension, case.committee), CommitteeSharing()))
    return (_with_bits(sharing, case.bits) if case.committee.verified else sharing), None


def whole_row(dimension: int, contributors: int, committee: Committee) -> tuple[str, ...]:
    """A session from the first contribution to the result, by the real machines, keys and files of all, in one process."""
    parameters = sharing_of(calibrate(target(contributors, dimension, committee), CommitteeSharing())).parameters(contributors)
    value = np.linspace(0, 1, dimension)
    rehearsal = rehearse(parameters, np.tile(value, (contributors, 1)), [1.0] * contributors, frozenset({1}))
    deviations = (rehearsal.checked.estimate - value) / rehearsal.checked.standard_error
    contributing, taking, session = rehearsal.seconds
    return (
        f"{dimension:,}",
        f"{contributors:,}",
        f"{committee.members}, {committee.colluding}, {committee.gone}",
        f"{len(rehearsal.checked.counted):,}",
        f"{float(np.sqrt((deviations**2).mean())):.3f}",
        f"{rehearsal.contribution_bytes / 1e6:,.2f} MB",
        f"{rehearsal.member_bytes / 1e6:,.2f} MB",
        f"{contributing + taking + session:.0f} s",
    )


def _with_bits(sharing: CommitteeSharing, bits: int) -> CommitteeSharing:
    """Values of so many bits, and noise of as many steps as such a plan would have."""
    return replace(sharing, step=2 * sharing.clip / 2**bits, sigma=4.0)


def floor_rows() -> list[tuple[str, ...]]:
    """What a member's time cannot be less than: the library's signature and ciphertext."""
    identity, box = Identity.generate(), (MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())
    content = bytes(600)
    signature, sealed = identity.sign(Purpose.CONTRIBUTION, content), seal_to(mailbox_bytes(box), b"info", bytes(700))
    checked = milliseconds(lambda: is_signed(identity.public_key, Purpose.CONTRIBUTION, content, signature), 100)
    opened = milliseconds(lambda: open_with(box, b"info", sealed), 100)
    return [
        ("an Ed25519 signature alone", "", "", "", "", f"{checked:.2f} ms"),
        ("a ciphertext of hybrid HPKE alone", "", "", "", "", f"{opened:.2f} ms"),
    ]


def least(*rows: tuple[str, ...]) -> tuple[str, ...]:
    """The least time of each column: what else the machine does only adds to it."""
    columns = zip(*rows, strict=True)
    return tuple(
        min(column, key=lambda text: float(text.split()[0])) if column[0].endswith(" ms") else column[0] for column in columns
    )


# -- as large as one machine holds -----------------------------------------------------------------------------------------------


def scale_row(row: dict[str, Any]) -> tuple[str, ...]:
    who = f"{row['members']}, {row['colluding']}, {row['gone']}" + (", verified" if row["verified"] else "")
    return (
        f"{row['contributors']:,}",
        f"{row['dimension']:,}",
        who,
        f"{row['liars']:,}",
        f"{row['counted']:,}",
        f"{row['deviations']:.2f}",
        f"{row['contributor_milliseconds']:.1f} ms",
        f"{row['contribution_bytes'] / 1000:,.1f} kB",
        f"{row['member_milliseconds']:.1f} ms",
        f"{row['member_megabytes']:.0f} MB",
        f"{row['session_seconds']:.0f} s",
    )


TEXT = """\
# A committee against its bars

This page is made by `python tools/committee_bars.py`. Errors and bytes are the same each time; times are processor times of one
core of the machine that made it, the least of a few rounds. Do not edit it by hand.

## Error

Mean squared error per number over that of a trusted curator; epsilon {epsilon:g} at delta {delta:g}. A committee of m members,
of whom c_m collude with all other contributors and f are gone. It is k / (k - c_m), for the noise of k = m - f members of which
c_m know their own, and rounding to steps. Simulated over predicted, for {contributors} contributors and {coordinates} numbers in
{runs} runs: given who came (standard error).

{errors}
## One contribution

{cases}
The last two lines are the cryptographic library's own work, once each a contribution: what is above them is ours.

## Many numbers

Whole sessions in one process, with the keys, files and machines of everybody and one member gone: what a contributor and the
busiest member send, and seconds by the clock for all of them.

{whole}
## As large as one machine holds

Contributions by the code of `quietmean send`, and members as processes of `quietmean join` with sockets, stores and default
options, all on two cores. f members are killed for good at instants that chance decides, and one more is killed and started
again. Liars hand in files that are cut, unsigned, too heavy, of another session, with ciphertexts of others, with shares that lie
on no polynomial, and where contributions are verified with numbers beyond their range: none of these counts, and all honest ones
do. A file in which one member's share alone is wrong counts, as what the others' shares say, where that member's list is not
among those that are chosen. Deviations: the root mean square of (estimate - truth) / standard error, which is 1 in the mean. A
member's time is that of the busiest of them for each contribution, its whole process included; the session is from the deadline
to the last result, with the wait for who was killed: a part of `round_timeout`, here 40 s, in each round to the result and in
five after it. Deviations of 20 numbers have a standard error of 0.16; those of 1,015 numbers, of sessions of 1,000 contributors
in one process, are 0.996 (0.021), and those of 3,400 sums of the values and noise of 9,000 contributors 0.998 (0.012).

{scale}
"""


def main() -> int:
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    with one_thread():
        errors = [error_row(asked) for asked in ERRORS]
        rounds = [[*map(case_row, CASES), *floor_rows()] for _ in range(ROUNDS)]
        cases = [least(*rows) for rows in zip(*rounds, strict=True)]
    simulated = tuple(f"simulated, {share:.0%} do not come" for share in DROPOUTS)
    page = TEXT.format(
        epsilon=EPSILON,
        delta=DELTA,
        contributors=CONTRIBUTORS,
        coordinates=COORDINATES,
        runs=RUNS,
        errors=table(("m, c_m, f, size", "bar", "predicted", *simulated), errors),
        cases=table(("contribution", "bar", "contributor", "bytes", "bar", "each member"), cases),
        whole=table(
            ("numbers", "contributors", "m, c_m, f", "counted", "deviations", "a file", "a member", "all of it"),
            [whole_row(*sizes) for sizes in WHOLE],
        ),
        scale=table(
            (
                "contributors",
                "numbers",
                "m, c_m, f",
                "liars",
                "counted",
                "deviations",
                "contributing",
                "a file",
                "a member, each",
                "its memory",
                "session",
            ),
            [scale_row(row) for row in rows],
        ),
    )
    PAGE.write_text(page + ending(f"measurements/{PAGE.name}"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
