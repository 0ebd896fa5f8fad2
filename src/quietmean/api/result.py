"""The result of a study in Python: estimates with their errors, what they cost, and the files that hold both."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from quietmean.core.errors import InputError
from quietmean.core.extras import can_report, no_report_sentence
from quietmean.core.origin import study_and_party
from quietmean.core.presenting import only_shown
from quietmean.core.schema import nearest
from quietmean.core.tables import Tabular, table_text
from quietmean.ledger import Account
from quietmean.privacy import CoalitionCertificate
from quietmean.protocols.execution import Execution
from quietmean.statistics import Estimates
from quietmean.studies.outcome import StudyOutcome
from quietmean.studies.party import Finished
from quietmean.studies.study import Study


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(Tabular):
    """Estimates in the units of the data, by statistic: ``result["mean(age)"]``. Epsilons are upper bounds.

    ``names``: of all parties, in order. ``messages``, ``bytes`` and ``seconds``: what the exchange took. For one party of a study
    between machines also ``receipt``, the file with the public record, ``notes``, what the execution could not settle,
    ``account``, the ledger's after the study, and ``absent``, the parties without whom it began, where it need not wait for all.
    """

    study: Study
    outcome: StudyOutcome
    names: tuple[str, ...]
    messages: int
    bytes: int
    seconds: float
    receipt: Path | None = None
    notes: tuple[str, ...] = ()
    account: Account | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] | None = None

    @classmethod
    def of_party(cls, end: Finished) -> Self:
        """What a party has at the end."""
        result = end.result
        return cls(
            end.files.study,
            end.outcome,
            tuple(end.names),
            result.transfers,
            result.bytes_sent,
            end.seconds,
            end.receipt,
            tuple(end.notes),
            end.account,
            end.origin,
            None if end.absent is None else tuple(end.absent),
        )

    def __repr__(self) -> str:
        return f"{table_text(self.rows())}\n{self.outcome.certificate.terms.figures(self.outcome.a_priori, self.epsilon)}"

    def __getitem__(self, statistic: str) -> Estimates:
        """The estimates of a statistic by its text. Raises :class:`InputError` for one that was not asked for."""
        found = {answer.statistic.text: answer.estimates for answer in self.outcome.answers}
        if statistic not in found:
            raise InputError(f"{statistic!r} was not asked for{nearest(statistic, found)}: there are {', '.join(found)}")
        return found[statistic]

    @property
    def epsilon_a_priori(self) -> float:
        """What was promised before the start, whatever happens, at the study's delta."""
        return self.outcome.epsilon_a_priori

    @property
    def epsilon(self) -> float:
        """Of the execution that happened, against every coalition of the planned size, at the study's delta."""
        return self.outcome.epsilon

    @property
    def certificate(self) -> CoalitionCertificate:
        return self.outcome.certificate

    @property
    def execution(self) -> Execution:
        return self.outcome.execution

    @property
    def missing(self) -> list[str]:
        """The parties whose records are not in the result, those included without whom it began."""
        return [*(self.absent or ()), *self.outcome.missing(self.names)]

    def rows(self) -> list[dict[str, Any]]:
        """One for each term: estimate, standard error of the noise, ends of the interval for the population, how many records."""
        return [
            {
                "statistic": answer.statistic.text,
                "term": term,
                "estimate": float(answer.estimates.value[place]),
                "standard_error": float(answer.estimates.standard_error[place]),
                "low": _end(answer.estimates, place, 0),
                "high": _end(answer.estimates, place, 1),
                "n": float("nan") if answer.estimates.n is None else float(answer.estimates.n[place, 0]),
            }
            for answer in self.outcome.answers
            for place, term in enumerate(answer.estimates.terms)
        ]

    def to_json(self) -> dict[str, Any]:
        """As ``quietmean run --json`` prints it, without what only a command knows."""
        begun = {} if self.absent is None else {"not_in_at_start": list(self.absent)}
        return self.outcome.to_json() | {"not_counted": self.outcome.missing(self.names), **begun}

    def save_receipt(self, path: str | Path) -> None:
        """Write the public record, which ``quietmean certify`` reads."""
        self.outcome.save_receipt(Path(path), self.origin)

    def save_report(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page with figures and tables; with ``force`` in the place of another report.

        Warns where the page cannot be made: the result is here all the same. Raises :class:`InputError` for another file that is
        there, and if the extra for pages is not installed.
        """
        if not can_report():
            raise InputError(no_report_sentence("the result"))
        from quietmean.report import StudyReport, digests_of, report_at, write_study_report

        whose = study_and_party(self.origin)
        report_at(Path(path), whose, force).require_free()
        with only_shown(f"report {path}", partial(warnings.warn, stacklevel=3)):
            report = StudyReport.of_outcome(
                self.study.name,
                self.outcome,
                self.names,
                messages=self.messages,
                bytes=self.bytes,
                seconds=self.seconds,
                notes=self.notes,
                account=self.account,
                receipt="receipt.json" if self.receipt is None else self.receipt.name,
                digests=digests_of(self.origin),
                finished=str(self.origin.get("finished") or ""),
                version=str(self.origin.get("quietmean") or ""),
                absent=self.absent or (),
                whose=whose,
            )
            write_study_report(report, Path(path), force)


def _end(found: Estimates, place: int, end: int) -> float:
    interval = found.of_population
    return float("nan") if interval is None else float(interval[place][end])
