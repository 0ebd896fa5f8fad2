"""A page in German or French says no sentence in English: of all facts before a yes and after a result, and of all findings."""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import pkgutil
import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import quietmean
import quietmean.desk
import quietmean.protocols
from quietmean.core.domain import PrivacyUnit, counted_text
from quietmean.core.readable import HIDDEN, Phrase, facts_that_hold, phrase
from quietmean.desk import Here, SiteFolder
from quietmean.desk.views import CODES, ENGLISH, language_of
from quietmean.desk.views import templates as templates_of
from quietmean.ledger import Ledger, SpendingRequest
from quietmean.node import Identity
from quietmean.node.monitor import NodeView
from quietmean.privacy import Charge
from quietmean.protocols.mechanism import Mechanism
from quietmean.statistics.findings import NOTHING, finding
from quietmean.statistics.printed import NOT_REACHED
from quietmean.statistics.workload import NOBODYS
from quietmean.studies.outcome.ended import ALWAYS, Ended
from quietmean.studies.outcome.first_screen import privacy_of
from quietmean.studies.party.audit import AuditLog, Auditor, Event
from quietmean.studies.party.first_screen import ALWAYS as BEFORE
from support.before_yes import every, of_flower, of_session
from support.desks import Pages
from support.meeting import AGES, meet
from support.outcomes import EVERY_KIND, finished
from support.site_policy import write_policy

OTHERS = [code for code in CODES if code != ENGLISH]
# No name in these tests, and no word of German or French, is one of these.
ENGLISH_WORDS = re.compile(
    r"\b(the|of|is|are|and|by|with|your|from|be|not|it|that|this|which|who|has|have|its|to)\b", re.IGNORECASE
)
FILLED_IN = re.compile(r"\{(\w+)\}")
# What stands for a text that is not written where it is said, each one of our own or taken as it is.
ELSEWHERE = {
    *(
        "NOT_REACHED",
        "NOTHING",
        "HIDDEN",
        "NOBODYS.message",
        "answer.counted",
        "end.counted",
        "end.unit",
        "str(agreed.target.unit)",
        "end.bare",
        "reveals",
    ),
    *(
        "protocol.traits.trust",
        "self.key",
        "one",
        "many",
        "text",
        "str(study.unit)",
        "column.kind",
        "str(end.certificate.get('against') or end.certificate.get('adversary', ''))",
    ),
}


