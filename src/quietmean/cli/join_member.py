"""``quietmean join`` of a member: it contributes where it has data, waits for the others' contributions, and opens one sum."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.opened import OpenedPages
from quietmean.core.errors import InputError, ProtocolFailure

if TYPE_CHECKING:
    from quietmean.cli.live import NodeDisplay
    from quietmean.core.site_options import SiteOptions
    from quietmean.studies.agreement.sealed import Sealed


def take_part(
    study: Path,
    sealed: Sealed,
    key: Path,
    data: str | Path | None,
    contributions: Path | None,
    site: SiteOptions,
    shown: NodeDisplay,
    json: bool,
) -> None:
    """From the contributions in a folder to the result. Raises :class:`InputError` for who is not a member."""
    import asyncio

    from quietmean.cli.contribute import write_contribution
    from quietmean.cli.identity import load_identity
    from quietmean.planning.possible import ImpossibleResult
    from quietmean.studies import save_impossible
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.outcome.feasible import feasible_sealed
    from quietmean.studies.outcome.opened_by_committee import OpenedStudy
    from quietmean.studies.party import Contract, Files, Observers, Policy, auditor_for, ended, file_name
    from quietmean.studies.party.audit import Event
    from quietmean.studies.party.member import MemberFiles, open_with_others

    begun = time.monotonic()
    if contributions is None:
        raise InputError("a member needs --contributions, the folder with the files that contributors handed in")
    Distrusted().refuse(sealed.holders())
    with shown.asking():
        identity = load_identity(key)
    own = next((entry for entry in sealed.entries if entry.identity == identity.public_key), None)
    if own is not None and not own.member:
        raise InputError(f"{own.name} is not a member of the committee: hand in its file with quietmean contribute")
    files = Files.load(study, None, key, lambda path: identity, site.store)
    shown.say("calibrating the noise")
    choice = feasible_sealed(sealed)
    if data is not None:
        with shown.asking():
            path = contributions / f"{file_name(files.name)}.contribution"
            try:
                write_contribution(study, sealed, identity, key, data, path, site.store, site)
            except InputError as error:
                late = files.study.committee is not None and datetime.now(UTC) >= files.study.committee.contribute_by
                raise InputError(f"{error}; without --data this member takes part all the same") if late else error from None
    rules = Policy.load(site.policy)
    path = files.receipt(site.receipt)
    pages = OpenedPages(sealed, choice, path, origin={"party": files.name})
    auditor = auditor_for(rules, files.identity, Contract.by_file(sealed, files.identity, choice))
    auditor.write(Event.STARTED, {"plan": choice.plan.digest, "charged": data is not None, "member": True})
    member = MemberFiles(files, choice.plan, site)
    observers = Observers(shown.report, shown.observe)
    try:
        end = asyncio.run(open_with_others(member, contributions, observers, rules.folder, lambda text: shown.warn([text])))
    except ProtocolFailure as error:
        ended(auditor, {}, result=False, reason="the committee opened nothing here")
        raise ProtocolFailure(
            f"{error}; contributions stay charged, and this member takes no part in this study again: if others have the result, "
            "one file NAME.sums of theirs shows it, with quietmean result"
        ) from None
    ended(auditor, {}, result=True)
    try:
        opened = OpenedStudy.of(sealed, choice.plan, end.checked, end.left_out)
    except ImpossibleResult as error:
        save_impossible(path, choice.plan.target, error.execution, error, {"session": sealed.digest, "party": files.name})
        raise ProtocolFailure(f"{error}; every contribution stays charged; receipt {path}") from None
    effort: dict[str, Any] = {
        "messages": end.result.transfers,
        "bytes": end.result.bytes_sent,
        "seconds": round(time.monotonic() - begun, 3),
        "sums": str(member.sums),
    }
    pages.write(opened, effort, json)
