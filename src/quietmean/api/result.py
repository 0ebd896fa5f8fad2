"""The result of a study in Python: estimates with their errors, what they cost, and the files that hold both."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from quietmean.core.errors import InputError, only_shown
from quietmean.core.extensions import can_report, no_report_sentence
from quietmean.core.file_kinds import study_and_party
from quietmean.core.keywords import warn_caller
from quietmean.core.output import FROM_PYTHON, TableFile
from quietmean.core.schema import nearest
from quietmean.core.tables import Kinds
from quietmean.privacy import CoalitionCertificate
from quietmean.protocols.execution import Execution
from quietmean.statistics import Estimates
from quietmean.statistics.printed import TidyTerms, TidyTests
from quietmean.studies.outcome.first_screen import below_answers, first_screen
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.outcome.outcome import StudyRun
from quietmean.studies.outcome.registry_entry import RegistryEntry, registry_entry
from quietmean.studies.outcome.synthetic import SyntheticRows, synthetic_rows
from quietmean.studies.outcome.tables import write_tables

if TYPE_CHECKING:
    from quietmean.report.drawing import Drawing


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(StudyRun, TableFile):
    """Estimates in the units of the data, by statistic: ``result["mean(age)"]``. Epsilons are upper bounds.

    ``names``: of all parties, in order. ``messages``, ``bytes`` and ``seconds``: what the exchange took. For one party of a study
    between machines also ``receipt``, the file with the public record, ``notes``, what the execution could not settle,
    ``account``, the ledger's after the study, and ``absent``, the parties without whom it began, where it need not wait for all.
    On one machine ``truth``: the answers without noise, and ``killed``: the parties that were made to drop out.
    """

    @classmethod
    def of(cls, run: StudyRun) -> Self:
        """The record of a run, as Python shows it."""
        return cls(**vars(run))

    def __repr__(self) -> str:
        """The first screen of the command, without where files are."""
        return "\n".join(first_screen(self._receipt))

    def _repr_html_(self) -> str:
        """The answers as a table, and what the first screen says below them."""
        below = (
            f"{f'<strong>{html.escape(head)}</strong> ' * bool(head)}{html.escape(text)}"
            for head, text in below_answers(self._receipt)
        )
        return f"{self._tidy._repr_html_()}<p>{'<br>'.join(below)}</p>"

    @property
    def _receipt(self) -> dict[str, Any]:
        return self.outcome.receipt(self.origin)

    def plot(self) -> Drawing:
        """The estimates with their 95 % intervals as a picture that a notebook shows; nothing has to be installed for it."""
        from quietmean.report.drawing import Drawing

        return Drawing(self._tidy.documents)

    def __getitem__(self, statistic: str) -> Estimates:
        """The estimates of a statistic by its text. Raises :class:`InputError` for one that was not asked for."""
        estimates = {answer.statistic.text: answer.estimates for answer in self.outcome.answers}
        if statistic not in estimates:
            raise InputError(
                f"{statistic!r} was not asked for{nearest(statistic, estimates)}. Choose one of {', '.join(estimates)}."
            )
        return estimates[statistic]

    @property
    def epsilon_a_priori(self) -> float:
        """What was promised before the start, in every history, at the study's delta."""
        return self.outcome.epsilon_a_priori

    @property
    def epsilon(self) -> float:
        """The epsilon of the execution that happened, against every coalition of the planned size, at the study's delta."""
        return self.outcome.epsilon

    @property
    def certificate(self) -> CoalitionCertificate:
        return self.outcome.certificate

    @property
    def influence(self) -> StudyInfluence | None:
        """How far one party can have moved each answer by what it sent; None where that was not computed."""
        return self.outcome.influence

    @property
    def checked(self) -> str | None:
        """By how many sums of members it was checked, and how many wrong ones would have been noticed, in a sentence; None where
        sums of members do not determine it."""
        return self.outcome.checked

    @property
    def execution(self) -> Execution:
        return self.outcome.execution

    @property
    def missing(self) -> list[str]:
        """The parties whose records are not in the result, those included without whom it began."""
        return [*(self.absent or ()), *self.outcome.missing(self.names)]

    @property
    def _tidy(self) -> TidyTerms:
        return TidyTerms.of([answer.to_json() for answer in self.outcome.answers])

    def rows(self) -> list[dict[str, Any]]:
        """One for each term, with the names of R's broom: ``std.error``, ``conf.low`` and ``conf.high`` are of the population,
        with the noise in them, and those of the noise alone begin with ``noise.``; None for what is not known."""
        return self._tidy.rows()

    def kinds(self) -> Kinds:
        return self._tidy.kinds()

    @property
    def tests(self) -> TidyTests:
        """The tests of all statistics, one row each: print it, or take its frame or CSV file."""
        return TidyTests(self._tidy.documents)

    def synthesize(self, rows: int | None = None) -> SyntheticRows:
        """Make up rows that are like the records, of the tables of ``synthetic-table``, as ``quietmean study synthesize`` does.

        Print it to see what it is good for; ``to_frame()`` has the rows. It costs no privacy. Raises :class:`InputError` where
        the study asked for no such table, and for an impossible number of ``rows``.
        """
        return synthetic_rows(self._receipt, rows)

    def registry_entry(self, **filled: str | Iterable[str]) -> RegistryEntry:
        """Make the entry of this study for the public registry of differential privacy deployments, as FILE.yaml of
        ``quietmean verify receipt --report`` is.

        ``filled``: what people know, such as ``data_curators`` and ``intended_use``; ``save`` writes it. Raises
        :class:`InputError` for another field, and for a study without privacy.
        """
        return registry_entry(self._receipt, **filled)

    def save_receipt(self, path: str | Path) -> None:
        """Write the public record, which ``quietmean verify receipt`` reads."""
        self.outcome.save_receipt(Path(path), self.origin)

    def to_table(self, path: str | Path, *, force: bool = False) -> None:
        """Write the answers as tables for people, Table 1, coefficients and so on, with what they cost below: to a Word document
        (.docx), LaTeX (.tex), HTML or CSV, by the end of the name; with ``force`` in the place of earlier tables.

        Raises :class:`InputError` for another file that is there, for another end of the name, and without the extra.
        """
        write_tables(self.outcome.to_json(), Path(path), force)

    def save_report(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page with figures and tables; with ``force`` in the place of another report.

        Warns where the page cannot be made: the result is here all the same. Raises :class:`InputError` for another file that is
        there, and if the extra for pages is not installed.
        """
        if not can_report():
            raise InputError(no_report_sentence("the result"))
        from quietmean.report import Stamps, StudyReport, report_at, write_study_report

        whose = study_and_party(self.origin)
        replace(report_at(Path(path), whose, force), saying_so=FROM_PYTHON).require_free()
        with only_shown(f"report {path}", warn_caller):
            report = StudyReport.of_outcome(**self.reported(), stamps=Stamps.of_origin(self.origin))
            write_study_report(report, Path(path), force)
