"""Made-up rows that are like records: the tree by enumeration, tables at the edge, the same rows for everybody, one sentence."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.arrays import Array, Ints
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.randomness.insecure import insecure_seed
from quietmean.statistics import Column, Columns
from quietmean.statistics.features import Axis
from quietmean.statistics.kinds.synthetic_table import SyntheticTable, axis_of
from quietmean.statistics.names import quoted
from quietmean.statistics.registry import parse_statistic, read_text
from quietmean.statistics.trees import NoisyTable, PairTree, nearest_parts, with_margins
from quietmean.statistics.workload import Workload
from quietmean.studies.outcome.synthetic import NOTE, synthetic_rows

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=100),
        Column(name="visits", low=0, high=5, whole=True),
        Column(name="born", low=0, high=400, since="2020-01-01"),
        Column(name="sex", levels=("f", "m")),
        Column(name="ill", boolean=True),
    ]
)
ALL = "synthetic-table(age, visits, born, sex, ill, bins=4)"


def people(count: int, seed: int = 3) -> Array:
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, count).astype(float)
    age = np.clip(rng.normal(50 + 20 * sex, 12), 0, 100)
    visits, born = rng.binomial(5, age / 200).astype(float), rng.integers(0, 401, count).astype(float)
    ill = (rng.random(count) < age / 120).astype(float)
    visits[::9] = np.nan
    return np.column_stack([age, visits, born, sex, ill])


def receipt(text: str, records: Array, noise: float = 0.0, *, private: bool = False, seed: int = 5) -> dict[str, Any]:
    """What a receipt has of the answer, with normal noise of so many records in each number."""
    count = CountVisibility.PRIVATE if private else CountVisibility.PUBLIC
    statistic = parse_statistic(read_text(text))
    workload = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD, count=count, most_records=5000)
    encoded = workload.encode(records)
    weight = encoded.weight
    drawn = np.random.default_rng(seed).normal(0, noise, workload.dimension)
    mean = (encoded.vector + drawn) / weight if weight else encoded.vector
    (answer,) = workload.decode(mean, noise / weight if weight else 0.0, weight)
    return {"result": {"statistics": [json.loads(json.dumps(answer.to_json()))]}}


def enumerated(tree: PairTree) -> Array:
    """The chance of every row of a tree, by multiplying conditional chances, independently of how it is drawn."""
    shape = [len(parts) for parts in tree.alone]
    chances = np.zeros(shape)
    for row in itertools.product(*map(range, shape)):
        chance = 1.0
        for child, parent in tree.parents.items():
            if parent is None:
                chance *= tree.alone[child][row[child]]
            else:
                given = tree.joint[child][row[parent]]
                chance *= given[row[child]] / given.sum() if given.sum() > 0 else 0.0
        chances[row] = chance
    return chances


def random_tree(seed: int, sizes: tuple[int, ...]) -> tuple[PairTree, Array]:
    """A tree fitted to exact tables of a distribution that is one, and that distribution."""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(sizes[0], 0.7))
    for place, size in enumerate(sizes[1:], 1):
        given = rng.dirichlet(np.full(size, 0.7), sizes[place - 1])
        joint = joint[..., None] * given.reshape((1,) * (place - 1) + given.shape)
    places = range(len(sizes))

    def table(*kept: int) -> NoisyTable:
        return NoisyTable(joint.sum(axis=tuple(place for place in places if place not in kept)))

    tree = PairTree.of([table(place) for place in places], {pair: table(*pair) for pair in itertools.combinations(places, 2)})
    return tree, joint


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_a_tree_of_exact_tables_is_the_distribution_they_are_of(seed: int, sizes: list[int]) -> None:
    tree, joint = random_tree(seed, tuple(sizes))
    assert np.abs(enumerated(tree) - joint).max() < 1e-6


@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_where_pairs_are_noise_columns_are_independent(noise: float) -> None:
    """As of a few hundred records: of 150 pairs 6 at most are kept, by chance more once in 1e4 runs. Of less noise a copy is."""
    kept = copied = 0
    for seed in range(10):
        rng = np.random.default_rng([5, seed])
        sizes = rng.integers(3, 9, 6)
        parts = [rng.dirichlet(np.full(size, 2.0)) for size in sizes]
        joint = {pair: np.outer(parts[pair[0]], parts[pair[1]]) for pair in itertools.combinations(range(6), 2)}
        joint |= {(6, 7): np.diag(np.full(3, 1 / 3)), (0, 6): np.outer(parts[0], np.full(3, 1 / 3))}
        alone = [*parts, *[np.full(3, 1 / 3)] * 2]
        noisy = [NoisyTable(own + rng.normal(0, noise, own.shape), noise) for own in alone]
        pairs = {pair: NoisyTable(own + rng.normal(0, noise, own.shape), noise) for pair, own in joint.items()}
        tree = PairTree.of(noisy, pairs)
        kept += len(tree.kept - {(6, 7)})
        copied += (6, 7) in tree.kept
    assert kept <= 6
    assert copied == 10 or noise > 0.05


def test_rows_have_exactly_the_distribution_of_the_tree() -> None:
    """2,500 draws of 2 rows; each of 48 cells within 4.5 standard errors: it fails by chance once in 3,000 times."""
    tree = replace(random_tree(7, (2, 3, 4))[0], others={})
    chances, draws = enumerated(tree), 2500
    seen = np.zeros((2, *chances.shape))
    for index in range(draws):
        for row, cells in enumerate(tree.draw(2, insecure_seed(index, "rows"))):
            seen[(row, *cells)] += 1
    error = np.sqrt(chances * (1 - chances) / draws)
    assert (np.abs(seen / draws - chances) <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_brought_to_all_pairs_where_no_tree_has_them(seed: int) -> None:
    """Three columns that hang together without a tree: a pair that is no edge is as near as others, to 20 rows of 4,000."""
    rng = np.random.default_rng([71, seed])
    joint = rng.dirichlet(np.full(24, 0.4)).reshape(2, 3, 4)
    alone = [NoisyTable(joint.sum(axis=tuple({0, 1, 2} - {place}))) for place in range(3)]
    pairs = {pair: NoisyTable(joint.sum(axis=3 - sum(pair))) for pair in itertools.combinations(range(3), 2)}
    tree = PairTree.of(alone, pairs)
    (other,) = tree.others
    assert tree.kept == set(pairs)

    def off(drawn: PairTree, pair: tuple[int, int]) -> float:
        cells, table = drawn.draw(4000, insecure_seed(seed, "rows")), pairs[pair].parts
        found = np.bincount(cells[:, pair[0]] * table.shape[1] + cells[:, pair[1]], minlength=table.size)
        return float(np.abs(found - 4000 * table.ravel()).sum() / 2)

    assert off(replace(tree, others={}), other) > 50
    assert all(off(tree, pair) <= 20 for pair in pairs)


def test_rows_are_stratified_along_the_tree() -> None:
    tree, _ = random_tree(11, (3, 4))
    cells = tree.draw(5000, insecure_seed(1))
    (child,) = (column for column, parent in tree.parents.items() if parent is not None)
    made = np.zeros((3, 4))
    np.add.at(made, tuple(cells.T), 1)
    joint = enumerated(tree)
    # Off by less than a row for the parent's part, and less than another within it.
    assert np.abs(made - 5000 * joint).max() < 2
    assert np.abs(made.sum(axis=child) - 5000 * joint.sum(axis=child)).max() < 1


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6), st.sampled_from([0.0, 0.01, 1.0, 100.0]))
def test_a_fitted_table_has_its_margins_and_is_nowhere_negative(seed: int, rows: int, columns: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    first, second = (nearest_parts(rng.normal(0.2, 1, size)) for size in (rows, columns))
    released = rng.dirichlet(np.ones(rows * columns)).reshape(rows, columns) + rng.normal(0, noise, (rows, columns))
    fitted = with_margins(released, first, second)
    assert fitted.min() >= 0
    assert np.abs(fitted.sum(axis=1) - first).max() < 1e-6
    assert np.abs(fitted.sum(axis=0) - second).max() < 1e-6
    again = with_margins(fitted, first, second)
    assert np.abs(again - fitted).max() < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_fitted_table_is_the_nearest_of_all_that_have_its_margins(seed: int) -> None:
    """By another solver, of quadratic programs."""
    rng = np.random.default_rng(seed)
    first, second = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(4))
    released = np.outer(first, second) + rng.normal(0, 0.25, (3, 4))
    sums = np.vstack([np.kron(np.eye(3), np.ones(4)), np.kron(np.ones(3), np.eye(4))])
    solve: Any = minimize
    found = solve(
        lambda cells: ((cells - released.ravel()) ** 2).sum(),
        np.outer(first, second).ravel(),
        jac=lambda cells: 2 * (cells - released.ravel()),
        bounds=[(0, None)] * 12,
        constraints=LinearConstraint(sums[:-1], np.concatenate([first, second])[:-1], np.concatenate([first, second])[:-1]),
        options={"ftol": 1e-14, "maxiter": 500},
        method="SLSQP",
    )
    fitted = with_margins(released, first, second)
    assert (fitted < 1e-6).any()
    assert np.abs(fitted.ravel() - found.x).max() < 1e-5


@settings(max_examples=40)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_the_nearest_parts_are_the_nearest(values: list[float]) -> None:
    parts = nearest_parts(np.array(values))
    assert parts.min() >= 0
    assert parts.sum() == pytest.approx(1, abs=1e-9)
    others = np.random.default_rng(2).dirichlet(np.ones(len(values)), 200)
    nearest = np.sum((parts - values) ** 2)
    assert (((others - values) ** 2).sum(axis=1) >= nearest - 1e-9).all()


@settings(max_examples=100)
@given(st.floats(-50, 50), st.floats(0.01, 90), st.integers(1, 12), st.integers(0, 2), st.booleans())
def test_the_numbers_in_a_bin_are_all_that_are_there(low: float, width: float, bins: int, digits: int, exact: bool) -> None:
    """Also where edges are numbers with so many digits themselves."""
    ends = (round(low, 1), round(low, 1) + round(width, 1) + 1) if exact else (low, low + width)
    axis = Axis.of(Column(name="x", low=ends[0], high=ends[1]), None, bins)
    every = np.arange(math.floor(ends[0] * 10**digits) - 1, math.ceil(ends[1] * 10**digits) + 2)
    values = np.array([round(int(k) / 10**digits, digits) for k in every])
    cells = axis.place({"\0raw x": values})
    for cell in range(1, len(axis.edges)):
        assert list(axis.numbers_in(cell, digits)) == every[cells == cell].tolist()


def cut(table: pl.DataFrame) -> list[Ints]:
    """The cells of made-up rows, by their columns, read as data are."""
    places = []
    for axis in (axis_of(each) for each in receipt(ALL, people(10))["result"]["statistics"][0]["summary"]["columns"]):
        own = table[axis.column.name]
        if not axis.column.numeric:
            values = [np.nan if value is None else float(axis.column.categories.index(value)) for value in own]
            places.append(axis.place({axis.column.name: np.array(values)}))
            continue
        if axis.column.since:
            own = (own.str.to_date() - pl.Series([axis.column.since]).str.to_date()[0]).dt.total_days()
        places.append(axis.place({f"\0raw {axis.column.name}": own.cast(pl.Float64).to_numpy().astype(float)}))
    return places


def test_every_row_is_in_the_cell_that_was_drawn_and_margins_are_the_released_ones() -> None:
    records = people(2000)
    made = synthetic_rows(receipt(ALL, records))
    assert made.made == 2000
    table = made.to_frame()
    assert table["visits"].null_count() == pytest.approx(np.isnan(records[:, 1]).sum(), abs=len(COLUMNS))
    assert set(table["visits"].drop_nulls()) <= set(range(6))
    assert table["born"].drop_nulls().str.to_date().is_between(pl.date(2020, 1, 1), pl.date(2021, 2, 4)).all()
    for axis, cells in zip(made._source.axes, cut(table), strict=True):
        counts = made._source.counts[made._source.axes.index(axis)]
        assert np.abs(np.bincount(cells, minlength=len(counts)) - counts).max() <= len(counts)
    # All ten pairs at once, of which a tree has four: a row here is one too few there.
    assert all(table.kept and table.off <= 6 for table in made.tables)


def test_it_is_the_same_for_everybody_and_another_for_another_receipt() -> None:
    first, again = (synthetic_rows(receipt(ALL, people(500), 4.0)).csv() for _ in range(2))
    assert first == again
    assert first != synthetic_rows(receipt(ALL, people(500), 4.0, seed=6)).csv()


def test_of_private_counts_it_has_as_many_rows_as_the_released_count_says() -> None:
    made = synthetic_rows(receipt(ALL, people(700), 3.0, private=True))
    assert made.made == round(made._source.records)
    assert abs(made.made - 700) < 60
    assert made.made != 700


def test_with_a_condition_rows_are_like_those_inside() -> None:
    records = people(2000)
    made = synthetic_rows(receipt("synthetic-table(sex, ill, where=age >= 60)", records, 1.0))
    inside = records[records[:, 0] >= 60]
    assert abs(made.made - len(inside)) < 10
    assert (made.to_frame()["sex"] == "m").mean() == pytest.approx(inside[:, 3].mean(), abs=0.02)
    assert made.to_frame()["sex"].null_count() < 10


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("noise", [0.0, 1e5])
@pytest.mark.parametrize("records", [1, 40])
def test_at_the_edge_rows_are_made_all_the_same(records: int, noise: float, private: bool) -> None:
    """All noise, nearly no records, most released counts negative."""
    made = synthetic_rows(receipt(ALL, people(records), noise, private=private), 50)
    assert len(made.rows()) == 50
    for parts in (*made._source.tree.alone, *made._source.tree.joint.values()):
        assert parts.min() >= 0
        assert parts.sum() == pytest.approx(1)
    assert "Note" in repr(made)
    json.dumps(made.to_json(), allow_nan=False)


def test_all_released_counts_negative_is_no_trouble() -> None:
    document = receipt(ALL, people(30))
    summary = document["result"]["statistics"][0]["summary"]
    summary["released"] = [[-abs(cell) - 5 for cell in table] for table in summary["released"]]
    assert len(synthetic_rows(document, 20).rows()) == 20


def test_all_pairs_of_few_columns_and_a_chain_of_many() -> None:
    names = [f"c{place}" for place in range(11)]
    columns = Columns([Column(name=name, boolean=True) for name in names])
    few, many = (SyntheticTable(columns=tuple(names[:count])).tables(columns) for count in (10, 11))
    assert len(few) == 10 + 45
    assert len(many) == 11 + 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("synthetic-table(sex)", "needs 2 or more different columns"),
        ("synthetic-table(sex, sex)", "needs 2 or more different columns"),
        (
            "synthetic-table(sex, ill, pairs=sex:il)",
            r"names 'il', which the table has not \(did you mean 'ill'\?\). Choose of sex, ill",
        ),
        ("synthetic-table(sex, ill, pairs=sex:age)", "names 'age', which the table has not. Choose of sex, ill"),
        ("synthetic-table(sex, ill, pairs=sex)", "'sex' is not a pair of columns. Write for example pairs=sex:ill"),
        ("synthetic-table(sex, ill, pairs=sex:sex)", "is not a pair of columns"),
        ("synthetic-table(sex, ill, pairs=sex:ill ill:sex)", "'ill:sex' is named twice. Name it once"),
        ("synthetic-table(sex, ages)", r"ages has no bounds \(did you mean 'age'"),
        ("synthetic-table(age, born, bins=100)", "has 10609 cells. Choose fewer bins or levels, at most 4096 cells"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(qm.InputError, match=words):
        receipt(text, people(10))


def test_a_column_of_ten_thousand_levels_is_refused() -> None:
    columns = Columns(
        [Column(name="code", levels=tuple(f"c{place}" for place in range(10_000))), Column(name="ill", boolean=True)]
    )
    with pytest.raises(qm.InputError, match=r"a table of code has 10001 cells\. Choose fewer bins or levels, at most 4096 cells"):
        parse_statistic(read_text("synthetic-table(code, ill)")).features(columns)


NAMES = st.text(st.sampled_from("ab:` ,~"), min_size=1, max_size=4).map(str.strip).filter(bool)


@settings(max_examples=60)
@given(st.lists(NAMES, min_size=2, max_size=3, unique=True), st.lists(NAMES, min_size=2, max_size=3, unique=True))
def test_no_two_cells_have_one_name_and_pairs_are_read_back(names: list[str], levels: list[str]) -> None:
    columns = Columns([Column(name=name, levels=tuple(levels)) for name in names])
    asked = SyntheticTable(columns=tuple(names), pairs=(":".join(quoted(name, ": ") for name in names[:2]),))
    again = parse_statistic(read_text(asked.text))
    assert again == asked
    terms = [reading.term for reading in again.readings(columns)]
    assert len(set(terms)) == len(terms)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *ask: str) -> None:
    monkeypatch.chdir(folder)
    folder.joinpath("receipt.json").write_text(json.dumps(_stored(*ask)))


def _stored(text: str = ALL) -> dict[str, Any]:
    return {"format": "quietmean.receipt", **receipt(text, people(300), 2.0)}


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        (ALL, ["--rows", "0"], "rows is 0, and a made-up table has 1 to 1,048,576. Give for example --rows 500."),
        (ALL, ["--out", "made.xlsx"], "Name it made.csv."),
        (
            "crosstab(sex, ill)",
            [],
            "the receipt has no synthetic-table, of which rows are made. Ask for synthetic-table(COLUMNS) first.",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    text: str,
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(tmp_path, monkeypatch, text)
    with pytest.raises(SystemExit) as left:
        main(["study", "synthesize", "receipt.json", *words])
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["receipt.json"]


def test_nobodys_table_says_so() -> None:
    with pytest.raises(qm.InputError, match="no party had a record of the synthetic table"):
        synthetic_rows(receipt(ALL, people(0)))


def test_from_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, monkeypatch)
    before = Path("receipt.json").read_bytes()
    main(["study", "synthesize", "receipt.json"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Table synthetic.csv: 300 synthetic rows of age, visits, born, sex, ill" in said
    assert "of the rows are in a wrong cell" in said
    assert "No row is of a person, though a row may equal a real person's by chance." in said
    main(["study", "synthesize", "receipt.json", "--rows", "7", "--out", "made.parquet", "--json"])
    assert json.loads(capsys.readouterr().out)["rows"] == 7
    table = pl.read_parquet("made.parquet")
    assert table.shape == (7, 5)
    assert pl.read_parquet_metadata("made.parquet")["note"] == NOTE
    # It is post-processing: the receipt, and what is certified in it, stay as they are.
    assert Path("receipt.json").read_bytes() == before
