"""Numbers and names as people read them. Privacy loss is rounded up."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.arrays import Array
from quietmean.core.output import Output
from quietmean.core.readable import Fact, count_of, plain
from quietmean.privacy.analysis import A_PRIORI, EVERYBODY, HAPPENED, WHOLE_PARTY
from quietmean.statistics.printed import capital

if TYPE_CHECKING:
    from jinja2 import Environment

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LONGEST_NAME = 22
# So many parties of one row, on average, are not listed one by one.
_ALIKE = 4
# Beyond this the factor e^epsilon has no useful meaning.
_LARGEST_FACTOR = 1e6
_LARGEST_EXPONENT = 700.0
# Figures that have a card.
_CARDS = {A_PRIORI: "guaranteed", HAPPENED: "realised", EVERYBODY: "if all others collude"}
# Where guaranteed and realised figures are equal, as they are shown.
BOTH = "guaranteed and realised"
# Nobody is protected by an epsilon above this; what a study can do about that for whole parties.
_MUCH = 10.0
_OF_PARTIES = (
    " That is usual: the study protects people, so what is typical of one party may show. "
    'A study with unit = "party" protects whole parties, too.'
)
UNITS = {
    "record": "one record of one party",
    "party": "all that one party contributes",
    "person": "all rows of one person at one party",
}


def rounded_up(value: float, digits: int = 3) -> str:
    """Round to significant digits, never below the value: for epsilon."""
    if not math.isfinite(value):
        return plain(value)
    if value == 0.0:
        return "0"
    places = digits - 1 - math.floor(math.log10(value))
    # The tiny step back keeps 0.3 from becoming 0.301 by a rounding of its own.
    scaled = math.ceil(value * 10.0**places * (1 - 1e-12))
    return f"{scaled / 10.0**places:,.{max(places, 0)}f}"


def factor_up(value: float) -> str:
    """Round up as :func:`rounded_up`; large numbers with a power of ten: "4.86 × 10⁸"."""
    if not 1e6 <= value < math.inf:
        return rounded_up(value)
    exponent = math.floor(math.log10(value))
    mantissa = math.ceil(value / 10.0**exponent * 100 * (1 - 1e-12)) / 100
    return f"{mantissa:.2f} × 10{str(exponent).translate(_SUPERSCRIPTS)}"


def rounded_down(value: float, digits: int = 3) -> str:
    """Round to significant digits, never above the value: for what is left of a budget."""
    if not (value > 0 and math.isfinite(value)):
        return "0" if value <= 0 else "∞"
    places = digits - 1 - math.floor(math.log10(value))
    scaled = math.floor(value * 10.0**places * (1 + 1e-12))
    return f"{scaled / 10.0**places:,.{max(places, 0)}f}"


def power(value: float) -> str:
    """A power of ten as text: 1e-6 as 10⁻⁶."""
    if not math.isfinite(value):
        return plain(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    if -3 < int(exponent) < 3:
        return plain(value)
    factor = mantissa.rstrip("0").rstrip(".")
    return ("" if factor == "1" else f"{factor} × ") + "10" + str(int(exponent)).translate(_SUPERSCRIPTS)


def data_size(count: int) -> str:
    """Decimal units: 1 kB is 1000 bytes."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{count:,} bytes" if unit == "bytes" else f"{size:.3g} {unit} ({count:,} bytes)"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} seconds"
    return f"{seconds / 60:.0f} minutes {seconds % 60:.0f} seconds" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def card(label: str, epsilon: float, note: str) -> dict[str, str]:
    """A figure with what it is."""
    return {"label": label, "value": rounded_up(epsilon), "note": note}


def cards_of(facts: Sequence[Fact], names: Sequence[str] = ()) -> list[dict[str, str]]:
    """Cards of figures, each with its adversary; ``names``: of the parties. What no card shows is in :func:`sentences_of`."""
    shown = {fact.key: card(_CARDS[fact.key], fact.value, named(fact.condition, names)) for fact in facts if _on_card(fact)}
    promised, happened = shown.get(A_PRIORI), shown.get(HAPPENED)
    if promised and happened and promised["value"] == happened["value"]:
        # The same figure stands once.
        promised["label"] = BOTH
        del shown[HAPPENED]
    return list(shown.values())


def sentences_of(facts: Sequence[Fact], names: Sequence[str] = ()) -> list[str]:
    """The figures of a certificate but the first, in sentences; what is usual and can be changed is said to be so."""
    protects = any(math.isfinite(fact.value) for fact in facts if fact.key in (A_PRIORI, HAPPENED))
    return [
        sentence(named(fact.sentence, names))
        + (_OF_PARTIES if protects and fact.key == WHOLE_PARTY and fact.value > _MUCH else "")
        for fact in facts
        if not _on_card(fact)
    ]


def _on_card(fact: Fact) -> bool:
    # That all others together learn all is not a figure: a sentence says it.
    return fact.key in _CARDS and not (fact.key == EVERYBODY and math.isinf(fact.value))


