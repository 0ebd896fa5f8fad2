"""Candidates: every protocol calibrated for one target, with its predicted error and cost, best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from quietmean.core.errors import InputError, named
from quietmean.core.input_domain import InputDomain
from quietmean.core.keywords import python_call
from quietmean.core.readable import least_text
from quietmean.core.schema import nearest, options_of
from quietmean.core.tables import Tabular, table_text
from quietmean.planning.accuracy import curators_variance
from quietmean.planning.calibrate import calibrate, least_mse
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.plan import Plan
from quietmean.protocols import Mechanism, Server, Target, configure, get_protocol, registry
from quietmean.protocols.mechanism import is_private, mixing_messages, require_privacy, vector_bytes
from quietmean.protocols.traits import ANY_DOMAIN

# Header and framing of one message besides its vector.
_OVERHEAD_BYTES = 40


@dataclass(frozen=True)
class Candidate:
    """A calibrated protocol with its predicted ``mse`` per coordinate, dropouts included.

    Messages and bytes are per party, on average. ``mixing``: messages of the protocol itself. ``dissemination``: messages
    that spread the result to all parties.
    """

    plan: Plan
    mixing: float
    dissemination: float

    @property
    def trust(self) -> str:
        """Who must be trusted with what, in words."""
        return self.plan.protocol.traits.trust if self.plan.protocol.traits.private else "no privacy"

    @property
    def messages(self) -> float:
        return self.mixing + self.dissemination

    @property
    def mse(self) -> float:
        return float(self.plan.prediction["mse_noise"] + self.plan.prediction["mse_dropout_bias"])

    @property
    def mse_central(self) -> float:
        """The error of a trusted curator, per coordinate, if everybody stays; exact noise of the same kind."""
        return self._one_release / self.plan.target.parties**2

    @property
    def mse_local(self) -> float:
        """The error of local differential privacy, per coordinate, if everybody stays; exact noise of the same kind."""
        return self._one_release / self.plan.target.parties

    @property
    def _one_release(self) -> float:
        """The variance that one release of one value needs."""
        target = self.plan.target
        if target.nats is not None:
            # Nothing that protects against the parties alone needs noise in a curator's mean.
            return 0.0
        return curators_variance(target, self.plan.protocol)

    @property
    def rounds(self) -> int:
        protocol = self.plan.protocol
        return protocol.rounds + (self.plan.dissemination.rounds if protocol.traits.releases_are_public else 0)

    @property
    def epsilon_a_priori(self) -> float:
        """The epsilon of the plan whatever happens (:attr:`Plan.epsilon_a_priori`)."""
        return self.plan.epsilon_a_priori

    @property
    def bytes_sent(self) -> float:
        """A mixing message has the size that its protocol states; a message that spreads the result has that of a vector."""
        vector = vector_bytes(self.plan.protocol, self.plan.target.dimension)
        return self.mixing * self.message_bytes + self.dissemination * (vector + _OVERHEAD_BYTES)

    @property
    def message_bytes(self) -> float:
        """The bytes of one mixing message."""
        target = self.plan.target
        return self.plan.protocol.traffic(target.parties, target.dimension).message_bytes + _OVERHEAD_BYTES

    def to_json(self) -> dict[str, Any]:
        promised = self.plan.a_priori
        return {
            "protocol": self.plan.protocol.name,
            "parameters": self.plan.protocol.describe(),
            "trust": self.trust,
            "by_file": self.plan.protocol.traits.by_file,
            **({} if self.plan.above_target is None else {"above_target": self.plan.above_target}),
            **({} if self.plan.nats_kept is None else {"nats_a_priori": promised.nats, "nats_kept": self.plan.nats_kept}),
            "mse": self.mse,
            "mse_central": self.mse_central,
            "mse_local": self.mse_local,
            "messages_per_party": self.messages,
            "messages_before_telling": self.mixing,
            "bytes_per_party": self.bytes_sent,
            "rounds": self.rounds,
            "epsilon_a_priori": self.epsilon_a_priori,
            "enforced_by": promised.enforced_by,
            "certificate": dict(self.plan.prediction),
            "digest": self.plan.digest,
            **self.plan.protocol.TRAITS.planning.figures(self.plan.protocol, self.plan.target),
        }


@dataclass(frozen=True)
class LeftOut:
    """A protocol that nobody named and that was not planned: it could not be taken, or planning ``takes`` too much.

    ``least_mse``: no plan of it has a smaller predicted mean squared error per coordinate; None where no bound is known.
    """

    protocol: Mechanism
    least_mse: float | None = None
    takes: str = ""

    def __str__(self) -> str:
        least = "" if self.least_mse is None else f"mean squared error {least_text(self.least_mse)}"
        takes = f"about {self.takes}" if self.takes else ""
        return f"{self.protocol.name} ({'; '.join(filter(None, [least, takes]))})"

    def to_json(self) -> dict[str, Any]:
        least = {} if self.least_mse is None else {"mse_at_least": self.least_mse}
        traits = self.protocol.traits
        return {"protocol": self.protocol.name, "trust": traits.trust, "by_file": traits.by_file, **least}


# May a protocol be taken whose error is at least so much, beside those that are planned?
CanWin = Callable[[Sequence[Candidate], float], bool]


def has_least_error(planned: Sequence[Candidate], least_mse: float) -> bool:
    """May an error that is bounded from below be the least of all that promise the target?"""
    return least_mse < min((candidate.mse for candidate in planned if candidate.plan.above_target is None), default=math.inf)


@dataclass(frozen=True, repr=False)
class Ranking(Tabular, Sequence[Candidate]):
    """Calibrated candidates for one target, least predicted error first."""

    target: Target
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def best(self) -> Plan:
        """The plan of least predicted error."""
        return self.candidates[0].plan

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Candidate]: ...
    def __getitem__(self, index: int | slice) -> Candidate | Sequence[Candidate]:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def rows(self) -> list[dict[str, Any]]:
        """One row a candidate. ``mse`` is per coordinate; messages and bytes are per party."""
        return [
            {
                "protocol": candidate.plan.protocol.name,
                "mse": candidate.mse,
                "rounds": candidate.rounds,
                "messages": candidate.messages,
                "bytes": candidate.bytes_sent,
                "trust": candidate.trust,
            }
            for candidate in self.candidates
        ]

    def __repr__(self) -> str:
        return table_text(self.rows())


@python_call
def rank(
    target: Target,
    protocols: Sequence[Mechanism | str] | None = None,
    *,
    calibration: CalibrationMethod = CalibrationMethod.EXACT,
    server: Server = Server.NONE,
    max_messages: int | None = None,
    strict: bool | None = None,
    trials: int | None = None,
    domain: InputDomain | None = None,
    no_privacy: bool = False,
    can_win: CanWin = has_least_error,
) -> Ranking:
    """Calibrate protocols for a target, least predicted error first.

    ``protocols``: configured ones, or names of those that are taken as they are; by default all that take any bounded values,
    tolerate that parties leave, and need no more than ``server``. ``max_messages``: what a party may send on average before the
    result is sent to all; rounds are cut to fit where a protocol has them. ``trials``: see
    :func:`~quietmean.planning.calibrate.calibrate`. ``domain``: where values lie. ``no_privacy`` asks for protocols without
    privacy, which are refused otherwise. Raises :class:`InputError` where none can do what is asked; if ``strict``, as by default
    where protocols are named, also where one cannot. Otherwise a protocol is left out whose plan would take more than a gigabyte
    or twenty seconds; and one whose plan takes long, if ``can_win`` says no to the least error that it can have: by default where
    another has less. ``left_out`` says which, with the bound.
    """
    chosen = general_protocols(server) if protocols is None else protocols
    values = [configure(choice) if isinstance(choice, str) else choice for choice in chosen]
    if not values:
        raise InputError(f"no protocol is left to choose from. Name one with {named('protocol')}.")
    if not (no_privacy and any(not is_private(protocol) for protocol in values)):
        for protocol in values:
            require_privacy(protocol, no_privacy)
    candidates, refusals, left_out = list[Candidate](), list[InputError](), list[LeftOut]()
    by_name = strict or (strict is None and protocols is not None)
    bounds = {} if by_name or trials is not None or calibration != CalibrationMethod.EXACT else _bounds(target, values)
    # Those that may not be planned come after all that they are compared with.
    for protocol in sorted(values, key=lambda protocol: bounds.get(protocol.name, -math.inf)):
        least, cost = bounds.get(protocol.name), protocol.traits.planning_cost.too_much(target.parties)
        if not by_name and cost:
            left_out.append(LeftOut(protocol, least, cost))
            refusals.append(
                InputError(f"a plan of {protocol.name} takes about {cost}. Name it with {named('protocol')} to plan it.")
            )
            continue
        if least is not None and candidates and not can_win(candidates, least):
            left_out.append(LeftOut(protocol, least))
            continue
        try:
            plan = calibrate(target, protocol, calibration=calibration, trials=trials, max_messages=max_messages)
            plan = plan if domain is None else plan.with_domain(domain)
            candidates.append(_affordable(candidate_of(plan), max_messages))
        except InputError as error:
            # Not every protocol can meet the target; a refusal is raised only if protocols were named.
            refusals.append(error)
            if by_name:
                raise
    if not candidates:
        raise refusals[0]
    return Ranking(target, tuple(sorted(candidates, key=lambda candidate: candidate.mse)), tuple(left_out))


def _bounds(target: Target, protocols: Sequence[Mechanism]) -> dict[str, float]:
    """The least error of each protocol whose plan takes long, where one is known."""
    dear = [protocol for protocol in protocols if protocol.traits.planning_cost.is_dear(target.parties)]
    return {protocol.name: least for protocol in dear if (least := least_mse(target, protocol)) is not None}


def candidate_of(plan: Plan) -> Candidate:
    """Return the plan with the messages that it costs."""
    mixing = mixing_messages(plan.protocol, plan.target.parties, plan.target.dimension)
    return Candidate(plan, mixing, _result_messages(plan))


def general_protocols(server: Server = Server.NONE) -> list[str]:
    """The protocols that are compared by default: see :func:`rank`."""
    return [
        name
        for name, kind in registry().items()
        if (traits := kind.TRAITS).private
        and traits.tolerates_dropouts
        and server.allows(traits.server)
        and traits.domain == ANY_DOMAIN
    ]


def configured(names: Sequence[str], options: Mapping[str, Any], offered: Mapping[str, Any] | None = None) -> list[Mechanism]:
    """Protocols by name with ``options``, each for those that have it; ``offered`` ones go to the protocols that have them.

    Raises :class:`InputError` for an option that none of them has, with the nearest one that is known.
    """
    kinds = [get_protocol(name) for name in names]
    if len(kinds) == 1:
        # The protocol's own error lists the options it has.
        configure(kinds[0].name, options)
    option_names = {name for kind in kinds for name in options_of(kind)}
    for name in options:
        if name not in option_names:
            near, listed = nearest(name, option_names), ", ".join(sorted(option_names))
            raise InputError(f"none of the protocols to choose from has an option {name!r}{near}. Choose one of {listed}.")
    all_options = {**(offered or {}), **options}
    # A value that some of them take is left out for the others.
    some = {key for key, value in all_options.items() if any(takes(kind, key, value) for kind in kinds)}
    return [
        configure(
            name,
            {
                key: value
                for key, value in all_options.items()
                if (takes(kind, key, value) if key in some else key in options_of(kind))
            },
        )
        for name, kind in zip(names, kinds, strict=True)
    ]


def takes(kind: type[Mechanism], name: str, value: Any) -> bool:
    """Whether the protocol has this option, and of choices this one."""
    option = options_of(kind).get(name)
    return option is not None and (not option.choices or value in option.choices)


def _affordable(candidate: Candidate, max_messages: int | None) -> Candidate:
    if max_messages is not None and candidate.mixing > max_messages:
        name = candidate.plan.protocol.name
        raise InputError(
            f"max_messages is {max_messages}, and {name} needs {candidate.mixing:.1f} a party. Allow more or leave it out."
        )
    return candidate


def _result_messages(plan: Plan) -> float:
    if not plan.protocol.traits.releases_are_public:
        return 0.0
    parties = plan.target.parties
    releasers = len(plan.protocol.traits.releasers(parties))
    spread = plan.dissemination
    return releasers * (parties - 1) / parties if spread.kind == "broadcast" else float(spread.rounds * spread.out_degree)
