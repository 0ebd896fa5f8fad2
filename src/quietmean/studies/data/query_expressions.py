"""Expressions of a query, written anew from their tree: what is not written here is refused.

Whatever is written depends on one row, or within an aggregate or a window on the rows of one person. What may fail on a value is
wrapped in TRY by who asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from quietmean.core.cells import LONGEST_CELL
from quietmean.core.errors import InputError
from quietmean.studies.data import query_grammar as listed
from quietmean.studies.data.query_grammar import COMPARISONS, Node, Query, called

# The most characters of an expression, once all names are written out.
_LONGEST = 2**16
_TRIED = ("'x'", "DATE '2000-01-31'", "1.5::DOUBLE")
_NULLS = {"ORDER_DEFAULT": "", "NULLS FIRST": " NULLS FIRST", "NULLS LAST": " NULLS LAST"}
_DIRECTIONS = {"ORDER_DEFAULT": "", "ASCENDING": " ASC", "DESCENDING": " DESC"}
_OPERATORS = {
    "OPERATOR_NOT": "(NOT {})",
    "OPERATOR_IS_NULL": "({} IS NULL)",
    "OPERATOR_IS_NOT_NULL": "({} IS NOT NULL)",
    "OPERATOR_TRY": "TRY({})",
}


@dataclass(frozen=True)
class Field:
    """A column of a relation: its ``name`` in the query, how it is written, its type, and whether it is the row's person."""

    name: str
    sql: str
    type: str
    person: bool = False
    # The table of data or codes of which it is a column, and the place there.
    origin: tuple[str, int] | None = None


@dataclass(frozen=True)
class Relation:
    """What a name behind FROM means.

    ``data``: does any of its rows come from a table of data? ``tables``: of these, how often each is in it. ``rows``: a person
    has at most as many rows in it as the product of those in these tables. ``key``: of codes, places that no two rows share.
    """

    sql: str
    fields: tuple[Field, ...]
    data: bool
    tables: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    key: frozenset[int] | None = None


@dataclass(frozen=True)
class SqlTerm:
    """An expression as it is written. ``constant``: no row decides about it; ``column``: it is that column and nothing else."""

    sql: str
    constant: bool = False
    column: Field | None = None
    # The text of a constant that is one.
    text: str | None = None


@dataclass
class SqlNames:
    """What columns are called: of the relations behind FROM, and of expressions that were named before."""

    query: Query
    parts: list[tuple[str, tuple[Field, ...]]] = field(default_factory=list)
    aliases: dict[str, Node] = field(default_factory=dict)
    # Columns of USING, which mean the first one of that name.
    merged: set[str] = field(default_factory=set)

    def find(self, names: Sequence[str]) -> Field | None:
        """The column, or None where there is none of that name. Raises :class:`InputError` where there are several."""
        if len(names) > 2:
            raise self.query.refused(f"the column {'.'.join(names)}", "Name it as TABLE.COLUMN")
        name = names[-1].casefold()
        found = [
            one
            for alias, fields in self.parts
            if len(names) == 1 or alias.casefold() == names[0].casefold()
            for one in fields
            if one.name.casefold() == name
        ]
        if len(found) > 1 and not (name in self.merged and len(names) == 1):
            raise InputError(f"column {names[-1]!r} in {self.query.name} may be one of {len(found)}. Name its table before it")
        return found[0] if found else None


