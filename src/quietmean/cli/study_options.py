"""Options of a study: what is promised, and its committee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from cyclopts import Parameter

from quietmean.cli.options import OF_COMMITTEE
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError

if TYPE_CHECKING:
    from quietmean.protocols.committee_size import Committee


@dataclass(frozen=True, kw_only=True)
class PromiseOptions:
    """What a target says in every command.

    Parameters
    ----------
    epsilon
        Privacy target, together with delta. Default 1.
    delta
        Probability with which the epsilon guarantee may fail. Default 1e-6.
    nats
        Instead of epsilon and delta: release the exact mean, and bound what colluders learn of each number of a party, in nats.
        This is mutual information, an average over values: not differential privacy. Only for protocol adqsp and unit party.
    eavesdropping
        The adversary also reads messages between honest parties. Give the chance for each message, or all-after-first: all but
        those of the first round. For protocols such as inca.
    """

    epsilon: float | None = None
    delta: float | None = None
    nats: float | None = None
    eavesdropping: str | None = None

    def require_one_target(self) -> None:
        """Raises :class:`InputError` for a delta beside nats, which have none."""
        if self.nats is not None and self.delta is not None:
            raise InputError(f"delta {self.delta:g} cannot go with nats {self.nats:g}, which have none. Leave it out.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TargetOptions(PromiseOptions):
    """The privacy target of a study, and the protocol that reaches it.

    Parameters
    ----------
    unit
        What is protected: one record, all rows of one person, or all records of a party. For person, each site's data settings
        say which rows belong to one person.
    rows
        For unit person: which of a person's rows count. mean: all, with the weight of one row together. first or last: one row,
        by its date. A number k: at most k rows, with k times the noise; it needs --count private. Default mean.
    sites_per_person
        For unit person: the largest number of parties that one person is at. This is an assumption, and the noise grows with
        it. Default 1.
    count
        public: every party's number of records is known to all. private: nobody learns it, and one record more or less changes
        next to nothing. Default public, and private for count(where=...) alone.
    most_records
        With private counts: the largest number of records that a party may have. It is public. Default 20000.
    colluding
        How many parties may collude, that is share all that they see. Default one in ten, at least one.
    dropouts
        Fraction of the parties expected to leave and not return. The command run stops that many, each in a random round.
    protocol
        The protocol; quietmean plan compares them. auto: packed-sharing where its conditions hold, else the protocol without a
        server that has the least predicted error. It is chosen once the parties are known.
    allocate
        How statistics share the budget. shares: each as it declares. widths: all intervals as narrow as possible, each relative
        to its sampling error. Default widths where guesses of all numbers tell it and no statistic declares a share.
    population
        What intervals are about. beyond: more people than these, with sampling error. "these records": these alone, with the
        noise only, as for registers and official figures. Default beyond.
    accept_wide
        Go on although the noise of a statistic is wider than its bounds.
    """

    unit: PrivacyUnit = PrivacyUnit.RECORD
    rows: str | None = None
    sites_per_person: int | None = None
    count: CountVisibility | None = None
    most_records: int | None = None
    colluding: int | None = None
    dropouts: float = 0.0
    protocol: str = "auto"
    allocate: str | None = None
    population: Literal["beyond", "these records"] | None = None
    accept_wide: bool = False

    def fields(self) -> dict[str, Any]:
        """The fields of a study. Raises :class:`InputError` for an eavesdropper that cannot be, and two targets."""
        from quietmean.protocols.target import read_eavesdropping

        self.require_one_target()
        rows = int(self.rows) if self.rows is not None and self.rows.isdecimal() else self.rows
        stated = {**vars(self), "rows": rows, "eavesdropping": read_eavesdropping(self.eavesdropping)}
        return {name: value for name, value in stated.items() if value is not None}


NO_TARGET_OPTIONS = TargetOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommitteeShape:
    """A committee whose members open the sum of what others contribute, in one message each.

    Parameters
    ----------
    committee
        How many members hold shares; all other parties only contribute a file. Nobody learns more than the result, unless more
        members collude than planned. quietmean help protocol committee lists its options for --with.
    """

    committee: int | None = None
    committee_colluding: Annotated[int | None, Parameter(parse=False)] = None
    committee_gone: Annotated[int | None, Parameter(parse=False)] = None
    committee_size: Annotated[str | None, Parameter(parse=False)] = None
    verified: Annotated[bool, Parameter(parse=False)] = False
    products: Annotated[bool, Parameter(parse=False)] = False

    def shaped(self, said: Mapping[str, Any]) -> Self:
        """The committee with what --with says of it."""
        return replace(self, **said)

    @property
    def shape(self) -> dict[str, Any]:
        """What is given of it but for the number of members, by its name in a study."""
        gone = self.committee_gone if self.committee_gone is not None else self.committee_colluding
        checked = {"verified": self.verified or None, "products": self.products or None}
        dimensions = {"colluding": self.committee_colluding, "gone": gone, "size": self.committee_size, **checked}
        return {name: value for name, value in dimensions.items() if value is not None}

    @property
    def chosen(self) -> Committee | None:
        """The committee; None where none is asked for. Raises :class:`InputError` for one that gives no result."""
        from quietmean.protocols.committee_size import Committee

        return None if self.committee is None else Committee.parse({"members": self.committee, **self.shape})

    @property
    def given(self) -> dict[str, Any]:
        """What is given of it, by option."""
        stated = {name.replace("_", "-"): value for name, value in vars(self).items() if value not in (None, False)}
        return {f"{'with ' if name in OF_COMMITTEE else ''}{name}": value for name, value in stated.items()}

    def require_asked(self) -> None:
        """Raises :class:`InputError` for options of a committee where there is none."""
        if self.committee is None and self.given:
            names = ", ".join(f"--{name}" for name in self.given)
            raise InputError(f"options {names} go with --committee MEMBERS. Give it, or leave them out.")

    @property
    def terms(self) -> dict[str, Any]:
        """When contributions come, and by whose vouchers: at once, as the committee is rehearsed on this machine."""
        return {"contribute_by": datetime.now(UTC).isoformat(timespec="seconds"), "grace": 0.0}

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a study, with ``minimum`` and ``largest_weight`` in its committee where it has one.

        Raises :class:`InputError` as :meth:`require_asked`.
        """
        self.require_asked()
        if self.committee is None:
            return fields
        options = dict(fields["options"])
        minimum, largest = fields.get("minimum"), options.pop("largest_weight", None)
        committee = self.shape | self.terms | {"members": self.committee, "minimum": minimum, "largest_weight": largest}
        stated = {name: value for name, value in committee.items() if value is not None}
        return fields | {"minimum": None, "options": options, "committee": stated}


NO_COMMITTEE = CommitteeShape()
