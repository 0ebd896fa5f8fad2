"""The session file: what the parties of many means of vectors agree on, but who they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from quietmean.core.assumptions import usual_colluders
from quietmean.core.codec import canonical_json, to_plain
from quietmean.core.domain import Links, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind
from quietmean.core.toml_files import fault, read_tables
from quietmean.planning.automatic import AUTO, Choice
from quietmean.planning.plan import Plan
from quietmean.studies.agreement.deadlines import Deadlines, TimeWithOffset
from quietmean.studies.agreement.quorum import for_quorum, minimum_of, parties_that_could, require_start_by
from quietmean.studies.agreement.session_terms import SessionTerms
from quietmean.studies.agreement.transport import TIMEOUTS, Seconds, Transport, TransportTerms

TABLE = "session"
# The kind of the purpose of a session that fits a model.
MODEL = "model"


class SessionStudy(TransportTerms, BaseModel):
    """At most ``rounds`` means of vectors of ``dimension`` coordinates under one budget: ``epsilon``, ``delta`` of one ``unit``.

    ``clip``: each vector is shortened to this L2 norm, unless a round says another one. ``round_timeout``: so many seconds the
    others wait for who is late in a round; ``start_timeout``: for the agreement before the first. ``purpose``: what else all
    parties have to do alike, in plain data, such as an estimator with its parameters. ``transport``, ``deadlines``: of a session
    whose messages are files in a folder, in which each wait of each round ends an interval after the one before.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    called: ClassVar[str] = "session"

    name: str = "session"
    dimension: int = Field(ge=1)
    rounds: int = Field(ge=1)
    epsilon: float = 1.0
    delta: float = 1e-6
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    unit: PrivacyUnit = PrivacyUnit.PARTY
    colluding: int | None = None
    dropouts: float = 0.0
    protocol: str = AUTO
    options: dict[str, Any] = Field(default_factory=dict)
    round_timeout: Seconds = 10.0
    start_timeout: Seconds = 60.0
    purpose: dict[str, Any] = Field(default_factory=dict)
    # With how many parties it may start, by default all; and when, with those who are there, who are in it for all its rounds.
    minimum: int | None = Field(default=None, ge=2, strict=True)
    start_by: TimeWithOffset | None = None
    # Which keys protect what the parties tell each other. A new sealed session says hybrid; without it, it is X25519 alone.
    links: Links | None = None
    transport: Transport = "connections"
    deadlines: Deadlines | None = None

    def describe(self) -> dict[str, Any]:
        """Plain JSON data, which the digest of a contract is of; the same of sessions of before there were all its fields."""
        unsaid = {"purpose": not self.purpose, "links": self.keyed_by == Links.X25519}
        unsaid |= {"minimum": self.minimum is None, "start_by": self.start_by is None}
        unsaid |= dict.fromkeys(TIMEOUTS, self.by_folder) | dict.fromkeys(("transport", "deadlines"), not self.by_folder)
        plain: dict[str, Any] = self.model_dump(mode="json", exclude={name for name, left_out in unsaid.items() if left_out})
        # The same of the same time, whatever its offset.
        deadlines = {} if self.deadlines is None else {"deadlines": self.deadlines.describe()}
        return plain | deadlines | ({} if self.start_by is None else {"start_by": self.start_by.astimezone(UTC).isoformat()})

    def sealable(self) -> SessionStudy:
        """The session as it is sealed: with hybrid links, unless it says something else."""
        return self if self.links is not None else self.model_copy(update={"links": Links.HYBRID})

    @field_validator("purpose")
    @classmethod
    def _plain(cls, document: dict[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(document)
        try:
            canonical_json(plain)
        except TypeError:
            raise ValueError("no plain data") from None
        return plain

    @classmethod
    def load(cls, path: Path) -> SessionStudy:
        """From a TOML file with one table [session]. Raises :class:`InputError` for one that cannot be read or is not right."""
        return cls.from_tables(read_tables(path, "session file", FileKind.SESSION, FileKind.STUDY), f"session file {path.name}")

    @classmethod
    def from_tables(cls, raw: Mapping[str, Any], source: str) -> SessionStudy:
        """From the tables of a session file, which is at ``source``. Raises :class:`InputError` for what is not right."""
        if set(raw) != {TABLE} or not isinstance(raw[TABLE], Mapping):
            raise InputError(f"{source} must have one table, [{TABLE}], and nothing else: mend it")
        return cls.parse(raw[TABLE])

    def tables(self) -> dict[str, Any]:
        """The tables of its session file in plain data, with every default: what :meth:`from_tables` reads."""
        return {TABLE: {name: value for name, value in self.describe().items() if value is not None}}

    @property
    def starts_with_quorum(self) -> bool:
        """Whether who is in is agreed on before the start, instead of waiting for everybody."""
        return self.start_by is not None

    @property
    def in_words(self) -> str:
        """What is asked for, in words."""
        return f"epsilon {self.epsilon:g}, delta {self.delta:g}"

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> SessionStudy:
        """From plain data. Raises :class:`InputError` that lists all wrong fields at once."""
        try:
            study = cls.model_validate(dict(raw))
        except ValidationError as error:
            tables: dict[str, type[BaseModel]] = {"deadlines": Deadlines}
            faults = "; ".join(fault(detail, cls, tables) for detail in error.errors())
            raise InputError(f"the session is not as it should be ({faults}): mend these fields") from None
        require_start_by(study.minimum, study.start_by, "session")
        study.require_possible_transport()
        # What no number of parties could keep.
        study.terms(parties_that_could(colluding=study.colluding, minimum=study.minimum))
        return study

    def terms(self, parties: int) -> SessionTerms:
        """For so many parties. Raises :class:`InputError` for terms that nobody can keep."""
        return SessionTerms(
            parties=parties,
            dimension=self.dimension,
            epsilon=self.epsilon,
            delta=self.delta,
            rounds=self.rounds,
            unit=self.unit,
            colluding=usual_colluders(parties) if self.colluding is None else self.colluding,
            dropouts=self.dropouts,
            protocol=self.protocol,
            options=self.options,
            by_folder=self.by_folder,
        )

    def terms_by_size(self, parties: int) -> dict[int, SessionTerms]:
        """For all numbers of parties with which it may start, of so many in all; all of them first.

        Raises :class:`InputError` for terms that nobody can keep, or with which two results could be made.
        """
        terms = {parties: self.terms(parties)}
        if self.start_by is None:
            return terms
        whole = terms[parties]

        def planned(size: int, protocol: str, options: Mapping[str, Any]) -> Plan:
            terms[size] = replace(whole, parties=size, protocol=protocol, options=options)
            return terms[size].plan

        for_quorum(Choice(whole.plan), minimum_of(self.minimum, parties, whole.colluding), self.options, planned)
        return dict(sorted(terms.items(), reverse=True))
