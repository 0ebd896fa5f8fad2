"""From the yes to the charge: one party's vector is made and paid for, and nothing has been sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.output import Output, require_apart
from quietmean.node import Brought, Identity, NodeSettings
from quietmean.node.monitor import status_at
from quietmean.node.storage import require_store
from quietmean.planning import Admitted, Plan
from quietmean.planning.automatic import Choice
from quietmean.statistics import Encoded
from quietmean.studies.audit import Auditor, Event
from quietmean.studies.data import Source
from quietmean.studies.forecast import Forecast
from quietmean.studies.party.approval import Answer, Questions, approve
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.files import Files, Show
from quietmean.studies.party.payment import ChargedStudy, Payer, execution_id
from quietmean.studies.party.policy import Policy


@dataclass(frozen=True)
class Prepared:
    """What :func:`take_part` needs. ``forecast``: how wide intervals will be; ``approval``: what a receipt says of the yes.

    ``auditor`` writes the site's audit log.
    """

    files: Files
    settings: NodeSettings
    forecast: Forecast
    approval: Mapping[str, Any]
    charge: ChargedStudy | None
    auditor: Auditor


def agree(
    files: Files,
    contract: Contract,
    policy: Policy,
    store: Path,
    answer: Answer,
    questions: Questions,
    warn: Callable[[str], None],
    account: str,
) -> Mapping[str, Any]:
    """The yes to a study in which parties connect; ``account``: what the ledger calls the data.

    Raises :class:`InputError` without one, and as :func:`approve` does.
    """
    if files.keys is not None and files.keys.given is not None:
        raise InputError(f"{files.name} contributed to this study by file: a second time would tell more than was agreed")
    begun = store.exists() and store.stat().st_size > 0
    return approve(
        contract,
        policy,
        answer,
        questions,
        warn,
        account=account,
        keys=files.keys,
        begun=begun,
        auditor=auditor_for(policy, files.identity, contract),
    )


def prepare(
    files: Files,
    contract: Contract,
    policy: Policy,
    approval: Mapping[str, Any],
    data: Source,
    store: Path,
    payer: Payer | None,
    tell_owner: Callable[[Encoded, Sequence[str]], None],
    *,
    show: Show | None = None,
    listen: str | None = None,
    folder: str | None = None,
    once: bool = False,
    listen_through: Path | str | None = None,
    outputs: Callable[[NodeSettings], Iterable[Output]] = lambda settings: (),
) -> Prepared:
    """Read the data, and charge the study to ``payer`` before anything leaves.

    ``tell_owner`` gets what was done to values that did not fit. Nothing of the data is kept but this party's vector. Raises
    :class:`InputError` for data that do not fit, too few records, a hopeless study, a budget that does not allow it, or an
    approval that another execution used up; or for one of the ``outputs`` that cannot be written.
    """
    plan = contract.plan
    # What is missing for it is said before anything is read.
    folder = files.folder_of(folder, policy.folder, store, once=once)
    records = files.records(data)
    auditor = auditor_for(policy, files.identity, contract)
    with auditor.refusals():
        policy.refuse_records(len(records), files.study.count)
    forecast = files.forecast(plan, records)
    encoded = files.encode(records, plan)
    tell_owner(encoded, files.owner_notes)
    smaller = brought(files, contract.choice, records)
    settings = files.settings(plan, encoded, store, show, listen, smaller, folder, once, listen_through)
    # Before the charge: what it is paid for has to be kept.
    places = [*outputs(settings), status_at(store)]
    require_apart(places, store)
    require_store(store)
    for place in places:
        place.require_free()
    # Before the charge: an approval that was used up pays nothing.
    if approvals := approval.get("approval", {}).get("approvals", ()):
        auditor.use(approvals, execution_id(settings))
    charge = None
    if payer is not None:
        charge = payer.of(records).reserve(files.study.name, settings, contract.charge)
        auditor.write(Event.CHARGED, charge_of(plan, payer, contract.epsilon_a_priori))
        settings = _bound_in_ledger(settings, charge)
    return Prepared(files, settings, forecast, approval, charge, auditor)


def brought(files: Files, choice: Choice, records: NDArray[np.float64]) -> dict[int, Brought]:
    """Plans and this party's vectors for fewer parties than all, on the grids of these plans."""

    def admitted(plan: Plan) -> Admitted:
        encoded = files.encode(records, plan)
        return plan.admit(encoded.vector, encoded.weight, wipe=True)

    return {size: Brought(plan, admitted(plan)) for size, plan in choice.smaller.items()}


def _bound_in_ledger(settings: NodeSettings, charge: ChargedStudy) -> NodeSettings:
    """The ledger knows of an attempt to start before this party is bound to it."""
    if settings.quorum is None:
        return settings
    return replace(settings, quorum=replace(settings.quorum, before_bound=charge.bind))


def auditor_for(policy: Policy, identity: Identity, contract: Contract) -> Auditor:
    """Writes what this party does about a contract to the audit log of its site."""
    return Auditor(policy.audit_log, identity, contract.own.name, contract.study.name, contract.digest)


def charge_of(plan: Plan, payer: Payer, epsilon: float | None = None) -> dict[str, Any]:
    """What is charged, for the audit log. ``epsilon``: at most, by default of this plan."""
    epsilon = plan.epsilon_a_priori if epsilon is None else epsilon
    known = math.isfinite(epsilon)
    return {
        "account": payer.account,
        "ledger": str(payer.ledger),
        "epsilon": epsilon if known else "not known beforehand",
        "delta": plan.target.delta,
        "group": payer.group or 1,
    }
