"""The result of a survey as one page for those who answered, whose SHA-256 each member signs: equal results give equal bytes.

No time, no path, and nothing that one member alone knows is in it. It has no script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from quietmean.core.domain import counted_text
from quietmean.core.errors import ProtocolFailure
from quietmean.core.readable import count_of
from quietmean.form.files import page_text, policy_text, source, source_hash
from quietmean.form.words import asked_by, learnt, odds_of
from quietmean.planning.plan import Plan
from quietmean.protocols.committee.result import CheckedResult
from quietmean.statistics import Columns, Statistic
from quietmean.statistics.findings import finding
from quietmean.statistics.printed import capital, names_in, notes_of, shown, together
from quietmean.statistics.tidy import Term, terms_of
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.outcome.about_intervals import about_intervals
from quietmean.studies.outcome.opened_by_committee import OpenedStudy

_HEADS = ("what", "estimate", "95 % interval")


def result_page(sealed: Sealed, plan: Plan, checked: CheckedResult) -> bytes:
    """The page of a result that holds; nothing where its sum is one that no answers give."""
    try:
        opened = OpenedStudy.of(sealed, plan, checked)
    except ProtocolFailure:
        return b""
    policy = {
        "default-src": "'none'",
        "style-src": f"'sha256-{source_hash(source('form.css'))}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    study = sealed.study
    title, content = escape(f"{study.name}: the result"), "\n".join(_content(sealed, plan, opened))
    return page_text(policy_text(policy), title, content).encode()


def page_of(sealed: Sealed, plan: Plan) -> Callable[[CheckedResult], bytes]:
    """What makes the page of whatever result the members of a study open."""
    return lambda checked: result_page(sealed, plan, checked)


def _content(sealed: Sealed, plan: Plan, opened: OpenedStudy) -> Iterator[str]:
    study, target = sealed.study, plan.target
    documents = opened.outcome.to_json()["statistics"]
    counted = counted_text(str(target.unit), None)
    yield f"<header><h1>{escape(study.name)}</h1>"
    there = count_of(len(opened.digests), "answer is", "answers are")
    yield f"{_said(asked_by(sealed))}{_said(f'{there} in this result.')}</header>"
    for statistic, document in zip(study.workload.statistics, documents, strict=True):
        yield from section_of(statistic, study.workload.columns, document, counted)
    terms = [term for document in documents for term in terms_of(document)]
    members = ", ".join(sorted(entry.name for entry in sealed.computing))
    yield "<section><h2>How to read it</h2>"
    yield from map(_said, about_intervals(terms))
    yield from map(_said, odds_of(sealed, opened.outcome.epsilon_a_priori, target.delta))
    yield "</section><section><h2>Who opened it</h2>"
    yield _said(f"The members {members} opened one sum of all answers together, and no single answer.")
    yield _said("Each member signs the SHA-256 of this page. The page of the survey shows it where enough of them signed.")
    yield f"<dl><dt>study</dt><dd>{sealed.digest}</dd></dl></section>"


def section_of(statistic: Statistic, columns: Columns, document: Mapping[str, Any], counted: str) -> Iterator[str]:
    """What is known of one question: a sentence, each number with its interval, and what is flagged."""
    names, says = names_in(document), _without_advice(finding(document, counted))
    question = learnt(statistic, columns)
    yield f"<section><h2>{escape(question[:1].upper() + question[1:])}</h2>{_said(says)}"
    terms, hidden = together(terms_of(document))
    yield _table(terms, document)
    notes = [capital(_without_advice(note), names) for note in notes_of(document["flagged"])]
    yield from (_said(note, "hint") for note in [capital(hidden), *notes] if note and note != says)
    yield "</section>"


def _table(terms: Sequence[Term], document: Mapping[str, Any]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEADS)
    rows = [[term.label or str(document["name"]), shown(term).estimate, shown(term).interval] for term in terms]
    cells = [map(escape, row) for row in rows]
    lines = [f'<tr><th scope="row">{_breakable(label)}</th><td>{value}</td><td>{ends}</td></tr>' for label, value, ends in cells]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>" if lines else ""


# How a sentence begins that tells who asks what to ask instead.
_ADVICE = re.compile(r"(?:(?<=[.?] )|^)(?:Ask|Choose|Give|Leave|Name|To count|Use)\b.*?(?:\.(?= )|$) ?")


def _without_advice(text: str) -> str:
    """What is said of an answer to people who answered: they cannot ask for anything else."""
    return _ADVICE.sub("", text).strip()


def _breakable(label: str) -> str:
    """A label (HTML) that breaks behind a bracket or within a long name, and in no other word."""
    return re.sub(r"(?<=[(_.-])(?=\w)|(?<=\w{16})(?=\w{4})", "<wbr>", label)


def _said(text: str, kind: str = "") -> str:
    stop = "" if text.endswith((".", ")", "?")) else "."
    return f'<p class="{kind}">{escape(text)}{stop}</p>' if kind else f"<p>{escape(text)}{stop}</p>"
