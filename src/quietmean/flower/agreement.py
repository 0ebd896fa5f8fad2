"""What the clients of a Flower app agree on before the first round: who they are, the budget, and the plan of every round.

Each client keeps the file itself, next to its key, as the SuperLink is not trusted with it: it may hand anybody any agreement,
and only clients with the same one understand each other.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

from quietmean.core.codec import digest
from quietmean.core.domain import Links, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, read_json
from quietmean.core.keywords import python_call
from quietmean.core.output import Output, require_version
from quietmean.core.party import PartyId
from quietmean.graphs import Schedule
from quietmean.node import Identity
from quietmean.node.net import public_key_bytes
from quietmean.planning import Plan
from quietmean.privacy import compose
from quietmean.randomness import Seed, fresh_bytes
from quietmean.sessions.round_mean import checked_clip
from quietmean.studies.agreement.session_study import TABLE, SessionStudy
from quietmean.studies.agreement.session_terms import BudgetKeywords, SessionTerms
from quietmean.studies.party import Signatory, place_of
from quietmean.studies.party.agreement import ContractFact
from quietmean.studies.party.session_contract import SessionContract

FORMAT = "quietmean-flower-1"
USUAL_NAME = "flower"
# It takes no one's word for what was delivered, and keeps its promise however messages are dropped and delayed.
PROTOCOL = "packed-sharing"
_USUAL: Any = {"dropouts": 0.1}


@dataclass(frozen=True)
class FlowerAgreement:
    """A session of Flower's clients. ``identities``: the clients' public keys, which number the parties.

    ``study``: with its name in ledgers and audit logs; its links seal frames between two clients. ``instance``: random text, so
    that the same session agreed again is another one.
    """

    study: SessionStudy
    identities: tuple[str, ...]
    instance: str

    @classmethod
    @python_call
    def make(
        cls,
        identities: Sequence[str],
        *,
        dimension: int,
        clip: float = 1.0,
        name: str = USUAL_NAME,
        **terms: Unpack[BudgetKeywords],
    ) -> Self:
        """A new agreement. ``epsilon`` and ``delta``: the budget of one whole client over all ``rounds``, under replacement.

        ``clip``: the L2 norm that an update is shortened to.
        ``colluding``: how many clients may put together what they see, with each other and with the SuperLink; ``dropouts``: the
        fraction that may miss a round. Raises :class:`InputError` for terms that nobody can keep, and for impossible keys.
        """
        stated: Any = {**_USUAL, **terms, "dimension": dimension, "protocol": PROTOCOL}
        agreed = SessionTerms.stated(len(identities), stated)
        of_session = {name: getattr(agreed, name) for name in SessionStudy.model_fields if hasattr(agreed, name)}
        study = SessionStudy(**of_session, name=name, clip=checked_clip(clip), links=Links.HYBRID)
        instance = base64.b64encode(fresh_bytes(32)).decode()
        agreement = cls(study, _distinct(sorted(identities)), instance)
        # Planned now, so that nobody is asked to agree to what cannot be kept.
        agreement.terms.plan  # noqa: B018
        return agreement

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an agreement from a file.

        Raises :class:`InputError` for another file, and for a plan that does not keep the budget.
        """
        raw = read_json(Path(path), FileKind.FLOWER)
        require_version(raw.get("format"), FORMAT, f"file {path}")
        if raw.get("format") != FORMAT:
            raise InputError(f"file {path} is not an agreement of quietmean's Flower clients. Make one with Agreement.make.")
        try:
            plan = Plan.from_json(raw["plan"])
            agreement = cls(SessionStudy.parse(raw[TABLE]), _distinct(raw["identities"]), str(raw["instance"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"file {path} is damaged ({type(error).__name__}: {error}). Ask for the agreement again.") from None
        _require_kept(agreement.terms, plan)
        # Reading it is quick, planning is not, and a client reads it for every message.
        vars(agreement.terms)["plan"] = plan
        return agreement

    def save(self, path: str | Path) -> None:
        """Write the agreement's file; nothing in it is secret. Raises :class:`InputError` for another file that is there."""
        Output(Path(path), "the agreement", "").write_json(self.describe())

    def describe(self) -> dict[str, Any]:
        """The agreement as plain JSON data."""
        return {
            "format": FORMAT,
            **self.study.tables(),
            "plan": self.terms.plan.to_json(),
            "identities": list(self.identities),
            "instance": self.instance,
        }

    @cached_property
    def terms(self) -> SessionTerms:
        """What the session costs its clients."""
        return self.study.terms(self.parties)

    @cached_property
    def digest(self) -> str:
        """SHA-256, hexadecimal, of all that is agreed on. Everything that is signed or sealed is bound to it."""
        return digest(self.describe())

    @property
    def parties(self) -> int:
        return len(self.identities)

    def party_of(self, identity: str) -> PartyId:
        """The number of a client. Raises :class:`InputError` for a key that is not in the agreement."""
        if identity not in self.identities:
            raise InputError(f"key {identity} is not one of the {self.parties} of the agreement. Agree anew with this key in it.")
        return self.identities.index(identity)

    def schedule(self, round_: int) -> Schedule:
        """Who leads in which order in one round of the session."""
        return self.terms.plan.schedule(Seed.public("flower schedule", self.digest, round_))


def _require_kept(terms: SessionTerms, plan: Plan) -> None:
    """Raises :class:`InputError` unless the plan is one of these terms, and all its rounds fit into the budget."""
    planned, target = plan.protocol.name, plan.target
    if planned != PROTOCOL or terms.protocol != PROTOCOL:
        raise InputError(f"the agreement plans {planned}, which cannot run over Flower's links. Choose {PROTOCOL}.")
    same = (target.parties, target.dimension, target.colluding) == (terms.parties, terms.dimension, terms.colluding)
    if not same or terms.unit != PrivacyUnit.PARTY or target.unit != PrivacyUnit.PARTY:
        raise InputError(
            "the agreement's plan is for other parties, coordinates or colluding parties than its terms. Agree anew."
        )
    if not compose([plan.charge] * terms.rounds).epsilon(terms.delta) <= terms.epsilon:
        raise InputError(
            f"the agreement's {terms.rounds} rounds cost over epsilon {terms.epsilon:g} at delta {terms.delta:g}. Agree anew."
        )


def _distinct(identities: Sequence[str]) -> tuple[str, ...]:
    distinct = tuple(identities)
    for key in distinct:
        public_key_bytes(key)
    if len(set(distinct)) < len(distinct) or list(distinct) != sorted(distinct):
        raise InputError("the agreement names a client twice or its clients out of order. Give each a key of its own, sorted.")
    return distinct


@dataclass(frozen=True, eq=False)
class FlowerContract(SessionContract):
    """An agreement of Flower's clients, which have no names but their numbers; its digest is what a yes is about."""

    agreement: FlowerAgreement = field(kw_only=True)

    @classmethod
    def of(cls, agreement: FlowerAgreement, party: PartyId) -> FlowerContract:
        """The contract for one of the clients."""
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
