"""What ``quietmean plan`` prints of protocols that it compared."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from rich.table import Table

from quietmean.cli.console import out, print_lines, whole_words
from quietmean.cli.screens import NEXT, with_remark
from quietmean.core.readable import (
    SCREEN,
    bound_text,
    count_of,
    delta_shown,
    epsilon_shown,
    epsilon_text,
    error_text,
    least_text,
    some_of,
)
from quietmean.planning.influence import Checked

# So many protocols in the first table, besides the trusted curator.
_ROWS = 5
_CURATOR = "trusted curator (compare)"
# The study that `study new` writes if nothing else is said.
_STUDY = Path("study.toml")
# Of its files, one that is missing makes the result noise.
_ALL_FILES = "cordp-dme"
# What protocols say in which all parties do the same.
_NO_SERVER = "no server"


def first_screen(answer: Mapping[str, Any], *, named: bool, saved: Path | None = None, details: bool = False) -> list[str]:
    """The lines of the first screen; ``named``: the protocols were named, so that all of them are in the table.

    ``saved``: the file of the plan. ``details``: all else is below it.
    """
    candidates, chosen = answer["candidates"], answer["candidates"][answer["chosen"]]
    rows = [_row(candidate, answer["target"]) for candidate in candidates]
    rows += [_row_left_out(other, answer["target"]) for other in answer.get("left_out", ()) if "mse_at_least" in other]
    if not named:
        rows += [_row_of_committee(way) for way in answer.get("ways", ()) if way.get("members") and "mse" in way]
    kept = rows if named else _kept(rows, chosen["protocol"])
    first = chosen.get("above_target", chosen.get("nats_kept"))
    return [
        *([f"! {first}"] if first else []),
        _title(answer["target"]),
        *_table(kept, chosen),
        "",
        *_below(answer, rows, kept, named),
        *([] if details else [f"{_left_out(rows, kept)}: --details"]),
        *(_with_data(answer["target"]["parties"]) if saved is None else [f"{NEXT}simulate {quote(str(saved))}"]),
    ]


def _with_data(parties: int) -> list[str]:
    """How to plan a study of one's own; where there is none yet how to write it, which leads to its plan."""
    if _STUDY.exists():
        return [f"{NEXT}plan --study {_STUDY} --parties {parties:d} --records 5000"]
    return with_remark(f'{NEXT}study new "mean(age in 0..110)"', "or your own question")


class Row(NamedTuple):
    """A protocol, its error, what a site has to do, whom it trusts, and whether one file is all that it sends.

    ``least``: the error is a lower bound, for it was not computed.
    """

    name: str
    error: float
    needs: str
    trust: str
    by_file: bool
    least: bool = False


def _row(candidate: Mapping[str, Any], target: Mapping[str, Any]) -> Row:
    by_file = candidate["by_file"]
    files = "one file, none missing" if candidate["protocol"] == _ALL_FILES else "one file each"
    needs = files if by_file else f"online together, {count_of(candidate['rounds'], 'round')}"
    trust = _trust(candidate, target)
    return Row(candidate["protocol"], math.sqrt(candidate["mse"]), needs, trust, by_file)


def _row_left_out(other: Mapping[str, Any], target: Mapping[str, Any]) -> Row:
    needs = f"type --protocol {other['protocol']}"
    return Row(other["protocol"], math.sqrt(other["mse_at_least"]), needs, _trust(other, target), other["by_file"], least=True)


