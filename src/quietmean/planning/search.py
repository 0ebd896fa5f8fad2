"""What a protocol leaves open besides its noise, such as the number of rounds: chosen for the least predicted error.

Alternatives are compared on few executions each, under the same seeds. The one that is chosen is calibrated in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from quietmean.core.schema import OPEN
from quietmean.planning.levels import model_of, try_levels
from quietmean.protocols import Mechanism, Target
from quietmean.protocols.mechanism import mixing_messages
from quietmean.randomness import Seed

# Alternatives of more parties are compared with a model of so many.
_MODEL = 200
# Among alternatives whose errors are within this part of the least the first is taken, which has the fewest messages.
_TOLERANCE = 0.02


def searched(
    target: Target, protocol: Mechanism, seed: Seed, gated: bool, max_messages: int | None, allowed: Callable[[Mechanism], bool]
) -> Mechanism:
    """The protocol with all filled in for which it states alternatives (:meth:`Mechanism.alternatives`).

    ``allowed``: which of the complete ones may be chosen. ``max_messages``: what a party may send on average.
    """

    def fits(choice: Mechanism) -> bool:
        template = choice.template(target)
        return _is_affordable(target, template, max_messages) and allowed(template)

    while choices := [choice for choice in protocol.alternatives(target) if fits(choice)]:
        protocol = _best(target, choices, seed, gated)
    return within_messages(target, protocol, max_messages)


def most_rounds(target: Target, protocol: Mechanism, max_messages: int | None) -> int:
    """The most rounds of any alternative with no more messages; 0 where there is none."""
    templates = [choice.template(target) for choice in protocol.alternatives(target)]
    return max((template.rounds for template in templates if _is_affordable(target, template, max_messages)), default=0)


def _is_affordable(target: Target, template: Mechanism, max_messages: int | None) -> bool:
    return max_messages is None or mixing_messages(template, target.parties, target.dimension) <= max_messages


def within_messages(target: Target, protocol: Mechanism, max_messages: int | None) -> Mechanism:
    """The protocol with no more rounds than there are messages to send."""
    if max_messages is None or "rounds" not in protocol.options() or protocol.rounds is not OPEN:
        return protocol
    template = protocol.template(target)
    sent = int(getattr(template, "out_degree", 1))
    return protocol.filled(rounds=max(1, min(template.rounds, max_messages // sent)))


def _best(target: Target, choices: list[Mechanism], seed: Seed, gated: bool) -> Mechanism:
    """The first whose predicted error is within the tolerance of the least; where the last gains nothing, the first of all."""
    model, errors = model_of(target, _MODEL), np.full(len(choices), math.inf)
    for index in (0, len(choices) - 1, *range(len(choices) - 2, 0, -1)):
        errors[index] = try_levels(model, choices[index].template(target), seed.derive("search"), gated=gated).error
        if index == len(choices) - 1 and errors[0] <= errors[-1] * (1 + _TOLERANCE):
            break
    return choices[int(np.argmax(errors <= errors.min() * (1 + _TOLERANCE)))]
