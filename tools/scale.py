"""Write docs/measurements/scale.md: packed secret sharing from 100 to a million parties, measured and computed.

``python tools/scale.py`` writes what is computed, the same each time; with ``--measure`` also processor seconds of this machine,
which takes some minutes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from page_figures import ending
from page_parts import DOCS, table

from quietmean.core.workers import one_thread
from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import rank
from quietmean.protocols import Target
from quietmean.protocols.packed_sharing import PackedSharing, opened_sum
from quietmean.protocols.packed_sharing.design import BANDWIDTH, LATENCY, DrawnCommittee, committee_for, cost
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import simulate
from quietmean.simulation.events import NetworkModel, simulate_events

PAGE = DOCS / "measurements/scale.md"
SURVEY = Path(__file__).with_suffix(".json").with_stem("survey_scale")
EPSILON, DELTA, DROPOUTS = 1.0, 1e-6, 0.1
MANY = (1_000, 10_000, 100_000, 1_000_000)
MEMBERS = (100, 300, 1_000, 3_000, 10_000)
DIMENSION = 10_000
# As large as fits some hundred megabytes.
KERNEL = ((1_000, 10_000), (10_000, 1_000), (100_000, 100), (1_000_000, 10))
EVENTS, EVENT_DIMENSION = 200, 100


def target(parties: int, dimension: int, colluding: float = 0.1) -> Target:
    return Target(parties, EPSILON, DELTA, dimension, 1.0, round(colluding * parties), DROPOUTS)


def size(number: float) -> str:
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= step:
            return f"{number / step:.3g} {unit}"
    return f"{number:.0f} B"


def kernel_row(parties: int, dimension: int) -> tuple[str, ...]:
    """One run of the sum itself, with the noise and rounding of every party; 90 % of the parties are in it."""
    asked = target(parties, dimension)
    design = PackedSharing().design(asked)
    protocol: Any = design.protocol
    width = asked.sensitivity / np.sqrt(dimension)
    values = (BitStream(Seed.public("values")).uniform(parties * dimension) * width).reshape(parties, dimension)
    inputs = np.ones(parties, dtype=np.bool_)
    inputs[: round(0.02 * parties)] = False
    begun = time.process_time()
    total, weight = opened_sum(protocol, inputs, values, np.ones(parties), InsecurePopulationNoise(1, parties))
    seconds = time.process_time() - begun
    mse = float(((total / weight - values[inputs].mean(axis=0)) ** 2).mean())
    expected = protocol.party_variance / weight
    error = np.sqrt(2 / dimension)
    return f"{parties:,}", f"{dimension:,}", f"{seconds:.1f} s", f"{mse / expected:.3f} ({error:.3f})"


def everybody_row(parties: int) -> tuple[str, ...]:
    (found,) = rank(target(parties, DIMENSION), ["packed-sharing"])
    protocol: Any = found.plan.protocol
    schedule = 4.0 * protocol.rounds * parties * (parties - 1)
    times = found.mse / found.mse_central
    return f"{parties:,}", f"{times:.3f}", f"{found.messages:,.0f}", size(found.bytes_sent), f"{parties - 1:,}", size(schedule)


def committee_rows(parties: int, colluding: float) -> list[tuple[str, ...]]:
    asked, rows = target(parties, DIMENSION, colluding), []
    for share in (0.0, 0.5):
        found = committee_for(asked, share)
        if found is None:
            rows.append((f"{parties:,}", f"{colluding:.0%}", f"none with l >= {share:g} m", *[""] * 6))
            continue
        rows.append(committee_row(asked, colluding, found))
    return rows


def committee_row(asked: Target, colluding: float, found: DrawnCommittee) -> tuple[str, ...]:
    spent = cost(found, asked, 4)
    return (
        f"{asked.parties:,}",
        f"{colluding:.0%}",
        f"{found.members}, {found.colluding}, {found.votes_needed}, {found.secrets}",
        f"{found.beta:.1e}",
        size(spent.dealer_sends),
        size(spent.party_receives),
        size(spent.member_receives),
        size(spent.member_sends),
        f"{spent.seconds:.3g} s",
    )


def events_text() -> str:
    """One run of the machines themselves, message by message."""
    plan = calibrate(target(EVENTS, EVENT_DIMENSION), PackedSharing())
    execution = plan.execution(Seed.public("events"), ExecutionTrace.everyone(plan.protocol.rounds, EVENTS))
    width = plan.target.sensitivity / np.sqrt(EVENT_DIMENSION)
    values = (BitStream(Seed.public("values")).uniform(EVENTS * EVENT_DIMENSION) * width).reshape(EVENTS, EVENT_DIMENSION)
    values = np.array([plan.admit(value) for value in values])
    begun = time.process_time()
    found = simulate_events(execution, values, InsecurePopulationNoise(1, EVENTS), NetworkModel(loss=0.01), seed=1)
    seconds = time.process_time() - begun
    apart = float(np.abs(found.estimate - values.mean(axis=0)).max()) / float(np.sqrt(plan.prediction["mse_noise"]))
    return (
        f"{EVENTS} parties, {EVENT_DIMENSION} coordinates, 1 % of all tries lost: **{seconds:.0f} s** of one processor for "
        f"{found.messages:,} messages, {found.seconds:.1f} s on the simulated clock; the estimate is within {apart:.1f} "
        "standard deviations of the mean in every coordinate."
    )


def whole_run_text() -> str:
    parties, dimension = KERNEL[0]
    plan = calibrate(target(parties, dimension), PackedSharing())
    begun = time.process_time()
    found = simulate(plan, runs=1, seed=1)
    seconds = time.process_time() - begun
    return (
        f"`quietmean simulate` for {parties:,} parties and {dimension:,} coordinates, with schedule, dropouts and the choice of "
        f"inputs replayed member by member: **{seconds:.0f} s** of one processor a run; mean squared error {found.mse:.4g}, "
        f"predicted {found.prediction:.4g}."
    )


def measured() -> str:
    """The section with what was run, in one process each."""
    with one_thread():
        kernel = [kernel_row(*sizes) for sizes in KERNEL]
        whole, events = whole_run_text(), events_text()
    heads = ("parties", "coordinates", "processor time", "squared error over predicted")
    return MEASURED.format(kernel=table(heads, kernel, 0), whole=whole, events=events)


def make_page(measure: bool) -> str:
    everybody = [everybody_row(parties) for parties in MEMBERS]
    drawn = [row for parties in MANY for colluding in (0.1, 0.3) for row in committee_rows(parties, colluding)]
    members = ("parties", "error over the curator's", "messages", "bytes", "connections", "schedule in memory")
    figures = ("of delta", "party sends", "party receives", "member receives", "member sends", "on links")
    return TEXT.format(
        epsilon=EPSILON,
        delta=DELTA,
        dimension=DIMENSION,
        measured=measured() if measure else NOT_MEASURED,
        everybody=table(members, everybody, 0),
        committees=table(("parties", "collude", "m, c_m, q, l", *figures), drawn, 0),
        bandwidth=BANDWIDTH * 8 / 1e6,
        latency=1000 * LATENCY,
        **by_link(),
    )


def by_link() -> dict[str, Any]:
    """What tools/survey_scale.py measured, in the words of the page."""
    found = json.loads(SURVEY.read_text(encoding="utf-8"))
    half, nearly_all, last = found["yes_to_receipt_seconds"]
    rows = [
        ("respondents with a receipt", f"{found['respondents']:,}"),
        ("of these counted in the result", f"{found['counted']:,}"),
        (f"answering, {found['tabs']} at a time", f"{found['answering_seconds']:,.0f} s"),
        ("from yes to the receipt: half of them, 99 of 100, all", f"{half:.1f}, {nearly_all:.1f}, {last:.1f} s"),
        ("drop, processor time of a contribution", f"{found['drop_milliseconds']:.0f} ms"),
        ("drop, memory", f"{found['drop_megabytes']:.0f} MB"),
        ("busiest member, processor time of a contribution", f"{found['member_milliseconds']:.1f} ms"),
        ("largest member, memory", f"{found['member_megabytes']:.0f} MB"),
        ("from the deadline to the last member's end", f"{found['opening_seconds']:.0f} s"),
        ("mean and proportion, in standard errors from the truth", ", ".join(f"{away:.1f}" for away in found["away"])),
    ]
    return {"survey": table(("what", "measured"), rows), "respondents": found["respondents"], "tabs": found["tabs"]}


MEASURED = """\
## The sum itself

