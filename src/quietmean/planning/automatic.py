"""Which protocol a study takes if it names none: packed secret sharing where it can be had, else the least predicted error.

Only peer-to-peer protocols are taken: nobody has a role, or is trusted, unless somebody asked for that. And only plans that
promise beforehand to cost no more than the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from quietmean.core.errors import InputError, named
from quietmean.core.input_domain import InputDomain
from quietmean.core.keywords import python_call
from quietmean.core.noise_law import NoiseKind
from quietmean.core.readable import count_of, epsilon_text
from quietmean.core.schema import options_of
from quietmean.planning.candidates import Candidate, CanWin, Ranking, configured, general_protocols, has_least_error, rank, takes
from quietmean.planning.plan import Plan
from quietmean.protocols import Server, Target, get_protocol
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.mechanism import unprotected
from quietmean.protocols.packed_sharing.spec import MOST_PARTIES

# The name that means the choice.
AUTO = "auto"
PREFERRED = "packed-sharing"
_LAPLACE: Mapping[str, Any] = {"noise": NoiseKind.LAPLACE.value}
# Numbers in the values of all parties together.
_MOST_NUMBERS = 10**9


@dataclass(frozen=True)
class Choice:
    """A plan, and one sentence on why its protocol was taken; None where it was named.

    ``smaller``: plans for fewer parties, by their number, of a study that starts with those who are there.
    """

    plan: Plan
    why: str | None = None
    smaller: Mapping[int, Plan] = field(default_factory=dict)

    @property
    def plans(self) -> list[Plan]:
        """The plans for all numbers of parties with which the study may start; the first one is for all parties."""
        return [self.plan, *(self.smaller[size] for size in sorted(self.smaller, reverse=True))]


def choose(target: Target, options: Mapping[str, Any] | None = None, domain: InputDomain | None = None) -> Choice:
    """The plan that every party makes for a target if no protocol is named. Deterministic.

    ``options``: of protocols, by their key in JSON; only protocols that have all of them are taken. ``domain``: where values
    lie. Raises :class:`InputError` for options that no protocol has, and where no protocol can do what is asked, or none promises
    the target.
    """
    options = options or {}
    require_epsilon(target)
    names = _with_options(options)
    best, against = preferred(target, options, domain, None)
    if best is not None:
        return Choice(best.plan, _preferred_sentence(best))
    others = [name for name in names if name != PREFERRED]
    if not others:
        raise InputError(against)
    # Where options are given, a refusal may be about them: it is not passed over.
    ranking = rank(target, configured(others, options), strict=bool(options), domain=domain)
    within_target = _keeping(ranking, against)
    return Choice(within_target[0].plan, _least_error_sentence(within_target, against))


def of_one_number(target: Target, domain: InputDomain | None = None) -> Mapping[str, Any]:
    """The options of a study of one private number: Laplace noise, a third to a half of Gaussian noise, where it can be had."""
    return _LAPLACE if preferred(target, _LAPLACE, domain, None)[0] is not None else {}


def noise_of(plan: Plan) -> Mapping[str, Any]:
    """The options by which another number of parties has the same kind of noise as a plan that was chosen without any."""
    return _LAPLACE if getattr(plan.protocol, "noise", None) == _LAPLACE["noise"] else {}


def require_epsilon(target: Target) -> None:
    """Raises :class:`InputError` for a target in nats: what is not differential privacy is never chosen automatically."""
    if target.nats is not None:
        raise InputError(
            "a protocol that is chosen automatically keeps a target in epsilon, none in nats. Name adqsp, or give epsilon."
        )


def choose_from(
    ranking: Ranking, options: Mapping[str, Any], domain: InputDomain | None = None, max_messages: int | None = None
) -> tuple[int, str]:
    """The place in a ranking of all peer-to-peer protocols of what :func:`choose` takes, and the sentence on why.

    ``max_messages`` is a further condition, which the ranking keeps. Raises :class:`InputError` if none of the ranking has all
    ``options``, or none of those promises the target.
    """
    names = _with_options(options)
    preferences, against = preferred(ranking.target, options, domain, max_messages)
    places = {
        candidate.plan.protocol.name: rank for rank, candidate in enumerate(ranking) if candidate.plan.protocol.name in names
    }
    if preferences is not None:
        return places[PREFERRED], _preferred_sentence(preferences)
    others = [ranking[rank] for name, rank in places.items() if name != PREFERRED]
    if not others:
        raise InputError(against)
    within_target = _keeping(others, against)
    return places[within_target[0].plan.protocol.name], _least_error_sentence(within_target, against)


def can_be_chosen(
    target: Target, options: Mapping[str, Any], domain: InputDomain | None = None, max_messages: int | None = None
) -> CanWin:
    """Which protocols beside those that are planned :func:`choose` may take, by the least error that they can have."""
    has_all = set(options) <= options_of(get_protocol(PREFERRED)).keys()
    if has_all and preferred(target, options, domain, max_messages)[0] is not None:
        return lambda planned, least_mse: False

    def is_least(planned: Sequence[Candidate], least_mse: float) -> bool:
        return has_least_error([candidate for candidate in planned if candidate.plan.protocol.name != PREFERRED], least_mse)

    return is_least


def _keeping(ranked: Sequence[Candidate], against: str) -> list[Candidate]:
    """Those that promise the target beforehand. Raises :class:`InputError` if there are none."""
    within_target = [candidate for candidate in ranked if candidate.plan.above_target is None]
    if not within_target:
        first = ranked[0].plan
        raise InputError(
            f"protocol {first.protocol.name} is left, {first.above_target}, and such a plan is never chosen automatically. Name "
            f"it with {named('protocol', first.protocol.name)}, or ask for something else; {PREFERRED} cannot be taken: "
            f"{against}."
        )
    return within_target


def _with_options(options: Mapping[str, Any]) -> list[str]:
    """Peer-to-peer protocols that have all of these options. Raises :class:`InputError` if there are none."""
    names = general_protocols()
    # Refuses an option that no protocol has.
    configured(names, options)
    capable = [name for name in names if all(takes(get_protocol(name), *option) for option in options.items())]
    if not capable:
        raise InputError(f"no protocol has all of the options {', '.join(sorted(options))}. Leave some out.")
    return capable


def preferred(
    target: Target, options: Mapping[str, Any], domain: InputDomain | None, max_messages: int | None
) -> tuple[Candidate | None, str]:
    """The preferred protocol for the target, or None and why its conditions do not hold."""
    if PREFERRED not in _with_options(options):
        lacking = sorted(set(options) - options_of(get_protocol(PREFERRED)).keys())
        return None, f"it has no option {', '.join(map(repr, lacking))}"
    if target.parties > MOST_PARTIES or target.parties * target.dimension > _MOST_NUMBERS:
        return None, (
            f"everybody deals to everybody, which is for up to {MOST_PARTIES} parties and {_MOST_NUMBERS} coordinates in all; "
            f"these are {target.parties} and {target.parties * target.dimension}"
        )
    try:
        return rank(target, configured([PREFERRED], options), max_messages=max_messages, domain=domain)[0], ""
    except InputError as error:
        return None, str(error)


def _preferred_sentence(best: Candidate) -> str:
    target = best.plan.target
    leaving = target.parties - target.responding
    return (
        f"protocol {PREFERRED}, chosen automatically: no server, {target.colluding} of {target.parties} parties may collude "
        f"and {leaving} leave; expected error {math.sqrt(best.mse / best.mse_central):.3g} times that of a trusted "
        "curator"
    )


def _least_error_sentence(ranked: Sequence[Candidate], against: str) -> str:
    first, *others = ranked
    advantage = f", {others[0].mse / first.mse:.3g} times less than {others[0].plan.protocol.name}" if others else ""
    return (
        f"protocol {first.plan.protocol.name}, chosen automatically: no server, and the least expected mean squared error "
        f"({first.mse:.3g} per coordinate{advantage}) where {PREFERRED} cannot be taken: {against}"
    )


Rank = Callable[[Target, Server], Ranking]


def why_first(candidates: Sequence[Candidate]) -> str:
    """One sentence on the first of a ranking, with numbers."""
    first, others = candidates[0], candidates[1:]
    name, prediction = first.plan.protocol.name, f"predicted MSE {first.mse:.3g} per coordinate"
    bare = "" if first.plan.protocol.traits.private else f"; {unprotected(first.plan.protocol)}"
    if not others:
        return f"{name} is the only candidate: {prediction}{bare}"
    cheaper = [other for other in others if other.bytes_sent < first.bytes_sent]
    sentence = (
        f"{name} has the least {prediction}, {others[0].mse / first.mse:.3g} times less than {others[0].plan.protocol.name}"
    )
    if cheaper:
        cheapest = min(cheaper, key=lambda other: other.bytes_sent)
        sentence += (
            f"; {cheapest.plan.protocol.name} sends {first.bytes_sent / cheapest.bytes_sent:.3g} times fewer bytes "
            f"for {cheapest.mse / first.mse:.3g} times the MSE"
        )
    return sentence + bare


def when_another(
    target: Target, server: Server, candidates: Sequence[Candidate], ranking: Rank, say: Callable[[str], None] = lambda text: None
) -> list[str]:
    """Under which change of the target another protocol would be first. Each change is planned anew: ``say`` gets its name."""
    first = candidates[0].plan.protocol.name
    sentences = []
    for condition, changed, accepted in _changes(target, server):
        say(condition.rstrip(","))
        try:
            winner = ranking(changed, accepted)[0]
        except InputError:
            continue
        name, above = winner.plan.protocol.name, candidates[0].mse
        outcome = f"{name} would be first" if name != first else f"{name} would stay first"
        # Of a target in nats the mean is exact.
        factor = f"{winner.mse / above:.3g}" if above else "1"
        times = f" ({factor} times that above)" if factor != "1" else ""
        sentences.append(f"{condition} {outcome}, with predicted MSE {winner.mse:.3g}{times}")
    return sentences


def where_more_is_promised(plan: Plan, domain: InputDomain | None = None) -> list[str]:
    """Say of a plan whose guaranteed epsilon is above its target against whom it is calibrated, and what keeps the target.

    Empty for other plans, and for targets in nats, which no other protocol has. ``domain``: where values lie.
    """
    target, name, sentences = plan.target, plan.protocol.name, []
    if plan.above_target is None or target.nats is not None or name == PREFERRED:
        return []
    if "executions" in plan.prediction:
        how = "as in its paper" if plan.protocol.TRAITS.sources else "on simulated executions"
        sentences.append(
            f"{name}: calibrated {how}, where it is chance who colludes: {plan.prediction['certificate']}. The chance "
            "that other colluders learn more is not in delta, and no ledger counts on it"
        )
    instead, against = preferred(target, {}, domain, None)
    if instead is None:
        return [*sentences, f"{PREFERRED} does not keep the target either: {against}"]
    times = instead.mse / Candidate(plan, 0.0, 0.0).mse
    return [
        *sentences,
        (
            f"{PREFERRED} guarantees epsilon {epsilon_text(instead.epsilon_a_priori)} against any coalition of "
            f"that size. Its predicted MSE is {instead.mse:.3g} per coordinate, {times:.3g} times that of {name}"
        ),
    ]


def _changes(target: Target, server: Server) -> list[tuple[str, Target, Server]]:
    changes: list[tuple[str, Target, Server]] = []
    if target.dropouts:
        changes.append(("if nobody dropped out,", replace(target, dropouts=0.0), server))
    else:
        changes.append(("if one in ten dropped out,", replace(target, dropouts=0.1), server))
    half = target.parties // 2
    if target.colluding < half:
        changes.append((f"if {half} colluded,", replace(target, colluding=half), server))
    if target.colluding > 1:
        changes.append(("if no two parties colluded,", replace(target, colluding=1), server))
    if server == Server.NONE:
        changes.append(("with a server that is not trusted with values,", target, Server.AGGREGATOR))
    return changes


# Of which a study's coordinator can think before anybody is asked: one member may be gone, one may collude.
USUAL = Committee(5)
# More sites than that are seldom online together.
MANY = 100
# With who may collude, and what a site does.
_Planned = tuple[Candidate, str, str]


@dataclass(frozen=True)
class Way:
    """``mse``: predicted, per coordinate; ``against``: who may collude; ``steps``: what a site does; ``sent``: its bytes.

    ``against`` says why there is none where that is so, and there are no figures then. ``members``, ``colluding_members``: of a
    committee.
    """

    name: str
    protocol: str
    against: str
    steps: str
    mse: float | None = None
    over_central: float | None = None
    sent: float | None = None
    members: int | None = None
    colluding_members: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {"way": self.name, **{name: value for name, value in vars(self).items() if name != "name" and value is not None}}


def compare_ways(ranking: Ranking, committee: Committee = USUAL, domain: InputDomain | None = None) -> list[Way]:
    """Compare ways beside each other, for the target of a ``ranking`` of all peer-to-peer protocols.

    ``domain``: where values lie.
    """
    target = ranking.target
    return [
        _way("peer to peer", lambda: _by_peers(ranking, target)),
        _way(f"committee of {committee.members}", lambda: _by_committee(target, committee, domain)),
        _way("by file", lambda: _by_file(ranking, target)),
    ]


@python_call
def propose(plan: Plan, committee: Committee = USUAL, *, one_message: bool = False) -> str | None:
    """What a ``committee`` would give beside a plan, in a sentence: for more than 100 parties, or where each is to send
    ``one_message``. None otherwise, for a plan that has one, and where none can be had."""
    target = plan.target
    many = target.parties > MANY
    if target.committee is not None or plan.above_target is not None or not (many or one_message):
        return None
    way = _way(f"committee of {committee.members}", lambda: _by_committee(target, committee, plan.domain))
    if way.mse is None or way.over_central is None:
        return None
    own = float(plan.prediction["mse_noise"] + plan.prediction["mse_dropout_bias"])
    why = f"{target.parties} parties are seldom online together" if many else "each party is to send one message"
    if plan.protocol.traits.by_file and many:
        why = f"{target.parties} parties send one message each"
    over = own / way.mse * way.over_central
    return (
        f"{why}: a {way.name} would open one file of each with {way.over_central:.3g} times the mean squared error of a trusted "
        f"curator, where {plan.protocol.name} has {over:.3g} times; {way.against} may collude then. Ask for it with "
        f"--committee {committee.members}."
    )


def _way(name: str, planned: Callable[[], _Planned]) -> Way:
    try:
        candidate, against, steps = planned()
    except InputError as error:
        return Way(name, "", f"none: {error}", "")
    over = candidate.mse / candidate.mse_central
    # Who hands in one file sends it once, no matter who reads it.
    sent = candidate.message_bytes if candidate.plan.protocol.traits.by_file else candidate.bytes_sent
    shape = candidate.plan.target.committee
    members = (None, None) if shape is None else (shape.members, shape.colluding)
    return Way(name, candidate.plan.protocol.name, against, steps, candidate.mse, over, sent, *members)


def _by_peers(ranking: Ranking, target: Target) -> _Planned:
    usual = next((other for other in ranking if other.plan.protocol.name == PREFERRED), None)
    candidate = usual or next((other for other in ranking if not other.plan.protocol.traits.by_file), None)
    if candidate is None:
        raise InputError("no peer-to-peer protocol keeps this target. Choose a larger epsilon, or fewer colluding parties.")
    steps = f"online together for {count_of(candidate.rounds, 'round')}"
    return candidate, f"any {target.colluding} of the {target.parties} sites", steps


def _by_committee(target: Target, committee: Committee, domain: InputDomain | None) -> _Planned:
    committee_target = replace(target, committee=committee, colluding=committee.colluding)
    candidate = rank(committee_target, [CommitteeSharing()], domain=domain)[0]
    against = f"all other sites with any {committee.colluding} of the {committee.members} members"
    return candidate, against, "1 file; members are online together"


def _by_file(ranking: Ranking, target: Target) -> _Planned:
    def stands_alone(candidate: Candidate) -> bool:
        """With noise that pairs share, one missing file makes the result noise where none is planned to be missing."""
        shared = candidate.plan.protocol.name == "cordp-dme"
        return candidate.plan.protocol.traits.by_file and not (shared and target.responding == target.parties)

    candidate = next((other for other in ranking if stands_alone(other)), None)
    if candidate is None:
        raise InputError("no protocol by file keeps this target. Choose a larger epsilon, or fewer colluding parties.")
    alone = candidate.plan.protocol.name == "local-dp"
    return candidate, "all others" if alone else f"any {target.colluding} of the {target.parties} sites", "1 file"
