"""What a study with a committee says of it to people: who must not collude, until when, and what happens to a contribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quietmean.protocols.committee import Size
from quietmean.studies.agreement.committee import CommitteeTerms
from quietmean.studies.agreement.deadlines import in_hours, in_words


@dataclass(frozen=True)
class CommitteeWords:
    """``members``: their names, where the study is sealed."""

    terms: CommitteeTerms
    members: tuple[str, ...] | None

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
        if self.terms.size == Size.LYING:
            return (
                f"there is a right result with up to {gone} of them gone or lying, but for contributions that up to {colluding} "
                "leave out"
            )
        return (
            f"there is a result with up to {gone} of them gone; up to {colluding} that lie can prevent it or have it refused, "
            "never falsify the sum"
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
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        members = {} if self.members is None else {"names": list(self.members)}
        return {**self.terms.describe(), **members, "against": self.against, "otherwise": self.otherwise}