The batch kernel draws the rounding and the noise of every party, adds them up modulo p and decodes: what the shares would open,
without any share. The last column is the error of that run over what the plan predicts for its inputs (an estimate with its
standard error in brackets): 1 if noise, rounding and sums without overflow scale as they should.

{kernel}
{whole}

## Message by message

{events}
"""

NOT_MEASURED = """\
`python tools/scale.py --measure` adds the times of the batch kernel, of a whole simulated run and of the event-driven simulator;
they are not in this copy.
"""

TEXT = """\
# A thousand to a million parties

This page is made by `python tools/scale.py`, with `--measure` for what is measured. Figures that are computed are the same each
time; processor times are those of one core of the machine that made it. Do not edit it by hand.

Everywhere epsilon = {epsilon:g} at delta = {delta:g}, one party in ten leaves, and one in ten colludes unless the table says
otherwise.
Nothing here was run between that many machines.

{measured}
## Where everybody is a member

This is what `run` and `join` do. {dimension:,} coordinates; error and bytes are predicted, dropouts included.

{everybody}
What breaks, and where:

- **Connections.** Everybody is connected to everybody. From about 1000 parties a process needs more open files than systems
  allow by default (1024), and all parties together n (n - 1) / 2 connections with a TLS handshake each.
- **The schedule.** Parties hold the table of who may send to whom in every round: n (n - 1) numbers of 4 bytes a round.
- **Messages.** Each of the n - 1 shares, statuses, votes and sums is a message of its own with some 40 bytes of framing; from
  about 1000 parties that is more than their content here.
