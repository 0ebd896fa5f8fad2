"""What the clients of a Flower app agree on before the first round: who they are, the budget, and the plan of every round.

Each client keeps the file itself, next to its key, as the SuperLink is not trusted with it: it may hand anybody any agreement,
and only clients with the same one understand each other.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

from quietmean.core.codec import digest
from quietmean.core.domain import Links, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind
from quietmean.core.json_file import read_json
from quietmean.core.keywords import python_call
from quietmean.core.output import Output, require_version
from quietmean.core.party import PartyId
from quietmean.graphs import Schedule
from quietmean.node.net import public_key_bytes
from quietmean.planning import Plan
from quietmean.privacy import compose
from quietmean.randomness import Seed, fresh_bytes
from quietmean.sessions import SessionTerms
from quietmean.studies.agreement.session_terms import BudgetKeywords

FORMAT = "quietmean-flower-1"
USUAL_NAME = "flower"
# It takes no one's word for what was delivered, and keeps its promise however messages are dropped and delayed.
PROTOCOL = "packed-sharing"
_USUAL: Any = {"dropouts": 0.1}
_TERMS = tuple(field.name for field in fields(SessionTerms))


@dataclass(frozen=True)
class FlowerAgreement:
    """``identities``: the clients' public keys, which number the parties. ``clip``: the L2 norm that an update is shortened to.

    ``instance``: random text, so that the same terms agreed again are another session. ``links``: which keys frames between two
    clients are sealed by; X25519 in agreements of before. ``name``: what ledgers and audit logs call the session.
    """

    terms: SessionTerms
    clip: float
    identities: tuple[str, ...]
    instance: str
    links: Links = Links.X25519
    name: str = USUAL_NAME

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

        ``colluding``: how many clients may put together what they see, with each other and with the SuperLink; ``dropouts``: the
        fraction that may miss a round. Raises :class:`InputError` for terms that nobody can keep, and for impossible keys.
        """
        agreed = SessionTerms.stated(len(identities), dimension=dimension, protocol=PROTOCOL, **{**_USUAL, **terms})
        # Planned now, so that nobody is asked to agree to what cannot be kept.
        agreed.plan  # noqa: B018
        instance = base64.b64encode(fresh_bytes(32)).decode()
        return cls(agreed, _length(clip), _distinct(sorted(identities)), instance, Links.HYBRID, name)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a file. Raises :class:`InputError` for another file, and for a plan that does not keep the budget."""
        raw = read_json(Path(path), FileKind.FLOWER)
        require_version(raw.get("format"), FORMAT, f"file {path}")
        if raw.get("format") != FORMAT:
            raise InputError(f"file {path} is not an agreement of quietmean's Flower clients: make one with Agreement.make")
        try:
            stated = {name: raw["terms"][name] for name in _TERMS}
            terms = SessionTerms(**{**stated, "unit": PrivacyUnit(stated["unit"])})
            plan = Plan.from_json(raw["plan"])
            links, name = Links(raw.get("links", Links.X25519)), str(raw.get("name", USUAL_NAME))
            agreement = cls(terms, _length(raw["clip"]), _distinct(raw["identities"]), str(raw["instance"]), links, name)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"file {path} is damaged ({type(error).__name__}: {error}): ask for the agreement again") from None
        _require_kept(terms, plan, agreement.identities)
        # Reading it is quick, planning is not, and a client reads it for every message.
        vars(terms)["plan"] = plan
        return agreement

    def save(self, path: str | Path) -> None:
        """Write the agreement's file; nothing in it is secret. Raises :class:`InputError` for another file that is there."""
        Output(Path(path), "the agreement", "").write_json(self.describe())

    def describe(self) -> dict[str, Any]:
        """Plain JSON data."""
        terms = {name: getattr(self.terms, name) for name in _TERMS}
        return {
            "format": FORMAT,
            "terms": terms | {"unit": str(self.terms.unit.value), "options": dict(self.terms.options)},
            "plan": self.terms.plan.to_json(),
            "clip": self.clip,
            "identities": list(self.identities),
            "instance": self.instance,
            **({} if self.links == Links.X25519 else {"links": str(self.links)}),
            **({} if self.name == USUAL_NAME else {"name": self.name}),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256, hexadecimal, of all that is agreed on. Everything that is signed or sealed is bound to it."""
        return digest(self.describe())

    @property
    def parties(self) -> int:
        return self.terms.parties

    def party_of(self, identity: str) -> PartyId:
        """The number of a client. Raises :class:`InputError` for a key that is not in the agreement."""
        if identity not in self.identities:
            raise InputError(f"key {identity} is not one of the {self.parties} of the agreement: agree anew with this key in it")
        return self.identities.index(identity)

    def schedule(self, round_: int) -> Schedule:
        """Who leads in which order in one round of the session."""
        return self.terms.plan.schedule(Seed.public("flower schedule", self.digest, round_))


def _require_kept(terms: SessionTerms, plan: Plan, identities: Sequence[str]) -> None:
    """Raises :class:`InputError` unless the plan is one of these terms, and all its rounds fit into the budget."""
    planned, target = plan.protocol.name, plan.target
    if planned != PROTOCOL or terms.protocol != PROTOCOL:
        raise InputError(f"the agreement plans {planned}: over Flower's links only {PROTOCOL} can be run")
    same = (target.parties, target.dimension, target.colluding) == (terms.parties, terms.dimension, terms.colluding)
    if not same or len(identities) != terms.parties or terms.unit != PrivacyUnit.PARTY or target.unit != PrivacyUnit.PARTY:
        raise InputError("the agreement's plan is for other parties, coordinates or colluding parties than its terms: agree anew")
    if not compose([plan.charge] * terms.rounds).epsilon(terms.delta) <= terms.epsilon:
        raise InputError(
            f"the agreement's {terms.rounds} rounds cost more than epsilon {terms.epsilon:g} at delta {terms.delta:g}: agree anew"
        )


def _distinct(identities: Sequence[str]) -> tuple[str, ...]:
    distinct = tuple(identities)
    for key in distinct:
        public_key_bytes(key)
    if len(set(distinct)) < len(distinct) or list(distinct) != sorted(distinct):
        raise InputError("the agreement names a client twice or its clients out of order: each has a key of its own, sorted")
    return distinct


def _length(clip: Any) -> float:
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not 0 < clip < float("inf"):
        raise InputError(f"clip is {clip!r}: choose a finite number > 0, the largest L2 norm of an update")
    return float(clip)
