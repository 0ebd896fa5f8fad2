"""A survey by keys alone, the same in each browser: where the focus goes, and whether people see where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# What has the focus, by its id or by that of what it unfolds; whether an outline shows it, and whether it is within the window.
_FOCUSED = """const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
return [one.id || one.parentElement.querySelector("dl")?.id || one.textContent,
  style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
  box.top < innerHeight && box.bottom > 0 && box.width > 0];"""
# More than any page here has, the parts of a date among them.
_MOST = 40


@dataclass(frozen=True)
class Keys:
    """A keyboard. ``press``: Tab, Enter, Space, ArrowUp, or a character; ``run``: a script that returns something."""

    press: Callable[[str], None]
    run: Callable[[str], Any]
    wait: Callable[[str], None]

    def focused(self) -> str:
        name, is_shown, is_there = self.run(_FOCUSED)
        assert is_shown, f"nobody sees that {name} has the focus"
        assert is_there, f"{name} has the focus and is not seen"
        return str(name)

    def to(self, last: str) -> list[str]:
        """Press Tab until this has the focus; what had it on the way."""
        met: list[str] = []
        for _ in range(_MOST):
            self.press("Tab")
            # A date has several parts.
            met += [] if met[-1:] == [(name := self.focused())] else [name]
            if name == last:
                return met
        raise AssertionError(f"{last} has never the focus: {met}")

    def type(self, text: str) -> None:
        for character in text:
            self.press(character)


def answered_by_keys(keys: Keys, fragment: str) -> None:
    """From a page without a link to the receipt, and to where it is forgotten. The page is of :class:`support.survey.Survey`."""
    assert keys.to("voucher") == ["terms", "voucher"]
    keys.type(fragment)
    assert keys.to("use") == ["pick", "use"]
    keys.press("Enter")
    keys.wait("good for one answer")
    # What was pressed is gone: whoever hears the page is where it goes on.
    assert keys.focused() == "state"
    assert keys.to("answer-0") == ["terms", "answer-0"]
    keys.type("1,500")
    # What it may mean is chosen in its place.
    keys.press("Tab")
    assert keys.focused() == "1500"
    keys.press("Enter")
    assert keys.focused() == "answer-0"
    assert keys.run("return document.activeElement.value") == "1500"
    assert keys.to("answer-1-2") == ["answer-1-2"]
    keys.press("ArrowUp")
    assert keys.focused() == "answer-1-1"
    assert keys.to("send") == ["answer-2", "answer-3-2", "answer-4", "yes", "send"]
    keys.press("Enter")
    assert keys.focused() == "yes"
    keys.press("Space")
    assert keys.to("send") == ["send"]
    keys.press("Enter")
    keys.wait("has arrived")
    assert keys.focused() == "state"
    assert keys.to("logs") == ["terms", "receipt-keys", "receipt-file", "forget", "logs"]
    # Back, as there is no way around.
    assert keys.run("document.querySelector('#receipt-file').focus(); return document.activeElement.id") == "receipt-file"
    assert keys.to("forget") == ["forget"]
    keys.press("Enter")
    keys.wait("has forgotten")
    assert keys.focused() == "state"