@dataclass
class Writer:
    """Writes expressions of one level; ``base``: an empty database, in which constants are tried.

    ``column``, ``aggregate`` and ``window`` write what depends on the place: before grouping, behind it, beside windows.
    """

    query: Query
    base: Any
    scope: SqlNames
    used: set[tuple[str, int]]
    column: Callable[[Field], str] = lambda one: one.sql
    known: Callable[[Node], SqlTerm | None] = lambda node: None
    aggregate: Callable[[Node], str] | None = None
    window: Callable[[Node, str], str] | None = None

    def term(self, node: Node) -> SqlTerm:
        """Write a term of an expression. Raises :class:`InputError` for what is not on the list."""
        if (written := self.known(node)) is not None:
            return written
        kind = str(node.get("type"))
        if kind in COMPARISONS:
            return self._comparison(self.query.read(node, kind), COMPARISONS[kind])
        if kind.startswith("WINDOW_"):
            if self.window is None:
                raise self.query.refused("a window outside the list of columns", "Give it a level of its own by WITH")
            return SqlTerm(self.window(self.query.read(node, "WINDOW"), kind))
        write = self._KINDS.get(kind)
        if write is None:
            raise self.query.refused(called(kind))
        return write(self, self.query.read(node, kind))

    def condition(self, node: Node) -> str:
        """One that fails is false."""
        return f"coalesce(TRY(CAST({self.term(node).sql} AS BOOLEAN)), false)"

    def order(self, node: Node) -> str:
        self.query.read(node, "order")
        direction, nulls = _DIRECTIONS.get(str(node["type"])), _NULLS.get(str(node["null_order"]))
        if direction is None or nulls is None:
            raise self.query.refused(f"the order {node['type']} {node['null_order']}")
        return f"TRY({self.term(node['expression']).sql}){direction}{nulls}"

    def tried(self, sql: str, what: str) -> None:
        """Try an expression. Raises :class:`InputError` for an expression without columns that fails."""
        try:
            self.base.execute(f"SELECT {sql}")
        except Exception as error:
            if not is_of_duckdb(error):
                raise
            raise InputError(f"{what} in {self.query.name} cannot be computed. Correct this constant") from None

    def _together(self, sql: str, terms: Sequence[SqlTerm], what: str) -> SqlTerm:
        """An expression of these terms; of constants alone it is one, and is tried."""
        constant = all(term.constant for term in terms)
        if constant:
            self.tried(sql, what)
        return SqlTerm(sql, constant)

    def _reference(self, node: Node) -> SqlTerm:
        names = node["column_names"]
        found = self.scope.find(names)
        if found is not None:
            if found.origin is not None:
                self.used.add(found.origin)
            sql = self.column(found)
            return SqlTerm(sql, column=replace(found, sql=sql))
        named = self.scope.aliases.get(names[0].casefold()) if len(names) == 1 else None
        if named is None:
            raise self.query.refused(f"{'.'.join(names)!r} that is not a column here", "Name a column of a table behind FROM")
        # What it means has names from before it only.
        aliases = dict(self.scope.aliases)
        before = dict(list(aliases.items())[: list(aliases).index(names[0].casefold())])
        made = replace(self, scope=replace(self.scope, aliases=before)).term(named)
        if len(made.sql) > _LONGEST:
            raise self.query.refused("an expression of so many names for others", "Take it apart by WITH")
        return made

    def _constant(self, node: Node) -> SqlTerm:
        literal = self.query.read(node["literal"], "literal")
        kind, text = str(literal["kind"]), str(literal["text"])
        if kind == "NULL_LITERAL":
            return SqlTerm("NULL", True)
        if kind in ("INTEGER", "NUMERIC", "BOOLEAN") and not set(text) - set("0123456789.eE+-truefals"):
            return SqlTerm(f"({text})", True, text=text)
        if kind != "STRING":
            raise self.query.refused(f"a constant of kind {kind}")
        if len(text) > listed.LONGEST_CONSTANT or "\0" in text:
            raise self.query.refused(f"a text of more than {listed.LONGEST_CONSTANT} signs", "Shorten it")
        quoted = text.replace("'", "''")
        return SqlTerm(f"'{quoted}'", True, text=text)

    def _comparison(self, node: Node, sign: str) -> SqlTerm:
        left, right = _as_numbers([self.term(node["left"]), self.term(node["right"])])
        for one, other in ((left, right), (right, left)):
            if one.column is not None and other.text is not None and one.column.type not in ("VARCHAR", "BOOLEAN"):
                self.tried(f"CAST({other.sql} AS {one.column.type})", f"{other.text!r}")
        return self._together(f"({left.sql} {sign} {right.sql})", [left, right], f"a comparison by {sign}")

    def _between(self, node: Node) -> SqlTerm:
        terms = [value, low, high] = _as_numbers([self.term(node[key]) for key in ("input", "lower", "upper")])
        return self._together(f"({value.sql} BETWEEN {low.sql} AND {high.sql})", terms, "BETWEEN")

    def _operator(self, node: Node) -> SqlTerm:
        terms, kind = [self.term(child) for child in node["children"]], str(node["type"])
        if kind == "COMPARE_IN":
            terms = _as_numbers(terms)
            if not all(term.constant for term in terms[1:]):
                raise self.query.refused("IN with anything but constants", "Write it as comparisons with OR")
        written = [term.sql for term in terms]
        if kind == "COMPARE_IN":
            sql = f"({written[0]} IN ({', '.join(written[1:])}))"
        elif kind == "OPERATOR_COALESCE":
            sql = f"coalesce({', '.join(written)})"
        elif kind.startswith("CONJUNCTION"):
            sql = f"({(' AND ' if kind == 'CONJUNCTION_AND' else ' OR ').join(written)})"
        else:
            sql = _OPERATORS[kind].format(*written)
        return self._together(sql, terms, called(kind))

    def _case(self, node: Node) -> SqlTerm:
        checks = [self.query.read(check, "case") for check in node["case_checks"]]
        pairs = [(self.term(check["when_expr"]), self.term(check["then_expr"])) for check in checks]
        other = self.term(node["else_expr"])
        branches = " ".join(f"WHEN {when.sql} THEN {then.sql}" for when, then in pairs)
        return self._together(
            f"(CASE {branches} ELSE {other.sql} END)", [*(one for pair in pairs for one in pair), other], "CASE"
        )

    def _cast(self, node: Node) -> SqlTerm:
        term = self.term(node["child"])
        name, cast = self.type_name(node["type_expr"]), "TRY_CAST" if node["try_cast"] else "CAST"
        return self._together(f"{cast}({term.sql} AS {name})", [term], f"a cast to {name}")

    def type_name(self, node: Node) -> str:
        """A type on the list. Raises :class:`InputError` for any other."""
        self.query.read(node, self.query.kind(node, frozenset(("TYPE",))))
        name = listed.CASTS.get(str(node["type_name"]).upper())
        if name is None or node["qualified_name"] != {"path": [node["type_name"]]}:
            raise self.query.refused(f"the type {node['type_name']}", "Cast to DOUBLE, BIGINT, VARCHAR, DATE or TIMESTAMP")
        if name != "DECIMAL":
            # DuckDB takes no length of a text.
            return name
        digits = [self.term(child).text for child in node["children"]] or ["18", "3"]
        if not all(one is not None and one.isdecimal() for one in digits):
            raise self.query.refused("the type DECIMAL with anything but digits")
        return f"DECIMAL({', '.join(str(one) for one in digits)})"

    def _function(self, node: Node) -> SqlTerm:
        name, arguments = str(node["function_name"]).lower(), self.query.expressions(node["arguments"])
        if node["qualified_name"] != {"path": [node["function_name"]]}:
            raise self.query.refused(f"the function {name} of a schema")
        written = listed.WRITTEN_OUT.get((name, len(arguments)))
        signature = listed.signature_of(listed.FUNCTIONS.get(name, ()), len(arguments))
        if written is None and signature is None:
            if self.aggregate is not None and is_aggregate(name, len(arguments)):
                return SqlTerm(self.aggregate(node))
            if is_aggregate(name, len(arguments)):
                raise self.query.refused(f"the aggregate {name} here", "Give it a level of its own by WITH")
            raise self.query.refused(f"the function {name} of {len(arguments)} arguments", "Use one of the list in the docs")
        if node["filter"] is not None or node["distinct"] or self.query.read(node["order_bys"], "orders")["orders"]:
            raise self.query.refused(f"FILTER, DISTINCT or ORDER BY in the function {name}")
        terms = [self.term(argument) for argument in arguments]
        if written is not None:
            return self._together(f"({written.format(*(term.sql for term in terms))})", terms, name)
        self.require(name, terms, signature or "")
        return self._together(_form(name, terms), terms, f"the function {name}")

    def require(self, name: str, terms: Sequence[SqlTerm], signature: str) -> None:
        """Raises :class:`InputError` unless the arguments that have to be constants are, and work."""
        for term, sort in zip(terms, signature, strict=True):
            if sort == "v":
                continue
            if not term.constant or term.text is None:
                raise self.query.refused(f"{name} with a pattern or length that is not a constant", "Write a constant")
            if sort == "s" and len(term.text) > listed.LONGEST_PART:
                raise self.query.refused(f"a text of more than {listed.LONGEST_PART} signs in {name}", "Shorten it")
            if sort == "n" and not (term.text.removeprefix("-").isdecimal() and abs(int(term.text)) <= LONGEST_CELL):
                raise self.query.refused(f"{name} with {term.text}", f"Write a whole number of at most {LONGEST_CELL}")
        pattern = str(terms[1].text) if name in listed.LIKE else ""
        if pattern.count("%") > listed.MOST_WILDCARDS and ("_" in pattern or name.endswith("escape")):
            raise self.query.refused(f"LIKE with _ and more than {listed.MOST_WILDCARDS} signs %", "Use regexp_matches")
        if "k" in signature and not all(term.constant for term in terms):
            self._try_constants(name, terms, signature)

    def _try_constants(self, name: str, terms: Sequence[SqlTerm], signature: str) -> None:
        """Patterns and formats, with any value beside them."""
        for value in _TRIED:
            trial = [SqlTerm(value) if sort == "v" else term for term, sort in zip(terms, signature, strict=True)]
            try:
                self.tried(_form(listed.TRIED_AS.get(name, name), trial), f"a constant of {name}")
            except InputError as error:
                refused = error
            else:
                return
        raise refused

    _KINDS: ClassVar[dict[str, Callable[[Writer, Node], SqlTerm]]] = {
        "COLUMN_REF": _reference,
        "VALUE_CONSTANT": _constant,
        "FUNCTION": _function,
        "CASE_EXPR": _case,
        "OPERATOR_CAST": _cast,
        "COMPARE_BETWEEN": _between,
        **dict.fromkeys(
            (
                *("OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_TRY"),
                *("COMPARE_IN", "CONJUNCTION_AND", "CONJUNCTION_OR"),
            ),
            _operator,
        ),
    }


