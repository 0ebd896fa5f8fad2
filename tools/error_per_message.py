"""Write docs/images/error-per-message.csv and .png, and the table of docs/research/papers.md that is made from them.

    python tools/error_per_message.py --resume FOLDER [--parties 10 60 200 1000] [--as-it-happened]

plans every protocol for the same target and the same promise before the first message: hours, for IncA with many parties. With
``--parties`` other rows stay. With ``--as-it-happened`` IncA has no promise beyond ten parties, which takes minutes.
"""

from __future__ import annotations

import csv
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from equal_promises import central, error, planned, promised
from page_parts import DOCS, add_resume, between, table

from quietmean.core.errors import InputError
from quietmean.core.workers import one_thread
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import candidate_of
from quietmean.planning.plan import Plan
from quietmean.protocols import Target
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee_size import Committee
from quietmean_reproduction.run import save
from quietmean_reproduction.style import COLOURS, MARKERS, grid, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE, ROWS = DOCS / "research/papers.md", DOCS / "images" / "error-per-message.csv"
PICTURE = ROWS.with_suffix(".png")
BEGIN, END = "<!-- error against messages -->\n", "<!-- end -->\n"
EPSILON, DELTA, DROPOUTS = 1.0, 1e-6, 0.1
PARTIES = (10, 60, 200, 1000)
# Of whom two put together what they see, and two are gone.
MEMBERS = Committee(9, 2, 2)
# Of the papers, and beside them. ADQSP is planned for parties that all stay, since it has no other plan.
PROTOCOLS = ("inca", "cordp-dme", "consensus", "gopa", "muffliato", "packed-sharing", "local-dp", "central-dp")
HAPPENED, COMMITTEE = "inca, realised", "committee"
NAMES = {
    "inca": "IncA, promised",
    HAPPENED: "IncA, realised",
    "cordp-dme": "CorDP-DME",
    "consensus": "ADQSP, nobody leaves",
    "gopa": "GOPA",
    "muffliato": "Muffliato",
    "packed-sharing": "packed sharing",
    COMMITTEE: "a committee of 9",
    "local-dp": "local DP",
    "central-dp": "a trusted curator",
}
COLUMNS = ("parties", "colluding", "dropouts", "protocol", "messages", "error", "epsilon_a_priori")
Row = dict[str, str]


