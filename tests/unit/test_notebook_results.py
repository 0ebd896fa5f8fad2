"""What a notebook shows of a result and of a call that runs: a table, a picture, a line; nothing where nobody looks."""

from __future__ import annotations

import html
import io
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import quietmean as qm
from quietmean.api.progress import progress_line, what_goes_on
from quietmean.report.drawing import Drawing
from quietmean.statistics.printed import shown
from quietmean.statistics.tidy import terms_of
from support.outcomes import EVERY_KIND, finished


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", EVERY_KIND)
def test_every_kind_of_answer_is_drawn_within_its_picture(text: str) -> None:
    document = finished(text, noise=0.05).answers[0].to_json()
    terms, svg = terms_of(document), Drawing([document]).svg
    texts = [html.unescape(text) for text in re.findall(r"<text [^>]*>([^<]*)</text>", svg)]
    assert svg.count('class="line"') <= len(terms)
    assert any(shown(terms[0]).estimate in text for text in texts), "the first number"
    (wide,) = map(float, re.findall(r'viewBox="0 0 (\d+) ', svg))
    assert all(0 <= float(place) <= wide for place in re.findall(r' (?:x1|x2|cx|x)="([^"]*)"', svg))
    # Every element is closed, and no name of a term opens one.
    opened, closed = re.findall(r"<(g|text|svg)\b", svg), re.findall(r"</(g|text|svg)>", svg)
    assert sorted(opened) == sorted(closed)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress_line() as say:
        say("starting\x1b[31m", None)
        time.sleep(0.25)
        say("round 1 of 2", 0.5)
    assert terminal.getvalue() == "\r\033[Kstarting[31m\r\033[Kround 1 of 2\r\033[K"


def test_nothing_is_said_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    with progress_line() as say:
        say("starting", None)
    assert pipe.getvalue() == ""


def test_a_notebook_has_a_line_without_markup_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    shown_there: list[str] = []
    handle = SimpleNamespace(update=shown_there.append)
    made = SimpleNamespace(HTML=lambda text: text, display=lambda what, display_id: handle)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    monkeypatch.setitem(sys.modules, "IPython.display", made)
    told = what_goes_on({"event": "round", "phase": "sums", "round": 1, "of": 4, "waiting_for": ["<b>"]}, "")
    assert told is not None
    with progress_line() as say:
        say(*told)
    assert shown_there == ['<progress max="1" value="0.250"></progress> sums: exchange 1 of 4, waiting for &lt;b&gt;', ""]


@pytest.mark.slow
def test_a_result_says_in_a_notebook_what_the_command_says(tmp_path: Path) -> None:
    frame = pl.DataFrame({"age": [30.0, 40.0, 50.0, 60.0] * 50})
    result = qm.Study("mean(age in 0..110)", epsilon=8.0).run(frame, parties=3)
    page, text = result._repr_html_(), repr(result)
    for word in ("Privacy", "Protocol", "guaranteed", "SITE"):
        assert word in page
        assert word in text
    assert "<table>" in page
    result.plot().save(tmp_path / "ages.svg")
    assert (tmp_path / "ages.svg").read_text().startswith("<svg")
    with pytest.raises(qm.InputError, match="force=True"):
        Drawing([]).save(tmp_path / "ages.svg")
