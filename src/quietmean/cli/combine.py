"""``quietmean combine``: add up the contributions to a study by file."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quietmean.cli.answers import print_answers
from quietmean.cli.console import (
    choice_document,
    out,
    output_options,
    print_json,
    print_privacy,
    printable,
    warn,
)
from quietmean.cli.pages import Pages
from quietmean.core.output import Output, json_object, require_apart

if TYPE_CHECKING:
    from quietmean.studies.agreement.study import StudyTerms
    from quietmean.studies.party.by_file import Combined

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
    from quietmean.core.errors import InputError, ProtocolFailure
    from quietmean.node.monitor import now
    from quietmean.node.preflight import package_version
    from quietmean.planning.possible import ImpossibleResult
    from quietmean.studies import save_impossible
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.outcome.forecast import Forecast
    from quietmean.studies.outcome.outcome import receipt_at
    from quietmean.studies.party.by_file import combine

    begun = time.monotonic()
    if folder is not None and receipt is not None:
        raise InputError("--out names the folder of the receipt, and --receipt its file: give one of them")
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    stem = study.with_suffix("").name
    path = receipt or (folder or study.parent) / f"{stem}.receipt.json"
    make_folder(path.parent)
    choice = sealed.study.choice(len(sealed.entries))
    plan = choice.plan
    names = [entry.name for entry in sealed.entries]
    belongs = {"study": plan.context, "session": sealed.digest, "names": names}
    pages = Pages.beside(path)
    beside = path.name.removesuffix(".json").removesuffix(".receipt")
    result = Output(
        path.with_name(f"{beside}.result.json"), "the result", own=partial(is_result_of, path), force=output_options.force
    )
    outputs = [receipt_at(path, belongs), result, *pages.outputs(belongs)]
    require_apart(outputs)
    for planned in outputs:
        planned.require_free()
    try:
        combined = combine(sealed, plan, files)
    except ImpossibleResult as error:
        save_impossible(path, plan.target, error.execution, error, belongs)
        raise ProtocolFailure(f"{error}; every contribution stays charged; receipt {path}") from None
    outcome = combined.outcome
    for file, reason in combined.left_out:
        warn(f"left out {file}: {reason}")
    origin = {
        **belongs,
        "quietmean": package_version(),
        "target": plan.target.describe(),
        "plan": plan.digest,
        "finished": now(),
        "by_file": combined.to_json(),
    }
    outcome.save_receipt(path, origin)
    notes = [_COUNTED_AS_SEEN] if combined.missing else []
    effort: dict[str, Any] = {
        "messages": len(combined.digests),
        "bytes": len(combined.digests) * int(plan.protocol.vector_bytes(plan.target.dimension)),
        "seconds": round(time.monotonic() - begun, 3),
    }
    counted = float(outcome.execution.weights[outcome.execution.contributors()].sum())
    public = sealed.study.public_records(len(names))
    records = counted * len(names) / len(combined.digests) if public is None else public
    document = {
        **outcome.to_json(),
        **combined.to_json(),
        **choice_document(choice),
        **effort,
        "notes": notes,
        "expected": Forecast(sealed.study, plan, records).to_json(),
        "receipt": str(path),
        **pages.to_json(),
    }
    result.write_json(document)
    # The answer first: pages only show it.
    if json:
        print_json(document)
    else:
        _show(sealed.study, combined, document)
        out.print(f"result  {result.path}\nreceipt {path}", markup=False)
    shown_to: dict[str, Any] = {"names": names, "origin": origin, "notes": tuple(notes)}
    pages.write(sealed.study.name, outcome, tell=not json, **shown_to, **effort)


def is_result_of(receipt: Path, content: bytes) -> bool:
    """Whether a file holds a result that names this receipt, which was looked at itself."""
    named = json_object(content).get("receipt")
    return isinstance(named, str) and Path(named).name == receipt.name


def _show(study: StudyTerms, combined: Combined, document: dict[str, Any]) -> None:
    out.print(printable(combined.headline), markup=False)
    print_answers(combined.outcome.answers, document)
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
