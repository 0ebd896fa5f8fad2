"""The system's Chromium, driven by tests that make browser runs; and axe-core."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

driver = pytest.importorskip("playwright.sync_api", reason="the browser's tests are run by make browser")

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


ROOT = Path(__file__).parents[2]
# CSS pixels, what is seen without scrolling.
SIZES = {"screen": (1280, 800), "telephone": (390, 844)}
# Of a page at 400 % on a laptop.
NARROWEST = 320
# What people see: a screen and a telephone, each in light and in dark.
FORMS = [(size, scheme) for size in SIZES for scheme in ("light", "dark")]
# Texts of figures that lie beyond their picture, or on another text of it; rotated ones by what is left of their boxes.
_CUT = """[...document.querySelectorAll('.plot svg, .picture svg')].flatMap(svg => {
  const whole = svg.getBoundingClientRect();
  if (!whole.width) return [];
  return [...svg.querySelectorAll('text')].filter(one => one.textContent.trim()).map(one => [one, one.getBoundingClientRect()])
    .filter(([_, own]) => own.left < whole.left - 1 || own.right > whole.right + 1 || own.top < whole.top - 1 ||
      own.bottom > whole.bottom + 1).map(([one]) => one.textContent.trim());
})"""
_OVERLAID = """[...document.querySelectorAll('.plot svg')].filter(svg => svg.getBoundingClientRect().width).flatMap(svg => {
  const level = [...svg.querySelectorAll('text')].filter(one => !/rotate\\((?!-?0\\))/.test(one.getAttribute('transform') || ''))
    .filter(one => one.textContent.trim());
  const boxes = level.map(one => [one.textContent.trim(), one.getBoundingClientRect()]);
  return boxes.flatMap(([name, own], place) => boxes.slice(place + 1).filter(([_, other]) =>
    Math.min(own.right, other.right) - Math.max(own.left, other.left) > 1 &&
    Math.min(own.bottom, other.bottom) - Math.max(own.top, other.top) > 0.4 * own.height).map(([next]) => [name, next]));
})"""
# On the narrowest screen: pictures of less than a third of it, and texts of hardly a letter in a line.
_SQUEEZED = """[...document.querySelectorAll('svg[width="100%"]')]
  .filter(svg => svg.checkVisibility() && svg.getBoundingClientRect().width < innerWidth / 3)
  .map(svg => svg.getAttribute('aria-label') || svg.parentElement.textContent.trim())
  .concat([...document.querySelectorAll('main :not(:has(*))')].filter(one => one.checkVisibility() && !one.closest('svg'))
    .filter(one => {
      const range = document.createRange();
      range.selectNodeContents(one);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
      return lines > 3 && one.textContent.trim().length < 4 * lines;
    }).map(one => one.textContent.trim()))"""
_LOST = """[...document.querySelectorAll('a[href^="#"]')].map(one => one.getAttribute('href'))
  .filter(one => !document.getElementById(decodeURIComponent(one.slice(1))))"""


def opened(browser: Any, address: str, size: str, scheme: str, **more: Any) -> Any:
    """A page as it is seen first."""
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
    page.goto(address)
    return page


def unfolded(browser: Any, address: str, size: str, scheme: str, **more: Any) -> Any:
    """A page with all that is folded away unfolded, where axe can run."""
    # What pages forbid to scripts of others, axe included, is allowed to this browser.
    page = opened(browser, address, size, scheme, bypass_csp=True, **more)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    return page


def wrong_on(page: Any) -> list[Any]:
    """What keeps people from reading a page: all that axe finds, a page wider than the screen, texts of figures that are cut or
    lie on each other, links within it that lead nowhere, and on the narrowest screen what is squeezed."""
    page.add_script_tag(path=axe_path())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    told: list[Any] = [(one["id"], node["target"], node["failureSummary"]) for one in found for node in one["nodes"][:3]]
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    told += [("wider than the screen", wide)] if wide > 0 else []
    for what, script in (("cut", _CUT), ("overlaid", _OVERLAID), ("leads nowhere", _LOST)):
        told += [(what, one) for one in page.evaluate(script)]
    page.set_viewport_size({"width": NARROWEST, "height": 640})
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    told += [("wider than the narrowest screen", wide)] if wide > 0 else []
    told += [("squeezed on the narrowest screen", one) for one in page.evaluate(_SQUEEZED)]
    return told


def looked_at(browser: Any, addresses: list[str], **more: Any) -> list[Any]:
    """What is wrong on which page in which form."""
    wrong = []
    for address in addresses:
        for size, scheme in FORMS:
            page = unfolded(browser, address, size, scheme, **more)
            wrong += [(address.rpartition("/")[2], size, scheme, one) for one in wrong_on(page)]
            page.close()
    return wrong


def browser_path() -> str:
    """Of the system's Chromium, or the one that QUIETMEAN_CHROMIUM names; a test is skipped where none is."""
    found = os.environ.get("QUIETMEAN_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        pytest.skip("no browser here: apt-get install chromium, or name one in QUIETMEAN_CHROMIUM")
    return found


def axe_path() -> Path:
    # Tests change their folder.
    found = Path(os.environ.get("QUIETMEAN_AXE") or ROOT / ".venv/axe/package/axe.min.js")
    if not found.is_file():
        pytest.skip(f"axe-core is not at {found}: run make browser, which fetches it")
    return found
