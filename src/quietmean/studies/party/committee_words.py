"""What a study with a committee says of it to people: who must not collude, until when, and what happens to a contribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quietmean.statistics import Workload
from quietmean.studies.agreement.committee import CommitteeTerms
from quietmean.studies.agreement.deadlines import in_hours, in_words

# What a party is called that no list names.
BY_VOUCHER = "by voucher"
_EACH = "the members, that each number of a contribution, and of each member's noise, is within its bounds, without learning it"


@dataclass(frozen=True)
class CommitteeWords:
    """``members``: their names, where the study is sealed. ``workload``: what the study asks for."""

    terms: CommitteeTerms
    members: tuple[str, ...] | None
    workload: Workload

    @property
    def against(self) -> str:
        """Who may collude without learning more than is stated."""
        return f"all other contributors together with {self.terms.committee.against(self.members)}"

    @property
    def otherwise(self) -> str:
        """What more colluders learn."""
        colluding = self.terms.colluding
        return f"more than {colluding} of the members together read every contribution, with whomever else or alone"

    @property
    def liars(self) -> str:
        """What members that lie can do."""
        gone, colluding = self.terms.gone, self.terms.colluding
        if self.terms.committee.corrects:
            return (
                f"there is a right result with up to {gone} of them gone or lying, but for contributions that up to {colluding} "
                "leave out"
            )
        return (
            f"there is a result with up to {gone} of them gone; up to {colluding} that lie can prevent it or have it refused, "
            "never falsify the sum"
        )

    @property
    def checked(self) -> str:
        """What members know of a contribution without learning it; empty where nothing is checked."""
        if not self.terms.verified:
            return ""
        full = [statistic.text for statistic in self.workload.statistics if self.workload.is_stated_in_full(statistic)]
        rest = [statistic.text for statistic in self.workload.statistics if statistic.text not in full]
        if not self.workload.statistics:
            return f"{_EACH}: whatever a contributor makes up, it counts as no more than its weight"
        records = "one record, with all products" if self.terms.products else "as many records"
        listed = [
            *([f"of {'; '.join(full)} also that they are those of {records}"] if full else []),
            *([f"of {'; '.join(rest)} these bounds only"] if rest else []),
        ]
        return f"{_EACH}; {', '.join(listed)}"

    @property
    def admits(self) -> str:
        """Who besides those on the list may contribute, and what those who let them in can do; empty where nobody else may."""
        terms = self.terms
        if terms.vouchers is None:
            return ""
        return (
            f"besides the parties that are listed up to {terms.vouchers} whose keys the registrar {terms.registrar} certified, "
            "one contribution each, which anybody makes who has such a key; a registrar that lies can contribute in the place of "
            "all of them and so move the result, and learns nothing more than all other contributors together"
        )

    def lines(self) -> list[tuple[str, str]]:
        """For people."""
        terms = self.terms
        holders = f"the {terms.members} members" if self.members is None else ", ".join(self.members)
        return [
            (
                "contributes",
                f"one file, until {in_words(terms.contribute_by)}, with a part encrypted to each of {holders}; it may travel "
                "anyhow, and shows who contributed, when and with which weight",
            ),
            (
                "opens",
                f"the members, from {in_hours(terms.grace)} after that on, one sum, once, with the noise of "
                f"{terms.committee.dealings} of them; {self.liars}",
            ),
            *([("checks", self.checked)] if self.checked else []),
            *([("admits", self.admits)] if self.admits else []),
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        members = {} if self.members is None else {"names": list(self.members)}
        checked = {"checked": self.checked} if self.checked else {}
        admits = {"admits": self.admits} if self.admits else {}
        return {**self.terms.describe(), **members, "against": self.against, "otherwise": self.otherwise, **checked, **admits}
