"""Every error that a source of data can end a study with: each is of the source as such, or proven independent of its values.

Whoever writes a new one says here what it depends on. What a cell, a record or a person holds, and how many there are, decide
nothing: a value that cannot be read is missing, and no row at all is a party without records.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import quietmean

PACKAGE = Path(quietmean.__file__).parent
DATA = "studies/data"


class DependsOn(StrEnum):
    """What an error depends on."""

    OPENED = "the source as such: it is not there, damaged, locked, or changes while it is read"
    HEADING = "its heading, or the columns that it declares, whether there is any row or none"
    SIZE = "its size: beyond memory, more than a hundred million cells or some gigabytes"
    TEXT = "what the site says of it, beside the data: settings, mapping, query, codes"
    CALLER = "what the study or the caller says, nothing of the data"
    NUMBER = "a public number of records, which all others see: said before the yes"
    VIEW = "a program of the owner's own, as a view or a lazy frame, that fails in the owner's engine"
    ALONE = "data that are all on this machine: a rehearsal, before it starts"


# Modules that know no row: the text of a query, and what is said of a file.
NO_ROW = {"location.py": DependsOn.TEXT}
NO_ROW |= dict.fromkeys(["query_expressions.py", "query_grouping.py", "query_levels.py", "query_grammar.py"], DependsOn.TEXT)
# By the function: how many errors it raises, and what these depend on.
ERRORS: dict[str, tuple[int, DependsOn]] = {
    f"{DATA}/isolated.py:_exactly": (1, DependsOn.OPENED),
    f"{DATA}/isolated.py:pieces_apart": (1, DependsOn.OPENED),
    f"{DATA}/cells.py:ColumnReader.__post_init__": (1, DependsOn.TEXT),
    f"{DATA}/database.py:DatabaseTables.chosen": (2, DependsOn.HEADING),
    f"{DATA}/database.py:Tables.find": (1, DependsOn.TEXT),
    f"{DATA}/database.py:failing": (1, DependsOn.VIEW),
    f"{DATA}/database.py:pieces_of": (1, DependsOn.SIZE),
    f"{DATA}/database.py:query_of": (2, DependsOn.TEXT),
    f"{DATA}/formats.py:_kind_of": (1, DependsOn.OPENED),
    f"{DATA}/formats.py:_opened": (5, DependsOn.OPENED),
    f"{DATA}/formats.py:_kind_of_archive": (1, DependsOn.SIZE),
    f"{DATA}/formats.py:_reader": (1, DependsOn.OPENED),
    f"{DATA}/isolated.py:columns_apart": (3, DependsOn.OPENED),
    f"{DATA}/isolated.py:read_columnar": (1, DependsOn.CALLER),
    f"{DATA}/isolated.py:table_of_frame": (2, DependsOn.HEADING),
    f"{DATA}/grouped.py:GroupsOfFrame.__init__": (3, DependsOn.HEADING),
    f"{DATA}/grouped.py:_answer": (1, DependsOn.VIEW),
    f"{DATA}/grouped.py:GroupsOfPostgresql._asked": (1, DependsOn.TEXT),
    f"{DATA}/persons.py:require_persons": (2, DependsOn.TEXT),
    f"{DATA}/postgresql.py:_chosen": (2, DependsOn.HEADING),
    f"{DATA}/postgresql.py:transaction": (2, DependsOn.VIEW),
    f"{DATA}/text_files.py:_find_heading": (2, DependsOn.HEADING),
    f"{DATA}/query.py:CheckedQuery.__init__": (1, DependsOn.TEXT),
    f"{DATA}/query.py:CheckedQuery._find": (1, DependsOn.TEXT),
    f"{DATA}/query.py:CheckedQuery._key_of": (1, DependsOn.TEXT),
    # Codes are public, and are loaded before the yes.
    f"{DATA}/query.py:CheckedQuery.load_codes": (1, DependsOn.TEXT),
    f"{DATA}/query.py:CheckedQuery.pieces": (1, DependsOn.HEADING),
    f"{DATA}/query.py:_named_in": (1, DependsOn.TEXT),
    f"{DATA}/reading.py:Declared.all_records": (1, DependsOn.SIZE),
    f"{DATA}/reading.py:Declared.require_readable": (1, DependsOn.ALONE),
    f"{DATA}/reading.py:_checked": (1, DependsOn.HEADING),
    f"{DATA}/records.py:Records._again": (1, DependsOn.OPENED),
    f"{DATA}/records.py:Records._grouped": (1, DependsOn.OPENED),
    f"{DATA}/sources.py:_Parties.parts": (1, DependsOn.ALONE),
    f"{DATA}/sources.py:_Whose.dealt_out": (1, DependsOn.ALONE),
    f"{DATA}/sources.py:_Whose.require_few_sites": (1, DependsOn.ALONE),
    f"{DATA}/sources.py:_parts_of_tables": (1, DependsOn.ALONE),
    f"{DATA}/sources.py:parties_of_data": (3, DependsOn.CALLER),
    f"{DATA}/sources.py:parties_of_table": (2, DependsOn.CALLER),
    f"{DATA}/table.py:joined": (1, DependsOn.SIZE),
    f"{DATA}/table.py:require_distinct": (1, DependsOn.HEADING),
    f"{DATA}/table.py:require_heading": (1, DependsOn.HEADING),
    f"{DATA}/table.py:wanted_places": (1, DependsOn.HEADING),
    f"{DATA}/table.py:_known": (1, DependsOn.TEXT),
    f"{DATA}/table.py:_next_of": (1, DependsOn.OPENED),
    f"{DATA}/table.py:unpacked": (1, DependsOn.OPENED),
    f"{DATA}/isolated.py:_chosen": (3, DependsOn.HEADING),
    f"{DATA}/isolated.py:_sheets": (2, DependsOn.OPENED),
    f"{DATA}/isolated.py:_table": (1, DependsOn.HEADING),
    "planning/plan.py:Admitted.require_of": (1, DependsOn.CALLER),
    "planning/plan.py:Plan._moved": (1, DependsOn.CALLER),
    "planning/plan.py:Plan.admit": (1, DependsOn.CALLER),
    "planning/plan.py:Plan.require_room": (2, DependsOn.NUMBER),
    "planning/plan.py:Plan.require_rounded": (1, DependsOn.CALLER),
    "statistics/coding.py:_Sums._require_all": (1, DependsOn.OPENED),
    "statistics/coding.py:sums_of": (1, DependsOn.CALLER),
    "statistics/workload.py:Workload.encode": (1, DependsOn.CALLER),
    "statistics/workload.py:Workload.of_person": (1, DependsOn.CALLER),
    "studies/agreement/study.py:StudyTerms.require_records": (1, DependsOn.NUMBER),
}
# Of other modules only these functions see a party's data, or their number.
SEEING = {
    "planning/plan.py": {"Admitted.require_of", "Plan._moved", "Plan.admit", "Plan.require_room", "Plan.require_rounded"},
    "statistics/coding.py": {"_Sums._require_all", "sums_of"},
    "statistics/workload.py": {"Workload.encode", "Workload.of_person", "Workload._encoded", "Workload.weight_of"},
    "studies/agreement/study.py": {"StudyTerms.require_records"},
}


def raised(tree: ast.AST, within: str = "") -> Iterator[str]:
    """The function of each error that is raised."""
    for node in ast.iter_child_nodes(tree):
        inside = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{within}.{node.name}".removeprefix(".")
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield within
        yield from raised(node, inside)


def errors_of(name: str) -> Counter[str]:
    return Counter(raised(ast.parse((PACKAGE / name).read_text())))


def test_every_error_says_what_it_depends_on() -> None:
    found: dict[str, int] = {}
    for path in sorted((PACKAGE / DATA).glob("*.py")):
        if path.name not in NO_ROW:
            found |= {f"{DATA}/{path.name}:{function}": count for function, count in errors_of(f"{DATA}/{path.name}").items()}
    for name, functions in SEEING.items():
        found |= {f"{name}:{function}": count for function, count in errors_of(name).items() if function in functions}
    assert found == {place: count for place, (count, _) in ERRORS.items()}


def test_nothing_stands_for_a_number_of_rows() -> None:
    """No error of a reader speaks of records that a party should have."""
    for path in (PACKAGE / DATA).glob("*.py"):
        assert "at least one record" not in path.read_text(), path
