"""What all parties agree on, of a study as of a session: the budget, whom it protects against, how and when messages go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quietmean.core.domain import Links, PrivacyUnit, counted_text
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind
from quietmean.core.limits import LONGEST_SECONDS, SHORTEST_SECONDS
from quietmean.core.toml_files import fault, read_tables
from quietmean.planning.automatic import AUTO
from quietmean.studies.agreement.deadlines import Deadlines, TimeWithOffset, require_start_by

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from quietmean.planning.plan import Plan
    from quietmean.privacy import Charge

_TIMEOUTS: Final = frozenset(("round_timeout", "start_timeout"))
# connections: parties dial each other, or a relay. folder: messages are files in a folder that each site names for itself.
Transport = Literal["connections", "folder"]
Seconds = Annotated[float, Field(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, allow_inf_nan=False)]


class JointTerms(BaseModel):
    """What a study and a session have alike. ``called``: which of them it is, in sentences.

    ``round_timeout``: so many seconds the others wait for who is late in a round; ``start_timeout``: for the agreement before the
    first. ``transport``, ``deadlines``: of messages that are files in a folder, in place of the time-outs: until when the start
    and each of the waits after it last.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    called: ClassVar[str] = "study"
    # Kinds of its own file, and of those that people take for it.
    file_kinds: ClassVar[tuple[FileKind, ...]] = (FileKind.STUDY, FileKind.SESSION)
    nested_tables: ClassVar[Mapping[str, type[BaseModel]]] = {"deadlines": Deadlines}

    name: str = "study"
    unit: PrivacyUnit = PrivacyUnit.RECORD
    epsilon: float = 1.0
    delta: float = 1e-6
    colluding: int | None = None
    dropouts: float = 0.0
    protocol: str = AUTO
    options: dict[str, Any] = Field(default_factory=dict)
    round_timeout: Seconds = 10.0
    start_timeout: Seconds = 60.0
    transport: Transport = "connections"
    deadlines: Deadlines | None = None
    # With how many parties it may start, by default all; and when, with those who are there. Who is in is agreed on first.
    minimum: int | None = Field(default=None, ge=2, strict=True)
    start_by: TimeWithOffset | None = None
    # Which keys protect what the parties say to each other. What is sealed anew says hybrid; without it, it is X25519 alone.
    links: Links | None = None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file in TOML. Raises :class:`InputError` if it is missing or cannot be read, or where :meth:`parse` does."""
        subject = f"{cls.called} file"
        return cls.from_tables(read_tables(path, subject, *cls.file_kinds), f"{subject} {path.name}")

    @classmethod
    def from_tables(cls, raw: Mapping[str, Any], source: str) -> Self:
        """Read the tables of a file, which is at ``source``. Raises :class:`InputError` where :meth:`parse` does."""
        raise NotImplementedError

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Read plain data. Raises :class:`InputError` that lists all wrong fields at once."""
        try:
            terms = cls.model_validate(dict(raw))
        except ValidationError as error:
            faults = "; ".join(map(cls._fault, cls._shown(error.errors())))
            raise InputError(f"the {cls.called} is not as it should be ({faults}). Correct these fields.") from None
        terms = terms._written_out()
        terms._require_possible()
        require_start_by(terms.minimum, terms.start_by, cls.called)
        terms._require_possible_transport()
        return terms

    @classmethod
    def _shown(cls, faults: list[ErrorDetails]) -> list[ErrorDetails]:
        return faults

    @classmethod
    def _fault(cls, detail: ErrorDetails) -> str:
        """Say where a wrong field is, what it must be, and for an unknown one the nearest that is known."""
        return fault(detail, cls, cls.nested_tables)

    def _written_out(self) -> Self:
        """Return the terms with everything in them that their texts only mean."""
        return self

    def _require_possible(self) -> None:
        """Raises :class:`InputError` for what no parties could keep."""

    def describe(self, *left_out: str) -> dict[str, Any]:
        """Return all that is said, in plain data, without the fields ``left_out``: what a contract's digest is of."""
        unsaid = {*left_out, *(_TIMEOUTS if self.by_folder else ())}
        return self.model_dump(mode="json", by_alias=True, exclude=unsaid, exclude_none=True)

    def sealable(self) -> Self:
        """Return the terms as they are sealed: with hybrid links, unless they say something else."""
        return self if self.links is not None else self.model_copy(update={"links": Links.HYBRID})

    @abstractmethod
    def plan(self, parties: int, *, no_privacy: bool = False) -> Plan:
        """The plan of so many parties, of each round where there are several. Raises :class:`InputError` where there is none."""

    def charge_of(self, plan: Plan) -> Charge:
        """What all that is released by this plan costs at most."""
        return plan.charge

    def public_records(self, parties: int, stated: int | None = None) -> float | None:
        """How many units there are, as far as is public, or as is ``stated``; None if nobody said."""
        return None if stated is None else float(stated)

    def contributions_expected(self, parties: int) -> int:
        """How many of the parties are counted on to contribute."""
        return parties

    @property
    def counted(self) -> str:
        """What its units are called, several of them."""
        return counted_text(self.unit)

    @property
    def about_these_records(self) -> bool:
        """Whether intervals are about these records alone."""
        return False

    @property
    def starts_with_quorum(self) -> bool:
        """Whether who is in is agreed on before the start, instead of waiting for everybody."""
        return self.start_by is not None

    @property
    def in_words(self) -> str:
        """What is asked for, in words."""
        return f"epsilon {self.epsilon:g}, delta {self.delta:g}"

    @property
    def by_folder(self) -> bool:
        """Whether messages are files in a folder."""
        return self.transport == "folder"

    @property
    def keyed_by(self) -> Links:
        """Which keys protect what the parties say to each other; X25519 where nothing is said."""
        return self.links or Links.X25519

    def require_sealed(self) -> None:
        """Raises :class:`InputError` for what cannot be done with a roster alone."""
        if self.by_folder:
            raise InputError(
                f"a {self.called} through a folder has to be sealed, as its messages need keys of their own. Use study invite, "
                "accept and study seal."
            )
        if self.keyed_by == Links.HYBRID:
            raise InputError(
                f'a {self.called} with links = "hybrid" has to be sealed, as the ML-KEM keys of its parties are in their '
                'entries. Use study invite, accept and study seal, or give links = "x25519".'
            )

    def _require_possible_transport(self) -> None:
        """Raises :class:`InputError` for what cannot go through a folder, or has deadlines and does not."""
        if not self.by_folder:
            if self.deadlines is not None:
                raise InputError(
                    f'the {self.called} has deadlines and its parties connect. Give transport = "folder", or leave deadlines out.'
                )
            return
        if time_outs := sorted(self.model_fields_set & _TIMEOUTS):
            raise InputError(
                f"{time_outs[0]} has no effect in a {self.called} through a folder, which has deadlines. Leave it out."
            )
        self.required_deadlines.require_possible()
        if self.start_by is not None:
            self.required_deadlines.require_attempts(self.start_by)

    @property
    def required_deadlines(self) -> Deadlines:
        """The deadlines of what goes through a folder. Raises :class:`InputError` without any."""
        if self.deadlines is None:
            raise InputError(
                f"a {self.called} through a folder has no deadlines. Write deadlines = {{first = "
                '"2027-03-01T12:00:00Z", interval = 86400.0, poll = 3600.0}. First is the latest start. Interval is the wait '
                "of each round and poll the time between two looks, in seconds."
            )
        return self.deadlines

    @property
    def waits(self) -> tuple[float, float]:
        """How many seconds the start is waited for, and each round, by time-outs or deadlines."""
        deadlines, start_by = self.deadlines, self.start_by
        if deadlines is None:
            return self.start_timeout, self.round_timeout
        return self.start_timeout if start_by is None else deadlines.start_timeout(start_by), deadlines.interval