def target_of(parties: int, dropouts: float = DROPOUTS) -> Target:
    """One party in ten colludes, and one in ten leaves for good."""
    return Target(parties, EPSILON, DELTA, colluding=parties // 10, dropouts=dropouts)


def measured(
    parties: int, folder: Path | None, protocols: Sequence[str] = PROTOCOLS, as_it_happened: bool = False
) -> Iterator[Row]:
    """What each protocol reaches; one that refuses the target has no row."""
    for name in protocols:
        target = target_of(parties, 0.0 if name == "consensus" else DROPOUTS)
        if name == "inca" and as_it_happened and parties > PARTIES[0]:
            yield _row(HAPPENED, planned(target, name, None, folder))
            continue
        try:
            plans = promised(target, name, folder)
        except InputError:
            continue
        yield _row(name, plans.kept)
        if name == "inca" and plans.usual is not plans.kept:
            yield _row(HAPPENED, plans.usual)
    yield _row(
        COMMITTEE, calibrate(replace(target_of(parties), colluding=MEMBERS.colluding, committee=MEMBERS), CommitteeSharing())
    )


def _row(name: str, plan: Plan) -> Row:
    target = plan.target
    # Of the target that is asked for: a plan with more own noise is for a smaller epsilon.
    curator = central(replace(target, epsilon=EPSILON))
    numbers = (candidate_of(plan).messages, error(plan) / curator, plan.epsilon_a_priori)
    cells = (target.parties, target.colluding, f"{target.dropouts:g}", name, *(f"{number:.4g}" for number in numbers))
    return dict(zip(COLUMNS, map(str, cells), strict=True))


def read() -> list[Row]:
    if not ROWS.exists():
        return []
    with ROWS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel for each number of parties: error over a curator's against messages of a party."""
    from matplotlib.figure import Figure

    with paper_style():
        canvas = Figure(figsize=(7.2, 4.6))
        for axes, parties in zip(canvas.subplots(2, 2, sharey=True).flat, PARTIES, strict=True):
            _panel(axes, [row for row in rows if int(row["parties"]) == parties])
            axes.set(title=f"{parties} parties, {parties // 10} collude, a tenth leaves", xscale="log", yscale="log")
            axes.set(xlabel="messages of a party", ylabel="error over a curator's")
        found = {label: handle for axes in canvas.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        named = [name for name in NAMES.values() if name in found]
        canvas.legend([found[name] for name in named], named, loc="outside upper center", ncols=5)
        save(canvas, ROWS, path)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    for place, (protocol, name) in enumerate(NAMES.items()):
        for row in rows:
            if row["protocol"] == protocol:
                colour = COLOURS[place % len(COLOURS)]
                axes.plot(
                    [float(row["messages"])],
                    [float(row["error"])],
                    label=name,
                    linestyle="none",
                    # Another marker where a colour comes again.
                    marker=MARKERS[(place + 2 * (place // len(COLOURS))) % len(MARKERS)],
                    markersize=6,
                    color=colour,
                    markerfacecolor="white" if protocol in (HAPPENED, "consensus") else colour,
                )
    grid(axes)


def errors_and_messages(rows: Sequence[Row]) -> str:
    """The page's part: for each number of parties every protocol's error and messages, the least error without a server first."""
    lines = []
    by_place = {(row["protocol"], int(row["parties"])): row for row in rows}
    for protocol, name in NAMES.items():
        cells = [by_place.get((protocol, parties)) for parties in PARTIES]
        words = ["-" if row is None else f"{float(row['error']):.3g} ({float(row['messages']):.3g})" for row in cells]
        lines.append([name, *words])
    best = "; ".join(f"{parties} parties: {_best(rows, parties)}" for parties in PARTIES if _best(rows, parties))
    found = table(("", *(f"{parties} parties" for parties in PARTIES)), lines)
    return f"{found}\nLeast error of a promise without a server, and of the papers' protocols: {best}.\n"


def _best(rows: Sequence[Row], parties: int) -> str:
    kept = {
        row["protocol"]: float(row["error"])
        for row in rows
        if int(row["parties"]) == parties and float(row["epsilon_a_priori"]) <= EPSILON * (1 + 1e-6) and float(row["dropouts"])
    }
    peers = [name for name in kept if name not in ("central-dp", COMMITTEE)]
    papers = [name for name in peers if name in ("inca", "cordp-dme")]
    if "inca" not in papers:
        return ""
    first, ours = (min(names, key=lambda name: kept[name]) for names in (peers, papers))
    return f"{NAMES[first]} ({kept[first]:.3g}), {NAMES[ours]} ({kept[ours]:.3g})"


def page(text: str, rows: Sequence[Row]) -> str:
    """The page with its part made anew."""
    return between(text, BEGIN, END, "\n" + errors_and_messages(rows) + "\n")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    add_resume(parser)
    parser.add_argument("--parties", type=int, nargs="+", default=PARTIES, choices=PARTIES, help="for whom plans are made anew")
    parser.add_argument("--as-it-happened", action="store_true", help="no bounds for IncA beyond ten parties")
    asked = parser.parse_args()
    rows = read()
    for parties in asked.parties:
        with one_thread():
            anew = list(measured(parties, asked.resume, as_it_happened=asked.as_it_happened))
        rows = [row for row in rows if int(row["parties"]) != parties] + anew
        rows.sort(key=lambda row: (int(row["parties"]), list(NAMES).index(row["protocol"])))
        with ROWS.open("w", encoding="utf-8", newline="") as file:
            written = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            written.writeheader()
            written.writerows(rows)
    draw(rows, PICTURE)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