def _trust(candidate: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """How many have to be honest, where nobody has another role than the other parties."""
    if candidate["trust"] != _NO_SERVER:
        return str(candidate["trust"])
    if "every coalition" in candidate.get("certificate", {}).get("certificate", ""):
        return "nobody"
    return f"{target['parties'] - target['colluding']} of {target['parties']}"


def _row_of_committee(way: Mapping[str, Any]) -> Row:
    members, colluding = way["members"], way["colluding_members"]
    trust = f"{members - colluding} of {members} members"
    return Row(way["protocol"], math.sqrt(way["mse"]), f"one file, {members} online", trust, by_file=True)


def _kept(rows: Sequence[Row], chosen: str) -> list[Row]:
    """The rows that differ in what they need: the chosen one, a committee, the best and the simplest by file; then the best."""
    ordered = sorted(rows, key=lambda row: (row.name != chosen, row.least, row.error))
    by_file = [row for row in ordered if row.by_file and not row.least]
    first = [ordered[0], *(row for row in by_file if row.trust.endswith("members")), *by_file[:1], *by_file[-1:]]
    best = list(dict.fromkeys([*first, *ordered]))[: _ROWS - 1]
    return [row for row in ordered if row in best]


def _title(target: Mapping[str, Any]) -> str:
    promise = f"{target['nats']:g} nats" if "nats" in target else f"epsilon {target['epsilon']:g}"
    leave = f"{100 * target['dropouts']:g} % drop out" if target["dropouts"] else "no dropouts"
    return (
        f"{count_of(target['parties'], 'party', 'parties')}, {promise} (delta {delta_shown(target['delta'])}) per party, "
        f"{target['colluding']} may team up, {leave}"
    )


def _table(rows: Sequence[Row], chosen: Mapping[str, Any]) -> Iterator[str]:
    central = float(chosen["mse_central"])
    # The error of one coordinate, in the units of values.
    lines = [(row.name, "not computed" if row.least else error_text(row.error), row.needs, row.trust) for row in rows]
    lines = [("protocol", "error", "needs", "trust"), *lines]
    if math.isfinite(central):
        lines.append((_CURATOR, error_text(math.sqrt(central)), "", ""))
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    room = SCREEN - 2 - sum(width + 2 for width in widths)
    for line in lines:
        star = "*" if line[0] == chosen["protocol"] else " "
        cells = "".join(f"{cell:<{width + 2}}" for cell, width in zip(line, widths, strict=False))
        first, *below = textwrap.wrap(line[3], room) or [""]
        yield f"{star} {cells}{first}".rstrip()
        yield from (" " * (SCREEN - room) + rest for rest in below)


def _below(answer: Mapping[str, Any], rows: Sequence[Row], kept: Sequence[Row], named: bool) -> Iterator[str]:
    chosen = answer["candidates"][answer["chosen"]]
    has = answer["domain"].replace("1 coordinate", "one number")
    same = [row for row in kept if row.name != chosen["protocol"] and not row.least]
    error = math.sqrt(chosen["mse"])
    if not named and all(error < row.error for row in rows if row.name != chosen["protocol"]):
        close = ", unrounded" if any(error_text(row.error) == error_text(error) for row in same) else ""
        yield f"* Chosen: least error{close}. It is how far the mean typically is off."
    else:
        yield f"* {'Least error' if named else 'Chosen'}. The error is how far the mean of all parties typically is off."
    yield f"  Here each party has {has}. With more records it is smaller."
    if "gate" in chosen["certificate"]:
        yield f"  {chosen['protocol']}: {chosen['certificate']['gate']}"
    yield from answer.get("instead", ())
    promised = {row["protocol"]: float(row["epsilon_a_priori"]) for row in answer["candidates"]}
    limit = float(answer["target"].get("epsilon", math.inf)) * (1 + 1e-9)
    above = [row.name for row in kept if promised.get(row.name, 0.0) > limit]
    for name in above:
        # An infinite epsilon promises nothing.
        most = "no epsilon" if math.isinf(promised[name]) else f"epsilon {epsilon_shown(promised[name])} only"
        yield f"! {name} guarantees {most}"


def _left_out(rows: Sequence[Row], kept: Sequence[Row]) -> str:
    left = [row.name for row in rows if row not in kept]
    return f"More protocols ({some_of(left, 4)})" if left else "More"


def show_all(answer: dict[str, Any]) -> None:
    """Print rounds, messages, bytes, reasons: all that a plan says."""
    chosen = answer["candidates"][answer["chosen"]]
    if first := chosen.get("above_target", chosen.get("nats_kept")):
        print_lines([first])
    print_lines(
        [
            "Predicted MSE is the error above, squared: an estimate. The guaranteed epsilon is a bound.",
            "Over connections, all parties online (also those that could send one file):",
        ]
    )
    table = Table(box=None, pad_edge=False)
    # On 80 columns headings wrap, names and numbers do not.
    for title in ("protocol", "predicted MSE", "guaranteed epsilon", "rounds", "messages per party", "bytes per party", "trust"):
        table.add_column(title, justify="left" if title in ("protocol", "trust") else "right", no_wrap=title == "protocol")
    candidates = answer["candidates"]
    for candidate in candidates:
        messages, size = f"{candidate['messages_per_party']:.1f}", f"{candidate['bytes_per_party']:.0f}"
        table.add_row(
            candidate["protocol"],
            f"{candidate['mse']:.4g}",
            epsilon_text(float(candidate["epsilon_a_priori"])),
            str(candidate["rounds"]),
            messages,
            size,
            candidate["trust"],
        )
    for other in answer.get("left_out", ()):
        if "mse_at_least" in other:
            table.add_row(other["protocol"], least_text(other["mse_at_least"]), *("",) * 4, other["trust"])
    out.print(whole_words(table))
    if answer.get("ways"):
        _show_ways(answer["ways"])
        if not answer["target"]["dropouts"] and any(row["protocol"] == _ALL_FILES for row in candidates):
            print_lines([f"{_ALL_FILES} is not in this table. By file, one that is missing makes its result noise."])
    sentences = [f"domain of a value under {candidates[answer['chosen']]['protocol']}: {answer['domain']}"]
    if (moved := answer.get("influence")) is not None:
        beyond = "even out of its bounds, " if float(moved["largest"]) > float(answer["target"]["sensitivity"]) else ""
        sentences += [
            "a party that lies can move each number of the mean by at most "
            f"{bound_text(float(moved['largest']))}, {beyond}if all weigh the same",
            Checked(moved["checked"]).sentence,
            *moved.get("unnoticed", ()),
        ]
    gates = [f"{row['protocol']}: {row['certificate']['gate']}" for row in candidates if "gate" in row["certificate"]]
    drawn = [_committee_sentence(row) for row in candidates if row.get("committee")]
    proposed = [answer["proposed"]] if "proposed" in answer else []
    sentences += [answer["why"], *proposed, *gates, *answer.get("instead", ()), *drawn, *answer.get("otherwise", ())]
    print_lines(sentences)


def _show_ways(ways: list[dict[str, Any]]) -> None:
    print_lines(["Ways to take part, and what each asks of a site:"])
    table = Table(box=None, pad_edge=False)
    for title in ("without a server", "predicted MSE", "who may collude", "steps a site", "bytes a site"):
        right = title.startswith(("predicted", "bytes"))
        table.add_column(title, justify="right" if right else "left", no_wrap=title == "without a server")
    for way in ways:
        mse, sent = ("", "") if "mse" not in way else (f"{way['mse']:.4g}", f"{way['sent']:.0f}")
        table.add_row(way["protocol"] or way["way"], mse, way["against"], way["steps"], sent)
    out.print(whole_words(table))


def _committee_sentence(row: dict[str, Any]) -> str:
    """What a committee drawn of many parties would take."""
    drawn = row["committee"]
    sent, received = (drawn[f"bytes_member_{way}"] / 1e6 for way in ("sends", "receives"))
    return (
        f"{row['protocol']} with a committee of {drawn['members']} drawn of the parties (an estimate, as none is "
        f"here yet). At most {drawn['colluding_members']} of them collude, but for {drawn['beta']:.2g} of delta. A "
        f"party would send {drawn['bytes_party_sends'] / 1e6:.3g} MB. A member would send {sent:.3g} MB and receive "
        f"{received:.3g} MB. It takes {drawn['rounds']} rounds, {drawn['seconds_on_links']:.3g} s on links of 100 "
        "Mbit/s"
    )