- **Sums.** The sum of all values has to fit modulo p = 2^31 - 1. With more parties the plan takes a coarser grid, and it refuses
  where a step would be more than a quarter of a party's noise.
- **The replayed choice.** Which inputs count is recomputed from who was there, in n^2 bits a round.

Plans are made for any number of parties, of a million in three seconds: protocols whose plans take more than a gigabyte or
twenty seconds are left out unless they are named, and `plan` says which. `run` and `join` refuse more than 10 000, and
`--protocol auto` takes another one there, of least error.

## With a committee of the parties

[A committee that holds shares](../proofs/committee.md) is of institutions that are named beforehand, and runs: see [its
bars](committee-bars.md). Here its m members are drawn from the parties, by the public seed and after it is fixed who colludes:
at most c_m of them collude, but for a chance of 1e-8 a draw (exact hypergeometric tail). A party that withholds its part of the
seed can have the draw repeated; ten repetitions are counted, and all eleven tails are taken from delta (the column beta of a
charge).
With f members gone, missed with a chance of 1e-4, l = m - f - c_m numbers share a polynomial. The first row of each pair is
the smallest committee; the second the smallest with l >= m / 2 of up to 600 members, which takes fewer bytes of everybody
but for what a party receives.

**This is computed, not run**: members are named beforehand, not drawn. {dimension:,} coordinates of 4 bytes; seconds are
those of the links alone at {bandwidth:g} Mbit/s each way and {latency:g} ms, the busiest party deciding.

{committees}
What limits is telling the result: a party takes what c_m + 1 members tell alike, which is far more than its own shares, and
members send it n times. Digests from all but one of them would make that one vector a party, and as many
times less for members. Then the shares limit: a member receives one of every party, n d / l numbers.

## A survey by link

`python tools/survey_scale.py {respondents}`, with epsilon = 1 and checked ranges. For each respondent the page is loaded anew by
its link, in one of {tabs} tabs of one headless Chromium. A script fills it in and presses the button. The page's own code checks
the study, seals in its worker and sends to one real drop. Five members are processes, and one is killed for good once all have
answered. The machine had other work on the same core: its seconds on the wall are more than a quiet one's.

{survey}
## What a deployment of that size would run on

- **Up to some hundred parties**: what is here; one process a party, everybody connected, less than a
  megabyte from each for 10 000 coordinates.
- **A thousand to ten thousand**: a committee of 45 to 112 of the parties on well connected machines (some hundred megabytes out
  at 10 000 parties and 10 000 coordinates, most of it the result). The others need one connection to each member, open it, deal,
  and come back for the result. The noise, the grid, the threshold of inputs and the a-priori figure are those of this version.
- **A hundred thousand to a million**: members send gigabytes and more, so they are machines in data centres of different
  owners, and the parties phones or browsers that deal through a relay. Statuses name dealers by bit sets of n / 8 bytes,
  which is 125 kB at a million: they would be told as differences. For few coordinates this works as it stands; for 10 000
  coordinates a million parties are better sampled, which also costs less privacy.
- **Who colludes must not choose who deals.** An open system of a million needs a defence against one person that joins a
  thousand times: the fraction that colludes is assumed here, not enforced.
"""


def main() -> int:
    page = make_page("--measure" in sys.argv[1:])
    if "--print" in sys.argv[1:]:
        print(page)
    else:
        PAGE.write_text(page + ending(f"measurements/{PAGE.name}"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
