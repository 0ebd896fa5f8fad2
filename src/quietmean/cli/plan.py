"""``quietmean plan``: which protocol, with which noise, at which cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import out, print_json, progress
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.planning.calibrate import Calibration

NAME = "plan"


def command(
    *,
    parties: int,
    dimension: int = 1,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    colluding: float | None = None,
    dropouts: float = 0.0,
    sensitivity: float = 1.0,
    unit: PrivacyUnit = PrivacyUnit.PARTY,
    protocol: list[str] | None = None,
    rounds: int | None = None,
    neighbours: int | None = None,
    schedule: str | None = None,
    calibration: Calibration = Calibration.EXACT,
    save: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Calibrate protocols for a target and rank them by predicted mean squared error.

    Parameters
    ----------
    parties
        Number of parties.
    dimension
        Coordinates of a value.
    epsilon
        Privacy target, together with delta.
    delta
        Probability with which the epsilon guarantee may fail.
    colluding
        How many parties may collude: a count, or a fraction below 1; default one in ten.
    dropouts
        Fraction of parties expected to leave for good.
    sensitivity
        L2 change of a party's value when one protected unit is replaced.
    unit
        What is protected: one record, or all of a party.
    protocol
        Only these protocols; repeat for several.
    rounds
        Mixing rounds of protocols that mix; default from the number of parties.
    neighbours
        To how many others each party sends per round; default 1.
    schedule
        Who sends to whom: permutation (default), uniform, circulant, never-same, ring, complete, hypercube, random-static.
    calibration
        exact; or, to compare with the IncA paper, exact-view or paper (epsilon < 1 only).
    save
        Write the best plan to this file.
    json
        One JSON document on standard output.
    """
    from quietmean.planning.candidates import rank
    from quietmean.planning.plan import Target, colluding_count

    target = Target(
        parties=parties,
        epsilon=epsilon,
        delta=delta,
        dimension=dimension,
        sensitivity=sensitivity,
        colluding=colluding_count(parties, 0.1 if colluding is None else colluding),
        dropouts=dropouts,
        unit=unit,
    )
    with progress("calibrating"):
        given = {"rounds": rounds, "out_degree": neighbours, "schedule": schedule}
        chosen = {name: value for name, value in given.items() if value is not None}
        candidates = rank(target, protocol, chosen, calibration)
    if save is not None:
        try:
            candidates[0].plan.save(save)
        except OSError as error:
            raise InputError(f"the plan cannot be written to {save} ({error.strerror}): choose another place") from None
    if json:
        print_json({"target": target.describe(), "candidates": [c.to_json() for c in candidates], "chosen": 0})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("protocol", "predicted MSE", "rounds", "messages/party", "bytes/party", "trust"):
        table.add_column(title, justify="left" if title in ("protocol", "trust") else "right")
    for c in candidates:
        plan = c.plan
        table.add_row(
            plan.protocol.name, f"{c.mse:.4g}", str(c.rounds), f"{c.messages:.1f}", f"{c.bytes_sent:.0f}", plan.protocol.trust
        )
    out.print(table)
