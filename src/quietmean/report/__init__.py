"""One self-contained HTML page per study, and its figures. Nothing in it is private; in local mode it may show the true mean."""

from quietmean.report.certificate import write_certificate_report
from quietmean.report.data import StudyReport
from quietmean.report.exchange import exchange_figure
from quietmean.report.glance import absent_of
from quietmean.report.officer import OfficerPage, Stated, digests_of, officer_page_at, write_officer_page
from quietmean.report.page import report_at, write_study_report

__all__ = [
    "OfficerPage",
    "Stated",
    "StudyReport",
    "absent_of",
    "digests_of",
    "exchange_figure",
    "officer_page_at",
    "report_at",
    "write_certificate_report",
    "write_officer_page",
    "write_study_report",
]