def branches(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from branches(node.body)
        yield from branches(node.orelse)
    else:
        yield node


def templates() -> Iterator[str]:
    """All that is written as a phrase in the package."""
    for path in sorted(Path(quietmean.__file__).parent.rglob("*.py")):
        if "phrase(" not in (text := path.read_text(encoding="utf-8")):
            continue
        for call in ast.walk(ast.parse(text)):
            # Either the phrase, or that of one thing and that of many.
            place = {"phrase": slice(1), "counted_phrase": slice(1, 3)}.get(getattr(getattr(call, "func", None), "id", ""))
            if isinstance(call, ast.Call) and place is not None:
                for said in itertools.chain.from_iterable(map(branches, call.args[place])):
                    if isinstance(said, ast.Constant):
                        yield str(said.value)
                    elif isinstance(said, ast.JoinedStr):
                        parts = [str(part.value) for part in said.values if isinstance(part, ast.Constant)]
                        assert not re.search(r"[a-z]", FILLED_IN.sub("", "".join(parts))), ast.unparse(said)
                    else:
                        assert ast.unparse(said) in ELSEWHERE, (path.name, ast.unparse(said))


def of_elsewhere() -> set[str]:
    """The texts of our own that are not written where they are said."""
    for module in pkgutil.walk_packages(quietmean.protocols.__path__, "quietmean.protocols."):
        importlib.import_module(module.name)
    traits = [protocol.TRAITS for protocol in protocols(Mechanism) if hasattr(protocol, "TRAITS")]
    reveals = {trait.reveals for trait in traits if not trait.private}
    units = {str(unit) for unit in PrivacyUnit} | {counted_text(unit, rows) for unit in PrivacyUnit for rows in (None, 3)}
    trusted = {text for trait in traits for text in (trait.trust, trait.trust_with_collector)}
    bare = {f"Nothing has noise: {text}." for text in reveals if text} | {"Nothing has noise: the sum itself protects nobody."}
    keys = {fact.key for fact in ALWAYS} | {fact.key for fact in BEFORE} | {"KEYS"}
    kinds = {"numbers", "dates", "truth", "levels"}
    return ({HIDDEN, NOT_REACHED, NOTHING, NOBODYS.message} | keys | kinds | units | trusted | reveals | bare) - {""}


def protocols(kind: type[Any]) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from protocols(one)


def test_every_phrase_is_in_every_language() -> None:
    table = tomllib.loads((Path(quietmean.desk.__file__).parent / "phrases.toml").read_text(encoding="utf-8"))
    written = {template for template in templates() if re.search(r"\w", FILLED_IN.sub("", template))} | of_elsewhere()
    assert {template for template in table if re.search(r"\w", FILLED_IN.sub("", template))} == written
    for template, each in table.items():
        for code in OTHERS:
            assert sorted(set(FILLED_IN.findall(each[code]))) == sorted(set(FILLED_IN.findall(template))), template
            assert not ENGLISH_WORDS.search(FILLED_IN.sub("", each[code])), each[code]


def english(text: str) -> bool:
    """Whether it has two words of English at least, outside what is asked for: a name may have one."""
    return len(ENGLISH_WORDS.findall(re.sub(r"[\w-]+\(.*?\)", "", text))) > 1


def test_no_fact_before_a_yes_is_said_in_english() -> None:
    """Of every protocol, unit, start, way and kind of column; with a site to compare the words with, and without a promise."""
    contracts = [contract for _, contract in every()] + [of_session(), of_flower()]
    said = {fact.text for contract in contracts for fact in contract.always}
    assert len(said) >= 12
    assert {text for text in said if not isinstance(text, Phrase)} == set()
    assert sum(english(text) for text in said) > len(said) / 2
    for code in OTHERS:
        assert [text for text in said if english(language_of(code).said(text))] == []


def ends() -> Iterator[Ended]:
    """A result with all that can be said of one."""
    receipt = finished("mean(x)", noise=1e4).receipt({"names": [f"site {place}" for place in range(9)]})
    origin = receipt["origin"]
    away = {"start": {"not_in_at_start": ["west"]}, "impossible_releases": [[1, 0]], "equivocating": [[1, 0, 2, 0]]}
    committee = {"members": {"wrong": ["a", "b"]}, "contributions": {"missing": [*"abcdefg"]}}
    yield Ended({**receipt, "origin": {**origin, **away}}, ())
    yield Ended({**receipt, "origin": {**origin, "committee": committee}}, ())
    for result in (
        {"nats": {"target": 0.1, "most": 0.2}},
        {"nats": {"target": 0.1, "most": 0.2, "a_priori": 0.1}},
        {"epsilon_a_priori": None, "epsilon": 3.0},
        {"epsilon_a_priori": None, "epsilon": None},
        {"epsilon_a_priori": 2.0, "epsilon": 0.5, "certificate": {"unit": "person", "whole_party_epsilon": "inf"}},
    ):
        yield Ended({**receipt, "certify": {"epsilon": 1.0}, "result": {**receipt["result"], **result}})
    for others in (9.9, "inf"):
        outside = {"against": "outsiders", "everyone_else_epsilon": others}
        yield Ended({**receipt, "result": {**receipt["result"], "epsilon_a_priori": 2.0, "certificate": outside}})
    cut: dict[str, Any] = {"code": "cut", "message": "age: bounds of a first look may cut", "terms": [], "upper": None}
    after = [{**document, "flagged": [cut]} for document in receipt["result"]["statistics"]]
    yield Ended({**receipt, "result": {**receipt["result"], "statistics": after}})
    nobodys = [{**document, "messages": [NOBODYS.message]} for document in receipt["result"]["statistics"]]
    bare = {"assumptions": [{"key": "no-noise", "text": "Nothing has noise: the sum itself protects nobody."}]}
    yield Ended({**receipt, "result": {**receipt["result"], "statistics": nobodys, "certificate": bare}})


def test_no_fact_of_a_result_is_said_in_english() -> None:
    found = {(fact.key, fact.text) for end in ends() for fact in facts_that_hold(ALWAYS, end)}
    assert {key for key, _ in found} == {fact.key for fact in ALWAYS} - {"OPEN", "CLIPPED"}
    said = {text for _, text in found} | {privacy_of(end) for end in ends()}
    # What is not ours to say: against whom, as the certificate has it.
    for code in OTHERS:
        texts = [
            FILLED_IN.sub("", language_of(code).said(text)).partition(" gegen ")[0].partition(" contre ")[0] for text in said
        ]
        assert [text for text in texts if english(text)] == []


@pytest.mark.parametrize("noise", [0.05, 5.0, 1e4])
def test_no_finding_is_said_in_english(noise: float) -> None:
    """Of all kinds of statistics; why noise hides one is marked as English."""
    said = [finding(document) for document in finished(*EVERY_KIND, noise=noise).to_json()["statistics"]]
    assert sum(isinstance(text, Phrase) for text in said) >= (20 if noise < 1 else 1)
    for code in OTHERS:
        language = language_of(code)
        assert [text for text in said if language.says(text) and english(language.said(text))] == []
        assert [text for text in said if not language.says(text) and isinstance(text, Phrase)] == []


def test_what_a_stranger_wrote_is_filled_in_as_it_is() -> None:
    text = phrase("{who} took no part.", who="{most} median")
    assert text == "{most} median took no part."
    assert "{most} median" in language_of("de").said(text)
    assert language_of("de").said(phrase("<{unknown")) == '<span lang="en">&lt;{unknown</span>'


class Heard(HTMLParser):
    """The texts of a page that are not marked as English."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, bool]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "input", "br", "img"):
            other = bool(self._open) and self._open[-1][1]
            self._open.append(
                (tag, other or (tag != "html" and dict(attrs).get("lang") == ENGLISH) or tag in ("code", "pre", "style", "svg"))
            )

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip() and not (self._open and self._open[-1][1]):
            self.texts.append(" ".join(data.split()))


def heard(page: str) -> list[str]:
    parser = Heard()
    parser.feed(page)
    return parser.texts


def test_each_language_has_its_own_sentences() -> None:
    """Whichever browser came first."""
    said = {code: templates_of(language_of(code)) for code in CODES}
    for code in CODES:
        shown = said[code].from_string("{{ _('Studies') }}, {{ text | said }}").render(text=phrase("median"))
        assert shown == ", ".join((language_of(code).sentence("Studies"), language_of(code).said(phrase("median"))))


def put_study(folder: Path) -> None:
    (folder / "ages.sealed").write_bytes(
        meet(folder, tables={**AGES, "study": {**AGES["study"], "records": 3000}}).seal().signed.to_file()
    )


def put_results(folder: Path) -> None:
    for noise in (0.05, 1e4):
        finished(*EVERY_KIND, noise=noise).save_receipt(folder / f"{noise:g}.receipt.json", {"study": {"study": "Wards"}})
    receipt = {"origin": {"study": {"study": "Wards"}}, "result": None, "reason": "too few parties came"}
    (folder / "west.receipt.json").write_text(json.dumps(receipt))


def put_site(folder: Path) -> None:
    """What was charged, written down, and what runs."""
    when = datetime(2026, 3, 1, tzinfo=UTC)
    with Ledger.open(folder / "ledger", create=True) as book:
        for account in ("wards", "clinic"):
            book.set_budget(account, 20.0, 1e-5, when=when, unit=PrivacyUnit.RECORD)
        charge = Charge.promised(finished("mean(x)", noise=3.0).a_priori)
        book.reserve("wards", SpendingRequest("s", "ages", charge, unit=PrivacyUnit.RECORD), when=when)
    auditor = Auditor(AuditLog(folder / "audit.jsonl"), Identity.generate(), "south", "ages", "ab" * 32)
    for event in Event:
        auditor.write(event, {"reason": "the study is not what the policy allows"})
    (folder / "changed.jsonl").write_bytes((folder / "audit.jsonl").read_bytes().replace(b"south", b"north"))
    view = {"state": "failed", "reason": "the peer is not there", "phase": "sums", "refused": ["a frame of nobody"]}
    view |= dict.fromkeys(("started", "since", "updated"), "2026-03-01T12:00:00+00:00")
    empty = {"str": "", "State": "", "int": 0, "dict[str, Any] | None": None}
    fields = {name: empty.get(str(about.type), []) for name, about in NodeView.__dataclass_fields__.items()}
    status = {"format": "quietmean-status-1", "study": "ages", "roster": "ab", "party": "south", "pid": 1}
    (folder / "south.store.status.json").write_text(json.dumps(fields | status | view))


# Names, and what the languages have in common.
SAME = {"quietmean", "anna", "age", "ages", "Wards", "wards", "clinic", "north", "east", "south", "west", "ages-south", "mu"}
PUT: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "study": (
        put_study,
        (
            "/",
            "/study/ages.sealed",
            "/study/ages.sealed/marks",
            "/study/ages.sealed/data",
            "/ledger",
            "/audit",
            "/board",
            "/nothing",
        ),
    ),
    "refused": (put_study, ("/study/ages.sealed",)),
    "result": (put_results, ("/result/0.05", "/result/10000", "/result/west")),
    "site": (put_site, ("/", "/ledger", "/audit", "/board", "/node/south")),
}


def texts_of(page: str) -> list[str]:
    """What is read out, of a page that is not marked as of another language; numbers and signs are of none."""
    return [text for text in heard(page) if re.search(r"[^\W\d_]{2}", text.replace("UTC", ""))]


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.parametrize("kind", PUT)
def test_no_page_has_a_text_in_english(kind: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is as on the English page is a name, the same word in both, or marked as English."""
    monkeypatch.chdir(tmp_path)
    put, paths = PUT[kind]
    put(tmp_path)
    (tmp_path / "wards.csv").write_text('age\n312.75\n30\n"61,234"\n""\n')
    Identity.generate().save(tmp_path / "owner.key")
    write_policy(largest_epsilon=0.5 if kind == "refused" else 100.0, audit={"log": str(tmp_path / "audit.jsonl")})
    here = Here(owner_key=tmp_path / "owner.key", data=tmp_path / "wards.csv", ledger=tmp_path / "ledger")
    own, other = (Pages(SiteFolder(tmp_path, "south"), here, one) for one in (code, ENGLISH))
    language = language_of(code)
    same = SAME | {name for name in language.sentences if language.sentence(name) == name}
    same |= {template for template in language.phrases if language.said(phrase(template)) == template}
    for path in paths:
        (status, page), (_, english_page) = own.ask(path), other.ask(path)
        assert status == (404 if path == "/nothing" else 200), page
        assert texts_of(page), path
        assert [text for text in texts_of(page) if english(text)] == [], path
        assert [text for text in texts_of(page) if text in texts_of(english_page) and text not in same] == [], path
