"""What pages show of contracts and receipts, and how they are made: templates in the reader's language, strangers' words inert.

A sentence that a language lacks is shown in English. What is signed, the contract's own lines, is never translated: all parties
agree to the same text.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.codec import convert
from quietmean.core.domain import counted_text
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import SESSION_RECEIPT
from quietmean.core.readable import Phrase, count_of, delta_shown, epsilon_text, phrase, plain
from quietmean.node.monitor import headline, traffic_text
from quietmean.protocols.mechanism import is_private
from quietmean.report.pictures import drawn_twice, pictures_of
from quietmean.report.words import TEMPLATES, moment, rounded_down, rounded_up
from quietmean.report.words import templates as report_templates
from quietmean.sessions.receipt import certified
from quietmean.statistics.compared import compared_in
from quietmean.statistics.findings import finding
from quietmean.statistics.printed import in_all
from quietmean.statistics.printed import shown as shown_term
from quietmean.statistics.tidy import terms_of
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.outcome.ended import Ended, always_facts
from quietmean.studies.outcome.first_screen import cost_kept, privacy_means, privacy_of
from quietmean.studies.outcome.tables import Line, ResultTable, tables_of
from quietmean.studies.party import Contract
from quietmean.studies.party.approval import WORDS
from quietmean.studies.party.session_contract import SessionContract

if TYPE_CHECKING:
    from jinja2 import Environment

    from quietmean.desk.site_folder import SiteFolder


def in_short(contract: Contract | SessionContract, convener: str, decide_by: datetime | None) -> dict[str, Any]:
    """What the five sentences say of a contract.

    ``epsilon``: at most, rounded up, and ``if_all_others``, if all others collude; None where nothing bounds it.
    ``is_worthless``: is that a share of Laplace noise only? ``members``: of the committee that opens the sum, of whom
    ``colluding`` may collude with all other contributors; 0 where there is none. Contributions come until ``contribute_by``,
    besides those of the ``others`` from so many who have ``vouchers``.
    ``widths``: how wide the intervals will be, as the first screen has it, "" where that is not known; the terms have all of it.
    """
    study, protocol, target = contract.study, contract.plan.protocol, contract.target
    committee = None if isinstance(study, SessionStudy) else study.committee
    forecast = None if isinstance(contract, SessionContract) else contract.forecast
    return {
        "convener": convener,
        "asks": asked_in_words(contract),
        "columns": len(contract.used),
        "others": ", ".join(party.name for party in contract.others),
        "protocol": protocol.name,
        "trusts": phrase(protocol.traits.trust),
        "private": is_private(protocol),
        "unit": phrase(str(study.unit)),
        "epsilon": _bound(contract.epsilon_a_priori),
        "delta": delta_shown(target.delta),
        "colluding": target.colluding,
        "parties": target.parties,
        "if_all_others": _bound(contract.everybody_else),
        "is_worthless": contract.left_is_worthless,
        "decide_by": decide_by,
        "widths": "" if forecast is None else "; ".join(forecast.shortly()),
        "members": 0 if committee is None else committee.members,
        "contribute_by": None if committee is None else committee.contribute_by,
        "vouchers": 0 if committee is None else committee.vouchers or 0,
    }


def asked_in_words(contract: Contract | SessionContract) -> list[tuple[str, str]]:
    """What is asked for, each in words and as the study writes it: "the mean of age", "mean(age)"."""
    if isinstance(contract, SessionContract):
        return [("", text) for _, text in contract.asks_for]
    asked = contract.study.workload.statistics
    return [(one.summary.replace("a column", str(getattr(one, "column", "a column"))), one.text) for one in asked]


def _bound(epsilon: float) -> str | None:
    """Return the bound as text, rounded up; None where nothing bounds it."""
    return None if math.isinf(epsilon) else f"{math.ceil(epsilon * 100 * (1 - 1e-12)) / 100:g}"


def node_of(site: SiteFolder, name: str) -> dict[str, Any]:
    """What the pages show of a node of the site."""
    view, status = site.node(name)
    state = "gone" if view.state == "running" and status.get("alive") is False else view.state
    peers = sorted(view.peers, key=lambda peer: (peer.name not in view.waiting_for, -peer.late))
    return {
        "name": name,
        "view": view,
        "state": state,
        "headline": headline(view),
        "traffic": traffic_text(view),
        "peers": peers,
        "study": status.get("study"),
    }


def result_of(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the page of a result. Raises :class:`InputError` for the receipt of a session that somebody has changed."""
    is_session = receipt.get("format") == SESSION_RECEIPT
    tables, changed = (_rounds(receipt), "") if is_session else _answers(receipt)
    origin, answers = _field(receipt, "origin"), [] if is_session or not tables else _in_sentences(receipt)
    end = Ended({} if is_session or changed else receipt)
    failed = "" if is_session or tables else changed or end.failed
    return {
        "answers": answers,
        # Why there is none, of a study; and what must not be missed.
        "failed": f"{failed[:1].upper()}{failed[1:]}",
        "cost": cost_kept(end) if failed else "",
        "facts": [] if is_session else always_facts(end),
        "privacy": privacy_of(end) if answers else "",
        "means": privacy_means(end) if answers else "",
        "title": _title(receipt),
        "is_session": is_session,
        "tables": tables,
        # Notes that all tables share are shown once; a table that is used alone has them itself.
        "shared": in_all([table.notes for table in tables]),
        "finished": _field(origin, "finished"),
        "version": _field(origin, "quietmean") or _field(origin, "version"),
        "contract": _field(origin, "approval", "contract"),
        "plan": _field(origin, "plan"),
    }


