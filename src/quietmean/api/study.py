"""A study from Python: what is asked of which columns, at which cost, and a run of it on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

from quietmean.api import rooms
from quietmean.api.progress import progress_line, what_goes_on
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call, warn_caller
from quietmean.core.output import Output
from quietmean.protocols.committee import Committee
from quietmean.protocols.target import Eavesdropping, budget_warnings

# What declares a column: bounds of numbers, its levels, bool for yes and no, or a Column with more.
Declared: TypeAlias = "rooms.statistics.Column | tuple[float, float] | list[str] | type[bool]"


class StudyFields(TypedDict, total=False):
    """What a study states beside its columns, statistics and committee; what is left out is as in a study file."""

    name: str
    epsilon: float | None
    delta: float
    nats: float | None
    unit: str
    rows: str | int | None
    sites_per_person: int | None
    count: str
    most_records: int | None
    records_per_party: tuple[int, int] | None
    largest_share: float | None
    colluding: int | None
    eavesdropping: Eavesdropping | None
    dropouts: float
    protocol: str
    options: Mapping[str, Any] | None
    allocate: str
    population: str
    accept_wide: bool
    round_timeout: float | None
    links: str | None


class Study:
    """What several parties want to know together: columns, statistics, privacy unit, budget, whom it protects against.

    The questions come first, as on the command line: ``qm.Study(["mean(age in 0..110)"], epsilon=1)``. Or ``columns`` by name:
    ``(low, high)``, bounds chosen without looking at the data; a list of levels; ``bool``; or a
    :class:`~quietmean.statistics.Column`. Cells without a value count as nothing, unless a column fills them in. ``statistics``:
    texts such as ``"mean(age)"``, or values; without any, the mean or the proportions of every column.
    ``nats``: instead of epsilon, of protocol adqsp; see :class:`~quietmean.protocols.Target`.
    ``epsilon`` and ``delta`` (by default 1e-6): the budget for one ``unit``, a record (as by default), a person or a whole party,
    under replacement. Without epsilon a study of first looks alone has a tenth of mu^2 of epsilon 1. ``rows``:
    which of a person's rows count, "mean", "first", "last", or a number k for the sum of k rows at most, with counts private;
    ``sites_per_person``: at how many parties one person is at most, an assumption. ``count`` "private": how
    many records a party has is hidden too, up to ``most_records``, and the budget is for one record that is there or not
    (add-remove).
    ``records_per_party``: how few and how many records one party may say that it has, ``largest_share``: which part of all.
    ``colluding``: how many parties may put together what they see, by default one in ten; ``eavesdropping``: the adversary also
    reads messages between the others, each with that chance, or "all-after-first";
    ``dropouts``: the fraction that may leave. ``population``: "beyond", the interval of an answer covers sampling and noise, or
    "these records", noise alone. ``round_timeout``: how many seconds a round waits for who does not answer, by
    default 10, and longer where :meth:`run` finds this machine busy. ``links``, where it is sealed: "hybrid", its keys rest on
    ML-KEM-768 and X25519 together, by default; or "x25519" alone.
    ``committee``: its members open the sum of what all parties hand in, one file each until ``contribute_by``, a time with its
    offset; members list what came ``grace`` seconds later, by default 600. Raises :class:`InputError` for what cannot be asked.
    """

    @python_call
    def __init__(
        self,
        columns: Mapping[str, Declared] | str | Iterable[str],
        statistics: str | rooms.statistics.Statistic | Iterable[str | rooms.statistics.Statistic] = (),
        *,
        committee: Committee | None = None,
        contribute_by: datetime | str | None = None,
        grace: float | None = None,
        **terms: Unpack[StudyFields],
    ) -> None:
        if isinstance(statistics, str | rooms.statistics.Statistic):
            statistics = [statistics]
        given = {name: value for name, value in terms.items() if value is not None}
        declared = columns if isinstance(columns, Mapping) else {}
        questions = [columns] if isinstance(columns, str) else [] if isinstance(columns, Mapping) else list(columns)
        ask = [*questions, *(asked if isinstance(asked, str) else asked.describe() for asked in statistics)]
        if not ({"epsilon", "nats"} & given.keys() or rooms.first_look.asks_for_bounds(ask)):
            raise InputError("the study has no budget. Give epsilon, or with protocol adqsp nats.")
        if not columns:
            raise InputError("no column is named. Give at least one in columns.")
        self._terms = rooms.study.StudyTerms.parse(
            {
                "column": [_column(name, said) for name, said in declared.items()],
                **({"ask": ask} if ask else {}),
                **given,
                **_committee_terms(committee, contribute_by, grace),
            }
        )

    @classmethod
    @python_call
    def load(cls, path: str | Path) -> Study:
        """Read a study from a study file. Raises :class:`InputError` that says what is wrong with it."""
        return cls._of(rooms.study.StudyTerms.load(Path(path)))

    @classmethod
    def _of(cls, terms: rooms.study.StudyTerms) -> Study:
        study = cls.__new__(cls)
        study._terms = terms
        return study

    def __repr__(self) -> str:
        statistics = ", ".join(statistic.text for statistic in self._terms.workload.statistics)
        return f"Study({self._terms.name!r}: {statistics}; {self._terms.in_words})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Study) and self._terms == other._terms

    def __hash__(self) -> int:
        return hash(self._terms.model_dump_json())

    @property
    def terms(self) -> rooms.study.StudyTerms:
        """All that the study states, as its file does."""
        return self._terms

    @property
    def columns(self) -> rooms.statistics.Columns:
        return self._terms.workload.columns

    @property
    def statistics(self) -> tuple[rooms.statistics.Statistic, ...]:
        """The statistics that are asked for; of every column, if none were named."""
        return self._terms.workload.statistics

    @python_call
    def save(self, path: str | Path) -> None:
        """Write the study file, which ``quietmean study invite`` and ``join`` take. Nothing is overwritten.

        Raises :class:`InputError` for a file that exists.
        """
        Output(Path(path), "the study", "").write(rooms.any_study.study_text(self._terms).encode())

    @python_call
    def plan(
        self,
        parties: int,
        *,
        records: int | None = None,
        width: float | None = None,
        power: float | None = None,
        no_privacy: bool = False,
    ) -> rooms.planned.PlannedStudy:
        """How much noise ``parties`` parties add, what it costs, and how wide the intervals will be: print it, or take its rows.

        ``records``: how many all parties have together, as far as is public; without it nothing is known of widths. ``width``:
        how many records, or which epsilon, make each interval no wider. ``power``: what gives each test this chance to see an
        effect that is there, such as 0.8. ``no_privacy`` asks for a protocol without privacy, as in :meth:`run`. Raises
        :class:`InputError` if nothing fits.
        """
        wanted = rooms.planned.Wanted(records, width, power)
        planned = wanted.plan(self._terms, parties, no_privacy=no_privacy, hope=False)
        for sentence in budget_warnings(planned.plan.target, planned.records):
            warn_caller(sentence)
        return planned

    @python_call
    def mock(self, rows: int = 500) -> Any:
        """Make up a table of the study, to try programs on: a frame of Polars, or of pandas where only that is there.

        The same everywhere, from the study alone, so that it costs no privacy: within bounds and levels, as guesses and
        expectations say, some cells missing. Transforms are not in it. Raises :class:`InputError` for an impossible number of
        ``rows``.
        """
        return rooms.mock.mock_rows(self._terms, rows).to_frame()

    @python_call
    def run(
        self,
        data: rooms.data.Source | Sequence[rooms.data.Source] | Mapping[str, rooms.data.Source],
        *,
        parties: int | None = None,
        party_column: str | None = None,
        no_privacy: bool = False,
        a_priori_above_target: bool = False,
    ) -> rooms.result.StudyResult:
        """Run the study in this process, all parties by the real protocol; or, with a committee, each making one file, whose sum
        the members open.

        ``data``: a path or a data frame whose rows are dealt out to so many ``parties``, or belong to those that
        ``party_column`` names; or one path or frame for each party, in a list, or in a dict by the parties' names. Real noise
        from the operating system. Warns of what did not fit its bounds: for the owner of the data only. Raises
        :class:`InputError` for data or a number of parties that do not fit, if the noise would hide everything, for a protocol
        without privacy (unless ``no_privacy`` asks for that), or if nothing promises beforehand that the target is kept (unless
        ``a_priori_above_target`` accepts that), and :class:`ProtocolFailure` for a run without a result.
        """
        notes: list[str] = []
        terms = self._terms
        names, parts = rooms.sources.parties_of_data(data, self.columns, parties, party_column, notes.append, terms.persons)
        query = rooms.sources.query_of_data(data, self.columns, terms.unit)
        records = float(sum(map(terms.workload.units_in, parts)))
        units = float(len(parts)) if terms.unit == PrivacyUnit.PARTY else records
        choice = rooms.feasible.feasible(terms, len(parts), no_privacy=no_privacy, units=units)
        choice.plan.require_target_kept(a_priori_above_target)
        encoded = [terms.workload.encode(part, step=choice.plan.value_step) for part in parts]
        notices = [*budget_warnings(choice.plan.target, records), *(f"{note} (for you only)" for note in notes)]
        for sentence in [*notices, *rooms.statistics.what_did_not_fit(encoded)]:
            warn_caller(sentence)
        with progress_line() as say:

            def report(party: str, event: Mapping[str, Any]) -> None:
                if (progress := what_goes_on(event, f"{len(parts)} parties, ")) is not None:
                    say(*progress)

            say(f"starting {len(parts)} parties", None)
            executed = rooms.here.execute(terms, choice.plan, encoded, names, query, report=report)
        if executed.remark:
            warn_caller(executed.remark)
        return rooms.result.StudyResult.of(executed)


def _committee_terms(committee: Committee | None, contribute_by: datetime | str | None, grace: float | None) -> dict[str, Any]:
    """The field of a study with a committee. Raises :class:`InputError` for half of it."""
    if (committee is None) != (contribute_by is None):
        raise InputError("a committee lists contributions at a time. Give committee and contribute_by together, or neither.")
    if committee is None or contribute_by is None:
        return {}
    until = contribute_by if isinstance(contribute_by, str) else contribute_by.isoformat()
    waits = {} if grace is None else {"grace": grace}
    return {"committee": {**committee.describe(), "contribute_by": until, **waits}}


def _column(name: str, declared: Declared) -> dict[str, Any]:
    """Return a column's table in a study file from bounds, levels, ``bool`` or a Column. Raises :class:`InputError` otherwise."""
    if isinstance(declared, rooms.statistics.Column):
        if declared.name != name:
            raise InputError(f"column {name!r} is declared as {declared.name!r}. Give it one name.")
        return declared.describe()
    if declared is bool:
        return {"name": name, "boolean": True}
    if isinstance(declared, list) and all(isinstance(level, str) for level in declared):
        return {"name": name, "levels": declared}
    if isinstance(declared, tuple) and len(declared) == 2:
        return {"name": name, "low": declared[0], "high": declared[1], "missing": rooms.statistics.INDICATOR}
    if isinstance(declared, list) and len(declared) == 2 and all(isinstance(end, int | float) for end in declared):
        raise InputError(f"column {name!r} is a list of numbers. Write bounds as a tuple: {{{name!r}: {tuple(declared)}}}.")
    raise InputError(f"column {name!r} is not declared. Give (low, high), a list of its levels, bool, or a Column.")
