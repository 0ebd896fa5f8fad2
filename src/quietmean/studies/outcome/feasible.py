"""The verdict on a study before its start: what can be combined, and whether noise would hide what it asks.

Every command, the pages of a site and Python ask here, before anybody says yes and before data are read. What a site decides for
itself is its consent: its policy, its budget, a protocol without privacy, a figure above the target.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from quietmean.core.errors import InputError
from quietmean.planning.automatic import AUTO, Choice
from quietmean.planning.plan import Plan
from quietmean.protocols import Mechanism, configure
from quietmean.protocols.mechanism import is_private, require_privacy
from quietmean.studies.agreement.any_study import AnyStudy, has_committee
from quietmean.studies.agreement.deadlines import require_ahead, require_alike
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.session_terms import require_private
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.forecast import Forecast

if TYPE_CHECKING:
    from quietmean.studies.agreement.sealed import Sealed


def require_in_general(terms: AnyStudy, *, no_privacy: bool | None = False) -> None:
    """Raises :class:`InputError` for what does not go together before it is known who comes; ``no_privacy`` as below."""
    if (protocol := _named(terms)) is not None:
        _require_protocol(terms, protocol, no_privacy=no_privacy)


def feasible(
    terms: AnyStudy,
    parties: int,
    *,
    by_file: bool = False,
    no_privacy: bool | None = False,
    units: float | None = None,
    planned: Choice | None = None,
    hope: bool = True,
) -> Choice:
    """The plans that all parties make, where all goes together: what one way in refuses, every other refuses in the same words.

    ``by_file``: each party sends one file. ``no_privacy``: whether somebody agreed to a protocol without privacy; None where each
    site says that for itself. ``units``: how many records, persons or parties there are, by default as far as the study says.
    ``planned``: plans that are made already. ``hope``: refuse what noise would hide, on public grounds only. Raises
    :class:`InputError`.
    """
    protocol = _named(terms) if planned is None else planned.plan.protocol
    if protocol is not None:
        _require_protocol(terms, protocol, by_file=by_file, no_privacy=no_privacy)
    if by_file and terms.starts_with_quorum:
        raise InputError(
            "start_by and minimum have no effect where each party hands in one file. Leave them out, and let "
            "dropouts say how many may be missing."
        )
    choice = planned or _planned(terms, parties, protocol is not None and not is_private(protocol))
    fewest = terms.records_per_party[0] if isinstance(terms, StudyTerms) and terms.records_per_party else 0
    for plan in choice.plans:
        if isinstance(terms, StudyTerms) and fewest:
            # Fewer than that no party may have.
            plan.require_room(terms.workload.weight_of(fewest))
        if by_file:
            require_by_file(plan)
    if hope and isinstance(terms, StudyTerms):
        expected = terms.public_records(terms.contributions_expected(parties)) if units is None else units
        if expected is not None:
            Forecast(terms, choice.plan, expected).require_hope()
    return choice


def feasible_sealed(sealed: Sealed, *, by_file: bool = False, no_privacy: bool | None = False) -> Choice:
    """Return the plans of a sealed study for all who may take part; ``by_file``: where a party does so with an address, too."""
    terms, protocol, one_file = sealed.study, _named(sealed.study), by_file or sealed.by_file
    if protocol is not None:
        _require_protocol(terms, protocol, by_file=one_file, no_privacy=no_privacy)
    planned = sealed.choice(no_privacy=protocol is not None and not is_private(protocol))
    return feasible(terms, sealed.admitted, by_file=one_file, no_privacy=None, planned=planned)


def require_sealable(sealed: Sealed, now: datetime) -> Choice:
    """The plans of what a convener is about to seal. Raises :class:`InputError` for what its parties could not do."""
    terms = sealed.terms
    require_ahead(terms.start_by, now)
    if terms.deadlines is not None:
        terms.deadlines.require_ahead(now)
    if isinstance(terms, StudyTerms) and terms.committee is not None:
        terms.committee.require_open(now)
    if not sealed.by_file:
        # Somebody may have given no address.
        _ = sealed.roster
    if isinstance(terms, SessionStudy):
        return feasible(terms, sealed.admitted)
    return feasible_sealed(sealed, no_privacy=None)


def needs_addresses(terms: AnyStudy, *, member: bool = False) -> bool:
    """Whether nobody can seal this without an address of each party that is to connect, or of each ``member`` of a committee."""
    if terms.by_folder or has_committee(terms):
        return member and not terms.by_folder
    protocol = _named(terms)
    return isinstance(terms, SessionStudy) or protocol is None or not protocol.traits.by_file


def require_by_file(plan: Plan) -> None:
    """Raises :class:`InputError` for a plan that files cannot carry, or that is useless as soon as one is missing."""
    protocol, target = plan.protocol, plan.target
    _require_one_message(protocol)
    if protocol.name == "cordp-dme" and target.responding == target.parties:
        raise InputError(
            f"the study is planned for the files of all {target.parties} parties, without one of them its result would be noise. "
            "State in it how many may be missing, for example dropouts = 0.1."
        )


def _named(terms: AnyStudy) -> Mechanism | None:
    """The protocol that is asked for by its name; None where it follows from the rest."""
    return None if terms.protocol == AUTO or has_committee(terms) else configure(terms.protocol, terms.options)


def _planned(terms: AnyStudy, parties: int, bare: bool) -> Choice:
    if isinstance(terms, StudyTerms):
        return terms.choice(parties, no_privacy=bare)
    plans = {size: each.plan for size, each in terms.terms_by_size(parties).items()}
    return Choice(plans.pop(parties), smaller=plans)


def _require_protocol(terms: AnyStudy, protocol: Mechanism, *, by_file: bool = False, no_privacy: bool | None) -> None:
    if by_file:
        _require_one_message(protocol)
    if terms.starts_with_quorum:
        require_alike(protocol)
    if isinstance(terms, SessionStudy):
        require_private(protocol)
    elif no_privacy is not None:
        require_privacy(protocol, no_privacy)


def _require_one_message(protocol: Mechanism) -> None:
    if not protocol.traits.by_file:
        raise InputError(
            f"by file every party sends one message, and {protocol.name} with these options needs more. Write "
            'protocol = "cordp-dme" (without partners or aggregator) or "local-dp" into the study, or let each '
            "party give quietmean accept --address HOST:PORT, and join."
        )