def factor_of(epsilon: float) -> float:
    """By which the odds of a guess change at most; of a very large epsilon a number that is still finite."""
    return math.exp(min(epsilon, _LARGEST_EXPONENT))


def odds(epsilon: float, delta: float, whose: str) -> str:
    """What an epsilon means for guesses about ``whose`` data; empty where the factor has no useful meaning."""
    factor = factor_of(epsilon)
    if factor > _LARGEST_FACTOR:
        return ""
    return (
        f"Anyone who sees all that this adversary sees can improve the odds of any guess about {whose}. The factor "
        f"is at most {rounded_up(factor)} (e to the power ε), except with a probability of about δ = {power(delta)}."
    )


def moment(text: str) -> str:
    """A time as receipts have it, to the minute: "2026-03-01 12:00 UTC"; another text as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if when.tzinfo is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names in one line; the rest of a long list is counted."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def alike(rows: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Return one row for many parties of which the same is said, and who they are; ``rows`` begin with their names."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        groups.setdefault(tuple(cells), []).append(name)
    if len(rows) < _ALIKE * len(groups):
        return [list(row) for row in rows], []
    shown = [[names[0] if len(names) == 1 else f"{len(names)} parties", *cells] for cells, names in groups.items()]
    return shown, [f"The {len(names)} parties: {', '.join(names)}." for names in groups.values() if len(names) > 1]


def unbroken(text: str) -> str:
    """Return the text with no end of a line within "p = 0.03", "95 %" and "I² = 0 %"."""
    return re.sub(r"(?<=\w) ([=<]) (?=[\d−])", "\u00a0\\1\u00a0", text).replace(" %", "\u00a0%").replace("% ", "%\u00a0")


def short(name: str, longest: int = _LONGEST_NAME) -> str:
    """A name that fits into a margin."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def named(text: str, names: Sequence[str]) -> str:
    """The parties of a sentence by their names: "party 3", and lists such as "parties 0, 4"; numbers beyond the names stay."""
    if not names:
        return text

    def name(matched: re.Match[str]) -> str:
        parties = [int(number) for number in re.findall(r"\d+", matched[0])]
        return listed([names[party] for party in parties]) if max(parties) < len(names) else matched[0]

    return re.sub(r"\bparty \d+\b|\bparties \d+(?:, \d+)*(?:,? and \d+)?\b", name, text)


def sentence(text: str) -> str:
    """Write a text with a capital letter and a full stop."""
    return capital(text if text.endswith(".") else f"{text}.")


def spread(epsilons: Array) -> str:
    """Say what the parties pay in this execution, (n,): one bound, or from the least to the largest."""
    low, high = rounded_up(float(epsilons.min())), rounded_up(float(epsilons.max()))
    paid = f"Every party paid ε = {high}" if low == high else f"Parties paid between ε = {low} and ε = {high}"
    return f"{paid} (realised)"


TEMPLATES = Path(__file__).parent / "templates"
# The bytes at the beginning of a page within which it says what it is.
_HEAD = 4096


def page_at(path: Path, kind: str, whose: str, force: bool = False) -> Output:
    """Return the output file of a page of this ``kind``, which may replace an earlier page with the same digest ``whose``.

    With ``force`` it may replace any page of the kind.
    """
    head = f'<meta name="generator" content="quietmean {kind}">\n<meta name="quietmean-whose" content="'.encode()
    return Output(
        path,
        f"the {kind}",
        "--report" if kind == "certificate" else "",
        ends=(".html", ".htm"),
        own=lambda content: bool(whose) and head + whose.encode() + b'"' in content[:_HEAD],
        kind=lambda content: head in content[:_HEAD],
        force=force,
    )


def is_page_of(path: Path, whose: str) -> bool:
    """Whether a file is a page of any kind about ``whose`` (see :func:`page_at`)."""
    with path.open("rb") as page:
        return f'<meta name="quietmean-whose" content="{whose}">'.encode() in page.read(_HEAD)


def _parts(text: str) -> list[str]:
    """A sentence in parts, of which every second one is a date: it has to stay within a line, and to be copied as it is."""
    return re.split(r"(\d{4}-\d\d-\d\d)", unbroken(text))


def _whole_figures(value: Any) -> Any:
    """No end of a line within "ε = 2"; figures, which are marked as safe, stay as they are."""
    return re.sub("([εδ]) = ", "\\1\u00a0=\u00a0", value) if type(value) is str else value


def templates() -> Environment:
    """The templates of the pages: everything is escaped, and a missing field is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_whole_figures,
    )
    environment.filters |= {"parts": _parts, "count_of": count_of}
    return environment


def render_page(kind: str, whose: str, **content: Any) -> str:
    """A page of this ``kind`` about ``whose`` (see :func:`page_at`).

    All pages begin with ``title``, ``summary`` and ``first``, what is to be seen at a glance; then come their own sections.
    """
    return templates().get_template(f"{kind.replace(' ', '_')}.html").render(kind=kind, whose=whose, **content)
