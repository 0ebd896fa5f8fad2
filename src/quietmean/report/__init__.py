"""One self-contained HTML page per study, and its figures. Nothing in it is private; in local mode it may show the true mean."""

from quietmean.report.certificate import write_certificate_report
from quietmean.report.data import StudyReport
from quietmean.report.exchange import exchange_figure
from quietmean.report.page import write_study_report

__all__ = ["StudyReport", "exchange_figure", "write_certificate_report", "write_study_report"]
