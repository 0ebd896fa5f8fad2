"""The exchange over the rounds: which messages were sent, which of them a coalition holds, and the figure of both."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.lazy import lines, outlines, patches, ticker
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.graphs.schedule import NOBODY
from quietmean.protocols.execution import Execution
from quietmean.report.canvas import COALITION, INK, MUTED, QUIET, RULE, WIDTH, figure_with_axes, house_style
from quietmean.report.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.path import Path as Outline

MOST_PARTIES = 60


@dataclass(frozen=True, eq=False)
class MessageTraffic:
    """All scheduled messages of parties that were online to send them; rows of ``table`` are (round, sender, receiver).

    Where everybody may send to everybody, only those that arrived: most of the others had no reason to be sent.
    """

    table: Ints
    delivered: Mask
    received: Mask
    sent: Mask

    @classmethod
    def of(cls, execution: Execution, coalition: Collection[PartyId]) -> MessageTraffic:
        neighbours, online = execution.schedule.neighbours, execution.trace.online
        arrived = execution.trace.delivered(execution.schedule)
        listed = arrived if execution.protocol.traits.sends_to_all else (neighbours != NOBODY) & online[1:, :, None]
        rounds, senders, slots = np.nonzero(listed)
        receivers = neighbours[rounds, senders, slots].astype(np.int64)
        delivered = arrived[rounds, senders, slots]
        members = np.zeros(execution.parties, dtype=np.bool_)
        members[list(coalition)] = True
        table = np.stack([rounds + 1, senders, receivers], axis=1)
        received = delivered & members[receivers] & ~members[senders]
        return cls(table, delivered, received, delivered & members[senders])

    @property
    def seen(self) -> int:
        """Messages that the coalition received from others."""
        return int(self.received.sum())

    @property
    def arrived(self) -> int:
        return int(self.delivered.sum())

    @property
    def kept(self) -> int:
        """Messages that did not arrive: the sender kept its share."""
        return int((~self.delivered).sum())

    @cached_property
    def quiet(self) -> Mask:
        quiet: Mask = self.delivered & ~self.received & ~self.sent
        return quiet

    def between(self, shown: Sequence[PartyId]) -> MessageTraffic:
        """The traffic with only the messages between the parties shown."""
        inside = np.isin(self.table[:, 1], shown) & np.isin(self.table[:, 2], shown)
        return MessageTraffic(self.table[inside], self.delivered[inside], self.received[inside], self.sent[inside])


def rounds_used(execution: Execution) -> int:
    """Rounds of the schedule, 0 where nobody sends; where all may send to all, up to the last with a message that arrived."""
    if not (execution.schedule.out_degree > 0).any():
        return 0
    if not execution.protocol.traits.sends_to_all:
        return execution.schedule.rounds
    used = execution.trace.delivered(execution.schedule).any(axis=(1, 2))
    return int(np.flatnonzero(used).max(initial=-1)) + 1


def statement(execution: Execution, coalition: Collection[PartyId]) -> str:
    """What the figure shows, in one sentence."""
    traffic = MessageTraffic.of(execution, coalition)
    messages = count_of(traffic.arrived, "message")
    if not coalition:
        return f"Anyone outside sees none of the {messages}, only what is made public at the end"
    colluders = "One colluder receives" if len(coalition) == 1 else f"{len(coalition)} colluders together receive"
    return f"{colluders} {traffic.seen:,} of the {messages}"


def shown_parties(execution: Execution, coalition: Collection[PartyId]) -> list[PartyId]:
    """The parties that are drawn, at most 60: half of the places are for the coalition, the rest for the first others."""
    if execution.parties <= MOST_PARTIES:
        return list(range(execution.parties))
    members = sorted(coalition)[: MOST_PARTIES // 2]
    others = [party for party in range(execution.parties) if party not in coalition]
    return sorted([*members, *others[: MOST_PARTIES - len(members)]])


def message_table(
    execution: Execution, coalition: Collection[PartyId], names: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """The figure in numbers: of each party how many messages it sent and got, and how many of those the coalition holds."""
    traffic = MessageTraffic.of(execution, coalition)
    senders, receivers = traffic.table[:, 1], traffic.table[:, 2]

    def each(places: Ints, chosen: Mask) -> list[int]:
        return [int(count) for count in np.bincount(places[chosen], minlength=execution.parties)]

    held = traffic.received | traffic.sent
    columns = [each(senders, traffic.delivered), each(senders, ~traffic.delivered), each(receivers, traffic.delivered)]
    columns.append(each(senders, held))
    heads = ["party", "sent and arrived", "not delivered", "received", "of its messages, in the coalition's hands"]
    return heads, [[name, *(f"{column[party]:,}" for column in columns)] for party, name in enumerate(names)]


# Beyond this many messages the unobserved ones merge into one grey area: only those that the coalition sees are drawn.
_MOST_UNOBSERVED = 6000
_HEADS_UP_TO = 1200
_LEFT, _RIGHT, _BOTTOM = 1.35, 0.3, 0.62  # inches
# How far arrows keep from the dots, in rounds.
_GAP = 0.07
_DASHES = (0, (3, 2))
_DOTS = (0, (1, 2.5))


def exchange_figure(
    execution: Execution, coalition: Collection[PartyId], names: Sequence[str] | None = None, *, title: bool = True
) -> Figure:
    """Time-space diagram of an execution: parties from top to bottom, rounds from left to right, one arrow per message.

    What members of ``coalition`` send and receive is in a strong colour, all else grey. ``names``: one per party.
    """
    shown = shown_parties(execution, coalition)
    names = names or [f"party {party}" for party in range(execution.parties)]
    pitch = 0.27 if len(shown) <= 25 else 0.19 if len(shown) <= 40 else 0.165
    top = 1.0 if title else 0.62
    with house_style():
        figure, axes = figure_with_axes(WIDTH, pitch * len(shown), left=_LEFT, right=_RIGHT, top=top, bottom=_BOTTOM)
        height = float(figure.get_figheight())
        diagram = _Diagram(axes, execution, frozenset(coalition), {party: row for row, party in enumerate(shown)})
        diagram.draw([short(names[party], 18) for party in shown])
        diagram.legend(figure, 1 - (top - 0.36) / height)
        if title:
            figure.text(0.0, 1 - 0.3 / height, statement(execution, coalition), size=13, weight="bold", va="center", color=INK)
    return figure


@dataclass(frozen=True, eq=False)
class _Diagram:
    """``row`` gives the place of each party shown."""

    axes: Axes
    execution: Execution
    coalition: frozenset[PartyId]
    row: dict[PartyId, int]

    @cached_property
    def traffic(self) -> MessageTraffic:
        return MessageTraffic.of(self.execution, self.coalition)

    @cached_property
    def visible(self) -> MessageTraffic:
        return self.traffic.between(list(self.row))

    @cached_property
    def rounds(self) -> int:
        return rounds_used(self.execution)

    def draw(self, labels: Sequence[str]) -> None:
        self._frame(labels)
        for party in self.row:
            self._life_line(party)
        self._messages()
        self._releases()

    def _frame(self, labels: Sequence[str]) -> None:
        axes, rounds = self.axes, self.rounds
        axes.set_xlim(-0.12, rounds + 0.02)
        axes.set_ylim(len(self.row) - 0.4, -0.6)
        axes.set_frame_on(False)
        axes.set_yticks(range(len(self.row)), labels, size=8.5 if len(self.row) <= 40 else 7)
        for text, party in zip(axes.get_yticklabels(), self.row, strict=True):
            member = party in self.coalition
            text.set(color=COALITION if member else MUTED, weight="bold" if member else "normal")
        axes.tick_params(length=0, pad=5)
        axes.xaxis.set_major_locator(ticker.MultipleLocator(1) if rounds <= 24 else ticker.MaxNLocator(20, integer=True))
        axes.set_xlabel("round", size=9)
        for round_ in range(rounds + 1):
            axes.axvline(round_, color=RULE, linewidth=0.4, zorder=0)

    def _life_line(self, party: PartyId) -> None:
        member = party in self.coalition
        colour, height = (COALITION if member else QUIET), self.row[party]
        times = np.nonzero(self.execution.trace.online[: self.rounds + 1, party])[0]
        for begin, end in itertools.pairwise(times):
            away = end - begin > 1
            self.axes.plot(
                [begin, end],
                [height, height],
                color=colour,
                linewidth=2.2 if member else 0.8 if len(self.row) <= 40 else 0.5,
                linestyle=_DOTS if away else "solid",
                zorder=3 if member else 1,
            )
        small = len(self.row) > 40
        self.axes.plot(
            times,
            np.full(len(times), height),
            "o",
            color=colour,
            markersize=(3.6 if member else 2.2) if not small else (3.0 if member else 1.6),
            markeredgewidth=0,
            zorder=5,
            clip_on=False,
        )
        if times[-1] < self.rounds:
            self.axes.plot(
                times[-1],
                height,
                "x",
                color=COALITION if member else INK,
                markersize=7 if not small else 5,
                markeredgewidth=1.6,
                zorder=6,
                clip_on=False,
            )

    def _messages(self) -> None:
        visible = self.visible
        if visible.quiet.sum() <= _MOST_UNOBSERVED:
            self._arrows(visible.table[visible.quiet], QUIET, 0.7 if len(self.row) <= 40 else 0.45, 1)
        self._arrows(visible.table[~visible.delivered], MUTED, 0.7, 2, dashed=True, alpha=0.8)
        self._arrows(visible.table[visible.sent], COALITION, 0.8, 3, alpha=0.75)
        self._arrows(visible.table[visible.received], COALITION, 1.9, 4)

    def _arrows(self, table: Ints, colour: str, width: float, layer: int, dashed: bool = False, alpha: float = 1.0) -> None:
        if not len(table):
            return
        begin = np.stack([table[:, 0] - 1 + _GAP, self._heights(table[:, 1])], axis=1)
        end = np.stack([table[:, 0] - _GAP, self._heights(table[:, 2])], axis=1)
        style = _DASHES if dashed else "solid"
        curves = patches.PathPatch(
            _curves(begin, end), facecolor="none", edgecolor=colour, linewidth=width, linestyle=style, zorder=layer, alpha=alpha
        )
        self.axes.add_patch(curves)
        if not dashed and len(table) <= _HEADS_UP_TO:
            size = (5.5 if width > 1 else 3.0) * (1.0 if len(self.row) <= 40 else 0.75)
            self.axes.plot(end[:, 0], end[:, 1], ">", color=colour, markersize=size, markeredgewidth=0, zorder=layer, alpha=alpha)

    def _heights(self, parties: Ints) -> Array:
        return np.array([self.row[party] for party in parties.tolist()], dtype=np.float64)

    def _releases(self) -> None:
        """A ring where a party makes its share public."""
        execution = self.execution
        releasers = execution.protocol.traits.releasers(execution.parties)
        rounds = self.rounds
        for party in releasers & self.row.keys():
            if execution.trace.finished[party]:
                self.axes.plot(
                    [rounds],
                    [self.row[party]],
                    "o",
                    markersize=5.5 if len(self.row) <= 40 else 4.2,
                    markerfacecolor="none",
                    markeredgecolor=COALITION if party in self.coalition else INK,
                    markeredgewidth=0.9,
                    zorder=6,
                    clip_on=False,
                )

    def legend(self, figure: Figure, height: float) -> None:
        """``height``: of its middle, as a share of the figure."""
        handles = self._handles()
        figure.legend(
            handles=handles,
            loc="center left",
            bbox_to_anchor=(0.0, height),
            borderaxespad=0,
            ncols=len(handles),
            frameon=False,
            fontsize=8.5,
            labelcolor=MUTED,
            handlelength=1.8,
            handletextpad=0.5,
            columnspacing=1.6,
            borderpad=0,
        )

    def _handles(self) -> list[Line2D]:
        traffic, handles = self.traffic, []
        if self.coalition:
            handles.append(_key(f"received by colluders ({traffic.seen:,})", COALITION, 1.9))
            handles.append(_key(f"sent by them ({int(traffic.sent.sum()):,})", COALITION, 0.8, alpha=0.75))
            handles.append(_key(f"not seen by them ({int(traffic.quiet.sum()):,})", QUIET, 0.9))
        else:
            handles.append(_key(f"messages ({traffic.arrived:,})", QUIET, 0.9))
        if traffic.kept:
            handles.append(_key(f"not delivered ({traffic.kept:,})", MUTED, 0.8, dashed=True))
        if not self.execution.trace.finished.all():
            handles.append(_key("dropped out", INK, 0.0, marker="x"))
        handles.append(_key("share made public", INK, 0.0, marker="o"))
        return handles


def _key(label: str, colour: str, width: float, *, alpha: float = 1.0, dashed: bool = False, marker: str = "") -> Line2D:
    """One entry of the legend."""
    return lines.Line2D(
        [],
        [],
        label=label,
        color=colour,
        linewidth=width,
        alpha=alpha,
        linestyle="none" if marker else _DASHES if dashed else "solid",
        marker=marker,
        markersize=5.5,
        markerfacecolor="none",
        markeredgewidth=1.6 if marker == "x" else 0.9,
    )


def _curves(begin: Array, end: Array) -> Outline:
    """One path of many S-shaped curves: level where they leave and arrive, so that each end belongs to one line at a glance."""
    bend = 0.4 * (end[:, 0] - begin[:, 0])
    first = np.stack([begin[:, 0] + bend, begin[:, 1]], axis=1)
    second = np.stack([end[:, 0] - bend, end[:, 1]], axis=1)
    vertices = np.stack([begin, first, second, end], axis=1).reshape(-1, 2)
    codes = np.tile([outlines.Path.MOVETO, outlines.Path.CURVE4, outlines.Path.CURVE4, outlines.Path.CURVE4], len(begin))
    return outlines.Path(vertices, codes)
