"""Ways for many sites to get one mean without a server: peer to peer, by a committee, by file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.keywords import python_call
from quietmean.core.readable import count_of
from quietmean.planning.automatic import PREFERRED
from quietmean.planning.candidates import Candidate, Ranking, rank
from quietmean.planning.plan import Plan
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.mechanism import CommitteeSharing

# Of which a study's convener can think before anybody is asked: one member may be gone, one may collude.
USUAL = Committee(5)
# More sites than that are seldom online together.
MANY = 100
# With who may collude, and what a site does.
_Planned = tuple[Candidate, str, str]


@dataclass(frozen=True)
class Way:
    """``mse``: predicted, per coordinate; ``against``: who may collude; ``steps``: what a site does; ``sent``: its bytes.

    ``against`` says why there is none where that is so, and there are no figures then.
    """

    name: str
    protocol: str
    against: str
    steps: str
    mse: float | None = None
    over_central: float | None = None
    sent: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {"way": self.name, **{name: value for name, value in vars(self).items() if name != "name" and value is not None}}


def compare_ways(ranking: Ranking, committee: Committee = USUAL, domain: InputDomain | None = None) -> list[Way]:
    """Beside each other, for the target of a ``ranking`` of all peer-to-peer protocols. ``domain``: where values lie."""
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
        f"curator, where {plan.protocol.name} has {over:.3g} times; {way.against} may collude then: ask for it with "
        f"--committee {committee.members}"
    )


def _way(name: str, planned: Callable[[], _Planned]) -> Way:
    try:
        candidate, against, steps = planned()
    except InputError as error:
        return Way(name, "", f"none: {error}", "")
    over = candidate.mse / candidate.mse_central
    # Who hands in one file sends it once, no matter who reads it.
    sent = candidate.message_bytes if candidate.plan.protocol.traits.by_file else candidate.bytes_sent
    return Way(name, candidate.plan.protocol.name, against, steps, candidate.mse, over, sent)


def _by_peers(ranking: Ranking, target: Target) -> _Planned:
    usual = next((other for other in ranking if other.plan.protocol.name == PREFERRED), None)
    candidate = usual or next((other for other in ranking if not other.plan.protocol.traits.by_file), None)
    if candidate is None:
        raise InputError("no peer-to-peer protocol keeps this target")
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
        raise InputError("no protocol by file keeps this target")
    alone = candidate.plan.protocol.name == "local-dp"
    return candidate, "all others" if alone else f"any {target.colluding} of the {target.parties} sites", "1 file"