def _title(receipt: Mapping[str, Any]) -> Any:
    """The name of the study or session; None where the receipt does not say."""
    if receipt.get("format") == SESSION_RECEIPT:
        return _field(receipt, "session", "name")
    # A study may be asked for with its columns or alone.
    title = _field(receipt, "origin", "study")
    return title.get("study") if isinstance(title, dict) else title


def _answers(receipt: Mapping[str, Any]) -> tuple[list[ResultTable], str]:
    """The tables of the answers; none for a study without a result, and for one that somebody has changed, which is said."""
    result = receipt.get("result")
    try:
        return tables_of(result) if isinstance(result, dict) else [], ""
    except InputError as error:
        return [], str(error).removesuffix(".")


def _in_sentences(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each answer says; of one number this number, and where it and its intervals lie."""
    certificate = _field(receipt, "result", "certificate") or {}
    counted = counted_text(str(certificate.get("unit", "record")), certificate.get("rows"))
    columns = _field(receipt, "origin", "study", "columns") or ()
    found = []
    for document in receipt["result"]["statistics"]:
        every = terms_of(document)
        terms = [term for term in every if not term.of_records] or every
        one = terms[0] if len(terms) == 1 and not terms[0].hidden and math.isfinite(terms[0].estimate) else None
        bounds = None if one is None else _bounds_of(document, columns)
        scales = [] if one is None or bounds is None else drawn_twice(one.estimate, (one.noise, one.population), bounds)
        number, says = "" if one is None else shown_term(one).estimate, finding(document, counted)
        pictures = [] if scales else pictures_of({"statistics": [document]})
        who = compared_in(document.get("summary", {}))
        found.append(
            {"name": document["name"], "says": says, "compared": who, "number": number, "scales": scales, "pictures": pictures}
        )
    return found


def _bounds_of(document: Mapping[str, Any], columns: Any) -> tuple[float, float] | None:
    """The bounds of the column whose mean an answer is; None where it is something else, or the receipt does not say."""
    own = next((one for one in columns if document["name"] == f"mean({one.get('name')})"), None)
    low, high = (None, None) if own is None else (own.get("low"), own.get("high"))
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) and low < high else None


def _rounds(receipt: Mapping[str, Any]) -> list[ResultTable]:
    """Which rounds there were, and whose vectors are in their means; the cost is computed again."""
    certificate = certified(receipt)
    wrong = InputError("this receipt of a session is not as quietmean writes it. Ask its party for it again.")
    results = convert(_field(receipt, "rounds", "with_mean"), int, lambda reason: wrong)
    counted = convert(_field(receipt, "rounds", "counted"), dict[str, int], lambda reason: wrong)
    rounds, delta = certificate["rounds"], delta_shown(certificate["delta"])
    lines = [("agreed on", rounds["agreed"]), ("that began here", rounds["begun"]), ("with a mean", results)]
    cost = f"epsilon {epsilon_text(certificate['epsilon'])} at delta {delta} at most, for one {certificate['unit']}"
    notes = [
        f"{rounds['begun']} of {count_of(rounds['agreed'], 'round')} began: {cost}, under "
        f"{certificate['neighbouring']}, guaranteed",
        f"against {certificate['adversary']}; enforced by {certificate['enforced_by']}",
    ]
    return [
        ResultTable.of("Rounds", ("rounds", "number"), [Line((name, f"{count}")) for name, count in lines], notes=notes),
        ResultTable.of(
            "In how many means each party is", ("party", "means"), [Line((name, f"{count}")) for name, count in counted.items()]
        ),
    ]


def _field(document: Any, *path: str) -> Any:
    """The field of a document at a path; None where there is none."""
    for part in path:
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


_SENTENCES, _PHRASES = (Path(__file__).with_name(name) for name in ("sentences.toml", "phrases.toml"))
ENGLISH = "en"
CODES = (ENGLISH, "de", "fr")
_FILLED_IN, _WORD = re.compile(r"\{\w+\}"), re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Language:
    """A language of the pages.

    ``code``: as HTML has it. ``sentences``: by their names; ``phrases``: of facts and findings, by their templates.

    One that is not here is its own English.
    """

    code: str
    sentences: Mapping[str, str] = field(default_factory=dict, compare=False)
    phrases: Mapping[str, str] = field(default_factory=dict, compare=False)

    def sentence(self, name: str) -> str:
        """The sentence in this language."""
        return self.sentences.get(name, name)

    def said(self, text: Any) -> Any:
        """A phrase in this language, for a page: what the language lacks is marked as English. A name is as it is."""
        from markupsafe import Markup, escape

        if not isinstance(text, Phrase):
            return escape(shown(text)) if isinstance(text, str) and not hasattr(text, "__html__") else text
        if not self.says(text):
            return Markup('<span lang="en">{}</span>').format(shown(text))
        template = escape(self.phrases.get(text.template, text.template))
        return template.format(**{name: self.said(value) for name, value in text.values.items()}) if text.values else template

    def says(self, text: str) -> bool:
        """Whether the text is one that this language has."""
        if self.code == ENGLISH or not isinstance(text, Phrase):
            return self.code == ENGLISH
        return text.template in self.phrases or not _WORD.search(_FILLED_IN.sub("", text.template))

    def told(self, text: str) -> Any:
        """A text of ours in this language, or marked as English."""
        return self.said(text if isinstance(text, Phrase) else phrase(text))


@cache
def language_of(code: str) -> Language:
    """The language of a code in :data:`CODES`."""
    sentences, phrases = (tomllib.loads(path.read_text(encoding="utf-8")) for path in (_SENTENCES, _PHRASES))
    return Language(
        code,
        {name: each.get(code, each.get(ENGLISH, name)) for name, each in sentences.items()},
        {template: each.get(code, template) for template, each in phrases.items()},
    )


def preferred(accepted: str) -> Language:
    """The language of a reader whose browser sends this Accept-Language; English where none of ours is in it."""
    weights: dict[str, float] = {}
    for part in accepted.split(","):
        tag, _, parameter = part.strip().partition(";")
        code = tag.strip().lower().partition("-")[0]
        weight = _weight(parameter.strip())
        if code in CODES and weight > weights.get(code, 0.0):
            weights[code] = weight
    # The first of equal ones, as browsers list them by preference.
    return language_of(max(weights, key=lambda code: weights[code], default=ENGLISH))


def _weight(parameter: str) -> float:
    if not parameter.startswith("q="):
        return 1.0
    try:
        return float(parameter.removeprefix("q="))
    except ValueError:
        return 0.0


_TEMPLATES = Path(__file__).parent / "templates"


@cache
def templates(language: Language) -> Environment:
    """All templates, whose sentences are in this language; every text in them is shown by :func:`shown`."""
    from jinja2 import FileSystemLoader
    from markupsafe import Markup, escape

    environment = report_templates().overlay(
        loader=FileSystemLoader([_TEMPLATES, TEMPLATES]), extensions=["jinja2.ext.do"], finalize=_of_strangers
    )

    def sentence(name: str, /, **values: Any) -> Markup:
        ours = Markup(language.sentence(name))  # noqa: S704 - of our own table
        return ours % {key: _of_strangers(language.said(value)) for key, value in values.items()}

    parts = environment.filters["parts"]
    # Overlays share what they have: each language has its own.
    environment.globals = {**environment.globals, "_": sentence, "language": language}
    environment.filters = {
        **environment.filters,
        "shown": shown,
        "said": language.told,
        # Before the blanks are set that do not end a line: these are ours, and no stranger's.
        "parts": lambda text: [text] if hasattr(text, "__html__") else [escape(part) for part in parts(shown(text))],
        "moment": lambda value: moment(value) if isinstance(value, str) else value,
        "plain": plain,
        "delta_shown": delta_shown,
        "rounded_up": rounded_up,
        "rounded_down": rounded_down,
        "shown_lines": lambda text: Markup("\n").join(map(shown, text.splitlines())),
    }
    return environment


def _of_strangers(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def shown(text: object) -> str:
    """A stranger's text: characters that are not printed, or change the direction of writing, are shown by their code points."""
    return "".join(
        character
        if character.isprintable()
        else f"\N{LEFT WHITE SQUARE BRACKET}U+{ord(character):04X}\N{RIGHT WHITE SQUARE BRACKET}"
        for character in str(text)
    )


WRONG_WORDS = phrase("These are not all words of the study. Compare them with another party. Tick each word that you heard.")
WRONG_ANSWER = phrase("Type exactly the words that stand above this field.")
NO_ACCOUNT = phrase("Type the data set's name in the budget.")
NO_DAY = phrase("This is not a date. Write it as 2030-12-31.")


class FormMistakes(InputError):
    """The error for a form with fields that are not as they should be.

    ``mistakes``: a sentence for each field that is not as it should be.
    """

    def __init__(self, mistakes: Mapping[str, str]) -> None:
        super().__init__(" ".join(mistakes.values()))
        self.mistakes = dict(mistakes)


@dataclass
class Form:
    """Reads the ``fields`` of a form, and gathers what is wrong with them."""

    fields: Mapping[str, str]
    mistakes: dict[str, str] = field(default_factory=dict)

    def require(self, name: str, holds: bool, sentence: str) -> None:
        if not holds:
            self.mistakes[name] = sentence

    def text(self, name: str, sentence: str) -> str:
        """What is typed, without spaces around it; a mistake where that is nothing."""
        typed = self.fields.get(name, "").strip()
        self.require(name, bool(typed), sentence)
        return typed

    def day(self, name: str, sentence: str) -> date:
        """A day; a mistake where it is none."""
        try:
            return date.fromisoformat(self.fields.get(name, ""))
        except ValueError:
            self.mistakes[name] = sentence
            return date.min

    def require_right(self) -> None:
        """Raises :class:`FormMistakes` if something was wrong."""
        if self.mistakes:
            raise FormMistakes(self.mistakes)


def ticked_words(fields: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a safety code that were ticked, in the order of their fields."""
    return tuple(fields[f"word.{number}"] for number in range(1, WORDS + 1) if f"word.{number}" in fields)


def compared_with(fields: Mapping[str, str], others: Sequence[str]) -> list[str]:
    """Which of the ``others`` are ticked as those who read the words."""
    return [other for number, other in enumerate(others, 1) if f"compared.{number}" in fields]
