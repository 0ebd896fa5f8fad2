"""Numbers, days and p-values as people read them, whatever they are."""

from __future__ import annotations

import ast
import datetime
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quietmean
from quietmean.core.readable import (
    UNKNOWN,
    decimals_for,
    epsilon_shown,
    epsilon_text,
    error_text,
    fixed,
    for_terminal,
    interval_text,
    number_text,
    outcome_text,
    p_phrase,
    p_text,
    percent_text,
    plain,
)
from quietmean.core.readable_days import day_text, days_text
from support.sources import parsed, text_of, walked

ANY = st.floats(allow_nan=True, allow_infinity=True)
ERRORS = st.floats(1e-9, 1e12)
# What no text of a number may have.
WRONG = re.compile(r"nan|None|(?<![\d.])[-−]0(\.0+)?(?![\d.])", re.IGNORECASE)


def value_of(text: str) -> float:
    return float(text.replace("−", "-").replace(",", "").replace("∞", "inf"))


SOURCE = Path(quietmean.__file__).parent
ROOT = Path(__file__).parents[2]
# The sign before a number or a value; not that of a number's spelling, such as "[+-]?".
SIGN = re.compile(r"±|(?<![\[(])\+-(?=\{|\d|$| )|\+/-")
# Where half of a 95 % interval stands on a page; one page of tables says at its head that all of them are.
OF_INTERVALS = re.compile(r"(?:interval |noise alone: |about [\d,]+ \(|a width of [\d.]+ \()$")
# The module that writes the sign, and the one that translates it for LaTeX.
OWNERS = ("readable.py", "documents.py")
OF_TABLES = "docs/measurements/learning-tables.md"


def signs_in_python(path: Path) -> Iterator[str]:
    """Texts with the sign that a module prints; and what :func:`either_side` is given that does not say it is a half."""
    # Every spelling of the sign in a text of Python; of the rest no tree is made.
    if not re.search(r"±|\+-|\+/-|\\[xuUN]|either_side", text_of(path)):
        return
    tree = parsed(path)
    explained = {id(node.value) for node in walked(tree) if isinstance(node, ast.Expr)}
    for node in walked(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explained:
            if SIGN.search(node.value) and path.name not in OWNERS:
                yield node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "either_side":
            given_ = ast.unparse(node.args[0])
            if not re.search(r"half|/ 2\b|\bZ \*", given_):
                yield given_


def test_plus_minus_is_half_of_a_95_percent_interval_wherever_it_is_printed() -> None:
    """One function writes it; a standard error is named in words."""
    found = [(path.name, text) for path in sorted(SOURCE.rglob("*.py")) for text in signs_in_python(path)]
    others = [path for end in ("html", "js", "toml", "R", "ipynb", "svg") for top in ("src", "r", "examples", "deploy")
              for path in sorted((ROOT / top).rglob(f"*.{end}"))]  # fmt: skip
    assert len(others) > 10
    found += [(path.name, hit[0]) for path in others for hit in SIGN.finditer(path.read_text(encoding="utf-8"))]
    assert not found
    assert list(signs_in_python(Path(__file__)))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "r").rglob("*.Rmd"), *(ROOT / "examples").rglob("*.md")]
    places = [(path, hit) for path in pages for hit in re.finditer(r"(?:±|\+-|\+/-) ?\d", path.read_text(encoding="utf-8"))]
    wrong = [
        (path.name, hit.string[max(hit.start() - 40, 0) : hit.end() + 10])
        for path, hit in places
        if not OF_INTERVALS.search(hit.string[max(hit.start() - 40, 0) : hit.start()]) and path != ROOT / OF_TABLES
    ]
    assert not wrong
    assert len({path for path, _ in places}) >= 4


@given(value=ANY, error=ANY, decimals=st.integers(-12, 12))
def test_no_number_is_printed_as_nan_or_minus_zero(value: float, error: float, decimals: int) -> None:
    texts = [
        fixed(value, decimals),
        plain(value),
        number_text(value, error),
        error_text(error),
        p_text(value),
        p_phrase(value),
        day_text(value, "2020-01-31"),
        interval_text((min(value, error), max(value, error))),
        interval_text((value, error), abs(value)),
        outcome_text("t test", "t", value, (error,), value),
    ]
    assert [text for text in texts if WRONG.search(text) or not text] == []
    assert [
        text for text in map(for_terminal, texts) if "unknown" not in text and not text.isascii() and UNKNOWN not in text
    ] == []


