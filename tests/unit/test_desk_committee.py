"""The desk of a contributor to a committee, and of a member: what it says and how it takes part."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quietmean.desk.site_folder import SiteFolder, State, convener_of, decide_by, inbox, is_member
from quietmean.desk.starting import Here, Starter
from quietmean.desk.views import in_short, preferred, templates
from quietmean.node.net import Identity
from support.committee_study import CommitteeStudy, soon


@pytest.mark.parametrize(
    "transport", [{}, {"transport": "folder", "deadlines": {"first": soon(7200), "interval": 60.0, "poll": 2.0}}]
)
def test_each_takes_part_in_its_own_way(tmp_path: Path, transport: dict[str, object]) -> None:
    study = CommitteeStudy(tmp_path, fields=transport)
    ways = {}
    for name in ("m1", "c1"):
        starter = Starter(SiteFolder(tmp_path, name), Here(data="wages.csv", key=study.key(name)))
        ways[name] = list(starter._way(study.sealed, "study.sealed"))
    assert ways["m1"] == ["join", "--contributions", str(tmp_path / "study.contributions")]
    assert ways["c1"] == ["send", "--out", str(tmp_path / "c1.contribution")]


def test_a_contributor_is_late_after_its_time_and_a_member_is_not(tmp_path: Path) -> None:
    late = CommitteeStudy(tmp_path, committee={"contribute_by": soon(-5.0)})
    asked = {name: inbox(SiteFolder(tmp_path, name)) for name in ("m1", "c1")}
    assert [study.state for study in asked["m1"]] == [State.ASKED]
    assert [study.state for study in asked["c1"]] == [State.LATE]
    terms = late.sealed.study.committee
    assert terms is not None
    assert asked["c1"][0].decide_by == terms.contribute_by < datetime.now(UTC)
    assert (is_member(late.sealed, "m1"), is_member(late.sealed, "c1"), is_member(late.sealed, None)) == (True, False, False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("accepted", "against", "by_voucher"),
    [
        (
            "en",
            "all other contributors and any 1 of the 4 members of the committee work together against you",
            "Up to 40 contributors",
        ),
        ("de", "alle anderen Beitragenden und beliebige 1 der 4 Mitglieder des Komitees", "Bis zu 40 Beitragende"),
        ("fr", "tous les autres contributeurs et 1 quelconques des 4 membres du comité", "Jusqu'à 40 contributeurs"),
    ],
)
def test_a_contract_in_short_counts_members_and_not_parties(tmp_path: Path, accepted: str, against: str, by_voucher: str) -> None:
    study = CommitteeStudy(tmp_path, committee={"registrar": Identity.generate().public_key, "vouchers": 40})
    site = SiteFolder(tmp_path, "c1")
    short = in_short(site.contract(study.sealed), convener_of(study.sealed), decide_by(study.sealed.terms))
    assert (short["members"], short["colluding"]) == (4, 1)
    made = templates(preferred(accepted))
    source = (Path(__file__).parents[2] / "src/quietmean/desk/templates/study.html").read_text()
    sentences = made.from_string(source[source.index('<ol class="short">') : source.index("</ol>")])
    shown = " ".join(sentences.render(short=short, says={"uses": "pay", "shown": "that c1 takes part"}).split())
    assert against in shown
    assert re.search(rf"{by_voucher}.*(registrar|Ausgabestelle|bureau d'enregistrement)", html.unescape(shown))
    assert "parties" not in shown.split("<li>")[3]
    assert short["if_all_others"] is None or f"by epsilon {short['if_all_others']}." not in shown
