"""What can be agreed on: of every protocol, unit, start, way and kind of column; and a session, and one of Flower's clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from quietmean.core.errors import InputError
from quietmean.flower import FlowerAgreement
from quietmean.flower.agreement import FlowerContract
from quietmean.node import Identity
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.party import Contract
from quietmean.studies.party.agreement import Signatory
from quietmean.studies.party.session_contract import SessionContract
from support.kinds import SESSION

NAMES = ("north", "south", "east", "west")
IDENTITIES = {name: Identity.generate() for name in (*NAMES, "clinic")}
PARTIES = tuple(Signatory(name, IDENTITIES[name].public_key, ("192.0.2.7", 7001)) for name in NAMES)
SOON = (datetime.now(UTC) + timedelta(days=3)).isoformat()
PROTOCOLS = ("packed-sharing", "cordp-dme", "local-dp", "central-dp", "consensus", "gossip", "inca")
SLOW = ("gossip", "inca")
STARTS: dict[str, dict[str, Any]] = {"all": {}, "start-by": {"start_by": SOON}, "quorum": {"start_by": SOON, "minimum": 3}}
COLUMNS: dict[str, list[dict[str, Any]]] = {
    "bounds": [{"name": "age", "low": 0, "high": 110}],
    "levels": [{"name": "sex", "levels": ["f", "m"]}],
}
UNITS: dict[str, dict[str, Any]] = {
    "record": {"unit": "record"},
    "hidden": {"unit": "record", "count": "private", "most_records": 50},
    "party": {"unit": "party"},
    "person": {"unit": "person", "rows": "mean"},
    "rows": {"unit": "person", "rows": 3, "count": "private", "most_records": 50, "sites_per_person": 2},
}
WAYS: dict[str, dict[str, Any]] = {
    "join": {},
    "folder": {"transport": "folder"},
    "sealed": {},
    "file": {},
    "committee": {"committee": {"members": 4, "contribute_by": SOON, "grace": 0.0, "largest_weight": 20.0}},
}


def sealed_with(study: StudyTerms, members: bool) -> Sealed:
    """Sealed by north. Where there are members, these are the four, and a clinic contributes, too."""
    invitation = Invitation.make(study, IDENTITIES["north"])
    with TemporaryDirectory() as folder:
        entries = [
            StudyKeys.make(
                Path(folder) / name,
                invitation,
                IDENTITIES[name],
                name,
                f"{name}.example:7000" if name in NAMES else "",
                member=members and name in NAMES,
            ).entry
            for name in (IDENTITIES if members else NAMES)
        ]
    return Sealed.make(invitation, entries, IDENTITIES["north"])


def asked(protocol: str, unit: str, start: str, way: str, columns: str) -> Contract:
    """Raises :class:`InputError` for what cannot be agreed on."""
    general = {"name": "ages", "epsilon": 4.0, "delta": 1e-6, "colluding": 1}
    general |= {} if way == "committee" else {"protocol": protocol}
    committee = {name: dict(table) for name, table in WAYS[way].items() if name == "committee"}
    if committee and unit in ("party", "hidden", "rows"):
        del committee["committee"]["largest_weight"]
    fields = general | UNITS[unit] | STARTS[start] | {name: one for name, one in WAYS[way].items() if name != "committee"}
    study = StudyTerms.parse({"column": COLUMNS[columns], **fields, **committee})
    if way in ("sealed", "file", "committee"):
        sealed = sealed_with(study, way == "committee")
        choice = study.choice(sealed.admitted, no_privacy=protocol == "gossip" and way != "committee")
        if way == "sealed":
            return Contract.for_party("south", sealed, choice)
        return Contract.by_file(sealed, IDENTITIES["clinic" if way == "committee" else "south"], choice)
    choice = study.choice(len(PARTIES), no_privacy=protocol == "gossip")
    return Contract(study, PARTIES, 1, choice=choice)


def every() -> Iterator[tuple[tuple[str, ...], Contract]]:
    """One of each pair of choices at least, each that can be agreed on."""
    base = ("packed-sharing", "record", "all", "join", "bounds")
    choices: list[tuple[str, ...]] = [PROTOCOLS, tuple(UNITS), tuple(STARTS), tuple(WAYS), tuple(COLUMNS)]
    seen: set[tuple[str, ...]] = set()
    for one, other in itertools.combinations(range(len(base)), 2):
        for pair in itertools.product(choices[one], choices[other]):
            chosen = list(base)
            chosen[one], chosen[other] = pair
            # They take seconds to plan, and no fact of theirs depends on the rest.
            if tuple(chosen) in seen or (pair[0] in SLOW and pair[1] != "record"):
                continue
            seen.add(tuple(chosen))
            try:
                yield tuple(chosen), asked(*chosen)
            except InputError:
                continue


def of_session() -> SessionContract:
    return SessionContract(SessionStudy.from_tables(SESSION.tables, "the session"), PARTIES, 1)


def of_flower() -> FlowerContract:
    agreed = FlowerAgreement.make([one.key for one in PARTIES], dimension=3, rounds=2, epsilon=8.0, delta=1e-5, colluding=1)
    return FlowerContract.of(agreed, 0)