@given(value=st.floats(-1e9, 1e9), error=ERRORS)
def test_an_estimate_has_two_digits_of_its_standard_error(value: float, error: float) -> None:
    """What is rounded away is at most a twentieth of the standard error, and what is left is no digit more than that needs."""
    text = number_text(value, error)
    step = 10.0 ** -decimals_for(error)
    if error < 1e11 and error >= 1e-9:
        assert abs(value_of(text) - value) <= step / 2 + 1e-6 * step + 1e-12 * abs(value)
        assert step <= error / 9 < 12 * step
    shown = value_of(error_text(error))
    assert math.isclose(shown, float(f"{error:.1e}"), rel_tol=1e-9)


@given(low=st.floats(-1e6, 1e6), width=st.floats(0, 1e6), error=st.floats(1e-6, 1e5))
def test_an_interval_has_the_decimals_of_its_estimate(low: float, width: float, error: float) -> None:
    ends = interval_text((low, low + width), error).split(" to ")
    decimals = [len(end.partition(".")[2]) for end in (*ends, number_text(low, error))]
    assert len(set(decimals)) == 1
    assert [value_of(end) for end in ends] == sorted(value_of(end) for end in ends)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (26324.2, 2869.74, "26,300"),
        (0.0123, 0.00031, "0.01230"),
        (-0.0004, 0.02, "0.000"),
        (12.0, 0.0, "12"),
        (3.25, math.inf, UNKNOWN),
        (45.126, 0.0996, "45.13"),
        (1e7, 3.0, "10,000,000.0"),
    ],
)
def test_digits_follow_the_error(value: float, error: float, text: str) -> None:
    assert number_text(value, error) == text


def test_p_values_and_tests_as_journals_print_them() -> None:
    assert [p_text(value) for value in (0.0, 0.0009, 0.001, 0.0421, 1.0)] == ["< 0.001", "< 0.001", "0.001", "0.042", "1.000"]
    assert outcome_text("Welch's t test", "t", 0.22, (4112.2,), 0.83) == "Welch's t test: t = 0.22, df 4,112, p = 0.830"
    assert outcome_text("F test", "F", 5.5, (2.0, 57.31), 1e-9) == "F test: F = 5.50, df 2 and 57.3, p < 0.001"
    assert outcome_text("Mann-Whitney test", "z", -0.001, (math.inf,), 0.999) == "Mann-Whitney test: z = 0.00, p = 0.999"


@given(days=st.floats(-3e5, 2e6))
def test_days_are_days_of_the_calendar_and_intervals_go_outwards(days: float) -> None:
    first = datetime.date(1900, 3, 1)
    for rounding, whole in (("nearest", round(days)), ("down", math.floor(days)), ("up", math.ceil(days))):
        assert day_text(days, "1900-03-01", rounding) == (first + datetime.timedelta(days=whole)).isoformat()
    low, high = days_text((days, days + 0.5), "1900-03-01").split(" to ")
    assert low <= day_text(days, "1900-03-01") <= high


def test_days_that_no_calendar_has_are_not_known() -> None:
    assert [day_text(one, "2020-01-01") for one in (1e9, -1e9, math.nan, math.inf)] == [UNKNOWN, UNKNOWN, UNKNOWN, "∞"]
    assert days_text((math.nan, 3.0), "2020-01-01") == UNKNOWN


def test_names_keep_their_dashes_on_a_terminal() -> None:
    assert for_terminal("0–10: t = −0.50") == "0–10: t = -0.50"
    assert for_terminal(UNKNOWN) == "unknown"


@given(part=st.floats(1e-5, 1))
def test_percents_are_plain_numbers_of_two_digits(part: float) -> None:
    text = percent_text(part)
    assert re.fullmatch(r"\d+(\.\d+)? %", text)
    assert value_of(text.removesuffix(" %")) == pytest.approx(100 * part, rel=0.05)


def test_percents_near_all_have_a_third_digit() -> None:
    assert [percent_text(one) for one in (0.0982, 0.17, 0.994, 0.9996, 1.0)] == ["9.8 %", "17 %", "99.4 %", "100 %", "100 %"]


@given(st.floats(0, exclude_min=True, allow_nan=False))
def test_an_epsilon_of_any_size_is_never_understated(epsilon: float) -> None:
    """Of strangers' receipts, too: up to the largest float."""
    for text in (epsilon_text(epsilon), epsilon_shown(epsilon)):
        assert value_of(text) >= epsilon * (1 - 1e-12) - 1e-9
        assert len(text) <= 25
