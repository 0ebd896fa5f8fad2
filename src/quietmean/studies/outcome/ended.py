"""What a receipt says of the end of a study, and what of it must never be hidden."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from quietmean.core.assumptions import Key
from quietmean.core.domain import counted_text
from quietmean.core.output import mapping_of
from quietmean.core.readable import (
    HIDDEN,
    AlwaysFact,
    ShortFact,
    bound_text,
    chained,
    delta_shown,
    epsilon_shown,
    facts_that_hold,
    marked,
    phrase,
    some_of,
)
from quietmean.statistics.estimate import number_of
from quietmean.statistics.kinds.first_look import CUT, FirstLook
from quietmean.statistics.printed import shown
from quietmean.statistics.tidy import Term, terms_of
from quietmean.statistics.workload import NOBODYS
from quietmean.studies.outcome.hidden import and_more, what_is_hidden
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.outcome.outsiders import against_parties, only_outsiders

# So many answers have how far a lie moves them.
_REACHED = 2


@dataclass(frozen=True)
class Ended:
    """What a receipt says of the end of a study. ``here``: on values of this machine that did not fit, for their owner."""

    receipt: Mapping[str, Any]
    here: Sequence[str] = ()

    @property
    def result(self) -> Mapping[str, Any]:
        return mapping_of(self.receipt.get("result"))

    @property
    def certificate(self) -> Mapping[str, Any]:
        return mapping_of(self.result.get("certificate"))

    @property
    def origin(self) -> Mapping[str, Any]:
        return mapping_of(self.receipt.get("origin"))

    @property
    def statistics(self) -> Sequence[Mapping[str, Any]]:
        return list(self.result.get("statistics", ()))

    @property
    def unit(self) -> str:
        return str(self.certificate.get("unit", "record"))

    @property
    def counted(self) -> str:
        """What a party has many of, such as "records"."""
        return counted_text(self.unit, self.certificate.get("rows"))

    @property
    def delta(self) -> str:
        return delta_shown(float(self.result.get("delta", 0)), self.result.get("delta_below"))

    @property
    def promised(self) -> float:
        """Epsilon that was guaranteed; infinite without a guarantee."""
        return number_of(self.result.get("epsilon_a_priori"))

    @property
    def spent(self) -> float:
        return number_of(self.result.get("epsilon"))

    @property
    def asked(self) -> float:
        """Epsilon that the study asked for; infinite where it asked for none."""
        return float(mapping_of(self.receipt.get("certify")).get("epsilon", math.inf))

    @property
    def nats(self) -> Mapping[str, Any]:
        return mapping_of(self.result.get("nats"))

    @property
    def bare(self) -> str:
        """Why values are not protected at all; "" where they are."""
        texts = {str(each["key"]): str(each["text"]) for each in self.certificate.get("assumptions", ())}
        return texts.get(Key.NO_NOISE, "")

    @property
    def committee(self) -> Mapping[str, Any]:
        return mapping_of(self.origin.get("committee"))

    def name(self, party: int) -> str:
        """The name of a party by its place."""
        names = self.origin.get("names", ())
        return str(names[party]) if party < len(names) else f"party {party}"

    @cached_property
    def away(self) -> list[str]:
        """Who should be in the answer and is not."""
        if self.committee:
            contributions = mapping_of(self.committee.get("contributions"))
            return [
                *(str(each["name"]) for each in contributions.get("left_out", ())),
                *map(str, contributions.get("missing", ())),
            ]
        return [*map(self.name, self.result.get("without", ())), *self.not_at_start]

    @property
    def not_at_start(self) -> list[str]:
        """Who took no part in a study that began without all."""
        return [str(name) for name in mapping_of(self.origin.get("start")).get("not_in_at_start", ())]

    @property
    def in_it(self) -> int:
        return int(self.result.get("parties_counted", 0))

    @property
    def whose(self) -> str:
        """How many of all are in the answer: "18 of 20"."""
        return phrase("{some} of {all}", some=f"{self.in_it}", all=f"{self.in_it + len(self.away)}")

    @cached_property
    def terms(self) -> list[Term]:
        return [term for document in self.statistics for term in terms_of(document)]

    @property
    def hidden(self) -> list[Term]:
        """Numbers that noise hides."""
        return [term for term in self.terms if shown(term).estimate == HIDDEN]

    @property
    def by_rounds(self) -> dict[str, str]:
        """The questions to type for models by rounds, by the statistics of which noise hides a term."""
        return {str(each["name"]): str(each["by_rounds"]) for each in self.statistics if "by_rounds" in each}

    @property
    def may_be_cut(self) -> list[str]:
        """Columns of answers whose bounds a first look proposed with the word that they may cut much."""
        others = [document for document in self.statistics if document.get("kind") != FirstLook.name]
        flags = [flag for document in others for flag in document.get("flagged", ()) if flag["code"] == CUT and not flag["terms"]]
        return list(dict.fromkeys(name for flag in flags for name in str(flag["message"]).partition(":")[0].split(", ")))

    @property
    def nobodys(self) -> str:
        """The sentence that no party has a record of any answer; "" where one has."""
        said = {str(message) for document in self.statistics for message in document.get("messages", ())}
        return phrase(NOBODYS.message) if said == {NOBODYS.message} else ""

    @property
    def liars(self) -> list[str]:
        """Sentences on who was found to have sent something false."""
        return [
            *(
                phrase("{who} sent a wrong sum. It was corrected.", who=and_more(wrong))
                for wrong in [self._wrong_members]
                if wrong
            ),
            *(
                phrase("{who} sent a sum that no values give. It was left out.", who=self.name(int(party)))
                for party, *_ in self.origin.get("impossible_releases", ())
            ),
            *(
                phrase(
                    "{who} sent {other} another sum than was received here, or {other} does not tell what it received. "
                    "Results may differ.",
                    who=self.name(int(party)),
                    other=self.name(int(other)),
                )
                for party, _, other, *_ in self.origin.get("equivocating", ())
            ),
            *(f"{remark}." for remark in self.origin.get("remarks", ())),
        ]

    @property
    def signed_sums(self) -> bool:
        """Whether who lied signed it: a receipt only says so."""
        return bool(self._wrong_members)

    @property
    def reach(self) -> list[str]:
        """Sentences on how far one party can have moved answers, and how many wrong sums would be noticed."""
        if self._wrong_members:
            lies = int(mapping_of(self.certificate.get("checked_by")).get("lies_excluded", 0))
            return [phrase("In all {lies} wrong sums would be noticed for certain.", lies=f"{lies}")] if lies else []
        stated = mapping_of(self.certificate.get("influence"))
        if not stated or not self.origin.get("equivocating"):
            return []
        influence = StudyInfluence.from_json(stated)
        moved = [(name, influence.most(name)) for name in (str(document["name"]) for document in self.statistics[:_REACHED])]
        return [
            phrase("Nothing bounds how far such a lie moves {name}.", name=name)
            if math.isinf(most)
            else phrase("Such a lie moves {name} by at most {most}.", name=name, most=bound_text(most))
            for name, most in moved
            if most is not None
        ]

    @property
    def _wrong_members(self) -> Sequence[str]:
        return list(mapping_of(self.committee.get("members")).get("wrong", ()))

    @property
    def unsettled(self) -> list[str]:
        """Notes on what could not be settled, none of which another line has."""
        return [str(note) for note in self.origin.get("notes", ())]

    @property
    def failed(self) -> str:
        """Why it has no answer; "" where it has one."""
        if "no_result" in self.receipt:
            return str(mapping_of(self.receipt["no_result"]).get("reason", ""))
        gate = mapping_of(self.receipt.get("gate"))
        return "" if self.result else str(gate.get("reason") or "the receipt holds no result")


def _not_in_it(end: Ended) -> str:
    if end.failed:
        return phrase("{who} took no part.", who=and_more(end.away))
    if len(end.away) == 1:
        return phrase("{who} is not in the answer ({whose} are).", who=and_more(end.away), whose=end.whose)
    return phrase("{who} are not in the answer ({whose} are).", who=and_more(end.away), whose=end.whose)


def _above(text: str, end: Ended) -> str:
    return phrase("{figure}. The study asked for at most {asked}.", figure=text, asked=epsilon_shown(end.asked))


def _false(end: Ended) -> str:
    said = chained([*end.liars, *end.reach], " ")
    if end.signed_sums:
        return phrase("{said} Keep the members' files of sums: their signatures prove it.", said=said)
    return phrase("{said} Keep the receipt: it names them.", said=said)


def _whole_site(end: Ended) -> str:
    if not math.isfinite(min(end.promised, end.spent)):
        return phrase("A site as a whole is not protected.")
    return phrase("Each {unit} is protected. A site as a whole is not.", unit=phrase(end.unit))


# Each stands directly below the answer where its predicate holds, in this order.
ALWAYS: tuple[AlwaysFact[Ended], ...] = (
    AlwaysFact("NO PRIVACY", lambda end: end.bare, lambda end: phrase(end.bare)),
    AlwaysFact(
        "NO EPSILON",
        lambda end: end.nats,
        lambda end: phrase("This is not differential privacy. It bounds what others learn on average."),
    ),
    AlwaysFact(
        "COST",
        lambda end: not end.bare and not end.nats and end.spent > end.asked,
        lambda end: _above(phrase("It really cost epsilon {spent}", spent=epsilon_shown(end.spent)), end),
    ),
    AlwaysFact(
        "ABOVE",
        lambda end: math.isfinite(end.promised) and end.promised > end.asked,
        lambda end: _above(phrase("Only epsilon {promised} was guaranteed", promised=epsilon_shown(end.promised)), end),
    ),
    AlwaysFact(
        "NATS",
        lambda end: end.nats and number_of(end.nats["most"]) > end.nats["target"],
        lambda end: phrase("This execution revealed more than the target of {target} nats.", target=f"{end.nats['target']:g}"),
    ),
    AlwaysFact("AWAY", lambda end: end.away, _not_in_it),
    AlwaysFact(
        "FALSE",
        lambda end: end.liars,
        _false,
    ),
    AlwaysFact(
        "OPEN",
        lambda end: end.unsettled,
        lambda end: f"{some_of(end.unsettled, 1)}.",
    ),
    AlwaysFact(
        "HIDDEN",
        lambda end: end.nobodys or end.hidden,
        lambda end: end.nobodys or what_is_hidden(end.hidden, len(end.terms), end.by_rounds),
    ),
    AlwaysFact(
        "CUT",
        lambda end: end.may_be_cut,
        lambda end: phrase(
            "{columns}: bounds of a first look may cut values that matter. Intervals are of clipped values.",
            columns=", ".join(end.may_be_cut),
        ),
    ),
    AlwaysFact("CLIPPED", lambda end: end.here, lambda end: "; ".join(end.here)),
    AlwaysFact(
        "PARTIES",
        lambda end: not end.bare and not end.nats and only_outsiders(end.certificate, end.promised),
        lambda end: against_parties(end.certificate),
    ),
    AlwaysFact(
        "SITE",
        lambda end: not end.bare and not end.nats and number_of(end.certificate.get("whole_party_epsilon", 0)) == math.inf,
        _whole_site,
    ),
)


def always_facts(end: Ended) -> list[ShortFact]:
    """All that hold, in their order."""
    return facts_that_hold(ALWAYS, end)


def always_lines(facts: Iterable[ShortFact]) -> list[str]:
    """The lines of facts, each marked."""
    return [line for fact in facts for line in marked(fact.key, fact.text)]
