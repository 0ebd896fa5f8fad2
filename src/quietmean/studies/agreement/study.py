"""The study file: statistics, columns and bounds, privacy unit, budget, whom it protects against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from quietmean.core.assumptions import usual_colluders
from quietmean.core.codec import to_plain
from quietmean.core.domain import MEAN_OF_ROWS, CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import nearest, require_known
from quietmean.planning.automatic import AUTO, PREFERRED, Choice, choose, noise_of, of_one_number
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.planning.stated_weights import StatedWeights
from quietmean.protocols import Target, configure, resolve
from quietmean.protocols.mechanism import require_privacy
from quietmean.protocols.target import nats_in_words, require_eavesdropping
from quietmean.statistics import Column, Columns, DeclaredColumn, Workload, parse_statistic
from quietmean.statistics.allocation import knows_widths, shares_by_widths
from quietmean.statistics.estimate import THESE_RECORDS
from quietmean.statistics.formulas import written_out
from quietmean.statistics.kinds.counts import Proportion, is_how_many_match
from quietmean.statistics.kinds.means import Mean
from quietmean.statistics.persons import Persons
from quietmean.statistics.question_texts import question_texts
from quietmean.statistics.questions import read_questions
from quietmean.studies.agreement.deadlines import (
    CommitteeTerms,
    Deadlines,
    for_quorum,
    in_hours,
    in_words,
    minimum_of,
    parties_that_could,
)
from quietmean.studies.agreement.first_look import LookedAt, epsilon_of_look, only_looks
from quietmean.studies.agreement.joint_terms import JointTerms

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# Room for so many records of each party where their number is private.
_MOST_RECORDS = 20_000
# How the budget is divided between statistics.
ALLOCATIONS = ("shares", "widths")


class StudyTerms(JointTerms):
    """Everything the parties must agree on, apart from who they are (the roster)."""

    nested_tables: ClassVar[Mapping[str, type[BaseModel]]] = {
        "column": Column,
        "deadlines": Deadlines,
        "committee": CommitteeTerms,
        "first_look": LookedAt,
    }

    columns: tuple[DeclaredColumn, ...] = Field(alias="column", min_length=1)
    # Tables with a kind; none mean the mean of every column of numbers, the proportions of every other.
    statistics: tuple[dict[str, Any], ...] = Field(alias="statistic", default=())
    # Where persons are the unit: which of a person's rows count (their mean, the first, the last, or the sum of so many at most),
    # and at how many parties one person is at most, which nobody checks.
    rows: Literal["mean", "first", "last"] | Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None
    sites_per_person: int | None = Field(default=None, ge=1, strict=True)
    # Is it public how many records each party has? If private, there is room for most_records of each, and neighbouring data
    # differ by one record that is there or not.
    count: CountVisibility = CountVisibility.PUBLIC
    most_records: int | None = Field(default=None, ge=1, le=1 << 20)
    # shares: as declared. widths: so that the sum of squared interval widths is least, each relative to its sampling error; by
    # default where no statistic declares a share and all columns of numbers have a guess of how far they spread.
    allocate: str | None = None
    # Where a first look proposed the bounds of columns.
    first_look: LookedAt | None = None
    # How many records all parties have together, as far as is public, or persons: for expected widths only.
    records: int | None = Field(default=None, ge=1)
    # How few and how many records one party may say that it has, and which part of all, where these are public.
    records_per_party: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]] | None = None
    largest_share: float | None = Field(default=None, gt=0, le=1)
    # What the one interval of an answer is about: more than these records, with the sampling error, or these alone.
    population: Literal["beyond", "these records"] | None = None
    # Go on although noise hides all that a statistic's bounds do not tell.
    accept_wide: bool = False
    # Instead of epsilon: what colluders may learn of a party's value, an average and no differential privacy.
    nats: float | None = None
    # Messages between honest parties that the adversary reads besides: each with this chance, or "all-after-first".
    eavesdropping: float | str | None = None
    # Whose members open the sum of what all contribute, in one message each.
    committee: CommitteeTerms | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Read plain data. ``ask``: questions as texts, with the domains of their columns, beside tables or in their place.

        Asked how many match alone, counts are private where nothing says otherwise, as each site's number would tell as much.
        Without epsilon a first look has a tenth of mu^2 of the budget. Raises :class:`InputError` that lists all wrong fields at
        once.
        """
        if "ask" not in raw:
            return super().parse(_with_epsilon(raw))
        texts, beside = raw["ask"], {name: value for name, value in raw.items() if name != "ask"}
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str | Mapping) for text in texts):
            raise InputError('ask is not a list of texts. Write ask = ["mean(age in 0..110)"].')
        if not texts:
            raise InputError("nothing is asked. Write for example mean(age in 0..110), with bounds chosen without the data.")
        columns, statistics = read_questions(texts, raw.get("column", ()))
        statistics = [*raw.get("statistic", ()), *statistics]
        if "count" not in raw and is_how_many_match(statistics) and raw.get("unit") != PrivacyUnit.PARTY:
            beside["count"] = CountVisibility.PRIVATE
        return super().parse(_with_epsilon({**beside, "column": columns, "statistic": statistics}))

    @model_validator(mode="before")
    @classmethod
    def _own_name(cls, fields: Any) -> Any:
        """What the parties agree on has a protocol's own name, whichever was written."""
        if isinstance(fields, Mapping) and fields.get("unit") == PrivacyUnit.PERSON:
            usual = {"rows": MEAN_OF_ROWS, "sites_per_person": 1}
            fields = {**fields, **{name: value for name, value in usual.items() if fields.get(name) is None}}
        if isinstance(fields, Mapping) and fields.get("population") == "beyond":
            # As where nothing is said: the same study.
            fields = {**fields, "population": None}
        named = isinstance(fields, Mapping) and isinstance(fields.get("protocol"), str)
        if not named or not isinstance(fields.get("options", {}), Mapping):
            return fields
        name, options = resolve(fields["protocol"], fields.get("options", {}))
        return fields if name == fields["protocol"] else {**fields, "protocol": name, "options": options}

    @classmethod
    def from_tables(cls, raw: Mapping[str, Any], source: str) -> Self:
        """Read study terms from the tables of a study file, which is at ``source``.

        Raises :class:`InputError` where :meth:`parse` does.
        """
        unknown = set(raw) - {"study", "column", "statistic"}
        if unknown == {"session"}:
            raise InputError(
                f"{source} is that of a session, of many means of vectors. Take part in it with quietmean join FILE --program "
                "PROGRAM, or from Python with qm.session."
            )
        if unknown:
            near = nearest(min(unknown), ("study", "column", "statistic"))
            # A file of data may be given by mistake: only what is nearly a known name is shown.
            which = f"[{min(unknown)}]{near}" if near else "of another name"
            raise InputError(f"{source} has a table {which}, which is not known. Use only [study], [[column]] and [[statistic]].")
        general = raw.get("study", {})
        if not isinstance(general, Mapping):
            raise InputError(f"{source} has something else than a table [study]. Write [study], and its fields below.")
        lists = {name: raw.get(name, []) for name in ("column", "statistic")}
        return cls.parse({**general, **lists})

    def tables(self) -> dict[str, Any]:
        """The tables of its study file in plain data, with every default: what :meth:`from_tables` reads."""
        general = self.describe("columns", "statistics", *(() if self.nats is None else ("epsilon",)))
        columns = [column.describe() for column in self.columns]
        return {"study": general, "column": columns, "statistic": [dict(statistic) for statistic in self.statistics]}

    def questions(self) -> list[str]:
        """Questions that mean these columns and statistics; none where no questions do."""
        asked = [parse_statistic(raw) for raw in self.statistics]
        texts = question_texts(self.columns, [statistic.text for statistic in asked])
        columns, statistics = read_questions(texts)
        same = [Column.model_validate(column).describe() for column in columns] == [column.describe() for column in self.columns]
        return texts if same and [parse_statistic(raw) for raw in statistics] == asked else []

    @classmethod
    def _shown(cls, faults: list[ErrorDetails]) -> list[ErrorDetails]:
        # Where a column is wrong, there is none for the list either.
        inside = any(detail["loc"][0] == "column" and len(detail["loc"]) > 1 for detail in faults)
        return [detail for detail in faults if not (inside and detail["loc"] == ("column",))]

    @classmethod
    def _fault(cls, detail: ErrorDetails) -> str:
        if detail["loc"] == ("column",) and detail["type"] in ("missing", "too_short"):
            return "it has no column, and needs a [[column]] with name, low and high"
        return super()._fault(detail)

    def _written_out(self) -> Self:
        columns, statistics = written_out(self.columns, self.statistics)
        if (columns, statistics) == (self.columns, self.statistics):
            return self
        return self.model_copy(update={"columns": columns, "statistics": statistics})

    def _require_possible(self) -> None:
        self.require_possible_committee()
        self.require_possible_weights()
        self.require_possible_persons()
        # What statistics ask for is checked here, too.
        _ = self.workload.scales
        if self.eavesdropping is not None:
            require_eavesdropping(self.eavesdropping)
        # Documents state the default.
        if self.nats is not None and self.delta != type(self).model_fields["delta"].default:
            raise InputError(f"delta {self.delta:g} cannot go with nats {self.nats:g}, which have none. Leave it out.")
        # What no number of parties could keep.
        of_committee = None if self.committee is None else self.committee.minimum
        self.target(parties_that_could(colluding=self.colluding, minimum=self.minimum, committee_minimum=of_committee))
        if self.protocol != AUTO:
            configure(self.protocol, self.options)

    def require_possible_weights(self) -> None:
        """Raises :class:`InputError` for limits on what parties weigh that no party keeps, or where all weigh the same."""
        if self.records_per_party is None and self.largest_share is None:
            return
        if self.unit == PrivacyUnit.PARTY or self.count == CountVisibility.PRIVATE:
            raise InputError(
                "records_per_party and largest_share have no effect where each party counts once, or numbers "
                "of records are private. Leave them out."
            )
        if self.records_per_party is not None and self.records_per_party[0] > self.records_per_party[1]:
            raise InputError(f"records_per_party is {list(self.records_per_party)}. Name the fewest first, then the most.")

    def require_possible_committee(self) -> None:
        """Raises :class:`InputError` for a committee that gives no result, and for fields that say nothing where there is one."""
        if (terms := self.committee) is None:
            return
        # Whether its numbers are possible.
        _ = terms.committee
        terms.require_possible_vouchers()
        if self.protocol not in (AUTO, PREFERRED):
            raise InputError(
                f"the study has a committee, and protocol {self.protocol} none. Leave protocol out, or write {PREFERRED}."
            )
        if self.options:
            raise InputError(f"a committee has no option {', '.join(sorted(self.options))}. Leave it out.")
        instead = {
            "colluding": "the committee says how many of its members may collude, with all other contributors",
            "minimum": "write minimum into the committee, for the fewest contributions that give a result",
            "start_by": "members start when the time for contributions is over",
            "nats": "a committee keeps a budget in epsilon",
            "eavesdropping": "one who reads a contribution learns nothing, all of it is encrypted to members",
        }
        for name, why in instead.items():
            if getattr(self, name) is not None:
                raise InputError(f"{name} has no effect in a study with a committee. Leave it out, {why}.")
        if self.deadlines is not None and self.deadlines.first.timestamp() <= terms.lists_at:
            raise InputError(
                f"members list contributions {in_hours(terms.grace)} after {in_words(terms.contribute_by)}, and wait for the "
                f"start until {in_words(self.deadlines.first)}, the first deadline. Give a later one."
            )
        if terms.products:
            self._require_single_records(terms)
        if self.weights.largest_share < 1:
            raise InputError("largest_share has no effect in a study with a committee. Give largest_weight in the committee.")

    def _require_single_records(self, terms: CommitteeTerms) -> None:
        """Raise :class:`InputError` unless each contribution is one record, or a party encoded as one: products need this."""
        alone = self.unit == PrivacyUnit.PARTY or terms.largest_weight == 1
        if not alone or self.count == CountVisibility.PRIVATE or self.workload.averages_rows:
            raise InputError(
                "products are those of one record a contribution. Give the committee largest_weight 1 and public counts, or "
                "leave products out. Where persons are the unit, give rows first or last."
            )
        if not any(feature.of_single_record for feature in self.workload.scales):
            raise InputError("none of these statistics states products. Leave products out of the committee.")

    @property
    def persons(self) -> Persons | None:
        """Which of a person's rows count, and at how many parties one person is; None where persons are not the unit."""
        return None if self.rows is None else Persons(self.rows, self.sites_per_person or 1)

    def require_possible_persons(self) -> None:
        """Raises :class:`InputError` for what says something of persons where they are not the unit."""
        if self.unit == PrivacyUnit.PERSON:
            return
        for name in ("rows", "sites_per_person"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} is about persons, and the unit is {self.unit}. Leave it out, or give unit person.")

    @property
    def weights(self) -> StatedWeights:
        """Which weights the study lets parties state."""
        return StatedWeights(self.records_per_party, self.largest_share or 1.0, "in this study", "records_per_party")

    def require_records(self, records: int) -> None:
        """Raises :class:`InputError` where a party has fewer or more records than the study lets it; others would see it."""
        low, high = self.records_per_party or (0, math.inf)
        if not low <= records <= high:
            beyond = "fewer" if records < low else "more"
            raise InputError(
                f"records_per_party: this party has {beyond} records than the study allows, {low} to {high:g}. Take no part, or "
                "agree on another study."
            )

    def share_of(self, parties: int) -> float | None:
        """The largest part of all records that one party may have; None where nothing is said of it."""
        if self.records_per_party is None:
            return self.largest_share
        low, high = self.records_per_party
        return min(self.largest_share or 1.0, high / (high + low * (parties - 1)))

    @cached_property
    def workload(self) -> Workload:
        """How records become vectors, and the mean of vectors estimates. Raises :class:`InputError` for impossible statistics."""
        columns = Columns(self.columns)
        default = tuple((Mean if column.numeric else Proportion)(column=column.name) for column in columns)
        statistics = tuple(parse_statistic(raw) for raw in self.statistics) or default
        if self.allocate is not None:
            require_known("allocate", self.allocate, ALLOCATIONS)
        if self.count == CountVisibility.PUBLIC and self.most_records is not None:
            raise InputError('most_records has no effect where counts are public. Leave it out, or give count = "private".')
        declared = Workload(
            columns,
            statistics,
            self.unit,
            None,
            self.count,
            self.most_records or _MOST_RECORDS,
            rows=self.rows or MEAN_OF_ROWS,
            sites_per_person=self.sites_per_person or 1,
            products=self.committee is not None and bool(self.committee.products),
            these_records=self.population == THESE_RECORDS,
            cut=() if self.first_look is None else self.first_look.cut,
        )
        by_widths = self.allocate == "widths" or (self.allocate is None and knows_widths(declared))
        return replace(declared, allocated=shares_by_widths(declared)) if by_widths else declared

    def target(self, parties: int) -> Target:
        """What to calibrate for. By default one party in ten, at least one, may collude."""
        committee = None if self.committee is None else self.committee.committee
        colluding = usual_colluders(parties) if self.colluding is None else self.colluding
        if committee is not None:
            colluding = committee.colluding
        return Target(
            parties=parties,
            epsilon=self.epsilon if self.nats is None or "epsilon" in self.model_fields_set else math.inf,
            delta=self.delta,
            dimension=self.workload.dimension,
            sensitivity=self.workload.sensitivity,
            colluding=colluding,
            dropouts=self.dropouts,
            unit=self.unit,
            neighbouring=self.workload.neighbouring,
            nats=self.nats,
            eavesdropping=self.eavesdropping,
            committee=committee,
            by_folder=self.by_folder,
            l1=self.workload.l1,
            rounded=self.workload.rounded,
        )

    @property
    def in_words(self) -> str:
        return super().in_words if self.nats is None else nats_in_words(self.nats)

    @property
    def counted(self) -> str:
        return self.workload.counted

    @property
    def about_these_records(self) -> bool:
        return self.workload.these_records

    def public_records(self, parties: int, stated: int | None = None) -> float | None:
        if self.unit == PrivacyUnit.PARTY:
            return float(parties)
        records = self.records if stated is None else stated
        return None if records is None else float(records)

    def contributions_expected(self, parties: int) -> int:
        # Of a committee's members only what they hand in besides.
        return parties if self.committee is None else max(parties - self.committee.members, 1)

    def plan(self, parties: int, *, no_privacy: bool = False) -> Plan:
        return self.choice(parties, no_privacy=no_privacy).plan

    def choice(self, parties: int, *, no_privacy: bool = False) -> Choice:
        """The calibrated plan, and why its protocol was taken; deterministic, so that every party makes the same one.

        Raises :class:`InputError` for a protocol without privacy unless ``no_privacy`` asks for that.
        """
        target = self.target(parties)
        if self.committee is not None:
            # What its plan needs takes long to import, and most studies do without.
            from quietmean.protocols.committee.mechanism import CommitteeSharing

            return Choice(self.placed(calibrate(target, CommitteeSharing())))
        if self.protocol == AUTO:
            alone = self.workload.hides_count and is_how_many_match(self.statistics)
            options = self.options or (of_one_number(target, self.workload.domain) if alone else {})
            choice = choose(target, options, self.workload.domain)
            choice = replace(choice, plan=self.placed(choice.plan))
        else:
            protocol = configure(self.protocol, self.options)
            require_privacy(protocol, no_privacy)
            choice = Choice(self.placed(calibrate(target, protocol)))
        return self.with_quorum(choice) if self.starts_with_quorum else choice

    def with_quorum(self, choice: Choice) -> Choice:
        """The choice with plans for fewer parties, down to ``minimum``. Raises :class:`InputError` where that is not safe."""
        target = choice.plan.target

        def planned(parties: int, protocol: str, options: Mapping[str, Any]) -> Plan:
            return self.placed(calibrate(replace(target, parties=parties), configure(protocol, options)))

        return for_quorum(choice, self.minimum_of(target.parties), self.options or noise_of(choice.plan), planned)

    def minimum_of(self, parties: int) -> int:
        """With how many of the parties it may start. Raises :class:`InputError` where two results could be made."""
        return minimum_of(self.minimum, parties, self.target(parties).colluding)

    def placed(self, plan: Plan) -> Plan:
        """The plan with what its coordinates mean in this study, and where they lie.

        Raises :class:`InputError` where the numbers of the plan have no room for as many records as a party may have, and where
        its grid is too coarse for what is asked.
        """
        placed = replace(plan, context=self.context()).with_domain(self.workload.domain)
        self.workload.require_grid(placed.value_step)
        if self.workload.hides_count:
            placed.require_room(float(self.workload.most_records))
        return placed

    def context(self) -> dict[str, Any]:
        """What the coordinates mean: part of what the parties agree on."""
        own = [column.describe() for column in self.columns]
        context: dict[str, Any] = {"study": self.name, "columns": own, "unit": str(self.unit)}
        if self.workload.hides_count:
            context |= {"count": str(self.count), "most_records": self.workload.most_records}
        if self.unit == PrivacyUnit.PERSON:
            context |= {"rows": self.rows, "sites_per_person": self.sites_per_person}
        if self.workload.allocated is not None:
            context |= {"allocated": list(self.workload.allocated)}
        if self.start_by is not None:
            context |= {"start": {"minimum": self.minimum, "start_by": self.start_by.astimezone(UTC).isoformat()}}
        context |= {} if self.first_look is None else {"first_look": self.first_look.model_dump(mode="json")}
        if self.committee is not None:
            context |= {"committee": self.committee.describe()}
        if self.by_folder:
            context |= {"transport": self.transport, "deadlines": self.required_deadlines.model_dump(mode="json")}
        limits = {"records_per_party": self.records_per_party, "largest_share": self.largest_share}
        context |= {name: to_plain(limit) for name, limit in limits.items() if limit is not None}
        if not self.statistics:
            return context
        return context | {"statistics": [statistic.agreed_fields() for statistic in self.workload.statistics]}


def _with_epsilon(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a study; of a look without epsilon with its own."""
    asked, delta = raw.get("statistic", ()), raw.get("delta", StudyTerms.model_fields["delta"].default)
    possible = isinstance(asked, list | tuple) and all(isinstance(each, Mapping) for each in asked)
    if raw.get("epsilon") is not None or "nats" in raw or not (possible and only_looks(asked)):
        return raw
    return {**raw, "epsilon": epsilon_of_look(delta)} if isinstance(delta, float) and 0 < delta < 1 else raw
