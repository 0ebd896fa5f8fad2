"""``quietmean combine``: add up the contributions to a study by file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quietmean.cli.console import (
    choice_document,
    number,
    out,
    print_json,
    print_privacy,
    print_statistics,
    printable,
    warn,
    write_json,
)
from quietmean.cli.pages import Pages

if TYPE_CHECKING:
    from quietmean.studies.by_file import Combined
    from quietmean.studies.study import Study

_COUNTED_AS_SEEN = "the privacy figures count the missing contributions as seen: they may still come"


def command(
    study: Path,
    files: list[Path],
    /,
    *,
    receipt: Path | None = None,
    folder: Annotated[Path | None, Parameter(name="--out")] = None,
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
        Where to write the receipt; by default STUDY.receipt.json beside the study. Result and report are written beside it.
    folder
        The folder for STUDY.result.json (what --json prints), STUDY.receipt.json and STUDY.privacy.html; it is made if need be.
    json
        One JSON document on standard output.
    """
    from quietmean.core.errors import InputError
    from quietmean.node.monitor import now
    from quietmean.node.preflight import package_version
    from quietmean.studies.by_file import combine
    from quietmean.studies.distrust import Distrusted
    from quietmean.studies.forecast import Forecast
    from quietmean.studies.sealed import Sealed

    begun = time.monotonic()
    if folder is not None and receipt is not None:
        raise InputError("--out names the folder of the receipt, and --receipt its file: give one of them")
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    choice = sealed.study.choice(len(sealed.entries))
    plan = choice.plan
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
    stem = study.with_suffix("").name
    path = receipt or (folder or study.parent) / f"{stem}.receipt.json"
    make_folder(path.parent)
    outcome.save_receipt(path, origin)
    beside = path.name.removesuffix(".json").removesuffix(".receipt")
    notes = [_COUNTED_AS_SEEN] if found.missing else []
    effort: dict[str, Any] = {
        "messages": len(found.digests),
        "bytes": len(found.digests) * int(plan.protocol.vector_bytes(plan.target.dimension)),
        "seconds": round(time.monotonic() - begun, 3),
    }
    pages = Pages.beside(path)
    counted = float(outcome.execution.weights[outcome.execution.contributors()].sum())
    public = sealed.study.public_records(len(names))
    records = counted * len(names) / len(found.digests) if public is None else public
    document = {
        **outcome.to_json(),
        **found.to_json(),
        **choice_document(choice),
        **effort,
        "notes": notes,
        "expected": Forecast(sealed.study, plan, records).to_json(),
        "receipt": str(path),
        **pages.to_json(),
    }
    result = path.with_name(f"{beside}.result.json")
    write_json(result, document, "the result")
    # The answer first: pages only show it.
    if json:
        print_json(document)
    else:
        _show(sealed.study, found, document)
        out.print(f"result  {result}\nreceipt {path}", markup=False)
    shown_to: dict[str, Any] = {"names": names, "origin": origin, "notes": tuple(notes)}
    pages.write(sealed.study.name, outcome, tell=not json, **shown_to, **effort)


def _show(study: Study, found: Combined, document: dict[str, Any]) -> None:
    from quietmean.statistics import combined as all_terms

    out.print(printable(found.headline), markup=False)
    terms = all_terms(found.outcome.answers)
    for name, estimate, error in zip(terms.terms, terms.value, terms.standard_error, strict=True):
        text = f"{name}: {number(estimate, error)}, standard error of the privacy noise {number(error, error)}"
        out.print(text, markup=False)
    print_statistics(document)
    print_privacy(document, study)
    for note in document["notes"]:
        out.print(note, markup=False)


def make_folder(folder: Path) -> None:
    """Raises :class:`InputError` if it cannot be made."""
    from quietmean.core.errors import InputError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"folder {folder} cannot be made ({error.strerror}): name another with --out") from None
