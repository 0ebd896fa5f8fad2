"""What a query may compute from the cells of one row, and from the rows of one person: by name and number of arguments.

Each function is deterministic, depends on its arguments only, and fails on a value at most as TRY catches it. A name is listed
with a signature for each number of arguments: ``v`` any value, ``k`` a constant that is tried before consent, ``s`` a short
constant, ``n`` a whole constant of at most the longest cell; a ``*`` behind the last says that it may stand there again.
"""

from __future__ import annotations

from typing import Final

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
