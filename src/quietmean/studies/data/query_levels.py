"""The levels of a query: each SELECT becomes a view over tables and levels that were made before, by the rules of its unit.

Unit record: a row of a level comes from one record. Unit person: it comes from the rows of one person, who is a column of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.studies.data import query_grammar as listed
from quietmean.studies.data.query_expressions import Field, Relation, SqlNames, SqlTerm, Writer, is_of_duckdb
from quietmean.studies.data.query_grammar import COMPARISONS, Node, Query, called
from quietmean.studies.data.query_grouping import Computed, Item

# Levels within levels.
_MOST_DEPTH = 50


@dataclass
class Levels:
    """Makes views in the empty database ``base``. ``find``: the table of a schema and a name, or None.

    ``person``: the name of the column that is a row's person, where persons are the unit; else nothing.
    """

    query: Query
    base: Any
    find: Callable[[str, str], Relation | Node | None]
    person: str
    used: set[tuple[str, int]] = field(default_factory=set)
    # Of what a person's rows are multiplied with each other.
    products: list[Counter[str]] = field(default_factory=list)
    _made: int = 0
    _depth: int = 0

    def top(self, node: Node) -> Relation:
        """What the whole query says. Raises :class:`InputError` for one that is not on the list."""
        relation = self.level(node, {})
        if not relation.data:
            raise self.query.refused("a query of codes alone", "Read a table of data")
        if self.person and not any(one.person and one.name.casefold() == self.person.casefold() for one in relation.fields):
            raise self._without_person("the list of columns")
        return relation

    def level(self, node: Node, levels: Mapping[str, Relation]) -> Relation:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self.query.refused(f"more than {count_of(_MOST_DEPTH, 'level')} within each other")
        kind = self.query.kind(node, frozenset(("SELECT_NODE", "SET_OPERATION_NODE")))
        self.query.read(node, kind)
        for entry in self.query.read(node["cte_map"], "with")["map"]:
            self.query.read(entry, "entry")
            inside = self.query.read(entry["value"], "level")["query_node"]
            made = self.level(inside, levels)
            levels = {**levels, str(entry["key"]).casefold(): made}
        relation = _Select(self, node, levels).relation() if kind == "SELECT_NODE" else self._union(node, levels)
        self._depth -= 1
        return relation

    def _union(self, node: Node, levels: Mapping[str, Relation]) -> Relation:
        for modifier in node["modifiers"]:
            raise self.query.refused(called(str(modifier.get("type"))))
        parts = [self.level(child, levels) for child in node["children"]]
        first, tables, rows = parts[0], Counter[str](), Counter[str]()
        for part in parts:
            if len({one.data for one in parts}) > 1:
                raise self.query.refused("UNION ALL of data with codes", "Join the codes to the data")
            if [one.type for one in part.fields] != [one.type for one in first.fields]:
                raise self.query.refused("UNION ALL of columns of other types", "Cast them to the same types")
            if not self.person and (twice := set(tables) & set(part.tables)):
                raise self.query.refused(f"UNION ALL of {min(twice)!r} with itself", "Read each table once")
            tables += part.tables
            rows |= part.rows
        sql = " UNION ALL ".join(f"SELECT * FROM {part.sql}" for part in parts)  # noqa: S608
        name = self.view(sql)
        fields = tuple(
            Field(one.name, f"c{place}", one.type, all(part.fields[place].person for part in parts))
            for place, one in enumerate(first.fields)
        )
        return Relation(name, fields, first.data, tables, rows)

    def view(self, sql: str) -> str:
        self._made += 1
        name = f"level_{self._made}"
        self.base.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")
        return name

    def types(self, sql: str, names: Sequence[str]) -> list[str]:
        """Return the types of the columns of a SELECT with these names.

        Raises :class:`InputError` where it cannot be computed, or has a type that is not on the list.
        """
        try:
            described = self.base.execute(f"DESCRIBE {sql}").fetchall()
        except Exception as error:
            if not is_of_duckdb(error):
                raise
            raise InputError(
                f"a level of {self.query.name} cannot be computed. Check the types of what it computes and compares: "
                f"{', '.join(name or 'a column without a name' for name in names)}"
            ) from None
        kinds = [str(row[1]) for row in described]
        for name, kind in zip(names, kinds, strict=True):
            # NULL alone has a type of its own.
            if kind.partition("(")[0] not in {*listed.PLAIN_TYPES, "DECIMAL", '"NULL"'}:
                raise self.query.refused(f"the column {name!r} of type {kind}", "Cast it to a number, text or date")
        return kinds

    def _without_person(self, where: str) -> InputError:
        return self.query.refused(f"{where} without the bare column {self.person!r}", "Carry it through every level by this name")


class _Select:
    """A level of a query: one SELECT."""

    def __init__(self, levels: Levels, node: Node, named: Mapping[str, Relation]) -> None:
        self._levels, self._query, self._node, self._named = levels, levels.query, node, named
        self._scope = SqlNames(self._query)
        self._inner = Writer(self._query, levels.base, self._scope, levels.used)
        # Conditions behind WHERE, and what stands behind FROM.
        self._where: list[str] = []
        self._parts: list[Relation] = []

    def relation(self) -> Relation:
        node, levels = self._node, self._levels
        from_sql = self._from(node["from_table"])
        distinct = self._distinct()
        data = any(part.data for part in self._parts)
        tables = sum((part.tables for part in self._parts), Counter[str]())
        rows = sum((part.rows for part in self._parts), Counter[str]())
        items, fixed = self._items(), set[str]()
        if node["where_clause"] is not None:
            self._where.append(self._inner.condition(node["where_clause"]))
            fixed = self._fixed(node["where_clause"])
        computed = Computed(self._inner, from_sql, self._where, levels.person if data else None, levels.types)
        written = computed.level(node, items)
        kinds = levels.types(computed.sql(written), [name for name, _, _ in written])
        # Zero has no sign, and what is equal is the same.
        plain = [
            (name, f"TRY({one} + 0::DOUBLE)" if kind in ("FLOAT", "DOUBLE") and column is None else one, column)
            for (name, one, column), kind in zip(written, kinds, strict=True)
        ]
        kinds = [
            "DOUBLE" if kind == "FLOAT" and column is None else kind for kind, (_, _, column) in zip(kinds, plain, strict=True)
        ]
        fields = tuple(
            Field(name, f"c{place}", kind, column is not None and column.person and self._is_person(name))
            for place, ((name, _, column), kind) in enumerate(zip(plain, kinds, strict=True))
        )
        if computed.multiplies and data:
            levels.products.append(rows + rows)
        if computed.one_row_a_person:
            rows = Counter()
        if distinct and data and not any(one.person for one in fields):
            raise self._query.refused("DISTINCT", "Leave it out") if not levels.person else levels._without_person("DISTINCT")
        key = self._key(fields, plain, fixed, distinct, computed) if not data else None
        name = levels.view(computed.sql(plain, distinct))
        return Relation(name, fields, data, tables, rows, key)

    def _is_person(self, name: str) -> bool:
        return bool(self._levels.person) and name.casefold() == self._levels.person.casefold()

    def _distinct(self) -> bool:
        for modifier in self._node["modifiers"]:
            kind = str(modifier.get("type"))
            if kind != "DISTINCT_MODIFIER":
                raise self._query.refused(called(kind))
            self._query.read(modifier, kind)
        return bool(self._node["modifiers"])

    # --- the list of columns ------------------------------------------------------------------------------------------

    def _items(self) -> list[tuple[str, Node]]:
        """Names and nodes of the list of columns; a star is written out."""
        items: list[tuple[str, Node]] = []
        for node in self._node["select_list"]:
            if node.get("type") == "STAR":
                items += self._star(self._query.read(node, "STAR"))
                continue
            name = str(node.get("alias") or (node["column_names"][-1] if node.get("type") == "COLUMN_REF" else ""))
            items.append((name, node))
            if node.get("alias"):
                self._scope.aliases.setdefault(name.casefold(), node)
        return items

    def _star(self, node: Node) -> list[tuple[str, Node]]:
        table, left_out = str(node["relation_name"]).casefold(), {str(name).casefold() for name in node["exclude_list"]}
        parts = [part for part in self._scope.parts if not table or part[0].casefold() == table]
        if not parts:
            raise self._query.refused(f"{node['relation_name']}.* of a table that is not here", "Name a table behind FROM")
        found, seen = list[tuple[str, Node]](), set[str]()
        for alias, fields in parts:
            for one in fields:
                name = one.name.casefold()
                if name in left_out or (name in self._scope.merged and not table and name in seen):
                    continue
                seen.add(name)
                found.append(
                    (one.name, {"type": "COLUMN_REF", "class": "COLUMN_REF", "alias": "", "column_names": [alias, one.name]})
                )
        return found

    # --- FROM ---------------------------------------------------------------------------------------------------------

    def _from(self, node: Node) -> str:
        kind = self._query.kind(node, frozenset(("BASE_TABLE", "SUBQUERY", "JOIN")))
        self._query.read(node, kind)
        return self._join(node) if kind == "JOIN" else self._part(node, kind)

    def _part(self, node: Node, kind: str) -> str:
        """A table or level, with a name of its own."""
        if kind == "SUBQUERY":
            inside = self._query.read(node["subquery"], "statement")["node"]
            relation, name = self._levels.level(inside, self._named), str(node["alias"])
        else:
            relation, name = self._table(node), str(node["alias"] or node["table_name"])
        alias = f"r{len(self._parts)}"
        if name and any(name.casefold() == other.casefold() for other, _ in self._scope.parts):
            raise self._query.refused(f"the table name {name!r} twice behind FROM", "Name them apart by AS")
        self._parts.append(relation)
        fields = tuple(replace(one, sql=f"{alias}.{one.sql}") for one in relation.fields)
        self._scope.parts.append((name, fields))
        return f"{relation.sql} AS {alias}"

    def _table(self, node: Node) -> Relation:
        schema, name = str(node["schema_name"]), str(node["table_name"])
        path = [schema, name] if schema else [name]
        if node["qualified_name"] != {"path": path}:
            raise self._query.refused("a table of a catalog", "Name it as SCHEMA.TABLE")
        if not schema and name.casefold() in self._named:
            return self._named[name.casefold()]
        found = self._levels.find(schema, name)
        if found is None:
            raise self._query.refused(f"the table {'.'.join(path)!r} that is not there", "Name one that is there")
        # A view is a level as any other.
        return found if isinstance(found, Relation) else self._levels.level(found, {})

    def _join(self, node: Node) -> str:
        kind = str(node["join_type"])
        if kind not in ("INNER", "LEFT"):
            raise self._query.refused(f"{kind} JOIN", "Write INNER JOIN or LEFT JOIN")
        left_sql = self._from(node["left"])
        count = len(self._parts)
        right_kind = self._query.kind(node["right"], frozenset(("BASE_TABLE", "SUBQUERY")))
        right_sql = self._part(self._query.read(node["right"], right_kind), right_kind)
        pairs, others = self._conditions(node, count)
        self._require_join(kind, count, pairs)
        compared = [f"{one} {sign} {other}" for one, sign, other, *_ in pairs]
        if kind == "LEFT":
            compared += [self._inner.condition(one) for one in others]
            alias, fields = self._scope.parts[count]
            # Where nothing fits the columns are missing, and so is who the row is of.
            self._scope.parts[count] = alias, tuple(replace(one, person=False) for one in fields)
        else:
            self._where += [self._inner.condition(one) for one in others]
        return f"{left_sql} {kind} JOIN {right_sql} ON {' AND '.join(compared)}"

    def _conditions(self, node: Node, count: int) -> tuple[list[tuple[str, str, str, Field, Field | None]], list[Node]]:
        """Comparisons that cannot fail, of columns with columns or constants; and all other conditions."""
        pairs: list[tuple[str, str, str, Field, Field | None]] = []
        others: list[Node] = []
        for name in node["using_columns"]:
            left = SqlNames(self._query, self._scope.parts[:count], {}, self._scope.merged).find([name])
            right = SqlNames(self._query, self._scope.parts[count:]).find([name])
            if left is None or right is None or not _comparable(left, right):
                raise self._query.refused(f"USING of {name!r}", "Compare columns of one type by ON")
            self._levels.used.update(one.origin for one in (left, right) if one.origin is not None)
            pairs.append((left.sql, "=", right.sql, left, right))
            self._scope.merged.add(str(name).casefold())
        for one in _conjuncts(self._query, node["condition"]) if node["condition"] is not None else ():
            pair = self._pair(one)
            if pair is None:
                others.append(one)
            else:
                pairs.append(pair)
        if not pairs:
            raise self._query.refused("a join without an equality of columns", "Join on equality of key or person")
        return pairs, others

    def _pair(self, node: Node) -> tuple[str, str, str, Field, Field | None] | None:
        """A comparison of a column with one of the same type, or with a constant of it; None for any other condition."""
        sign = COMPARISONS.get(str(node.get("type")))
        if sign not in ("=", "<", ">", "<=", ">="):
            return None
        self._query.read(node, str(node["type"]))
        left, right = self._inner.term(node["left"]), self._inner.term(node["right"])
        if left.column is not None and right.column is not None and _comparable(left.column, right.column):
            return left.sql, sign, right.sql, left.column, right.column
        for one, other in ((left, right), (right, left)):
            if one.column is not None and sign == "=" and _fixes(one.column, other):
                cast = f"CAST({other.sql} AS {one.column.type})"
                self._inner.tried(cast, "a constant of ON")
                return one.sql, sign, cast, one.column, None
        return None

    def _require_join(self, kind: str, count: int, pairs: Sequence[tuple[str, str, str, Field, Field | None]]) -> None:
        """Raises :class:`InputError` for a join that lets one row or person decide about others, or makes more rows of one."""
        left, right = self._parts[:count], self._parts[count]
        data = any(one.data for one in left)
        equal = [(one, other) for _, sign, _, one, other in pairs if sign == "="]
        if data and right.data:
            persons = self._levels.person and any(one.person and other is not None and other.person for one, other in equal)
            if not persons:
                remedy = "Join on equality of the person" if self._levels.person else "Join tables of codes alone"
                raise self._query.refused("a join of data with data", remedy)
            rows = sum((one.rows for one in [*left, right]), Counter[str]())
            self._levels.products.append(rows)
            return
        if right.data:
            if kind != "INNER" or count != 1:
                raise self._query.refused("a join of codes with data", "Write the data first")
            right, codes = self._parts[0], self._scope.parts[0][1]
        else:
            codes = self._scope.parts[count][1]
        if not data and not right.data and not any(one.data for one in self._parts):
            # Codes with codes: public, whatever comes of it.
            return
        bound = {
            one.sql for pair in equal for one, other in (pair, pair[::-1]) if one is not None and _says_which(one, other, codes)
        }
        places = {place for place, one in enumerate(codes) if one.sql in bound}
        if right.key is None or not right.key <= places:
            raise self._query.refused(
                "a join with codes without equality of their whole key",
                "Compare each column of the key in [codes]",
            )

    # --- keys of codes ------------------------------------------------------------------------------------------------

    def _fixed(self, condition: Node) -> set[str]:
        """Columns that a condition of equality gives one value."""
        found = set()
        for one in _conjuncts(self._query, condition):
            if one.get("type") == "COMPARE_EQUAL":
                left, right = self._inner.term(one["left"]), self._inner.term(one["right"])
                found |= {a.column.sql for a, b in ((left, right), (right, left)) if a.column is not None and _fixes(a.column, b)}
        return found

    def _key(
        self, fields: Sequence[Field], items: Sequence[Item], fixed: set[str], distinct: bool, computed: Computed
    ) -> frozenset[int] | None:
        """The places that no two rows of a level of codes share."""
        if distinct:
            return frozenset(range(len(fields)))
        if len(self._parts) != 1 or computed.is_grouped or self._parts[0].key is None:
            return None
        part, (_, columns) = self._parts[0], self._scope.parts[0]
        shown = {column.sql: place for place, (_, _, column) in reversed(list(enumerate(items))) if column is not None}
        needed = [columns[place].sql for place in part.key or () if columns[place].sql not in fixed]
        return frozenset(shown[one] for one in needed) if all(one in shown for one in needed) else None


def _conjuncts(query: Query, node: Node) -> list[Node]:
    if node.get("type") == "CONJUNCTION_AND":
        return [one for child in query.read(node, "CONJUNCTION_AND")["children"] for one in _conjuncts(query, child)]
    return [node]


def _comparable(left: Field, right: Field) -> bool:
    """Can they be compared without a cast that fails?"""
    return left.type == right.type or {left.type, right.type} <= listed.NUMBERS


def _fixes(column: Field, other: SqlTerm) -> bool:
    """Is it a constant that one value of the column equals, and no other?"""
    if column.type == "VARCHAR":
        return other.sql.startswith("'")
    return column.type == "BIGINT" and other.text is not None and other.text.removeprefix("-").isdecimal()


def _says_which(one: Field, other: Field | None, codes: Sequence[Field]) -> bool:
    """Does equality with ``other``, a constant or a column of another table, leave one value of a column of the codes?"""
    same = other is None or one.type == other.type or {one.type, other.type} <= listed.WHOLE
    return same and (other is None or all(other.sql != code.sql for code in codes))
