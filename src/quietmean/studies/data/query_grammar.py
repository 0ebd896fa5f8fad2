"""What a query may say: the tree that DuckDB's parser makes of it, of which every key is known, and the functions by name.

Each function is deterministic, depends on its arguments only, and fails on a value at most as TRY catches it. A name is listed
with a signature for each number of arguments: ``v`` any value, ``k`` a constant that is tried before consent, ``s`` a short
constant, ``n`` a whole constant of at most the longest cell; a ``*`` behind the last says that it may stand there again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError

# The most characters of a constant that is a pattern or a format, and of one that is put into texts.
LONGEST_CONSTANT, LONGEST_PART = 1000, 100
# The most arguments where there may be any number.
MOST_ARGUMENTS = 32

_TABLE = """
+ v vv; - v vv; * vv; / vv; // vv; % vv; ^ vv; ** vv; @ v
abs v; ceil v; ceiling v; floor v; round v vn; trunc v vn; sign v; mod vv; sqrt v; cbrt v; exp v; ln v; log v vv; log2 v; log10 v
pow vv; power vv; sin v; cos v; tan v; asin v; acos v; atan v; atan2 vv; degrees v; radians v; isnan v; isinf v; isfinite v
greatest v*; least v*
|| vv; concat v*; concat_ws sv*; lower v; upper v; lcase v; ucase v; length v; len v; char_length v; character_length v; strlen v
trim v vs; ltrim v vs; rtrim v vs; left vv; right vv; substr vv vvv; substring vv vvv; position vk; strpos vk; instr vk; ascii v
contains vk; starts_with vk; prefix vk; ends_with vk; suffix vk; reverse v; strip_accents v; lpad vns; rpad vns; translate vss
replace vks; regexp_matches vk vks; regexp_full_match vk vks; regexp_extract vk vkn; regexp_replace vks vkss
~~ vk; !~~ vk; ~~* vk; !~~* vk; like_escape vks; not_like_escape vks; ilike_escape vks; not_ilike_escape vks
year v; month v; day v; hour v; minute v; second v; quarter v; week v; weekofyear v; dayofweek v; weekday v; isodow v; isoyear v
dayofmonth v; dayofyear v; yearweek v; decade v; century v; epoch v; julian v; last_day v; monthname v; dayname v; make_date vvv
make_timestamp vvvvvv; age vv; date_part kv; datepart kv; date_trunc kv; datetrunc kv; date_diff kvv; datediff kvv; date_sub kvv
datesub kvv; strftime vk; strptime vk; try_strptime vk
to_days v; to_weeks v; to_months v; to_quarters v; to_years v; to_hours v; to_minutes v; to_seconds v
"""
FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    words[0]: tuple(words[1:]) for line in _TABLE.strip().splitlines() for entry in line.split(";") if (words := entry.split())
}
# Those whose result may be longer than their arguments: it is cut as cells are.
GROWING: Final = frozenset(["||", "concat", "concat_ws", "lpad", "rpad", "replace", "regexp_replace", "translate"])
# Those with a pattern of LIKE, whose work on a text grows with a power of it where it has signs for any one character.
LIKE: Final = frozenset(["~~", "!~~", "~~*", "!~~*", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"])
MOST_WILDCARDS = 2
# What a constant is tried with: by a name that fails for the constant only.
TRIED_AS: Final = {"strptime": "try_strptime"}
# Names with a grammar of their own, by those of the same function without.
CALLED: Final = {"position": "strpos", "substring": "substr"}
# Shorthands of the engine, written out: with {0}, {1}, ... for their arguments.
WRITTEN_OUT: Final = {
    ("nullif", 2): "CASE WHEN {0} = {1} THEN NULL ELSE {0} END",
    ("if", 3): "CASE WHEN {0} THEN {1} ELSE {2} END",
}

# Of a person's rows: of the list of values that are there, in order, so that the order of rows decides nothing.
AGGREGATES: Final[dict[str, str]] = {
    **dict(zip(*[("sum", "avg", "min", "max", "median", "bool_and", "bool_or")] * 2, strict=True)),
    **dict(zip(*[("stddev_samp", "stddev_pop", "var_samp", "var_pop")] * 2, strict=True)),
    "mean": "avg",
    "stddev": "stddev_samp",
    "variance": "var_samp",
}
# With a constant share behind the value.
QUANTILES: Final = frozenset(("quantile_cont", "quantile_disc"))
# The value where another one is least or greatest, and the one that comes first or last in an order of its own.
AT_LEAST, AT_MOST = frozenset(("arg_min", "argmin", "min_by")), frozenset(("arg_max", "argmax", "max_by"))
IN_ORDER: Final = {"first": True, "last": False}
COUNTS: Final = frozenset(("count", "count_star"))

# Windows within a person, with their arguments; and whether they choose between rows in one place, so that content has to decide.
WINDOWS: Final = {
    "WINDOW_ROW_NUMBER": ("row_number", ("",), True),
    "WINDOW_NTILE": ("ntile", ("n",), True),
    "WINDOW_LAG": ("lag", ("v", "vn"), True),
    "WINDOW_LEAD": ("lead", ("v", "vn"), True),
    "WINDOW_FIRST_VALUE": ("first_value", ("v",), True),
    "WINDOW_RANK": ("rank", ("",), False),
    "WINDOW_RANK_DENSE": ("dense_rank", ("",), False),
    "WINDOW_PERCENT_RANK": ("percent_rank", ("",), False),
    "WINDOW_CUME_DIST": ("cume_dist", ("",), False),
}

# Types of columns that a level may have: equal values of these are the same value, also once they are texts.
WHOLE: Final = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
# Types that compare with each other without a cast that may fail.
NUMBERS: Final = WHOLE | {"FLOAT", "DOUBLE"}
PLAIN_TYPES: Final = NUMBERS | {"BOOLEAN", "HUGEINT", "VARCHAR", "DATE", "TIMESTAMP"}
# Types of casts, by the names that are written.
CASTS: Final = {
    **{name: name for name in PLAIN_TYPES | {"INTERVAL"}},
    **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR"), "VARCHAR"),
    **{"BOOL": "BOOLEAN", "INT": "INTEGER", "INT2": "SMALLINT", "INT4": "INTEGER", "INT8": "BIGINT", "LONG": "BIGINT"},
    **{
        "REAL": "FLOAT",
        "FLOAT4": "FLOAT",
        "FLOAT8": "DOUBLE",
        "DATETIME": "TIMESTAMP",
        "DECIMAL": "DECIMAL",
        "NUMERIC": "DECIMAL",
    },
}


def signature_of(signatures: tuple[str, ...], arguments: int) -> str | None:
    """What each of so many arguments has to be, or None where it does not take so many."""
    for signature in signatures:
        if signature.endswith("*"):
            first, last = signature[:-2], signature[-2]
            if len(first) < arguments <= MOST_ARGUMENTS:
                return first + last * (arguments - len(first))
        elif len(signature) == arguments:
            return signature
    return None


Node: TypeAlias = Mapping[str, Any]

# The deepest nesting of a tree: a sum of a hundred terms.
_DEEPEST: Final = 300
# Where a node stands in the text.
_PLACES: Final = {"query_location", "query_location_length"}
# What nodes are called that people write as words; those of other types are named by these.
_CALLED: Final = {
    "SUBQUERY": "a subquery in an expression",
    "LAMBDA": "a lambda",
    "VALUE_PARAMETER": "a parameter",
    "STAR": "* in an expression",
    "COLLATE": "COLLATE",
    "TABLE_FUNCTION": "a table function",
    "EXPRESSION_LIST": "VALUES",
    "EMPTY": "SELECT without FROM",
    "RECURSIVE_CTE_NODE": "WITH RECURSIVE",
    "PIVOT": "PIVOT",
    "DELIM_GET": "a lateral join",
    "ORDER_MODIFIER": "ORDER BY",
    "LIMIT_MODIFIER": "LIMIT",
    "LIMIT_PERCENT_MODIFIER": "LIMIT",
    "GROUPING_FUNCTION": "GROUPING",
    "ARRAY_EXTRACT": "[...] of a list",
    "ARRAY_SLICE": "[...] of a list",
    "STRUCT_EXTRACT": "a field of a struct",
    "POSITIONAL_REFERENCE": "a column by its place",
    "DEFAULT": "DEFAULT",
}
_EXPRESSION: Final = "class type alias"
_COMPARED: Final = {f"COMPARE_{name}": sign for name, sign in (
    ("EQUAL", "="), ("NOTEQUAL", "<>"), ("LESSTHAN", "<"), ("GREATERTHAN", ">"), ("LESSTHANOREQUALTO", "<="),
    ("GREATERTHANOREQUALTO", ">="), ("DISTINCT_FROM", "IS DISTINCT FROM"), ("NOT_DISTINCT_FROM", "IS NOT DISTINCT FROM"),
)}  # fmt: skip
COMPARISONS: Final[Mapping[str, str]] = _COMPARED
# The keys of nodes that are read, and those that have to be as they are here, with what is refused otherwise.
_READ: Final[dict[str, str]] = {
    "COLUMN_REF": f"{_EXPRESSION} column_names",
    "VALUE_CONSTANT": f"{_EXPRESSION} literal",
    "FUNCTION": f"{_EXPRESSION} function_name filter order_bys distinct is_operator arguments qualified_name",
    "CASE_EXPR": f"{_EXPRESSION} case_checks else_expr",
    "OPERATOR_CAST": f"{_EXPRESSION} child try_cast type_expr",
    "COMPARE_BETWEEN": f"{_EXPRESSION} input lower upper",
    "STAR": f"{_EXPRESSION} relation_name exclude_list",
    "TYPE": f"{_EXPRESSION} type_name children qualified_name",
    **dict.fromkeys(("CONJUNCTION_AND", "CONJUNCTION_OR", "OPERATOR_NOT", "COMPARE_IN"), f"{_EXPRESSION} children"),
    **dict.fromkeys(("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_TRY"), f"{_EXPRESSION} children"),
    **dict.fromkeys(COMPARISONS, f"{_EXPRESSION} left right"),
    "WINDOW": f"{_EXPRESSION} function_name partitions orders arguments qualified_name",
    "SELECT_NODE": "type modifiers cte_map select_list from_table where_clause group_expressions group_sets having qualify",
    "SET_OPERATION_NODE": "type modifiers cte_map children",
    "BASE_TABLE": "type alias table_name schema_name qualified_name",
    "SUBQUERY": "type alias subquery",
    "JOIN": "type alias left right condition join_type using_columns",
    "DISTINCT_MODIFIER": "type",
    "statement": "node",
    "literal": "kind text",
    "argument": "expression",
    "order": "type null_order expression",
    "orders": "type orders",
    "case": "when_expr then_expr",
    "with": "map",
    "level": "materialized query_node",
    "entry": "key value",
}
_OF_A_FUNCTION: Final = {"schema": ("", "a function of a schema"), "catalog": ("", "a function of a catalog")}
_BEHIND_FROM: Final[dict[str, tuple[Any, str]]] = {
    "sample": (None, "TABLESAMPLE"),
    "column_name_alias": ([], "names of columns behind a table"),
}
_AS_HERE: Final[dict[str, dict[str, tuple[Any, str]]]] = {
    "FUNCTION": {**_OF_A_FUNCTION, "export_state": (False, "EXPORT_STATE")},
    "STAR": {
        "replace_list": ([], "* REPLACE"),
        "columns": (False, "COLUMNS()"),
        "expr": (None, "COLUMNS()"),
        "qualified_exclude_list": ([], "* EXCLUDE of a table"),
        "rename_list": ([], "* RENAME"),
    },
    "TYPE": {"catalog": ("", "a type of a catalog"), "schema": ("", "a type of a schema")},
    "WINDOW": {
        **_OF_A_FUNCTION,
        "start": ("UNBOUNDED_PRECEDING", "a frame of a window"),
        "end": ("CURRENT_ROW_RANGE", "a frame of a window"),
        **dict.fromkeys(("start_expr", "end_expr"), (None, "a frame of a window")),
        "offset_expr": (None, "an offset of a window"),
        "default_expr": (None, "a default of a window"),
        **dict.fromkeys(("ignore_nulls", "has_ignore_nulls"), (False, "IGNORE NULLS")),
        "filter_expr": (None, "FILTER of a window"),
        "exclude_clause": ("NO_OTHER", "EXCLUDE of a window"),
        "distinct": (False, "DISTINCT in a window"),
        "arg_orders": ([], "ORDER BY in an argument of a window"),
    },
    "SELECT_NODE": {"sample": (None, "USING SAMPLE"), "aggregate_handling": ("STANDARD_HANDLING", "GROUP BY ALL")},
    "SET_OPERATION_NODE": {
        "setop_type": ("UNION", "a set operation other than UNION ALL"),
        "setop_all": (True, "UNION without ALL"),
        **dict.fromkeys(("left", "right"), (None, "a set operation other than UNION ALL")),
    },
    "BASE_TABLE": {
        **_BEHIND_FROM,
        "catalog_name": ("", "a table of a catalog"),
        "at_clause": (None, "AT of a table"),
    },
    "SUBQUERY": _BEHIND_FROM,
    "JOIN": {
        "sample": (None, "TABLESAMPLE"),
        "ref_type": ("REGULAR", "a join without ON or USING"),
        "delim_flipped": (False, "a lateral join"),
        "duplicate_eliminated_columns": ([], "a lateral join"),
        "is_implicit": (False, "a join without ON or USING"),
        "ranking_expression": (None, "a nearest join"),
        "nearest_count": (1, "a nearest join"),
        "nearest_order_type": ("ASCENDING", "a nearest join"),
        "nearest_approx": (False, "a nearest join"),
    },
    "DISTINCT_MODIFIER": {"distinct_on_targets": ([], "DISTINCT ON")},
    "statement": {"named_param_map": ([], "a parameter")},
    "argument": {"name": ("", "an argument by its name")},
    "level": {
        "aliases": ([], "names of columns behind WITH"),
        **dict.fromkeys(("key_targets", "payload_aggregates"), ([], "USING KEY")),
    },
}


@dataclass(frozen=True)
class Query:
    """A query and what it is called in messages."""

    name: str

    def refused(self, what: str, remedy: str = "Leave it out") -> InputError:
        """The error that ``what`` is not on the list."""
        return InputError(f"{what} in {self.name} is not allowed. {remedy}, or declare query_mixes_rows = true.")

    def read(self, node: Node, kind: str) -> Node:
        """The node, of which every key is known. Raises :class:`InputError` for any other, and for a value that is not."""
        as_here, read = _AS_HERE.get(kind, {}), _READ[kind].split()
        # What it is called for people, before what is only strange.
        for key, (value, what) in as_here.items():
            if key in node and (node[key] != value or type(node[key]) is not type(value)):
                raise self.refused(what)
        for key in node:
            if key not in read and key not in as_here and key not in _PLACES:
                raise self.refused(f"the key {key!r} of a node {kind!r}")
        return node

    def kind(self, node: Node, known: Mapping[str, Any] | frozenset[str]) -> str:
        """Return the type of a node, which is one of the ``known``. Raises :class:`InputError` for any other."""
        kind = str(node.get("type"))
        if kind not in known:
            raise self.refused(called(kind))
        return kind

    def expressions(self, arguments: list[Node]) -> list[Node]:
        return [self.read(argument, "argument")["expression"] for argument in arguments]

    def parse(self, base: Any, text: str) -> Node:
        """The node of its only SELECT. Raises :class:`InputError` for anything else."""
        serialized = base.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()[0]
        deep = self.refused("an expression within so many others", "Take it apart by WITH")
        made = decode_json(serialized, dict[str, Any], lambda reason: deep, _DEEPEST)
        if made.get("error"):
            if made.get("error_type") != "parser":
                raise self.refused("a statement other than SELECT")
            line = text.count("\n", 0, int(made.get("position") or 0)) + 1
            raise InputError(f"{self.name} cannot be read by DuckDB's parser. Correct line {line}")
        if len(made["statements"]) != 1:
            raise self.refused("a second statement")
        node: Node = self.read(made["statements"][0], "statement")["node"]
        return node


def called(kind: str) -> str:
    """A type of nodes, for people."""
    return _CALLED.get(kind, kind.replace("_", " "))


def nodes_of(node: Any) -> Iterator[Node]:
    """A node and all below it, but what is in a subquery of an expression."""
    if isinstance(node, Mapping):
        yield node
        if node.get("class") == "SUBQUERY":
            return
        for value in node.values():
            yield from nodes_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from nodes_of(value)
