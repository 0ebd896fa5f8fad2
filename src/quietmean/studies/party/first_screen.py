"""What stands on the screen before a yes: a few lines, and directly above the answer what nobody may agree to without seeing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from quietmean.core.codec import canonical_json
from quietmean.core.domain import PrivacyUnit
from quietmean.core.readable import (
    AlwaysFact,
    ShortFact,
    chained,
    epsilon_shown,
    facts_that_hold,
    for_terminal,
    indented,
    marked,
    percent_text,
    phrase,
)
from quietmean.ledger.account import over_gaussian, shared_budget_text
from quietmean.privacy.analysis import WORTHLESS
from quietmean.privacy.guesses import guess_text
from quietmean.protocols.mechanism import is_private
from quietmean.protocols.target import eavesdropping_text
from quietmean.statistics import Workload
from quietmean.studies.agreement.any_study import asked_text, bounds_of, used_text
from quietmean.studies.agreement.deadlines import CommitteeTerms, in_words
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.party.agreement import Agreement

# Where the text of a row begins; so many lines stand above what is marked; and the row of what the costs mean.
_ROW, _LINES, _MEANS = 13, 10, "means"
# Names that are longer than this together are counted instead.
_NAMES, _IN_SENTENCE = 24, 16
# So much of a key is shown where a party has no name.
_KEY = 16
_PURPOSE = 200
NO_PROMISE, NO_PRIVACY = "NO PROMISE", "NO PRIVACY"
# So many words stand above the answer; which share one where there are more.
_MOST, _OF_A_KIND = 8, (("PEOPLE", "ROWS"), (NO_PROMISE, "AVERAGE"), ("SITE", "LARGEST"), ("ONCE", "BUDGET"), ("COST", "BUDGET"))


@dataclass(frozen=True)
class OwnData:
    """What only the owner of the data sees beside the terms, never in a document, event, receipt or log.

    ``rows``: what is read; ``units``: how many units; ``left``: of which budget, behind the costs; ``marks``: what is clipped or
    left out; ``expected``: of the answers with these data.
    """

    rows: str = ""
    units: int | None = None
    left: str = ""
    marks: tuple[ShortFact, ...] = ()
    expected: tuple[str, ...] = ()

    def marked_with(self, facts: Sequence[ShortFact]) -> tuple[ShortFact, ...]:
        """Return these facts, each with what is known here of the same kind, and the others that are known here."""
        texts = {fact.key: fact.text for fact in self.marks}
        known = [
            ShortFact(key, chained((text, texts.pop(key, "")), " ")) for key, text in ((fact.key, fact.text) for fact in facts)
        ]
        return (*(ShortFact(key, text) for key, text in texts.items()), *known)


NOTHING_OWN = OwnData()


@dataclass(frozen=True)
class FirstScreen:
    """What is shown at a yes. ``always``: directly above the answer, never left out."""

    title: str
    rows: tuple[ShortFact, ...]
    always: tuple[ShortFact, ...]
    code: str = ""

    @classmethod
    def of(cls, agreed: Agreement, own: OwnData = NOTHING_OWN, compared: Collection[str] = (), code: str = "") -> FirstScreen:
        """The screen of one party. ``compared``: with whom it compared the safety ``code``."""
        always = _together(own.marked_with(always_facts(agreed, compared)))
        screen = cls(_title(agreed), tuple(_rows(agreed, own)), always, code)
        # It says the costs once more, in other words: the first to go.
        return screen if len(screen.lines()) <= _LINES else replace(screen, rows=screen._without(_MEANS))

    def _without(self, key: str) -> tuple[ShortFact, ...]:
        return tuple(row for row in self.rows if row.key != key)

    @property
    def answer(self) -> str:
        """What a person has to type."""
        keys = {fact.key for fact in self.always}
        return "yes without privacy" if NO_PRIVACY in keys else "yes without promise" if NO_PROMISE in keys else "yes"

    @property
    def is_plain(self) -> bool:
        """Whether a yes is all that has to be said."""
        return self.answer == "yes"

    def lines(self) -> list[str]:
        """Return the lines from the title on."""
        rows = [*([ShortFact("code", self.code)] if self.code else []), *self.rows]
        return [*indented("", self.title, 0), *(line for row in rows for line in indented(f"  {row.key}", row.text, _ROW))]

    def marked(self) -> list[str]:
        """Return the lines directly above the answer."""
        return [line for fact in self.always for line in marked(fact.key, fact.text)]

    def to_json(self) -> dict[str, Any]:
        """Return what was shown, for the audit log."""
        return {"title": self.title, "rows": _pairs(self.rows), "always": _pairs(self.always)}


def _together(facts: tuple[ShortFact, ...]) -> tuple[ShortFact, ...]:
    """Put the sentences of a kind under one word where there are too many."""
    texts = {fact.key: fact.text for fact in facts}
    for key, other in _OF_A_KIND:
        if len(texts) > _MOST and key in texts and other in texts:
            texts[key] = chained((texts[key], texts.pop(other)), " ")
    return tuple(ShortFact(key, text) for key, text in texts.items())


def _pairs(facts: Iterable[ShortFact]) -> list[list[str]]:
    return [[fact.key, str(fact.text)] for fact in facts]


def always_facts(agreed: Agreement, compared: Collection[str] = ()) -> tuple[ShortFact, ...]:
    """What has to be seen before a yes, as far as it is known without data."""
    facts = facts_that_hold(ALWAYS, agreed)
    unconfirmed = [name for name in to_compare(agreed) if name not in compared]
    if unconfirmed:
        facts.append(ShortFact("KEYS", _uncompared(unconfirmed)))
    return tuple(facts)


def _uncompared(names: Sequence[str]) -> str:
    who, typed = _names(names, _other_sites, _IN_SENTENCE), quote(",".join(names))
    return phrase(
        "Nobody compared the code with {who}, so keys may be false. "
        "Call them (quietmean verify words), then add --compared {typed}.",
        who=who,
        typed=typed if len(typed) <= _IN_SENTENCE - 2 else "NAME",
    )


def _names(names: Sequence[str], many: Callable[[str], str], most: int = _NAMES) -> str:
    """All names, or where these are long how ``many`` they are."""
    first, last = ", ".join(names[:-1]), "".join(names[-1:])
    listed = phrase("{first} and {last}", first=first, last=last) if first else last
    return listed if len(listed) <= most else many(f"{len(names):,}")


def _other_sites(count: str) -> str:
    return phrase("1 other site") if count == "1" else phrase("{count} other sites", count=count)


def _parties(count: str) -> str:
    return phrase("1 party") if count == "1" else phrase("{count} parties", count=count)


def _workload(agreed: Agreement) -> Workload | None:
    return agreed.study.workload if isinstance(agreed.study, StudyTerms) else None


def _committee(agreed: Agreement) -> CommitteeTerms | None:
    return agreed.study.committee if isinstance(agreed.study, StudyTerms) else None


def _hides_count(agreed: Agreement) -> bool:
    workload = _workload(agreed)
    return workload is not None and workload.hides_count


def _trusted(agreed: Agreement) -> list[str]:
    """The parties of which the promise needs that they are honest."""
    return [agreed.parties[party].name for party in sorted(agreed.plan.protocol.traits.trusted)]


def _coordinator(agreed: Agreement) -> str:
    """Who sealed it: a name, else the beginning of a key; empty where it is not sealed."""
    if agreed.sealed is None:
        return ""
    key = agreed.sealed.invitation.convener
    return next((entry.name for entry in agreed.sealed.entries if entry.identity == key), f"{key[:_KEY]}...")


def to_compare(agreed: Agreement) -> list[str]:
    """Whose keys are as the coordinator says, until somebody compares the safety code: all who compute."""
    computing = () if agreed.sealed is None else agreed.sealed.computing
    return [entry.name for entry in computing if entry.name != agreed.own.name]


def _is_private(agreed: Agreement) -> bool:
    return is_private(agreed.plan.protocol)


def _unpromised(agreed: Agreement) -> bool:
    return any(plan.above_target is not None for plan in agreed.plans)


def _within_party(agreed: Agreement) -> bool:
    return agreed.target.unit.within_party and _is_private(agreed)


def _of_persons(agreed: Agreement) -> bool:
    return agreed.target.unit == PrivacyUnit.PERSON


def _no_promise(agreed: Agreement) -> str:
    if agreed.target.nats is not None:
        return phrase("Nothing is promised beforehand. The cost is known only afterwards.")
    most = agreed.epsilon_a_priori
    if math.isinf(most):
        return phrase("The cost is known only afterwards; nothing bounds it. It stays.")
    return phrase("The cost is known only afterwards; it can reach {most}, and stays.", most=epsilon_shown(most))


def _no_privacy(agreed: Agreement) -> str:
    reveals = agreed.plan.protocol.traits.reveals
    return phrase("Nothing protects your values. It reveals {reveals}.", reveals=phrase(reveals))


def _site(agreed: Agreement) -> str:
    if not _is_private(agreed) or agreed.target.nats is not None or _unpromised(agreed):
        return phrase("Your site as a whole is not protected: its mean may show.")
    return phrase("Each {unit} is protected. Your site is not: its mean may show.", unit=phrase(str(agreed.target.unit)))


def _people(agreed: Agreement) -> str:
    if not _of_persons(agreed):
        return phrase("A person with k records is protected less: up to k times the loss.")
    workload = _workload(agreed)
    sites = 1 if workload is None else workload.sites_per_person
    if sites == 1:
        return phrase("A person at k sites is protected less: up to k times the loss.")
    return phrase("A person at more than {sites} sites is protected less. Nobody checks it.", sites=f"{sites}")


_OF_PERSON = {
    "mean": phrase("Of a person the mean of all rows counts."),
    "first": phrase("Of a person only the first row counts."),
    "last": phrase("Of a person only the last row counts."),
}


def _rows_of_person(agreed: Agreement) -> str:
    workload = _workload(agreed)
    rows = 1 if workload is None else workload.rows
    if not isinstance(rows, int):
        return _OF_PERSON[str(rows)]
    if rows == 1:
        return phrase("Of a person at most 1 row counts.")
    return phrase("Of a person at most {rows} rows count.", rows=f"{rows:,}")


def _reads(agreed: Agreement) -> str:
    if (terms := _committee(agreed)) is not None:
        of = {"some": f"{terms.colluding + 1}", "members": f"{terms.members}"}
        return phrase("Any {some} of the {members} members together can read ALL you send.", **of)
    return phrase("{who} can read ALL your values, and has to be honest.", who=_names(_trusted(agreed), _parties))


def _largest(agreed: Agreement) -> str:
    if _committee(agreed) is not None:
        largest = f"{agreed.plan.protocol.traits.largest_weight:,g}"
        return phrase("One party counts for up to {largest} records.", largest=largest)
    share = agreed.study.share_of(len(agreed.parties)) if isinstance(agreed.study, StudyTerms) else None
    if share is None:
        return phrase("Nothing limits how much of the answer one party is.")
    return phrase("One party may have up to {share} of all records.", share=percent_text(share))


def _times(agreed: Agreement) -> float | None:
    return over_gaussian(agreed.charge, agreed.target.delta)


def _cost_stays(agreed: Agreement) -> str:
    if agreed.rounds > 1:
        return phrase("The cost of a round stays once it begins, even without a result.")
    return phrase("Once the study starts the cost stays, even without a result.")


ALWAYS: tuple[AlwaysFact[Agreement], ...] = (
    AlwaysFact(NO_PRIVACY, lambda agreed: not _is_private(agreed), _no_privacy),
    AlwaysFact(NO_PROMISE, _unpromised, _no_promise),
    AlwaysFact(
        "AVERAGE",
        lambda agreed: agreed.target.nats is not None,
        lambda agreed: phrase("Nats are an average over values. That is not differential privacy."),
    ),
    AlwaysFact("SITE", _within_party, _site),
    AlwaysFact("PEOPLE", _within_party, _people),
    AlwaysFact("ROWS", _of_persons, _rows_of_person),
    AlwaysFact("READS", lambda agreed: _committee(agreed) is not None or bool(_trusted(agreed)), _reads),
    AlwaysFact(
        "LARGEST",
        lambda agreed: agreed.contributes and agreed.target.unit.within_party and not _hides_count(agreed),
        _largest,
    ),
    AlwaysFact(
        "ONCE",
        lambda agreed: agreed.contributes,
        lambda agreed: phrase("A contribution cannot be changed or taken back. Its cost stays."),
    ),
    AlwaysFact("BUDGET", lambda agreed: _times(agreed) is not None, lambda agreed: shared_budget_text(_times(agreed) or 1.0)),
    AlwaysFact("COST", lambda agreed: not agreed.contributes and not _unpromised(agreed), _cost_stays),
)


def _title(agreed: Agreement) -> str:
    kind = "Session" if agreed.rounds > 1 else "Study"
    coordinator = _coordinator(agreed)
    names = [party.name for party in agreed.others if party.name != coordinator]
    by = "" if not coordinator else " by you" if coordinator == agreed.own.name else f" by {coordinator}"
    others = _names(names, _other_sites)
    return f"{kind} {agreed.name!r}{by}{f', with {others}' if names else ''}"


def _rows(agreed: Agreement, own: OwnData) -> list[ShortFact]:
    facts = [
        *([ShortFact("for", purpose)] if (purpose := _purpose(agreed)) else []),
        ShortFact("result", _result_goes_to(agreed)),
        ShortFact("asks", asked_text(agreed.study)),
        ShortFact("uses", _uses(agreed, own)),
        *bounds_of(agreed.study),
        ShortFact("costs", f"{_costs(agreed)}{own.left}"),
        *([ShortFact(_MEANS, means)] if (means := _means(agreed)) else []),
        ShortFact("against", f"{_against(agreed)}{_if_all(agreed)}"),
    ]
    terms = _committee(agreed)
    if terms is not None and terms.verified:
        facts.append(ShortFact("proves", "that your numbers are within their bounds, not that they are true"))
    if when := _when(agreed):
        facts.append(ShortFact("starts", when))
    facts.append(ShortFact("shown", _shown(agreed, own)))
    if expected := own.expected or agreed.expected_shortly():
        facts.append(ShortFact("expected", for_terminal("; ".join(expected))))
    return facts


def _when(agreed: Agreement) -> str:
    """Until when it starts, and through a folder ends; of a study of parties that connect at once, nothing."""
    deadlines = agreed.study.deadlines
    start = agreed.study.start_by or (deadlines.first if deadlines is not None else None)
    if start is None:
        return ""
    fewest = f", with {agreed.fewest} sites or more" if agreed.fewest < len(agreed.parties) else ""
    end = f"; ends by {in_words(deadlines.last_end(agreed.plans, agreed.rounds))}" if deadlines is not None else ""
    return f"by {in_words(start)}{fewest}{end}"


def _uses(agreed: Agreement, own: OwnData) -> str:
    columns = used_text(agreed.study)
    return phrase("{columns}, of {rows}", columns=columns, rows=own.rows) if own.rows else columns


def _result_goes_to(agreed: Agreement) -> str:
    """Who gets the answer, and until when a file is sent."""
    terms = _committee(agreed)
    if terms is not None:
        return f"is public; send until {in_words(terms.contribute_by)}"
    if agreed.contributes:
        return "goes to anyone who has the files of all sites"
    whose = f"all {len(agreed.parties)} sites"
    return f"of each round goes to {whose}" if agreed.rounds > 1 else f"goes to {whose}"


def _purpose(agreed: Agreement) -> str:
    purpose = agreed.study.purpose if isinstance(agreed.study, SessionStudy) else {}
    text = canonical_json(purpose).decode() if purpose else ""
    return text if len(text) <= _PURPOSE else f"{text[:_PURPOSE]}..."


_PER = {PrivacyUnit.RECORD: "per record", PrivacyUnit.PERSON: "per person (all their rows)"}


def _costs(agreed: Agreement) -> str:
    target = agreed.target
    per = _PER.get(target.unit, "for your whole site") + (", all rounds together" if agreed.rounds > 1 else "")
    if not _is_private(agreed):
        return "your values: nothing protects them"
    if target.nats is not None:
        return f"{target.nats:g} nats a coordinate, on average"
    if _unpromised(agreed):
        return f"epsilon {epsilon_shown(target.epsilon)} {per} if all goes well"
    others = ", whoever else contributes" if _committee(agreed) is not None else ""
    return f"epsilon {epsilon_shown(agreed.epsilon_a_priori)} {per}{others}"


def _means(agreed: Agreement) -> str:
    """What the epsilon means for who knows none; "" where none is promised."""
    if not _is_private(agreed) or agreed.target.nats is not None or _unpromised(agreed):
        return ""
    return guess_text(agreed.epsilon_a_priori, agreed.target.delta, str(agreed.target.unit))


def _against(agreed: Agreement) -> str:
    """Who may collude."""
    terms, colluding, others = _committee(agreed), agreed.target.colluding, len(agreed.parties) - 1
    if terms is not None:
        return f"any {terms.colluding} of the {terms.members} members and all other contributors together"
    if not colluding:
        # Local noise holds against them, too.
        return "those who see the answer" if _holds_against_all(agreed) else "those who see the answer, not the other sites"
    who = "the other site" if others == 1 else f"{colluding} of the other {others} sites"
    return f"{who}, never {_names(_trusted(agreed), _parties)}" if _trusted(agreed) else who


def _holds_against_all(agreed: Agreement) -> bool:
    """Whether all others together learn no more than is promised."""
    return agreed.everybody_else <= agreed.epsilon_a_priori * (1 + 1e-9)


def _if_all(agreed: Agreement) -> str:
    """What is left if all others work together, and who reads messages besides."""
    read = "" if agreed.target.eavesdropping is None else f"; {eavesdropping_text(agreed.target.eavesdropping)}"
    if _committee(agreed) is not None or not _is_private(agreed):
        return read
    alone = agreed.everybody_else
    if not agreed.target.colluding and _holds_against_all(agreed):
        return f", even if all others work together{read}"
    left = "nothing is left" if math.isinf(alone) else f"epsilon {epsilon_shown(alone)}"
    left += f" ({WORTHLESS})" if agreed.left_is_worthless else ""
    return f"; {left} if all others work together{read}"


def _shown(agreed: Agreement, own: OwnData) -> str:
    """What becomes public of a party that takes part."""
    unit, name = agreed.target.unit, agreed.own.name
    units = phrase("people") if _of_persons(agreed) else phrase("records")
    if agreed.contributes:
        if not unit.within_party or _hides_count(agreed):
            return phrase("that and when you contributed, the size of the file")
        if _committee(agreed) is not None:
            return phrase("that and when you contributed, your weight, the size of the file")
        return phrase("that and when you contributed, your number of {units}, file size", units=units)
    if not unit.within_party:
        return phrase("that {name} takes part", name=name)
    if _hides_count(agreed):
        return phrase("that {name} takes part; its number of {units} is hidden", name=name, units=units)
    if own.units is None:
        return phrase("that {name} takes part, and how many {units} it has", name=name, units=units)
    return phrase("that {name} takes part, and that it has {many} {units}", name=name, many=f"{own.units:,}", units=units)
