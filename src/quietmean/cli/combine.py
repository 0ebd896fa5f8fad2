"""``quietmean combine``: add up the contributions to a study by file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import number, out, print_json, print_privacy, print_statistics, printable, warn
from quietmean.cli.privacy_page import write_pages


def command(
    study: Path,
    files: list[Path],
    /,
    *,
    receipt: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Add up the contributions to a sealed study, and certify. It takes no key: whoever has the files can do it, and again.

    Parameters
    ----------
    study
        The sealed study.
    files
        The contributions, in any order, under any name.
    receipt
        Where to write the receipt; by default STUDY.receipt.json beside the study. The report is written beside it.
    json
        One JSON document on standard output.
    """
    from quietmean.node.monitor import now
    from quietmean.node.preflight import package_version
    from quietmean.statistics import combined as all_terms
    from quietmean.studies.by_file import combine
    from quietmean.studies.distrust import Distrusted
    from quietmean.studies.sealed import Sealed

    begun = time.monotonic()
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    plan = sealed.study.plan(len(sealed.entries))
    found = combine(sealed, plan, files)
    outcome, names = found.outcome, [entry.name for entry in sealed.entries]
    for file, reason in found.left_out:
        warn(f"left out {file}: {reason}")
    origin = {
        "quietmean": package_version(),
        "study": plan.context,
        "target": plan.target.describe(),
        "plan": plan.digest,
        "session": sealed.digest,
        "names": names,
        "finished": now(),
        "by_file": found.to_json(),
    }
    path = receipt or study.with_name(f"{study.with_suffix('').name}.receipt.json")
    outcome.save_receipt(path, origin)
    pages = write_pages(
        path,
        sealed.study.name,
        outcome,
        names=names,
        origin=origin,
        messages=len(files) - len(found.left_out),
        bytes=sum(file.stat().st_size for file in files),
        seconds=time.monotonic() - begun,
    )
    document = {**outcome.to_json(), **found.to_json(), "receipt": str(path), **pages}
    if json:
        print_json(document)
        return
    out.print(printable(found.headline), markup=False)
    terms = all_terms(outcome.answers)
    for name, estimate, error in zip(terms.terms, terms.value, terms.standard_error, strict=True):
        text = f"{name}: {number(estimate, error)}, standard error of the privacy noise {number(error, error)}"
        out.print(text, markup=False)
    print_statistics(document)
    print_privacy(document, sealed.study)
    if found.missing:
        out.print("the privacy figures count the missing contributions as seen: they may still come", markup=False)
    out.print(f"receipt {path}", markup=False)
    for what, page in pages.items():
        if page is not None:
            out.print(f"{what.removesuffix('_page')} {page}", markup=False)
