"""``quietmean result``: what a committee opened, by anybody who has the sealed study and the members' sums."""

from __future__ import annotations

import time
from pathlib import Path

from quietmean.cli.opened import NO_OPENED_OPTIONS, OpenedOptions, OpenedPages


def result_command(
    study: Path,
    files: list[Path],
    /,
    *,
    written: OpenedOptions = NO_OPENED_OPTIONS,
    json: bool = False,
) -> None:
    """Check what the members of a committee opened, and certify it. It takes no key: anyone who has the files can do it,
    and again.

    Every signature is checked, and that enough members' sums fit together.

    Parameters
    ----------
    study
        The sealed study.
    files
        What members published, NAME.sums of one or more of them.
    json
        One JSON document on standard output.
    """
    from quietmean.core.errors import InputError, ProtocolFailure
    from quietmean.core.file_kinds import FileKind, kind_of_content, refuse_other
    from quietmean.planning.possible import ImpossibleResult
    from quietmean.protocols.committee.result import check_result, merge_results, read_result
    from quietmean.studies import save_impossible
    from quietmean.studies.agreement.committee_session import session_of
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import sealed_with_committee
    from quietmean.studies.agreement.signed import read_bounded
    from quietmean.studies.outcome.opened_by_committee import OpenedStudy

    begun = time.monotonic()
    path = written.receipt_of(study)
    sealed = sealed_with_committee(study)
    if sealed is None:
        raise InputError(
            f"{study} is not a sealed study with a committee: contributions to others are added up by quietmean combine"
        )
    Distrusted().refuse(sealed.holders())
    choice = sealed.choice()
    session = session_of(sealed, choice.plan)
    pages = OpenedPages(sealed, choice, path)
    results, size = [], 0
    for file in dict.fromkeys(files):
        content = read_bounded(file, _MOST)
        try:
            results.append(read_result(session, content))
        except InputError as error:
            refuse_other(kind_of_content(content), f"file {file}", FileKind.SUMS)
            raise InputError(f"{file}: {error}") from None
        size += len(content)
    checked = check_result(session, merge_results(results))
    try:
        opened = OpenedStudy.of(sealed, choice.plan, checked)
    except ImpossibleResult as error:
        save_impossible(path, choice.plan.target, error.execution, error, {"session": sealed.digest})
        raise ProtocolFailure(f"{error}; every contribution stays charged; receipt {path}") from None
    effort = {"messages": len(results), "bytes": size, "seconds": round(time.monotonic() - begun, 3)}
    pages.write(opened, effort, json)


# A million contributions are named in 80 MB.
_MOST = 1 << 28
