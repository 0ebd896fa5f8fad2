"""``quietmean plan``: which protocol, with which noise, at which cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from quietmean.cli.common import Out
from quietmean.cli.console import err, out, output, print_json, print_lines, progress, warn
from quietmean.cli.options import NO_OPTIONS, ProtocolOptions, StudyOptions
from quietmean.cli.plan_view import first_screen, show_all
from quietmean.cli.study_options import NO_COMMITTEE, CommitteeShape, PromiseOptions
from quietmean.core.codec import to_plain
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.output import has_fields
from quietmean.planning.automatic import (
    USUAL,
    can_be_chosen,
    choose_from,
    compare_ways,
    propose,
    require_epsilon,
    when_another,
    where_more_is_promised,
    why_first,
)
from quietmean.planning.candidates import configured, general_protocols, has_least_error, rank
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.influence import planned_influence
from quietmean.protocols import Server
from quietmean.protocols.cordp_dme.design import SensitivityConvention, ball_sensitivity
from quietmean.protocols.target import Target, budget_warnings, colluding_count, read_eavesdropping

if TYPE_CHECKING:
    from quietmean.cli.console import Progress
    from quietmean.planning.candidates import Ranking
    from quietmean.planning.plan import Plan


class Domain(StrEnum):
    """Where values lie. ``unit-ball``: L2 norm at most 1."""

    UNIT_BALL = "unit-ball"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AskedTarget(PromiseOptions):
    """What to plan for, where no study says it.

    Parameters
    ----------
    dimension
        How many numbers each party's value has. Default 1.
    colluding
        How many parties may collude: a number, or a fraction below 1. Default one in ten.
    dropouts
        Fraction of parties expected to leave and not return. Default 0.
    responding
        Instead of dropouts: how many parties are expected to stay.
    sensitivity
        By how much at most (L2 norm) a party's value changes when one protected unit is replaced. Default 1.
    domain
        Use instead of --sensitivity, for vectors. unit-ball: each vector has length 1 at most, so one replaced unit changes it
        by at most 2.
    convention
        How the sensitivity follows from a domain. For Table II of the CorDP-DME paper only: table-ii. Default: replacement.
    unit
        What is protected: one record, all rows of one person, or all records of a party. Default party.
    """

    dimension: int | None = None
    colluding: float | None = None
    dropouts: float | None = None
    responding: int | None = None
    sensitivity: float | None = None
    domain: Domain | None = None
    convention: SensitivityConvention | None = None
    unit: PrivacyUnit | None = None

    def target(self, parties: int) -> Target:
        """The target of so many parties. Raises :class:`InputError` for options that contradict each other."""
        dropouts = self.dropouts
        if self.responding is not None:
            if dropouts is not None:
                raise InputError(f"dropouts {dropouts:g} and responding {self.responding} say the same twice. Give one of them.")
            if not 1 <= self.responding <= parties:
                raise InputError(f"{self.responding} of {parties} parties responding is impossible. Choose 1..{parties}.")
            dropouts = (parties - self.responding) / parties
        usual = 1.0 if self.nats is None else math.inf
        return Target(
            parties=parties,
            epsilon=usual if self.epsilon is None else self.epsilon,
            nats=self.nats,
            delta=1e-6 if self.delta is None else self.delta,
            dimension=self.coordinates,
            sensitivity=self._sensitivity(),
            colluding=colluding_count(parties, 0.1 if self.colluding is None else self.colluding),
            eavesdropping=read_eavesdropping(self.eavesdropping),
            dropouts=dropouts or 0.0,
            unit=self.unit or PrivacyUnit.PARTY,
        )

    @property
    def coordinates(self) -> int:
        return 1 if self.dimension is None else self.dimension

    @property
    def ball(self) -> InputDomain | None:
        """Where values lie; None where it is not stated, and of the table's convention, whose sensitivity the ball exceeds."""
        if self.domain is None or self.convention == SensitivityConvention.TABLE_II:
            return None
        return InputDomain.ball(self.coordinates, 1.0)

    def _sensitivity(self) -> float:
        if self.domain is None:
            if self.convention is not None:
                raise InputError(f"convention {self.convention} needs a domain. Give --domain unit-ball too.")
            return 1.0 if self.sensitivity is None else self.sensitivity
        if self.sensitivity is not None:
            raise InputError(f"sensitivity {self.sensitivity:g} and domain {self.domain} say the same twice. Give one of them.")
        return ball_sensitivity(1.0, self.convention or SensitivityConvention.REPLACEMENT)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How candidates are searched for and compared.

    Parameters
    ----------
    protocol
        Only these protocols; repeat for several. auto, the default: all protocols without a server. It takes packed-sharing
        where its conditions hold, else the one with the least predicted error.
    server
        Which server may take part: none; aggregator, not trusted with values; curator, which sees them.
    max_messages
        How many messages a party may send on average, before the result is shared.
    calibration
        How the noise is computed. To compare with the IncA paper only: exact-view, or paper (epsilon below 1). Default: exact.
    trials
        How many runs to simulate. All must pass the privacy check that each run makes before it publishes. If 299 pass, the
        chance of no result is at most 1 %; if 59 pass, at most 5 %. Default: what takes a few seconds; none for more than 500
        coalitions.
    no_privacy
        Allow protocols that protect nothing, such as gossip. Refused otherwise.
    details
        Also show rounds, messages, bytes, reasons, and when another protocol would be first.
        With --study: ranges, noise, and what one party that lies can do.
    """

    protocol: list[str] | None = None
    server: Server = Server.NONE
    max_messages: int | None = None
    calibration: CalibrationMethod = CalibrationMethod.EXACT
    trials: int | None = None
    no_privacy: bool = False
    details: bool = False

    @property
    def named(self) -> list[str] | None:
        """The protocols; None for auto, which is not one of several. Raises :class:`InputError` if it is."""
        if self.protocol and "auto" in self.protocol:
            if len(self.protocol) > 1:
                raise InputError("protocol auto means all peer-to-peer protocols. Give it alone, or leave it out.")
            return None
        return self.protocol

    def of_no_study(self) -> dict[str, Any]:
        """What is given that says nothing of a study, whose parties all make the same plan; by name."""
        named = ("server", "max_messages", "calibration", "trials")
        chosen = {name: getattr(self, name) for name in named if getattr(self, name) != getattr(SearchOptions, name)}
        return {name.replace("_", "-"): value for name, value in chosen.items()}


def plan_command(
    *,
    parties: int | None = None,
    about: StudyOptions = StudyOptions(),  # noqa: B008 - it is frozen
    wanted: AskedTarget = AskedTarget(),
    options: ProtocolOptions = NO_OPTIONS,
    search: SearchOptions = SearchOptions(),
    committee: CommitteeShape = NO_COMMITTEE,
    save: Out = None,
    json: bool = False,
) -> None:
    """Calibrate protocols for a target and rank them by predicted mean squared error.

    Where no protocol is named, it also shows what a committee and files would give.

    Parameters
    ----------
    parties
        Number of parties. Or give --study.
    save
        Write the best plan to this file.
    json
        One JSON document on standard output.
    """
    if search.trials is not None and search.trials < 1:
        raise InputError(f"{search.trials} trials show nothing about the gate. Choose at least 1, for example 299.")
    wanted.require_one_target()
    committee = committee.shaped(options.of_committee())
    eavesdropping = read_eavesdropping(wanted.eavesdropping)
    plan_file = (
        None if save is None else output(save, "the plan", kind=has_fields("target", "protocol", "prediction"), ends=(".json",))
    )
    if about.study is not None:
        _refuse_beside_study(
            {**vars(wanted), "eavesdropping": eavesdropping, **options.given, **committee.given, **search.of_no_study()}
        )
        names = search.protocol or []
        if len(names) > 1:
            raise InputError(f"--protocol is given {len(names)} times beside --study, which has one plan. Give one of them.")
        named = next(iter(names), None)
        from quietmean.cli.plan_study import HowShown, plan_study

        shown = HowShown(search.details, json)
        plan_study(about.study, about, parties, plan_file, protocol=named, no_privacy=search.no_privacy, shown=shown)
        return
    about.require_study()
    if parties is None:
        raise InputError("how many parties there are is not known. Give --parties N, or --study FILE with --roster FILE.")
    target = wanted.target(parties)
    # Before anything is planned, which takes long.
    committee.require_asked()
    if (shape := committee.chosen) is not None:
        shape.require_no_products()
    if shape is not None and search.named is not None:
        raise InputError("a committee has a protocol of its own. Leave --protocol out, or --committee.")
    if wanted.convention == SensitivityConvention.TABLE_II:
        err.print(
            "quietmean: with convention table-ii the real epsilon is larger than the stated one. Use it to reproduce that table "
            "only."
        )
    with progress("calibrating") as line:
        answer, best = _answer(target, wanted, options.chosen(), search, committee, line)
    for sentence in answer["warnings"]:
        warn(sentence)
    if plan_file is not None:
        plan_file.write_json(best.to_json())
    if json:
        print_json(answer)
    else:
        print_lines(first_screen(answer, named=bool(search.named), saved=save, details=search.details))
        if search.details:
            out.print()
            show_all(answer)


def _refuse_beside_study(options: dict[str, Any]) -> None:
    """Raises :class:`InputError` for options that the study itself says."""
    option = next((name for name, value in options.items() if value is not None), None)
    if option is not None:
        raise InputError(f"--{option} cannot go with --study, which says what to plan for. Leave it out, or change the study.")


def _answer(
    target: Target, wanted: AskedTarget, options: dict[str, Any], search: SearchOptions, committee: CommitteeShape, line: Progress
) -> tuple[dict[str, Any], Plan]:
    """The JSON document, and the best plan."""
    named = bool(search.named)
    if not named:
        require_epsilon(target)
    domain = wanted.ball
    # Values in a ball: for protocols that can make use of it.
    offered = {} if wanted.domain is None else {"radius": 1.0}

    def ranking(changed: Target, accepted: Server) -> Ranking:
        return rank(
            changed,
            configured(search.named or general_protocols(accepted), options, offered),
            calibration=search.calibration,
            max_messages=search.max_messages,
            strict=named,
            domain=domain,
            trials=search.trials,
            no_privacy=search.no_privacy,
            can_win=has_least_error if named else can_be_chosen(changed, options, domain, search.max_messages),
        )

    candidates = ranking(target, search.server)
    chosen, why, beside = 0, why_first(candidates), dict[str, Any]()
    if not named and search.server == Server.NONE:
        # As run and join choose.
        chosen, taken = choose_from(candidates, options, domain, search.max_messages)
        why = f"{taken}. Of those planned, {why}"
        beside = _other_ways(search, committee, candidates, candidates[chosen].plan, domain)
    if candidates.left_out:
        why = f"{why}. Not planned, unless named: {', '.join(map(str, candidates.left_out))}"
    plan = candidates[chosen].plan
    document = {
        "target": target.describe(),
        "candidates": [candidate.to_json() for candidate in candidates],
        **({"left_out": [one.to_json() for one in candidates.left_out]} if candidates.left_out else {}),
        "chosen": chosen,
        "why": why,
        "domain": plan.input_domain.text,
        "warnings": [*budget_warnings(target), *_without_effect(search, candidates)],
        "influence": _influence(plan),
        **beside,
    }
    if instead := where_more_is_promised(plan, domain):
        document["instead"] = instead
    if search.details:
        document["otherwise"] = when_another(
            target, search.server, candidates, ranking, lambda condition: line.say(f"calibrating: {condition}")
        )
    return document, plan


def _other_ways(
    search: SearchOptions, shape: CommitteeShape, candidates: Ranking, plan: Plan, domain: InputDomain | None
) -> dict[str, Any]:
    """What a committee and files would give, and which committee is proposed instead of ``plan``."""
    ways = [way.to_json() for way in compare_ways(candidates, shape.chosen or USUAL, domain)]
    proposed = None
    if ways and shape == NO_COMMITTEE:
        one_message = search.max_messages is not None and search.max_messages <= 1
        proposed = propose(plan, one_message=one_message)
    return {**({"ways": ways} if ways else {}), **({"proposed": proposed} if proposed else {})}


def _influence(plan: Plan) -> dict[str, Any] | None:
    """How far one party can move a coordinate of the mean, in the units of values; None for too many parties."""
    influence = planned_influence(plan)
    if influence is None:
        return None
    unnoticed = {"unnoticed": list(influence.unnoticed)} if influence.unnoticed else {}
    return {"checked": str(influence.checked), "largest": to_plain(influence.largest), **unnoticed}


def _without_effect(search: SearchOptions, candidates: Ranking) -> list[str]:
    """What was asked for and changes nothing of some candidates; of those that were not named only where it changes none."""
    plans, sentences = [candidate.plan for candidate in candidates], []
    fixed = [plan.protocol.name for plan in plans if plan.prediction.get("calibration") == "direct"]
    if search.calibration != CalibrationMethod.EXACT and fixed:
        sentences.append(
            f"calibration {search.calibration} has no effect on {', '.join(fixed)}: the noise there follows from a formula"
        )
    ungated = [plan.protocol.name for plan in plans if plan.protocol.TRAITS.gate is None]
    if search.trials is not None and (search.named or len(ungated) == len(plans)) and ungated:
        sentences.append(f"trials have no effect on {', '.join(ungated)}: no history is refused there before its release")
    return sentences
