"""Questions that are half typed, of every kind of statistic: what is missing is named, and what to write instead is right."""

from __future__ import annotations

import re

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.core.schema import parameters_of
from quietmean.statistics.questions import read_questions
from quietmean.statistics.registry import ALIASES, read_text, registry

KINDS = sorted(registry())
# What people call them, and a name of which is told what to ask instead.
NAMES = [*KINDS, *sorted(ALIASES)[::7], "range"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_without_its_columns_says_which(kind: str) -> None:
    """No column at all, and one fewer than needed: each is named, and the proposal has all of them."""
    for given in range(len(registry()[kind].by_place)):
        text = f"{kind}({', '.join('abc'[:given])})"
        try:
            read_text(text)
        except InputError as error:
            said = str(error)
            if "lacks" not in said:
                # Of a formula one column is a column without a formula.
                assert "has no formula" in said
                continue
            proposed = re.search(r"Write (.*)\.$", said)
            assert text in said
            assert proposed is not None, said
            read_text(proposed[1])


@pytest.mark.parametrize("kind", NAMES)
def test_a_bracket_that_is_not_closed_is_found(kind: str) -> None:
    with pytest.raises(InputError, match="bracket that is not closed") as found:
        read_questions([f"{kind}(age in 0..110"], ())
    assert f"Write {kind}(age in 0..110)." in str(found.value)
    with pytest.raises(InputError, match="goes on behind its bracket"):
        read_questions([f"{kind}(age) in 0..110"], ())
    with pytest.raises(InputError, match="more than one question"):
        read_questions([f"{kind}(age in 0..110), mean(age)"], ())


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("before", [[], ["--party-column", "hospital"], ["--parties", "5"]])
def test_a_bare_name_is_never_blamed_on_an_option(kind: str, before: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "patients.csv", *before, kind])
    said = capsys.readouterr().err
    assert f"{kind!r} has no columns" in said or f"{kind!r} does not say what to count" in said
    assert "stands behind" not in said


FIELDS = sorted({name for kind in registry().values() for name in parameters_of(kind)})


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_as_an_option_is_led_into_the_question(field: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "patients.csv", "mean(age in 0..110)", "--parties", "5", f"--{field.replace('_', '-')}", "x"])
    said = capsys.readouterr().err
    found = re.search(r'within a question, as in "([a-z0-9-]+)\(COLUMN, (\w+)=VALUE\)"', said)
    if found is not None:
        assert found[2] == field
        assert field in parameters_of(registry()[found[1]])
    else:
        # It is an option of the command, or of a protocol, or was one of another meaning.
        assert re.search("is an option of a protocol|Write a question|does not exist|is not a|--population is", said), said
