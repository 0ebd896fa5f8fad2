"""Pages about protocols are what the registry says: tables, references and CITATION.cff are as their tool writes them."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from quietmean.core.schema import options_of
from quietmean.protocols import Mechanism, registry
from support.programs import ROOT, module_of

tool = module_of("tools", "protocol_table")


def test_the_page_agrees_with_the_registry(tool: ModuleType) -> None:
    text = tool.PAGE.read_text()
    assert tool.page() == text, "run python tools/protocol_table.py"
    for name, kind in registry().items():
        assert f"## {name}\n" in text
        assert f"| `{name}` |" in text
        assert kind.TRAITS.summary in text
        assert kind.TRAITS.guarantee in text
        for option in options_of(kind).values():
            assert option.flag is None or f"| `--with {option.flag}=...` | `{option.key}` | {option.help}" in text


def test_references_and_citation_file_are_those_of_the_protocols(tool: ModuleType) -> None:
    page, citation = tool.REFERENCES.read_text(), tool.CITATION.read_text()
    assert tool.references() == page, "run python tools/protocol_table.py"
    assert tool.citation() == citation, "run python tools/protocol_table.py"
    for kind in registry().values():
        for source in kind.TRAITS.sources:
            assert source.citation in page
            assert f'title: "{source.title}"' in citation
            assert all(f'family-names: "{author.family}"' in citation for author in source.authors)
            assert f"doi: {source.doi}" in citation or not source.doi


@pytest.mark.parametrize("kind", registry().values(), ids=list(registry()))
def test_every_protocol_has_its_authors_on_its_page_and_in_its_package(tool: ModuleType, kind: type[Mechanism]) -> None:
    package = importlib.import_module(".".join(kind.__module__.split(".")[:3]))
    assert kind.TRAITS.sources
    for source in kind.TRAITS.sources[:1]:
        assert source.authors
        assert source.title
        assert f"*Source*: {source.short}" in tool.page()
        assert source.short in " ".join((package.__doc__ or "").split())


# The page that explains a protocol, and no page, names other authors than its record does.
@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("proofs/inca.md", "inca"),
        ("proofs/cordp-dme.md", "cordp-dme"),
        ("proofs/consensus.md", "consensus"),
        ("proofs/packed-sharing.md", "packed-sharing"),
        ("proofs/secagg.md", "secagg"),
        ("proofs/secagg.md", "secagg-plus"),
        ("proofs/baselines.md", "gopa"),
        ("proofs/baselines.md", "muffliato"),
        ("proofs/baselines.md", "priv-unit-g"),
    ],
)
def test_a_page_names_the_authors_of_its_protocol(tool: ModuleType, page: str, name: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert registry()[name].TRAITS.sources[0].short in text


def test_what_the_glossary_says_a_protocol_protects_against_is_so() -> None:
    rows = [
        line.split("|") for line in (ROOT / "docs" / "reference/glossary.md").read_text().splitlines() if line.startswith("| `")
    ]
    against = {name.strip(" `"): row[2] for row in rows for name in row[1].split(",")}
    # What is said of every protocol is on the page of protocols, which the tool writes.
    assert against.keys() <= registry().keys()
    assert len(against) >= 13
    for name in against:
        kind = registry()[name]
        assert ("no privacy" in against[name] or "no differential privacy" in against[name]) == (not kind.TRAITS.private), name
        assert ("computational" in against[name]) == (
            "against parties that cannot break the encryption" in kind.TRAITS.guarantee
        ), name
        # Only what a guarantee says of parties that do anything.
        if "does anything" in kind.TRAITS.guarantee:
            assert "malicious" in against[name], name
