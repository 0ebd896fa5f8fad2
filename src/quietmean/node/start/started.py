"""Who was in at the start of a study, and what one of them is in it: the one place where parties are numbered anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from quietmean.core.party import PartyId
from quietmean.node.net import Roster, Seal
from quietmean.node.session import NodeSettings, StartAgreement
from quietmean.node.start.machine import Attempt
from quietmean.node.start.rules import quorum_study
from quietmean.randomness import Encapsulated


@dataclass(frozen=True)
class Started:
    """A study that started: ``settings`` are those of this party as one of its members, by whose places all are numbered then.

    ``attempt``: which one it was; ``members``: their places in the roster; ``absent``: names of who was not in at the start.
    """

    settings: NodeSettings
    attempt: int
    members: tuple[PartyId, ...]
    absent: tuple[str, ...]

    @classmethod
    def of(cls, settings: NodeSettings, attempt: Attempt, shared: Mapping[PartyId, Encapsulated]) -> Self:
        """After the attempt to which the party of these settings is bound. ``shared``: with others, by place in the roster."""
        members, start = attempt.proposal.ordered, settings.start
        agreed = StartAgreement(
            {index: attempt.openings[member] for index, member in enumerate(members)},
            {index: shared[member] for index, member in enumerate(members) if member in shared},
        )
        if start is None:
            return cls(replace(settings, agreed=agreed), attempt.proposal.attempt, members, ())
        # Its digest is in every label of what these parties do together.
        seal = Seal(quorum_study(settings.study, attempt.proposal), tuple(range(len(members))))
        inside = replace(
            settings,
            roster=Roster(tuple(settings.roster.entries[member] for member in members), seal),
            brought=start.smaller.get(len(members), settings.brought),
            start=None,
            site=replace(settings.site, before_bound=None),
            agreed=agreed,
        )
        absent = tuple(name for party, name in enumerate(settings.names) if party not in attempt.members)
        return cls(inside, attempt.proposal.attempt, members, absent)

    def place(self, party: PartyId) -> PartyId | None:
        """The index of a party of the roster in the members; None for who is not in."""
        return self.members.index(party) if party in self.members else None
