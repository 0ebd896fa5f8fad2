"""Options that commands have in common which make a study: what is protected, how well, against whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PromiseOptions:
    """What a target says in every command.

    Parameters
    ----------
    epsilon
        Privacy target, together with delta; default 1.
    delta
        Probability with which the epsilon guarantee may fail; default 1e-6.
    nats
        Instead of epsilon and delta: the exact mean, of which colluders learn so much of a coordinate of a party's value at
        most. Mutual information, an average over values and no differential privacy; of protocol adqsp, for unit party.
    eavesdropping
        The adversary also reads messages between honest parties: each with this chance, or all-after-first, which leaves those of
        the first round private. Of protocols such as inca.
    """

    epsilon: float | None = None
    delta: float | None = None
    nats: float | None = None
    eavesdropping: str | None = None

    def require_one_target(self) -> None:
        """Raises :class:`InputError` for a delta beside nats, which have none."""
        if self.nats is not None and self.delta is not None:
            raise InputError(f"delta {self.delta:g} stands beside nats {self.nats:g}, which have none: leave it out")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TargetOptions(PromiseOptions):
    """The privacy target of a study, and the protocol that reaches it.

    Parameters
    ----------
    unit
        What is protected: one record, all rows of one person, or all of a party. Which rows are one person's each site says in
        the settings of its data.
    rows
        For unit person, which of a person's rows count: mean, each with 1 over their number, so that a person counts once; first
        or last, one row by its date; or a number k, the sum of k rows at most, with k times the noise and --count private.
        Default mean.
    sites_per_person
        For unit person: at how many parties one person is at most, an assumption; the noise grows with it. Default 1.
    count
        private: nobody learns how many records a party has, and a record that is there or not changes next to nothing.
    most_records
        With private counts: room for so many records of each party, a public number; default 20000.
    colluding
        How many parties may pool what they see; default one in ten, at least one.
    dropouts
        Fraction of the parties expected to leave for good: run kills so many processes, each in a random round.
    protocol
        The protocol; quietmean plan compares them. auto: packed secret sharing where its conditions hold, else the least
        predicted error between peers; chosen when the parties are known.
    """

    unit: PrivacyUnit = PrivacyUnit.RECORD
    rows: str | None = None
    sites_per_person: int | None = None
    count: CountVisibility = CountVisibility.PUBLIC
    most_records: int | None = None
    colluding: int | None = None
    dropouts: float = 0.0
    protocol: str = "auto"

    def fields(self) -> dict[str, Any]:
        """The fields of a study. Raises :class:`InputError` for an eavesdropper that cannot be, and two targets."""
        from quietmean.protocols.eavesdropping import read_eavesdropping

        self.require_one_target()
        budget = {name: getattr(self, name) for name in ("epsilon", "delta", "nats") if getattr(self, name) is not None}
        return {
            "unit": self.unit,
            "rows": int(self.rows) if self.rows is not None and self.rows.isdecimal() else self.rows,
            "sites_per_person": self.sites_per_person,
            "count": self.count,
            "most_records": self.most_records,
            **budget,
            "colluding": self.colluding,
            "eavesdropping": read_eavesdropping(self.eavesdropping),
            "dropouts": self.dropouts,
            "protocol": self.protocol,
        }


NO_TARGET_OPTIONS = TargetOptions()
