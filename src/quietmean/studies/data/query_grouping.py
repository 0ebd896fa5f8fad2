"""Aggregates and windows of one SELECT: they are computed below its list of columns, where TRY reaches none of them.

An aggregate is computed from the list of a person's values in order, so that neither the order of rows nor how an engine shares
them out changes a sign of it; and of rows that a window puts in one place, their content says which comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from quietmean.core.errors import InputError
from quietmean.studies.data import query_grammar as listed
from quietmean.studies.data.query_expressions import Field, SqlTerm, Writer, is_aggregate
from quietmean.studies.data.query_grammar import Node, nodes_of

# An item of a list of columns: its name, how it is written, and the column that it is, where it is nothing else.
Item: TypeAlias = tuple[str, str, Field | None]
# The types of the columns of a SELECT; raises InputError for one that is not on the list.
Types: TypeAlias = Callable[[str, Sequence[str]], list[str]]


class Computed:
    """The list of columns of a SELECT over ``source``, where all of ``where`` hold.

    ``person``: the name of the column that is a row's person; nothing where records are the unit, None of codes alone.
    """

    def __init__(self, inner: Writer, source: str, where: Sequence[str], person: str | None, types: Types) -> None:
        self._query, self._person, self._types = inner.query, person, types
        self._below = f"FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")
        # Columns on which a level depends, beside conditions: rows that have these in common are alike for it.
        self._touched: dict[str, None] = {}
        self._inner = replace(inner, column=self._touch)
        self._outer = self._inner
        # What is computed below, by what it is called there.
        self._selected: list[str] = []
        self._keys: dict[str, SqlTerm] = {}
        self._by_text: dict[str, SqlTerm] = {}
        self._windows: list[tuple[str, str, list[str], bool]] = []
        self._over = ""
        self.is_grouped = self.one_row_a_person = self.multiplies = False

    def level(self, node: Node, items: Sequence[tuple[str, Node]]) -> list[Item]:
        """The list of columns, written. Raises :class:`InputError` where the rules of the unit forbid what is in it."""
        listed_nodes = [*node["select_list"], *(one for one in (node["having"], node["qualify"]) if one is not None)]
        grouped = bool(node["group_expressions"] or node["group_sets"] or node["having"]) or any(map(_aggregates, listed_nodes))
        windows = any(str(one.get("type")).startswith("WINDOW_") for one in nodes_of(listed_nodes))
        if grouped and windows:
            raise self._query.refused("a window beside aggregates", "Give one of them a level of its own by WITH")
        if grouped:
            self._group(node)
        elif windows:
            self._outer = replace(self._inner, column=self._carried, window=self._window)
        elif node["qualify"] is not None:
            raise self._query.refused("QUALIFY without a window", "Write WHERE")
        written = [self._item(name, one) for name, one in items]
        above = node["having"] if grouped else node["qualify"]
        condition = "" if above is None else f" WHERE {self._outer.condition(above)}"
        if grouped:
            keys = [key.sql for key in self._keys.values()]
            selected = [f"{sql} AS g{place}" for place, sql in enumerate(self._keys)] + self._selected
            groups = f" GROUP BY {', '.join(str(place + 1) for place in range(len(keys)))}" if keys else ""
            self._over = f"FROM (SELECT {', '.join(selected)} {self._below}{groups}) AS q{condition}"
        elif windows:
            self._over = f"FROM (SELECT {', '.join([*self._selected, *self._in_windows()])} {self._below}) AS q{condition}"
        else:
            self._over = self._below
        return written

    def sql(self, items: Sequence[Item], distinct: bool = False) -> str:
        columns = ", ".join(f"{sql} AS c{place}" for place, (_, sql, _) in enumerate(items))
        return f"SELECT {'DISTINCT ' if distinct else ''}{columns} {self._over}"

    def _item(self, name: str, node: Node) -> Item:
        term = self._outer.term(node)
        return name, term.sql if term.column is not None else f"TRY({term.sql})", term.column

    def _touch(self, column: Field) -> str:
        self._touched[column.sql] = None
        return column.sql

    # --- groups -------------------------------------------------------------------------------------------------------

    def _group(self, node: Node) -> None:
        if self._person == "":
            raise self._query.refused("GROUP BY or an aggregate", "Make the person the unit")
        sets = node["group_sets"]
        if sets not in ([], [list(range(len(node["group_expressions"])))]):
            raise self._query.refused("several sets of groups")
        person = False
        for expression in node["group_expressions"]:
            term = self._inner.term(self._named(node, expression))
            sql = term.sql if term.column is not None else f"TRY({term.sql})"
            (kind,) = self._types(f"SELECT {sql} {self._below}", ["GROUP BY"])
            place = f"g{len(self._keys)}"
            # Zero has no sign.
            sql = f"TRY({sql} + 0::DOUBLE)" if kind in ("FLOAT", "DOUBLE") and term.column is None else sql
            if sql in self._keys:
                continue
            column = None if term.column is None else replace(term.column, sql=place, origin=None)
            self._keys[sql] = SqlTerm(place, column=column)
            self._by_text[term.sql] = self._keys[sql]
            person = person or (term.column is not None and term.column.person)
        if self._person and not person:
            raise self._query.refused(f"GROUP BY without the bare column {self._person!r}", "Group by it too")
        self.is_grouped, self.one_row_a_person = True, len(self._keys) == 1
        self._outer = replace(self._inner, column=self._ungrouped, known=self._key, aggregate=self._aggregate)

    def _named(self, node: Node, expression: Node) -> Node:
        """Return what a place in the list of columns means."""
        if expression.get("type") != "VALUE_CONSTANT":
            return expression
        literal = self._query.read(self._query.read(expression, "VALUE_CONSTANT")["literal"], "literal")
        if literal["kind"] != "INTEGER":
            return expression
        place = int(literal["text"])
        if not 1 <= place <= len(node["select_list"]):
            raise self._query.refused(f"GROUP BY {place}", "Name a column")
        chosen: Node = node["select_list"][place - 1]
        return chosen

    def _key(self, node: Node) -> SqlTerm | None:
        """What was grouped by, if it is that."""
        if _aggregates(node) or node.get("type") == "VALUE_CONSTANT":
            return None
        try:
            return self._by_text.get(self._inner.term(node).sql)
        except InputError:
            return None

    def _ungrouped(self, column: Field) -> str:
        raise self._query.refused(f"the column {column.name!r} that is not grouped by", "Group by it or take an aggregate of it")

    def _aggregate(self, node: Node) -> str:
        """An aggregate, written for above; what it needs is computed below."""
        name, inner = str(node["function_name"]).lower(), self._inner
        terms = [inner.term(argument) for argument in self._query.expressions(node["arguments"])]
        orders = self._query.read(node["order_bys"], "orders")["orders"]
        there = [] if node["filter"] is None else [inner.condition(node["filter"])]
        if (node["distinct"] and name != "count") or (orders and name not in listed.IN_ORDER):
            raise self._query.refused(f"DISTINCT or ORDER BY in {name}")
        values = [f"TRY({term.sql})" for term in terms]
        if name in listed.COUNTS:
            counted = ("DISTINCT " if node["distinct"] else "") + (values[0] if values else "*")
            return self._select(f"count({counted})", there)
        value, exact = values[0], f"{values[0]}, CAST({values[0]} AS VARCHAR)"
        if name in listed.IN_ORDER:
            if not orders:
                raise self._query.refused(f"{name} without an ORDER BY of its own", "Write min, max or arg_min")
            order = ", ".join([*map(inner.order, orders), exact])
            return f"list_extract({self._select(f'list({value} ORDER BY {order})', there)}, {1 if listed.IN_ORDER[name] else -1})"
        there.append(f"{value} IS NOT NULL")
        if name in listed.AT_LEAST | listed.AT_MOST:
            other = values[1]
            order = f"{other}{' DESC' if name in listed.AT_MOST else ''}, CAST({other} AS VARCHAR), {exact}"
            there.append(f"{other} IS NOT NULL")
            return f"list_extract({self._select(f'list({value} ORDER BY {order})', there)}, 1)"
        made = self._select(f"list({value} ORDER BY {exact})", there)
        if name not in listed.QUANTILES:
            return f"list_aggregate({made}, '{listed.AGGREGATES[name]}')"
        share = terms[1].text
        if share is None or share.startswith("-") or not float(share) <= 1:
            raise self._query.refused(f"{name} of a share that is not a constant from 0 to 1", "Write such a one")
        return f"list_aggregate({made}, '{name}', {share})"

    def _select(self, sql: str, there: Sequence[str]) -> str:
        """The name of what is computed below, of the rows where all of these hold."""
        name, only = f"a{len(self._selected)}", f" FILTER (WHERE {' AND '.join(there)})" if there else ""
        self._selected.append(f"{sql}{only} AS {name}")
        return name

    # --- windows ------------------------------------------------------------------------------------------------------

    def _carried(self, column: Field) -> str:
        """A column of a level with windows, as it is called above them."""
        sql = self._touch(column)
        known = [one.rpartition(" AS ")[0] for one in self._selected]
        if sql not in known:
            self._selected.append(f"{sql} AS v{len(known)}")
            return f"v{len(known)}"
        return f"v{known.index(sql)}"

    def _window(self, node: Node, kind: str) -> str:
        if self._person == "":
            raise self._query.refused("a window", "Make the person the unit")
        if node["qualified_name"] != {"path": [node["function_name"]]}:
            raise self._query.refused(f"the function {node['function_name']} of a schema")
        arguments = self._query.expressions(node["arguments"])
        function, signatures, ties = listed.WINDOWS.get(kind, ("", (), False))
        name = str(node["function_name"]).lower() if kind == "WINDOW_AGGREGATE" else ""
        if name in listed.COUNTS:
            function, signatures = "count", ("", "v")
        elif name in listed.AGGREGATES:
            function, signatures = "list", ("v",)
        signature = listed.signature_of(signatures, len(arguments))
        if signature is None:
            called = f"{node['function_name']} of {len(arguments)} arguments in a window"
            raise self._query.refused(called, "Take it by GROUP BY in a level of its own and join that")
        terms = [self._inner.term(argument) for argument in arguments]
        self._inner.require(function, terms, signature)
        partitions = [self._inner.term(one) for one in node["partitions"]]
        if self._person and not any(one.column is not None and one.column.person for one in partitions):
            raise self._query.refused(f"a window without PARTITION BY the bare column {self._person!r}", "Partition by it too")
        called = ", ".join(f"TRY({term.sql})" if sort == "v" else term.sql for term, sort in zip(terms, signature, strict=True))
        by = ", ".join(f"TRY({one.sql})" if one.column is None else one.sql for one in partitions)
        orders = [self._inner.order(one) for one in node["orders"]]
        made = f"w{len(self._windows)}"
        if function == "list":
            # Each row has a list of a person's values.
            self.multiplies = True
            listed_values = f"list({called} ORDER BY {called}, CAST({called} AS VARCHAR)) FILTER (WHERE {called} IS NOT NULL)"
            self._windows.append((listed_values, by, orders, ties))
            return f"list_aggregate({made}, '{listed.AGGREGATES[name]}')"
        self._windows.append((f"{function}({called or ('*' if function == 'count' else '')})", by, orders, ties))
        return made

    def _in_windows(self) -> list[str]:
        """The windows; what is the same in an order is put in one by content, where a window would choose."""
        content = [f"CAST({sql} AS VARCHAR)" for sql in self._touched]
        written = []
        for place, (call, by, orders, ties) in enumerate(self._windows):
            order = [*orders, *content] if ties else orders
            over = " ".join([f"PARTITION BY {by}"] * bool(by) + [f"ORDER BY {', '.join(order)}"] * bool(order))
            written.append(f"{call} OVER ({over}) AS w{place}")
        return written


def _aggregates(node: Node) -> bool:
    """Is there an aggregate in it?"""
    return any(
        one.get("type") == "FUNCTION"
        and listed.signature_of(listed.FUNCTIONS.get(str(one["function_name"]).lower(), ()), len(one["arguments"])) is None
        and is_aggregate(str(one["function_name"]).lower(), len(one["arguments"]))
        for one in nodes_of(node)
    )
