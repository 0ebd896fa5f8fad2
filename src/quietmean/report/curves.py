"""The figure of what more colluders would learn."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.lazy import ticker
from quietmean.core.party import PartyId
from quietmean.core.workers import one_thread
from quietmean.privacy import Adversary, Certificate
from quietmean.privacy.coalitions import random_coalitions
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.report.canvas import (
    COALITION,
    ESTIMATE,
    MUTED,
    PAPER,
    RULE,
    WIDTH,
    figure_with_axes,
    house_style,
    level_lines,
)
from quietmean.report.words import listed, rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The largest coalition of the curve: larger ones are bounded by its last point, everybody else.
MOST_COLLUDERS = 8
# Executions with at most this many messages are solved in milliseconds, larger ones in seconds.
_SMALL = 2500
_COALITIONS, _FEW_COALITIONS = 200, 4
_TRIED, _FEW_TRIED = 60, 12
_FEW_SIZES = (0, 1, 2, 4, 8)
_EQUAL = 1e-9


@dataclass(frozen=True)
class EpsilonAtSize:
    """The worst party's epsilon over coalitions of one size: in the median coalition and in the worst."""

    size: int
    tried: int
    exhaustive: bool
    median: float
    worst: float


@dataclass(frozen=True)
class Unseen:
    """A message the adversary did not see, sent by or to the party in question, and its epsilon if it were intercepted.

    ``receivers`` are those that got it.
    """

    round: int
    sender: PartyId
    receivers: tuple[PartyId, ...]
    epsilon: float


