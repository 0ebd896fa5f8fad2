"""What a survey's pages say of a study, in words for who answers: what a question tells, and what it may cost."""

from __future__ import annotations

from quietmean.privacy.guesses import is_weak, odds
from quietmean.statistics import Columns, Statistic
from quietmean.statistics.names import names_of
from quietmean.studies.agreement.sealed import Sealed


def asked_by(sealed: Sealed) -> str:
    """Who asks, in a sentence."""
    convener = sealed.invitation.convener
    return f"{next((entry.name for entry in sealed.entries if entry.identity == convener), convener)} asks."


def odds_of(sealed: Sealed, epsilon: float, delta: float) -> list[str]:
    """What a cost means, for who knows no epsilon."""
    terms = sealed.study.committee
    return _odds(odds(epsilon, delta), *((0, 0) if terms is None else (terms.colluding, terms.members)))


def _odds(guesses: tuple[int, int], colluding: int, members: int) -> list[str]:
    guess = "Somebody who sees the result may guess which of two answers you gave."
    right, times = guesses
    if is_weak(right, times):
        often = "every time" if right == times else f"{right:,} times in {times:,}"
        return [f"{guess} That guess may be right {often}: the protection is weak."]
    bound = f"That guess is right at most {right} times in 100, where blind luck gives 50."
    holds = f"This holds even if they know all other answers, and work with {colluding} of the {members} members."
    return [f"{guess} {bound}", holds]


def learnt(statistic: Statistic, columns: Columns) -> str:
    """What a question tells, in the words of its kind and with its columns, such as "means of pay for each sex"."""
    # What follows in a kind's words is for statisticians: tests and ratios.
    said, where, fields = statistic.summary.partition(", with ")[0], statistic.where, statistic.describe()
    known = names_of(_texts([value for name, value in fields.items() if name not in ("kind", "where")]))
    names = [name for name in columns.names if name in known]
    for words, field, text in (("a column", "column", "{}"), (" in groups", "by", " for each {}")):
        name = getattr(statistic, field, None)
        if words in said and name in names:
            said = said.replace(words, text.format(name))
            names.remove(name)
    named = f"{said}: {', '.join(names)}" if names else said
    return f"{named}, only where {where}" if where else named


def _texts(value: object) -> str:
    return value if isinstance(value, str) else " ".join(map(_texts, value)) if isinstance(value, list | tuple) else ""
