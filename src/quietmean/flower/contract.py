"""What a client of a Flower app says yes to, once for all rounds: the same contract as that of a session between machines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.core.json_file import read_json
from quietmean.core.party import PartyId
from quietmean.flower.agreement import FORMAT, FlowerAgreement
from quietmean.node import Identity
from quietmean.studies.agreement.session_terms import SessionTerms
from quietmean.studies.party import Signatory, place_of
from quietmean.studies.party.agreement import ContractFact
from quietmean.studies.party.session_contract import SessionContract


@dataclass(frozen=True, eq=False)
class FlowerContract(SessionContract):
    """An agreement of Flower's clients, which have no names but their numbers; its digest is what a yes is about."""

    agreement: FlowerAgreement = field(kw_only=True)

    @classmethod
    def of(cls, agreement: FlowerAgreement, party: PartyId) -> FlowerContract:
        """For one of the clients."""
        parties = tuple(Signatory(f"client {number}", key) for number, key in enumerate(agreement.identities))
        return cls(agreement.study, parties, party, agreement=agreement)

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

    def _together(self) -> list[ContractFact]:
        through = "Flower's SuperLink, which decides what arrives, learns who takes part and each mean, and reads nothing else"
        return [ContractFact("goes through", through, through="flower")]


def is_flower_agreement(path: Path) -> bool:
    """Whether a file holds an agreement of Flower's clients; not where it cannot be read."""
    try:
        return bool(read_json(path).get("format") == FORMAT)
    except InputError:
        return False
