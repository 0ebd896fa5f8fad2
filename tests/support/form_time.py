"""How long somebody waits between yes and receipt: the largest survey for which that is promised."""

from __future__ import annotations

from pathlib import Path

from support.survey import Survey

# Columns that are asked about, members, and the longest that one waits (s).
NUMBERS, MEMBERS, LONGEST = 30, 9, 1.0
# Presses the button, and notes how long it takes to the receipt (ms).
SEND = """const begun = performance.now();
new MutationObserver(() => { document.documentElement.dataset.waited ??= performance.now() - begun; })
  .observe(document.getElementById("receipt"), {attributes: true});
document.getElementById("yes").checked = true;
document.getElementById("send").click();"""
WAITED = "document.documentElement.dataset.waited"
FILL = """for (const input of document.querySelectorAll("#questions input")) input.value = "512.5";"""


def large_survey(folder: Path, drop: str) -> Survey:
    """Of thirty means and nine members, of whom two may collude and two be gone."""
    ask = tuple(f"mean(answer{place} in 0..1000)" for place in range(NUMBERS))
    committee = {"colluding": 2, "gone": 2}
    members = tuple(f"m{number}" for number in range(1, MEMBERS + 1))
    return Survey(folder, ask=ask, vouchers=2000, committee=committee, drop=drop, members=members)
