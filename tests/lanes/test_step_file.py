"""Statistics of a training by step, as JSON lines and as Parquet."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xmcjax.data import make_power_law
from xmcjax.lanes import OneVsAll, StepFile, StepRecord, train_one_vs_all
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status

COLUMNS = ["label", "step", "objective", "gradient_norm", "active", "cg_steps", "multiplier", "seconds"]
COLUMNS.append("status")
NAMES = ["steps.jsonl", "steps.parquet"]


@pytest.fixture(scope="module")
def data():
    X, Y = make_power_law(120, 60, 12, labels_per_row=2, nonzeros_per_row=8, seed=1)
    return X, Y


def rows_of(path):
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        return parquet.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(data, path, labels=None, take_over=False):
    """Results by label, and the records that the file was made of."""
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
    records, results = [], {}

    with StepFile(path) as steps:
        if take_over:
            steps.take_over(labels)

        def observe(record):
            records.append(record)
            steps(record)

        def sink(result):
            results[result.label] = result

        train_one_vs_all(*data, options=OneVsAll(block_size=4), sink=sink, labels=labels, observe=observe)
    return results, records


def test_one_writer_at_a_time_who_removes_what_others_left(tmp_path):
    path, gone = tmp_path / "steps.jsonl", tmp_path / ".steps.jsonl.0123456789abcdef.tmp"
    others = [tmp_path / name for name in (".other.jsonl.0123456789abcdef.tmp", ".steps.jsonl.notes.tmp")]
    for file in (gone, *others):
        file.touch()
    with StepFile(path):
        assert not gone.exists()
        before = set(tmp_path.iterdir())
        with pytest.raises(
            FileExistsError, match=r"steps\.jsonl: expected no other writer, found one at work"
        ):
            StepFile(path).__enter__()
        with StepFile(tmp_path / "more.jsonl"):
            pass
        assert set(tmp_path.iterdir()) == before | {tmp_path / "more.jsonl"}
    assert set(tmp_path.iterdir()) == {path, tmp_path / "more.jsonl", *others}


@pytest.mark.parametrize("name", NAMES)
def test_a_row_for_each_step_of_each_label(data, tmp_path, name):
    results, records = train(data, tmp_path / name)
    rows = rows_of(tmp_path / name)
    assert [list(row) for row in rows] == [COLUMNS] * sum(len(record.labels) for record in records)
    trained = {label for label, result in results.items() if result.status != Status.NO_POSITIVES}
    assert {row["label"] for row in rows} == trained
    for label in trained:
        own, result = [row for row in rows if row["label"] == label], results[label]
        assert [row["step"] for row in own] == list(range(result.newton_steps + 1))
        assert sum(row["cg_steps"] for row in own) == result.cg_steps
        assert own[-1]["objective"] == result.value and own[-1]["gradient_norm"] == result.gradient_norm
        assert [row["status"] for row in own] == [Status.RUNNING] * (len(own) - 1) + [result.status]
        assert all(row["multiplier"] > 0 and 0 < row["active"] <= 120 for row in own)
    spent = sum(record.seconds for record in records)
    assert sum(row["seconds"] for row in rows) == pytest.approx(spent)


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_replaces_the_rows_of_its_labels(data, tmp_path, name):
    path = tmp_path / name
    train(data, path, np.arange(6))
    before = rows_of(path)
    train(data, path, np.arange(4, 9), take_over=True)
    after = rows_of(path)
    kept = [row for row in before if row["label"] < 4]
    assert kept and after[: len(kept)] == kept
    assert {row["label"] for row in after[len(kept) :]} == set(range(4, 9))
    once = {(row["label"], row["step"]) for row in after}
    assert len(once) == len(after)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_something_else_is_refused_and_stays(data, tmp_path, name):
    path = tmp_path / name
    path.write_text('{"label": 1}\n')
    with pytest.raises(ValueError, match=r"steps\.\w+: expected statistics of training, label, .* found"):
        train(data, path, np.arange(2), take_over=True)
    assert path.read_text() == '{"label": 1}\n' and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_run_keeps_its_rows(data, tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path, seen = tmp_path / name, []

    def stop(result):
        seen.append(result.label)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), StepFile(path) as steps:
        train_one_vs_all(*data, options=OneVsAll(), sink=stop, observe=steps)
    assert seen[0] in {row["label"] for row in rows_of(path)}


def test_where_no_step_was_made_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text("before")
    with pytest.raises(RuntimeError, match="stop"), StepFile(path):
        raise RuntimeError("stop")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_numbers_that_are_not_finite_are_null(data, tmp_path):
    path = tmp_path / "steps.jsonl"
    _, (record, *_) = train(data, path)
    with StepFile(path) as steps:
        steps(record._replace(value=np.full(len(record.labels), np.nan)))
    assert {row["objective"] for row in rows_of(path)} == {None}
    with StepFile(path) as steps:
        steps.take_over(np.array([-1]))
    assert {row["objective"] for row in rows_of(path)} == {None}


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"), StepFile(tmp_path / "nowhere" / "steps.jsonl"):
        pass


def test_the_hinge_has_no_steps(data, tmp_path):
    with pytest.raises(ValueError, match="hinge"), StepFile(tmp_path / "steps.jsonl") as steps:
        options = OneVsAll(loss=MARGIN_LOSSES["hinge"])
        train_one_vs_all(*data, options=options, sink=print, observe=steps)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_is_what_was_observed(data, tmp_path, name):
    _, records = train(data, tmp_path / name)
    read = list(StepFile(tmp_path / name).records())
    for field in set(StepRecord._fields) - {"seconds", "thread_seconds"}:
        observed = np.concatenate([getattr(record, field) for record in records])
        np.testing.assert_array_equal(np.concatenate([getattr(record, field) for record in read]), observed)
    assert sum(r.seconds for r in read) == pytest.approx(sum(r.seconds for r in records))
    with pytest.raises(FileNotFoundError):
        list(StepFile(tmp_path / f"no_{name}").records())


ROW = dict.fromkeys(COLUMNS, 1) | dict(objective=1.5, seconds=None)


@pytest.mark.parametrize(
    "wrong",
    [
        *(dict(label=value) for value in (10**30, True, None, 1.0, "1", [1])),
        *(dict(step=10**12), dict(status=300), dict(active=-(10**19))),
        *(dict(objective=value) for value in ("abc", "1.5", [1.0], {}, 10**400, True)),
    ],
    ids=str,
)
def test_a_line_with_another_value_is_named(tmp_path, wrong):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROW, ROW | wrong)))
    with pytest.raises(
        ValueError, match=r"steps\.jsonl: expected statistics .* found line 2 of another form"
    ):
        list(StepFile(path).records())


def test_a_line_of_brackets_is_named(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="found line 1 of another form"):
        list(StepFile(path).records())


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (dict(label=["0", "1"]), "a column label of string"),
        (dict(label=[0.0, 1.0]), "a column label of double"),
        (dict(step=[None, 1]), "nulls in the column step"),
        (dict(status=[0, 300]), "no Parquet file, or a damaged one"),
        (dict(objective=[[1.0], [2.0]]), "a column objective of list"),
    ],
    ids=str,
)
def test_a_parquet_file_of_other_values_is_named(tmp_path, wrong, found):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "steps.parquet"
    columns = {name: [value, value] for name, value in (ROW | {"seconds": 0.5}).items()}
    parquet.write_table(pa.table(columns | wrong), path)
    with pytest.raises(ValueError, match=rf"steps\.parquet: expected statistics of training.* found {found}"):
        list(StepFile(path).records())


def test_a_parquet_file_with_a_hole_is_named(data, tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "steps.parquet"
    train(data, path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(100) + content[104:])
    with pytest.raises(ValueError, match=r"steps\.parquet: expected statistics .* damaged one"):
        list(StepFile(path).records())
