"""The session file: what the parties of many means of vectors agree on, but who they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator

from quietmean.core.assumptions import usual_colluders
from quietmean.core.codec import canonical_json, to_plain
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge, compose
from quietmean.statistics import Column
from quietmean.statistics.models import MODELS, model_text
from quietmean.studies.agreement.deadlines import for_quorum, minimum_of, parties_that_could
from quietmean.studies.agreement.joint_terms import JointTerms
from quietmean.studies.agreement.session_terms import SessionTerms

TABLE = "session"
# The kind of the purpose of a session that fits a model.
MODEL = "model"


class SessionStudy(JointTerms):
    """At most ``rounds`` means of vectors of ``dimension`` coordinates under one budget: ``epsilon``, ``delta`` of one ``unit``.

    ``clip``: each vector is shortened to this L2 norm, unless a round says another one. ``purpose``: what else all parties have
    to do alike, in plain data, such as an estimator with its parameters. Who is there at the start is in it for all its rounds.
    """

    called: ClassVar[str] = "session"
    file_kinds: ClassVar[tuple[FileKind, ...]] = (FileKind.SESSION, FileKind.STUDY)

    name: str = "session"
    dimension: int = Field(ge=1)
    rounds: int = Field(ge=1)
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    unit: PrivacyUnit = PrivacyUnit.PARTY
    purpose: dict[str, Any] = Field(default_factory=dict)

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
    def from_tables(cls, raw: Mapping[str, Any], source: str) -> Self:
        """Read a session study from the tables of a session file, which is at ``source``.

        Raises :class:`InputError` for what is not right.
        """
        if set(raw) != {TABLE} or not isinstance(raw[TABLE], Mapping):
            raise InputError(f"{source} must have one table, [{TABLE}], and nothing else. Correct it.")
        return cls.parse(raw[TABLE])

    @property
    def model(self) -> str:
        """The question that it answers where it fits a model by rounds; "" where a program makes its vectors."""
        asked = {**self.purpose, "kind": self.purpose.get("model"), "rounds": self.rounds}
        return model_text(asked) if self.purpose.get("kind") == MODEL and asked["kind"] in MODELS else ""

    @property
    def columns(self) -> list[Column]:
        """The columns of its model; none where a program makes its vectors."""
        return [Column.model_validate(column) for column in self.purpose.get("columns", ())] if self.model else []

    def require_model(self) -> Self:
        """Return this session. Raises :class:`InputError` where a program makes its vectors, whatever it does."""
        if not self.model:
            raise InputError(
                f"{self.name!r} is a session, of many means of vectors that a program makes. Run quietmean join FILE "
                "--program PROGRAM, or qm.session from Python."
            )
        return self

    def tables(self) -> dict[str, Any]:
        """The tables of its session file in plain data, with every default: what :meth:`from_tables` reads."""
        return {TABLE: self.describe()}

    def _require_possible(self) -> None:
        # What no number of parties could keep.
        self.terms(parties_that_could(colluding=self.colluding, minimum=self.minimum))

    def terms(self, parties: int) -> SessionTerms:
        """The terms for so many parties. Raises :class:`InputError` for terms that nobody can keep."""
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

    def plan(self, parties: int, *, no_privacy: bool = False) -> Plan:
        return self.terms(parties).plan

    def charge_of(self, plan: Plan) -> Charge:
        return compose([plan.charge] * self.rounds)

    def terms_by_size(self, parties: int) -> dict[int, SessionTerms]:
        """The terms for all numbers of parties with which it may start, of so many in all; all of them first.

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
