"""What the estimators have in common that are one study of statistics: its tables, its contract and its release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from quietmean.core.arrays import Array
from quietmean.learning.estimators.base import OUTCOME, Private, estimator
from quietmean.learning.estimators.certificate import FitCertificate
from quietmean.learning.estimators.one_shot import OneShot, planned, release
from quietmean.learning.sites import parties_of, site_of
from quietmean.statistics import INDICATOR


@estimator
class OneStudy(Private):
    """An estimator whose fit is one study."""

    @abstractmethod
    def _questions(self, columns: int) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
        """The statistics of a study, and how its outcome is declared."""

    def _tables(self, limits: Array) -> dict[str, Any]:
        """A study of the columns and perhaps the outcome."""
        statistics, outcome = self._questions(len(limits))
        columns = [
            {"name": name, "low": low, "high": high, "missing": INDICATOR}
            for name, (low, high) in zip(self._names(len(limits)), limits.tolist(), strict=True)
        ]
        return {
            "column": [*columns, *([{"name": OUTCOME, **outcome}] if outcome else [])],
            "statistic": [dict(statistic) for statistic in statistics],
            "accept_wide": self.accept_wide,
            **site_of(self.site).agreed(type(self).__name__.lower()),
            **self._budget(),
        }

    def _contract(self, limits: Array) -> Any:
        site = site_of(self.site)
        return site.contract(planned(self._tables(limits), parties_of(site, None))[0])

    def _release(self, limits: Array, parts: Sequence[Array]) -> OneShot:
        """One study of the columns and perhaps the outcome, whose values are the last column of each part."""
        released = release(self._tables(limits), parts, site_of(self.site))
        self._certify(FitCertificate.of_study(released.outcome))
        self.estimates_ = released.estimates
        flags = [flag.message for answer in released.estimates for flag in answer.flags]
        self._tell([*released.notes, *dict.fromkeys(flags)])
        return released