@dataclass(frozen=True)
class Neighbour:
    """Another honest party, the epsilon of the party in question if it colluded too, and the messages between the two."""

    party: PartyId
    epsilon: float
    messages: int


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a party is worst off.

    ``party`` is the worst off against ``adversary``; lists are sorted, most harmful first.

    ``unseen`` counts its messages that the adversary did not see, of which the listed were tried; ``all_intercepted`` is its
    epsilon if the adversary had seen them all. ``groups``: honest parties connected by messages that the adversary did not see.
    ``watched``: honest parties that exchanged messages, all of which the adversary saw.
    """

    party: PartyId
    adversary: Adversary
    certificate: Certificate
    epsilon: float
    curve: list[EpsilonAtSize]
    unseen: int
    messages: list[Unseen]
    all_intercepted: float
    neighbours: list[Neighbour]
    candidates: int
    groups: list[list[PartyId]]
    watched: list[PartyId]


def explain(execution: Execution, adversary: Adversary, delta: float, size: int = 0) -> Explanation:
    """Against one adversary, such as the worst coalition of a certificate; ``size`` is on the curve in any case."""
    with one_thread():
        return _Explainer(execution, adversary, delta, size).explain()


def has_static_neighbours(execution: Execution) -> bool:
    """Does every party send to the same others in all of several rounds?"""
    table = np.sort(execution.schedule.neighbours, axis=2)
    return len(table) > 1 and bool((table == table[:1]).all())


class _Explainer:
    def __init__(self, execution: Execution, adversary: Adversary, delta: float, size: int) -> None:
        self._execution = execution
        self._adversary = adversary
        self._size = size
        self._privacy = execution.privacy(delta)
        self._transcript = self._privacy.transcript
        self._small = self._transcript.messages <= _SMALL
        self._trusted = self._privacy.trusted

    def explain(self) -> Explanation:
        certificate = self._privacy.against(self._adversary.corrupt, self._adversary.observed)
        party = self._worst_off(certificate)
        epsilon = certificate.epsilon_of(party)
        sent = list(self._sent())
        hidden = [message for message in sent if not message[3]]
        own = [message for message in hidden if party == message[1] or party in message[2]]
        neighbours = self._neighbours(party, sent, epsilon)
        everything = frozenset((sender, round_ - 1) for round_, sender, _, _ in own)
        groups = self._groups(certificate.honest, hidden)
        return Explanation(
            party=party,
            adversary=self._adversary,
            certificate=certificate,
            epsilon=epsilon,
            curve=list(self._curve()),
            unseen=len(own),
            messages=self._tried_messages(party, own, epsilon),
            all_intercepted=self._with_observed(party, everything, epsilon),
            neighbours=neighbours,
            candidates=len(self._able()) - len(self._adversary.corrupt | {party} - self._trusted),
            groups=groups,
            watched=_watched(certificate.honest, sent),
        )

    def _worst_off(self, certificate: Certificate) -> PartyId:
        """The worst-off party: between peers one whom the protocol does not trust, whose messages are the ones that matter."""
        worst = certificate.max_mu
        equal = [party for party, mu in zip(certificate.honest, certificate.mu_upper, strict=True) if mu >= worst * (1 - _EQUAL)]
        return min(equal, key=lambda party: (party in self._trusted, party))

    def _able(self) -> list[PartyId]:
        return [party for party in range(self._execution.parties) if party not in self._trusted]

    def _certificate(self, adversary: Adversary) -> Certificate:
        if adversary.observed != self._privacy.terms.eavesdropper.observed:
            return self._privacy.against(adversary.corrupt, adversary.observed)
        return next(self._privacy.each([sorted(adversary.corrupt)]))

    def _epsilon(self, adversary: Adversary, party: PartyId) -> float:
        return self._certificate(adversary).epsilon_of(party)

    def _with_observed(self, party: PartyId, more: frozenset[tuple[PartyId, int]], before: float) -> float:
        if math.isinf(before) or not more:
            return before
        return self._epsilon(Adversary(self._adversary.corrupt, self._adversary.observed | more), party)

    def _sent(self) -> Iterator[tuple[int, PartyId, tuple[PartyId, ...], bool]]:
        """All messages of the transcript that arrived anywhere: round, sender, who got it, and whether the adversary saw it."""
        transcript = self._transcript
        seen = self._adversary.view(transcript).messages
        knowers = transcript.message_known
        rows_of: dict[tuple[int, PartyId], list[int]] = {}
        for row, key in enumerate(zip(transcript.message_round.tolist(), transcript.sender.tolist(), strict=True)):
            rows_of.setdefault(key, []).append(row)
        delivered, neighbours = self._execution.trace.delivered(self._execution.schedule), self._execution.schedule.neighbours
        for round_index, sender in zip(*(part.tolist() for part in np.nonzero(delivered.any(axis=2))), strict=True):
            receivers = tuple(int(other) for other in neighbours[round_index, sender][delivered[round_index, sender]])
            # Messages that the transcript leaves out (encrypted or masked) reveal nothing. A party may send several in a round.
            rows = rows_of.get((round_index + 1, sender), [])
            for row in rows:
                to = knowers.indices[knowers.indptr[row] : knowers.indptr[row + 1]]
                reached = receivers if len(rows) == 1 else tuple(other for other in receivers if other in to)
                if reached:
                    yield round_index + 1, sender, reached, bool(seen[row])

    def _tried_messages(
        self, party: PartyId, own: Sequence[tuple[int, PartyId, tuple[PartyId, ...], bool]], before: float
    ) -> list[Unseen]:
        limit = _TRIED if self._small else _FEW_TRIED
        # Evenly over the rounds where not all can be tried.
        chosen = [own[index] for index in np.unique(np.linspace(0, len(own) - 1, min(limit, len(own))).astype(np.int64))]
        tried = [
            Unseen(round_, sender, receivers, self._with_observed(party, frozenset({(sender, round_ - 1)}), before))
            for round_, sender, receivers, _ in chosen
        ]
        return sorted(tried, key=lambda message: -message.epsilon)

    def _neighbours(
        self, party: PartyId, sent: Sequence[tuple[int, PartyId, tuple[PartyId, ...], bool]], before: float
    ) -> list[Neighbour]:
        between: Counter[PartyId] = Counter()
        for _, sender, receivers, _ in sent:
            between.update(receivers if sender == party else [sender] if party in receivers else [])
        others = [other for other in self._able() if other != party and other not in self._adversary.corrupt]
        # Who exchanged most with it first: where not all can be tried, these are the likeliest to harm it.
        others = sorted(others, key=lambda other: (-between[other], other))[: _TRIED if self._small else _FEW_TRIED]
        neighbours = []
        for other in others:
            larger = Adversary(self._adversary.corrupt | {other}, self._adversary.observed)
            neighbours.append(Neighbour(other, before if math.isinf(before) else self._epsilon(larger, party), between[other]))
        return sorted(neighbours, key=lambda neighbour: -neighbour.epsilon)

    def _curve(self) -> Iterator[EpsilonAtSize]:
        able = self._able()
        largest_size = min(MOST_COLLUDERS, self._execution.parties - 1, len(able))
        limit = _COALITIONS if self._small else _FEW_COALITIONS
        largest_mu = 0.0
        sizes = range(largest_size + 1) if self._small else [size for size in _FEW_SIZES if size <= largest_size]
        for size in sorted({*sizes, self._size}):
            exhaustive = math.comb(len(able), size) <= limit
            drawn = itertools.combinations(able, size) if exhaustive else self._random(able, size, limit)
            worst = [certificate.max_mu for certificate in self._privacy.each(drawn)]
            # The median of mu, not of epsilon: infinite values need no arithmetic.
            median = float(np.sort(worst)[len(worst) // 2])
            # While one more can join the worst smaller coalition, this size has one at least as bad.
            largest_mu = max(largest_mu, *worst) if size < len(able) else max(worst)
            yield EpsilonAtSize(size, len(worst), exhaustive, self._privacy.epsilon(median), self._privacy.epsilon(largest_mu))

    def _random(self, able: Sequence[PartyId], size: int, limit: int) -> Iterator[tuple[PartyId, ...]]:
        return random_coalitions(able, size, limit, Seed.public("coalitions", "curve", size))

    def _groups(
        self, honest: Sequence[PartyId], hidden: Sequence[tuple[int, PartyId, tuple[PartyId, ...], bool]]
    ) -> list[list[PartyId]]:
        """Return the groups of honest parties that messages hidden from the coalition connect, the largest group first."""
        parent = {party: party for party in honest}

        def root(party: PartyId) -> PartyId:
            while parent[party] != party:
                parent[party] = parent[parent[party]]
                party = parent[party]
            return party

        for _, sender, receivers, _ in hidden:
            for receiver in receivers:
                parent[root(sender)] = root(receiver)
        groups: dict[PartyId, list[PartyId]] = {}
        for party in honest:
            groups.setdefault(root(party), []).append(party)
        return sorted(groups.values(), key=lambda group: (-len(group), group))


def _watched(honest: Sequence[PartyId], sent: Sequence[tuple[int, PartyId, tuple[PartyId, ...], bool]]) -> list[PartyId]:
    total, seen = Counter[PartyId](), Counter[PartyId]()
    for _, sender, receivers, is_seen in sent:
        for party in {sender, *receivers}:
            total[party] += 1
            seen[party] += is_seen
    return [party for party in honest if 0 < total[party] == seen[party]]


_LEFT, _RIGHT, _CURVE = 0.62, 0.1, 2.4  # inches
# Inches above the curves, for their legend and numbers; and below, for two lines under the axis and its label.
_HEAD, _FOOT = 0.66, 0.68
# The width of a digit beside an axis, and what stands beside the digits.
_DIGIT, _BESIDE = 0.075, 0.36
# Beyond this ratio a linear axis would hide the small values.
_LOGARITHMIC = 12.0


def coalitions_figure(curve: Sequence[EpsilonAtSize], everyone_else: float, size: int | None) -> Figure:
    """The worst party's epsilon against the number of colluders; ``size``: what the certificate is about.

    Infinite values lie on the upper edge and bear their sign.
    """
    values = np.array([point.worst for point in curve] + [point.median for point in curve] + [everyone_else])
    low, top, logarithmic = _range(values)
    left = _left_of(low if logarithmic else top / 4)
    end = len(curve) + 0.4
    with house_style():
        figure, axes = figure_with_axes(WIDTH, _CURVE, left=left, right=_RIGHT, top=_HEAD, bottom=_FOOT)
        if logarithmic:
            axes.set_yscale("log")
        axes.set(ylim=(low, top), xlim=(-0.45, end + 0.45), ylabel="epsilon of the worst party")
        for position in [position for position, point in enumerate(curve) if point.size == size]:
            axes.axvspan(position - 0.3, position + 0.3, color=RULE, alpha=0.45, linewidth=0, zorder=0)
        _series(axes, curve, [point.median for point in curve], MUTED, "median coalition", top, numbered=False)
        _series(axes, curve, [point.worst for point in curve], ESTIMATE, "worst coalition", top, numbered=True)
        axes.plot(
            [end], [min(everyone_else, top)], "D", color=COALITION, markersize=6, markeredgewidth=0, clip_on=False, zorder=5
        )
        _number(axes, end, min(everyone_else, top), everyone_else, COALITION)
        axes.set_xticks([*range(len(curve)), end], [*(f"{point.size}" for point in curve), "everybody\nelse"])
        axes.set_xlabel("parties that collude")
        _grid(axes)
        if not np.isfinite(values).any():
            axes.set_yticks([])
        _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1],
        labels[::-1],
        loc="upper left",
        bbox_to_anchor=(0.0, 0.985),
        borderaxespad=0,
        borderpad=0,
        ncols=2,
        frameon=False,
        labelcolor=MUTED,
        fontsize=8.5,
    )


def _range(values: Array) -> tuple[float, float, bool]:
    finite = values[np.isfinite(values)]
    if not finite.size or finite.max() == 0.0:
        return 0.0, 1.0, False
    if finite.min() > 0 and finite.max() > _LOGARITHMIC * finite.min():
        return 0.6 * float(finite.min()), 2.2 * float(finite.max()), True
    return 0.0, 1.22 * float(finite.max()), False


def _series(
    axes: Axes, curve: Sequence[EpsilonAtSize], epsilons: Sequence[float], colour: str, label: str, top: float, *, numbered: bool
) -> None:
    heights = np.minimum(epsilons, top)
    width, layer = (2.0, 3) if numbered else (1.1, 2)
    for position, (before, after) in enumerate(itertools.pairwise(curve)):
        # Dashed where sizes were left out.
        style = "solid" if after.size == before.size + 1 else (0, (4, 3))
        ends = heights[position : position + 2]
        axes.plot([position, position + 1], ends, color=colour, linewidth=width, linestyle=style, zorder=layer, clip_on=False)
    axes.plot([], [], color=colour, linewidth=width, label=label)
    for position, (point, height, epsilon) in enumerate(zip(curve, heights.tolist(), epsilons, strict=True)):
        axes.plot(
            [position],
            [height],
            "o",
            markersize=6 if numbered else 3.6,
            markerfacecolor=colour if point.exhaustive else PAPER,
            markeredgecolor=colour,
            markeredgewidth=1.4 if numbered else 1.0,
            zorder=4 if numbered else 2,
            clip_on=False,
        )
        if numbered:
            _number(axes, position, height, epsilon, ESTIMATE)


def _number(axes: Axes, position: float, height: float, epsilon: float, colour: str) -> None:
    size = 8.5 if math.isfinite(epsilon) else 13
    axes.annotate(
        rounded_up(epsilon),
        (position, height),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        va="bottom",
        size=size,
        color=colour,
        annotation_clip=False,
    )


def _grid(axes: Axes) -> None:
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(ticker.LogLocator(10, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(ticker.ScalarFormatter())
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        axes.tick_params(which="minor", length=0)
    else:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(4))
    level_lines(axes)


def _left_of(smallest: float) -> float:
    """Inches for the numbers beside an axis, of which the least has the most digits."""
    digits = len(f"{smallest:.1g}") + 1 if 0 < smallest < 0.1 else 4
    return max(_LEFT, _BESIDE + _DIGIT * digits)


def curve_caption(curve: Sequence[EpsilonAtSize], trusted: Sequence[int]) -> str:
    """How the points were found."""
    full = [point.size for point in curve if point.exhaustive]
    drawn = {point.tried for point in curve if not point.exhaustive}
    parts = ["For each coalition the epsilon of its worst-off honest party."]
    if full:
        parts.append("Full dots: every coalition of that size was tried.")
    if drawn:
        counts = " or ".join(f"{count:,}" for count in sorted(drawn))
        parts.append(f"Hollow dots: {counts} random coalitions of that size; a worse one may exist.")
    parts.append("The diamond is what remains if all others collude. No coalition learns more.")
    if trusted:
        trusted_names = listed([f"party {party}" for party in trusted])
        parts.append(f"This protocol trusts {trusted_names}: never one of the colluders, except for the diamond.")
    return " ".join(parts)
