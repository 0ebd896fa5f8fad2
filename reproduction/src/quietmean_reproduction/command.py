"""``quietmean reproduce``: the figures of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quietmean.cli.console import err, out, print_json, progress
from quietmean.core.errors import InputError

if TYPE_CHECKING:
    from quietmean_reproduction import Figure


def command(
    names: Annotated[list[str] | None, Parameter(negative="")] = None,
    /,
    *,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    quick: Annotated[bool, Parameter(negative="")] = False,
    full: Annotated[bool, Parameter(negative="")] = False,
    out_: Annotated[Path, Parameter(name="--out")] = Path("figures"),
    seed: int = 0,
    workers: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make figures of the papers anew: numbers (CSV), drawings (PNG), and what the paper states beside what we find.

    Stop with Ctrl-C and start again at will: what is computed stays.

    Parameters
    ----------
    names
        Figures, such as inca-1, or all of one paper by its first word, such as inca.
    list_
        Only list the figures.
    all_
        Every figure.
    quick
        Fewer runs and points: minutes for everything. The default.
    full
        The papers' own sizes: hours for everything.
    out_
        Directory for the files.
    seed
        The same seed gives the same numbers (but for measured times).
    workers
        How many processes of this machine compute, by default one for each processor; or the address of a Dask scheduler, such
        as tcp://host:8786.
    json
        One JSON document on standard output.
    """
    from quietmean_reproduction import Effort, choose, registry
    from quietmean_reproduction.run import Reproduced, reproduce
    from quietmean_reproduction.sweeps import Workers

    if list_:
        _list(list(registry().values()), json=json)
        return
    if quick and full:
        raise InputError("--quick and --full exclude each other. Choose one.")
    if bool(names) == all_:
        raise InputError(f"which figures is not clear. Name some, or say --all; there are {', '.join(registry())}.")
    figures = list(registry().values()) if all_ else choose(names or [])

    def finished(made: Reproduced) -> None:
        agree = sum(claim.agrees is True for claim in made.claims)
        differ = sum(claim.agrees is False for claim in made.claims)
        err.print(
            f"{made.figure.name}: {agree} claims agree, {differ} differ ({made.processor_seconds:.0f} s of processor time)",
        )

    with progress("reproducing") as line:
        done = reproduce(
            figures,
            out_,
            effort=Effort.FULL if full else Effort.QUICK,
            seed=seed,
            workers=None if workers is None else Workers(workers),
            progress=lambda name, finished, total: line.say(f"{name}: {finished} of {total} tasks"),
            finished=finished,
        )
    if json:
        print_json(
            {
                "out": str(out_),
                "figures": [
                    one.to_json() | {"seconds": round(one.seconds, 1), "processor_seconds": round(one.processor_seconds, 1)}
                    for one in done
                ],
            }
        )
        return
    for one in done:
        out.print(f"{one.figure.name}: {one.figure.title}")
        for claim in one.claims:
            numbers = [
                f"{word} {value:.4g}" for word, value in (("paper", claim.paper), ("ours", claim.ours)) if value is not None
            ]
            shown = f" ({', '.join(numbers)})" if numbers else ""
            out.print(f"  {claim.verdict}: {claim.text}{shown}")
    out.print(f"written to {out_ / 'summary.md'}")


def _list(figures: list[Figure], *, json: bool) -> None:
    if json:
        print_json([{"name": one.name, "paper": one.paper, "title": one.title, "caption": one.caption} for one in figures])
        return
    width = max(len(one.name) for one in figures)
    for one in figures:
        out.print(f"{one.name:{width}}  {one.paper}: {one.title}")
