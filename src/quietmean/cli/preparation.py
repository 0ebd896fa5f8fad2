"""What ``join`` and ``check`` have in common: reading one party's files, and judging whether they fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from quietmean.cli.console import read_json
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from quietmean.node import Identity, NodeSettings, Roster
    from quietmean.node.monitor import NodeView, Report
    from quietmean.planning.automatic import Choice
    from quietmean.planning.plan import Plan
    from quietmean.statistics import Encoded, Workload
    from quietmean.studies.forecast import Forecast
    from quietmean.studies.study import Study


@dataclass(frozen=True)
class Files:
    """Study, roster and key of one party: ``party`` is its place in the roster."""

    study: Study
    roster: Roster
    identity: Identity
    party: PartyId
    # Default path of the files of this party and study, without their ending.
    stem: Path

    @classmethod
    def load(cls, study: Path, roster: Path, key: Path) -> Files:
        """Raises :class:`InputError` that names the file and what to do."""
        from quietmean.node import Identity, Roster
        from quietmean.studies import Study

        agreed = Study.load(study)
        members = Roster.load(roster)
        identity = Identity.load(key)
        party = members.find(identity)
        stem = study.parent / f"{study.with_suffix('').name}-{members.name(party)}"
        return cls(agreed, members, identity, party, stem)

    @property
    def name(self) -> str:
        return self.roster.name(self.party)

    @property
    def workload(self) -> Workload:
        return self.study.workload

    def store(self, given: Path | None) -> Path:
        return given or self.stem.with_name(f"{self.stem.name}.store")

    def receipt(self, given: Path | None) -> Path:
        return given or self.stem.with_name(f"{self.stem.name}.receipt.json")

    def records(self, data: Path) -> NDArray[np.float64]:
        """The columns that the study uses, shape (records, columns); NaN where a cell has no number."""
        from quietmean.statistics import read_columns

        return read_columns(data, self.workload.columns)

    def forecast(self, plan: Plan, records: NDArray[np.float64]) -> Forecast:
        """What the statistics will tell; without a public number of records, as if all parties had as many as this one.

        Raises :class:`InputError` for a hopeless one, on public grounds only: so that all parties agree.
        """
        from quietmean.studies.forecast import Forecast

        public = self.study.public_records(len(self.roster))
        found = Forecast(self.study, plan, float(len(records) * len(self.roster)) if public is None else public)
        if public is not None:
            found.require_hope()
        return found

    def encode(self, records: NDArray[np.float64], plan: Plan) -> Encoded:
        """This party's vector, on the grid of the plan."""
        return self.workload.encode(records, step=plan.value_step)

    def plan(self, path: Path | None, no_privacy: bool = False) -> Choice:
        """The plan that all parties make from the study, or the one in a file, and why its protocol was taken.

        Raises :class:`InputError` if the plan in the file is for another study or another number of parties, and for a plan
        without privacy unless ``no_privacy`` agrees to that.
        """
        from quietmean.planning.automatic import Choice
        from quietmean.planning.plan import Plan

        study, parties = self.study, len(self.roster)
        if path is None:
            return study.choice(parties, no_privacy=no_privacy)
        plan = Plan.from_json(read_json(path))
        plan.protocol.require_privacy(no_privacy)
        wanted, given = study.target(parties).describe(), plan.target.describe()
        for name, value in wanted.items():
            if given[name] != value:
                raise InputError(
                    f"the plan is for {name} = {given[name]} but the study and roster say {value}: make the plan anew"
                )
        # A plan made from a target alone does not state what the coordinates mean: take it from the study.
        if plan.context and plan.context != study.context():
            raise InputError(
                f"the plan {path} is for other columns, bounds, statistics or unit than the study: make the plan anew"
            )
        return Choice(study.placed(plan))

    def settings(self, plan: Plan, encoded: Encoded, store: Path, show: Show | None = None) -> NodeSettings:
        from quietmean.node import NodeSettings
        from quietmean.node.monitor import status_path

        settings = NodeSettings(
            identity=self.identity,
            roster=self.roster,
            plan=plan,
            value=encoded.vector,
            wipe_value=True,
            weight=encoded.weight,
            store=store,
            round_timeout=self.study.round_timeout,
            start_timeout=self.study.start_timeout,
            status=status_path(store),
        )
        return settings if show is None else replace(settings, report=show.report, observe=show.observe)


@dataclass(frozen=True)
class Show:
    """The receivers of a node's events and views."""

    report: Report
    observe: Callable[[NodeView], None] | None = field(default=None)
