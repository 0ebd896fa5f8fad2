"""``quietmean combine``: add up the contributions to a study by file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from quietmean.cli.console import warn
from quietmean.cli.opened import NO_OPENED_OPTIONS, OpenedOptions, OpenedPages
from quietmean.protocols.mechanism import vector_bytes


def combine_command(
    study: Path,
    files: list[Path],
    /,
    *,
    written: OpenedOptions = NO_OPENED_OPTIONS,
    json: bool = False,
) -> None:
    """Add up the contributions to a sealed study, and certify. It takes no key: anyone who has the files can do it, and again.

    Parameters
    ----------
    study
        The sealed study.
    files
        The contributions, in any order, under any name.
    json
        One JSON document on standard output.
    """
    from quietmean.core.errors import ProtocolFailure
    from quietmean.planning.possible import ImpossibleResult
    from quietmean.studies import save_impossible
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.outcome.forecast import Forecast
    from quietmean.studies.party.by_file import combine

    begun = time.monotonic()
    path = written.receipt_of(study)
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    parties = len(sealed.entries)
    choice = sealed.choice()
    plan = choice.plan
    pages = OpenedPages(sealed, choice, path, "by_file")
    try:
        combined = combine(sealed, plan, files)
    except ImpossibleResult as error:
        save_impossible(path, plan.target, error.execution, error, pages.belongs)
        raise ProtocolFailure(f"{error}; every contribution stays charged; receipt {path}") from None
    for file, reason in combined.left_out:
        warn(f"left out {file}: {reason}")
    effort: dict[str, Any] = {
        "messages": len(combined.digests),
        "bytes": len(combined.digests) * int(vector_bytes(plan.protocol, plan.target.dimension)),
        "seconds": round(time.monotonic() - begun, 3),
    }
    execution = combined.outcome.execution
    counted = float(execution.weights[execution.contributors()].sum())
    public = sealed.study.public_records(parties)
    records = counted * parties / len(combined.digests) if public is None else public
    pages.write(combined, effort, json, expected=Forecast(sealed.study, plan, records).to_json())
