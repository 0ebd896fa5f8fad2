"""What a client of a Flower app says yes to, once for all rounds: the same contract as that of a session between machines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.json_file import read_json
from quietmean.core.party import PartyId
from quietmean.flower.agreement import FORMAT, FlowerAgreement
from quietmean.node import Identity
from quietmean.sessions import SessionTerms
from quietmean.sessions.agreed import SessionContract
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.party import Signatory, place_of


@dataclass(frozen=True, eq=False)
class FlowerContract(SessionContract):
    """An agreement of Flower's clients, which have no names but their numbers; its digest is what a yes is about."""

    agreement: FlowerAgreement = field(kw_only=True)

    @classmethod
    def of(cls, agreement: FlowerAgreement, party: PartyId) -> FlowerContract:
        """For one of the clients."""
        terms = agreement.terms
        study = SessionStudy(
            name=agreement.name,
            dimension=terms.dimension,
            rounds=terms.rounds,
            epsilon=terms.epsilon,
            delta=terms.delta,
            clip=agreement.clip,
            unit=terms.unit,
            colluding=terms.colluding,
            dropouts=terms.dropouts,
            protocol=terms.protocol,
            options=dict(terms.options),
            links=agreement.links,
        )
        parties = tuple(Signatory(f"client {number}", key) for number, key in enumerate(agreement.identities))
        return cls(study, parties, party, agreement=agreement)

    @classmethod
    def by_key(cls, path: Path, identity: Identity) -> FlowerContract:
        """From an agreement's file. Raises :class:`InputError` as :meth:`FlowerAgreement.load`, and for the key of no client."""
        agreement = FlowerAgreement.load(path)
        return cls.of(agreement, agreement.party_of(identity.public_key))

    @classmethod
    def by_name(cls, path: Path, name: str | None) -> FlowerContract:
        """Return the contract for the client of this name."""
        contract = cls.of(FlowerAgreement.load(path), 0)
        return replace(contract, party=place_of(name, contract.parties))

    @cached_property
    def terms_by_size(self) -> dict[int, SessionTerms]:
        return {len(self.parties): self.agreement.terms}

    @cached_property
    def digest(self) -> str:
        return self.agreement.digest

    def lines(self) -> list[tuple[str, str]]:
        through = "Flower's SuperLink, which decides what arrives, learns who takes part and each mean, and reads nothing else"
        return [("goes through", through) if name == self._how() else (name, text) for name, text in super().lines()]

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "through": "flower"}


def is_flower_agreement(path: Path) -> bool:
    """Whether a file holds an agreement of Flower's clients; not where it cannot be read."""
    try:
        return bool(read_json(path).get("format") == FORMAT)
    except InputError:
        return False