def _as_numbers(terms: Sequence[SqlTerm]) -> list[SqlTerm]:
    """Texts that are compared with numbers are read as these, whatever digits the constant has."""
    if not any(term.text is not None and not term.sql.startswith("'") and term.sql[1].isdigit() for term in terms):
        return list(terms)
    return [
        SqlTerm(f"TRY_CAST({term.sql} AS DOUBLE)", column=term.column)
        if term.column is not None and term.column.type == "VARCHAR"
        else term
        for term in terms
    ]


def is_of_duckdb(error: Exception) -> bool:
    """Return whether the engine raises such an error."""
    return type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb")


def is_aggregate(name: str, arguments: int) -> bool:
    """Is it an aggregate of the list, with so many arguments?"""
    if name in listed.COUNTS:
        return arguments <= 1
    if name in listed.QUANTILES | listed.AT_LEAST | listed.AT_MOST:
        return arguments == 2
    return arguments == 1 and (name in listed.AGGREGATES or name in listed.IN_ORDER)


def _form(name: str, terms: Sequence[SqlTerm]) -> str:
    """A call of the function; a text that may have grown is cut as cells are."""
    listed_terms = [term.sql for term in terms]
    if name[0].isalpha():
        sql = f"{listed.CALLED.get(name, name)}({', '.join(listed_terms)})"
    elif len(terms) == 1:
        sql = f"({name} {listed_terms[0]})"
    else:
        sql = f"({listed_terms[0]} {_infix(name)} {listed_terms[1]})"
    return f"left({sql}, {LONGEST_CELL})" if name in listed.GROWING else sql


def _infix(name: str) -> str:
    return {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}.get(name, name)
