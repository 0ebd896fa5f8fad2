"""The tables of protocols are what the registry says: README.md and docs/protocols.md are as their tool writes them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from quietmean.protocols import registry

TOOL = Path(__file__).parent.parent.parent / "tools" / "protocol_table.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("protocol_table", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_agrees_with_the_registry(tool: ModuleType) -> None:
    text = tool.README.read_text()
    assert tool.readme(text) == text, "run python tools/protocol_table.py"
    for name, kind in registry().items():
        assert f"| `{name}` |" in text
        assert kind.summary in text


def test_the_page_agrees_with_the_registry(tool: ModuleType) -> None:
    text = tool.PAGE.read_text()
    assert tool.page() == text, "run python tools/protocol_table.py"
    for name, kind in registry().items():
        assert f"## {name}\n" in text
        assert kind.guarantee in text
        for option in kind.options().values():
            assert option.flag is None or f"| `--{option.flag}` | `{option.key}` | {option.help}" in text


def test_a_changed_table_is_written_anew(tool: ModuleType) -> None:
    text = tool.README.read_text()
    assert tool.readme(text.replace("| `inca` |", "| `inka` |")) == text
