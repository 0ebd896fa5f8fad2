"""Which protocol a study takes if it names none: packed secret sharing where it can be had, else the least predicted error.

Only peer-to-peer protocols are taken: nobody has a role, or is trusted, unless somebody asked for that. And only plans that
promise beforehand to cost no more than the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quietmean.core.errors import InputError, named
from quietmean.core.input_domain import InputDomain
from quietmean.planning.candidates import Candidate, Ranking, configured, general_protocols, rank
from quietmean.planning.plan import Plan
from quietmean.protocols import Target, get_protocol
from quietmean.protocols.packed_sharing.spec import MOST_PARTIES

# The name that means the choice.
AUTO = "auto"
PREFERRED = "packed-sharing"
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


def require_epsilon(target: Target) -> None:
    """Raises :class:`InputError` for a target in nats: what is not differential privacy is never chosen automatically."""
    if target.nats is not None:
        raise InputError(
            "a protocol that is chosen automatically keeps a target in epsilon, none in nats: name adqsp, or give epsilon"
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


def _keeping(ranked: Sequence[Candidate], against: str) -> list[Candidate]:
    """Those that promise the target beforehand. Raises :class:`InputError` if there are none."""
    within_target = [candidate for candidate in ranked if candidate.plan.above_target is None]
    if not within_target:
        first = ranked[0].plan
        raise InputError(
            f"protocol {first.protocol.name} is left, {first.above_target}, and such a plan is never chosen automatically: name "
            f"it with {named('protocol', first.protocol.name)}, or ask for something else; {PREFERRED} cannot be taken: "
            f"{against}"
        )
    return within_target


def _with_options(options: Mapping[str, Any]) -> list[str]:
    """Peer-to-peer protocols that have all of these options. Raises :class:`InputError` if there are none."""
    names = general_protocols()
    # Refuses an option that no protocol has.
    configured(names, options)
    capable = [name for name in names if set(options) <= get_protocol(name).options().keys()]
    if not capable:
        raise InputError(f"no protocol has all of the options {', '.join(sorted(options))}: leave some out")
    return capable


def preferred(
    target: Target, options: Mapping[str, Any], domain: InputDomain | None, max_messages: int | None
) -> tuple[Candidate | None, str]:
    """The preferred protocol for the target, or None and why its conditions do not hold."""
    if PREFERRED not in _with_options(options):
        lacking = sorted(set(options) - get_protocol(PREFERRED).options().keys())
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
        f"and {leaving} leave; expected mean squared error {best.mse / best.mse_central:.3g} times that of a trusted "
        "curator"
    )


def _least_error_sentence(ranked: Sequence[Candidate], against: str) -> str:
    first, *others = ranked
    advantage = f", {others[0].mse / first.mse:.3g} times less than {others[0].plan.protocol.name}" if others else ""
    return (
        f"protocol {first.plan.protocol.name}, chosen automatically: no server, and the least expected mean squared error "
        f"({first.mse:.3g} per coordinate{advantage}) where {PREFERRED} cannot be taken: {against}"
    )
