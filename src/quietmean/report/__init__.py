"""One self-contained HTML page per study, and its figures. Nothing in it is private; in local mode it may show the true mean."""

from quietmean.report.certificate import write_certificate_report
from quietmean.report.data import StudyReport
from quietmean.report.exchange import exchange_figure
from quietmean.report.officer import OfficerPage, officer_page_at, write_officer_page
from quietmean.report.page import report_at, write_study_report
from quietmean.report.released import ReportFacts, Stamps

__all__ = [
    "OfficerPage",
    "ReportFacts",
    "Stamps",
    "StudyReport",
    "exchange_figure",
    "officer_page_at",
    "report_at",
    "write_certificate_report",
    "write_officer_page",
    "write_study_report",
]
