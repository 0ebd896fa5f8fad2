"""Estimates with their intervals as one picture that a notebook shows: drawn here, without a library for figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from quietmean.core.output import FROM_PYTHON, Output
from quietmean.core.readable import UNKNOWN, some_of
from quietmean.report.pictures import COMPARED, MARGIN, Interval, Picture, by_unit, picture_of
from quietmean.statistics.kinds.linear_regression import INTERCEPT
from quietmean.statistics.printed import shown
from quietmean.statistics.tidy import Term, terms_of

# In pixels: the width, of names, of numbers, and of a line; and the width of a letter of either.
_WIDE, _NAMES, _NUMBERS, _LINE, _LETTER = 760, 200, 210, 26, 7.2
# Room for the text at an end of a scale.
_BESIDE = 60
# What is drawn, in the colour of estimates on pages, which is told apart on light and dark.
_COLOUR = "#2b8cd0"
_STYLE = "font:13px system-ui,sans-serif;max-width:100%;height:auto"


@dataclass(frozen=True, eq=False, repr=False)
class Drawing:
    """Estimates with their 95 % intervals, each statistic on a scale of its own; thick: the noise alone.

    A notebook shows it. ``svg`` is the picture as a text.
    """

    documents: Sequence[Mapping[str, Any]]

    def __repr__(self) -> str:
        return f"Drawing of {some_of([str(document['name']) for document in self.documents], 3)}; save(PATH) writes it as SVG"

    def _repr_html_(self) -> str:
        return self.svg

    @property
    def svg(self) -> str:
        """The picture as an SVG element."""
        lines, height = [], 6.0
        for document in self.documents:
            for kind, below, part in _statistic(document):
                lines.append(f'<g transform="translate(0 {height:g})" class="{kind}">{part}</g>')
                height += below
        label = escape(f"Estimates with 95 % intervals: {', '.join(str(document['name']) for document in self.documents)}")
        head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" viewBox="0 0 {_WIDE} {height:g}"'
        return f'{head} width="{_WIDE}" style="{_STYLE}" fill="currentColor">{"".join(lines)}</svg>'

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the picture to a file; with ``force`` in the place of an earlier one.

        Raises :class:`InputError` for another file that is there.
        """
        output = Output(
            Path(path), "the picture", "", kind=lambda there: there.startswith(b"<svg"), force=force, saying_so=FROM_PYTHON,
            ends=(".svg",),
        )  # fmt: skip
        output.require_free()
        output.write(self.svg.encode())


def _statistic(document: Mapping[str, Any]) -> Iterator[tuple[str, float, str]]:
    """The parts of a statistic from above, each with its kind and its height."""
    terms = terms_of(document)
    shared = [term for term in terms if not term.hidden and term.own not in (*COMPARED, INTERCEPT)]
    kept = by_unit(shared) or [[term for term in terms if not term.hidden][:1]]
    pictures = [picture for picture in map(picture_of, kept) if picture is not None]
    if len(terms) > 1 or not pictures:
        yield "name", _LINE, f'<text x="0" y="15" font-weight="600">{escape(_cut(str(document["name"]), _WIDE))}</text>'
    places = {line.label for picture in pictures for line in picture.lines}
    # What is drawn on a scale, and what stands as numbers alone.
    for picture in pictures:
        own = {line.label: line for line in picture.lines}
        for term in [term for term in terms if _label(term) in own]:
            yield "line", _LINE, _row(term, own[_label(term)])
        yield "scale", 1.5 * _LINE, _scale(picture)
    others = [term for term in terms if _label(term) not in places]
    if others:
        said = f"not drawn: {some_of([f'{term.label or term.name} {shown(term).estimate}' for term in others], 4)}"
        yield "rest", 1.2 * _LINE, f'<text x="0" y="15" opacity="0.75">{escape(_cut(said, _WIDE))}</text>'


def _label(term: Term) -> str:
    return term.label or term.term or term.name


def _row(term: Term, line: Interval) -> str:
    texts = shown(term)
    middle, said = _LINE / 2, texts.estimate if texts.interval == UNKNOWN else f"{texts.estimate}  ({texts.interval})"
    parts = [f'<text x="0" y="{middle + 4:g}">{escape(_cut(_label(term), _NAMES - 10))}</text>']
    for ends, width in ((line.thin, 2), (line.thick, 6)):
        if ends is not None:
            low, high = map(_x, ends)
            parts.append(
                f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle:g}" y2="{middle:g}" stroke="{_COLOUR}" stroke-width="{width}" '
                f'stroke-opacity="{0.9 if width == 2 else 0.45}"/>'
            )
    if line.at is not None:
        parts.append(f'<circle cx="{_x(line.at):.1f}" cy="{middle:g}" r="4.5" fill="{_COLOUR}"/>')
    parts.append(f'<text x="{_WIDE}" y="{middle + 4:g}" text-anchor="end">{escape(said)}</text>')
    return "".join(parts)


def _scale(picture: Picture) -> str:
    """The ends of the scale, and where no effect lies."""
    left, right = _x(MARGIN), _x(100 - MARGIN)
    low, high = (end.replace("-", "−") for end in picture.ends)
    zero = ""
    if picture.zero is not None:
        place, above = _x(picture.zero), -_LINE * len(picture.lines)
        zero = (
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{above:g}" y2="4" stroke="currentColor" stroke-opacity="0.4" '
            'stroke-dasharray="3 3"/>'
        )
        if left + _BESIDE < place < right - _BESIDE:
            zero += f'<text x="{place:.1f}" y="18" text-anchor="middle" opacity="0.75">0</text>'
    return (
        f'<line x1="{left:g}" x2="{right:g}" y1="2" y2="2" stroke="currentColor" stroke-opacity="0.3"/>{zero}'
        f'<text x="{left:g}" y="18" opacity="0.75">{escape(low)}</text>'
        f'<text x="{right:g}" y="18" text-anchor="end" opacity="0.75">{escape(high)}</text>'
    )


def _x(percent: float) -> float:
    return _NAMES + (_WIDE - _NAMES - _NUMBERS) * percent / 100


def _cut(text: str, width: float) -> str:
    """As much of a text as has room."""
    most = math.floor(width / _LETTER)
    return text if len(text) <= most else f"{text[: most - 1]}…"
