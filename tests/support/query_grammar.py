"""A grammar of queries over the clinic, inside and outside what may be computed, drawn by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from quietmean.studies.data import query_grammar as listed

COLUMNS = {
    "visits": {"pid": "text", "nr": "number", "day": "day", "crp": "number", "sex": "text", "drug": "number", "note": "text"},
    "labs": {"pid": "text", "taken": "day", "code": "text", "val": "number", "text": "text"},
    "persons": {"pid": "text", "born": "number", "site": "text"},
}
# Joins with codes on their whole key, and on a part of it or on none.
CODES = [
    ("visits", "JOIN concept k ON k.concept_id = t.drug", "k.name"),
    ("visits", "LEFT JOIN concept k ON t.drug = k.concept_id AND k.domain = 'drug'", "k.domain"),
    ("visits", "LEFT JOIN ancestor k ON k.below = t.drug AND k.above = 1", "k.above"),
    ("labs", "LEFT JOIN units k ON k.code = t.code", "k.factor"),
    ("visits", "JOIN ancestor k ON k.below = t.drug", "k.above"),
    ("visits", "JOIN concept k ON k.domain = t.sex", "k.name"),
    ("visits", "CROSS JOIN concept k", "k.name"),
    ("visits", "RIGHT JOIN concept k ON k.concept_id = t.drug", "k.name"),
]
AGGREGATES = ["count", "sum", "avg", "min", "max", "median", "stddev", "var_pop", "any_value", "first"]
TYPES = ["DOUBLE", "BIGINT", "VARCHAR", "DATE", "TIMESTAMP", "BOOLEAN", "DECIMAL(10, 2)", "INTEGER"]


@dataclass
class Grammar:
    """``person``: of persons; else of records."""

    rng: random.Random
    person: bool

    def query(self) -> str:
        table = self.rng.choice(list(COLUMNS))
        kind = self.rng.random()
        if kind < 0.12:
            return self._union()
        if kind < 0.3:
            return self._with_codes()
        if kind < 0.42:
            return f"WITH l AS ({self.select(table, star=True)}) SELECT {self._p('l.')}l.* EXCLUDE (pid) FROM l"  # noqa: S608
        if (self.person and kind < 0.85) or kind < 0.5:
            return self.rng.choice([self._grouped, self._window, self._joined, self._distinct])()
        return self.select(table)

    def select(self, table: str, star: bool = False) -> str:
        columns = "*" if star else f"{self._p()}{self.expression(table)} AS z, {self.expression(table)} AS y"
        end = self.rng.choice(["", "", "", "", "", "", " LIMIT 3", " ORDER BY 1"])
        return f"SELECT {columns} FROM {table} t{self._where(table)}{end}"  # noqa: S608

    def expression(self, table: str, depth: int = 2) -> str:
        pick = self.rng.random()
        if depth == 0 or pick < 0.2:
            return self.rng.choice([f"t.{self.column(table)}", self.constant()])
        if pick < 0.7:
            name = self.rng.choice(list(listed.FUNCTIONS))
            return self._call(name, self.rng.choice(listed.FUNCTIONS[name]), table, depth)
        if pick < 0.8:
            return f"CAST({self.expression(table, depth - 1)} AS {self.rng.choice(TYPES)})"
        if pick < 0.9:
            return f"CASE WHEN {self.condition(table, depth - 1)} THEN {self.expression(table, depth - 1)} END"
        if pick < 0.95:
            return f"coalesce({self.expression(table, depth - 1)}, {self.expression(table, depth - 1)})"
        return self.rng.choice([
            f"(SELECT max({self.column(table)}) FROM {table})",  # noqa: S608
            f"avg(t.{self.column(table)}) OVER ()", "random()",
            "row_number() OVER ()", f"max(t.{self.column(table)})",
        ])  # fmt: skip

    def condition(self, table: str, depth: int = 1) -> str:
        column, sign = f"t.{self.column(table)}", self.rng.choice(["=", "<", ">=", "<>", "IS DISTINCT FROM"])
        return self.rng.choice([
            f"{column} {sign} {self.constant()}", f"{column} IN ({self.constant()}, {self.constant()})", f"{column} IS NULL",
            f"NOT ({column} {sign} {self.constant()})", f"{self.expression(table, depth)} {sign} {self.expression(table, depth)}",
            f"{column} BETWEEN {self.constant()} AND {self.constant()}", f"ln({column}) > 0 OR {column} IS NULL",
        ])  # fmt: skip

    def constant(self) -> str:
        return self.rng.choice(["0", "1", "3", "-2", "2.5", "1e300", "'f'", "'7'", "DATE '2020-01-02'", "NULL", "''"])

    def column(self, table: str, kind: str = "") -> str:
        return self.rng.choice([name for name, one in COLUMNS[table].items() if kind in ("", one)])

    def _call(self, name: str, signature: str, table: str, depth: int) -> str:
        constants = {"k": ["'a'", "'%f%'", "'day'", "'%Y'", "'([0-9]+)'", "'year'"], "s": ["'x'", "'0'"], "n": ["0", "1", "9"]}
        letters = signature[:-1] + signature[-2] * self.rng.randint(0, 2) if signature.endswith("*") else signature
        given = [self.expression(table, depth - 1) if one == "v" else self.rng.choice(constants[one]) for one in letters]
        if name[0].isalpha():
            return f"{name}({', '.join(given)})"
        sign = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}.get(name, name)
        return f"({name} {given[0]})" if len(given) == 1 else f"({given[0]} {sign} {given[1]})"

    def _p(self, table: str = "t.") -> str:
        if not self.person:
            return ""
        return self.rng.choice(
            [f"{table}pid, "] * 12 + [f"lower({table}pid) AS pid, ", "", f"coalesce({table}pid, 'x') AS pid, "]
        )

    def _where(self, table: str) -> str:
        return f" WHERE {self.condition(table)}" if self.rng.random() < 0.5 else ""

    def _union(self) -> str:
        first, second = self.rng.choice([("visits", "labs"), ("visits", "labs"), ("visits", "visits"), ("labs", "persons")])
        columns = [f"{self._p()}t.{self.column(table, 'number')} AS z" for table in (first, second)]
        way = self.rng.choice(["UNION ALL", "UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT ALL"])
        return f"SELECT {columns[0]} FROM {first} t {way} SELECT {columns[1]} FROM {second} t"  # noqa: S608

    def _with_codes(self) -> str:
        table, join, column = self.rng.choice(CODES)
        return f"SELECT {self._p()}{self.expression(table)} AS z, {column} AS y FROM {table} t {join}{self._where(table)}"  # noqa: S608

    def _grouped(self) -> str:
        table = self.rng.choice(list(COLUMNS))
        by = self.rng.choice(["t.pid"] * 6 + ["lower(t.pid)", f"t.{self.column(table)}"])
        also = self.rng.choice(["", "", f", t.{self.column(table)}"])
        only = self.rng.choice(["", "", f" FILTER (WHERE {self.condition(table)})"])
        some = [f"{self.rng.choice(AGGREGATES)}({self.expression(table, 1)}){only} AS z{place}" for place in range(2)]
        some.append(
            self.rng.choice(["count(*) AS n", "count(DISTINCT t.pid) AS n", f"arg_min(t.{self.column(table)}, t.pid) AS n"])
        )
        some.append(f"first(t.{self.column(table)} ORDER BY t.{self.column(table)} DESC) AS f")
        having = self.rng.choice(["", "", " HAVING count(*) > 1"])
        return f"SELECT {by} AS pid, {', '.join(some)} FROM {table} t{self._where(table)} GROUP BY {by}{also}{having}"  # noqa: S608

    def _window(self) -> str:
        table = self.rng.choice(list(COLUMNS))
        by = self.rng.choice(
            ["PARTITION BY t.pid "] * 6 + ["", f"PARTITION BY t.{self.column(table)} ", "PARTITION BY lower(t.pid) "]
        )
        order = self.rng.choice(["", f"ORDER BY t.{self.column(table)}", f"ORDER BY {self.expression(table, 1)} DESC NULLS LAST"])
        call = self.rng.choice([
            "row_number()", "rank()", "dense_rank()", "ntile(2)", "cume_dist()", f"lag(t.{self.column(table)})", "count(*)",
            f"lead({self.expression(table, 1)}, 2)", f"first_value(t.{self.column(table)})", f"{self.rng.choice(AGGREGATES)}(t.{self.column(table, 'number')})",  # noqa: E501
        ])  # fmt: skip
        only = self.rng.choice(["", f" QUALIFY row_number() OVER ({by}{order}) <= 2"])
        columns = f"{self._p()}{call} OVER ({by}{order}) AS z, t.{self.column(table)} AS y"
        return f"SELECT {columns} FROM {table} t{self._where(table)}{only}"  # noqa: S608

    def _joined(self) -> str:
        first, second = self.rng.choice([("visits", "labs"), ("persons", "visits"), ("visits", "visits"), ("labs", "labs")])
        on = self.rng.choice(["t.pid = u.pid"] * 6 + [f"t.{self.column(first)} = u.{self.column(second)}", "t.pid < u.pid"])
        also = self.rng.choice(["", f" AND t.{self.column(first, 'number')} < u.{self.column(second, 'number')}",
                                f" AND {self.condition(first)}"])  # fmt: skip
        way = self.rng.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        return (
            f"SELECT {self._p()}{self.expression(first, 1)} AS z, u.{self.column(second)} AS y "  # noqa: S608
            f"FROM {first} t {way} {second} u ON {on}{also}{self._where(first)}"
        )

    def _distinct(self) -> str:
        table = self.rng.choice(list(COLUMNS))
        return f"SELECT DISTINCT {self._p()}{self.expression(table, 1)} AS z FROM {table} t{self._where(table)}"  # noqa: S608
