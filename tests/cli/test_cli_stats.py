"""``xmcjax train --stats``: the numbers of every step in a file beside the model."""

from __future__ import annotations

import json

import pytest

from xmcjax.estimators import FitFile
from xmcjax.lanes import StepFile
from xmcjax.models import LinearModel


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_step_of_every_label_and_the_same_model(train, contents, tmp_path):
    path = tmp_path / "steps.jsonl"
    directory, result = train("--stats", path)
    assert result.code == 0
    plain, _ = train(name="plain")
    assert contents(directory) == contents(plain)
    model, rows = LinearModel.load(directory), rows_of(path)
    last = {row["label"]: row for row in rows}  # the last row of each label
    assert len(last) == 29  # one label has no positive row
    for label, row in last.items():
        assert row["step"] == model.newton_steps[label] and row["status"] == 1


def test_parquet_by_the_name(train, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "steps.parquet"
    _, result = train("--stats", path)
    assert result.code == 0 and parquet.read_table(path).num_rows > 29


def test_a_resumed_run_adds_to_the_file(train, tmp_path):
    path = tmp_path / "steps.jsonl"
    _, result = train("--stats", path, "--shard-size", 10, "--timeout", 1e-9)
    assert result.code == 75 and rows_of(path) == []
    _, result = train("--stats", path, "--shard-size", 10, name="other")
    result.refused(f"{path}: expected a new file for --stats, found one (nothing was changed)")
    _, result = train("--stats", path, "--shard-size", 10, "--resume")
    assert result.code == 0 and len({row["label"] for row in rows_of(path)}) == 29
    before = path.read_bytes()
    _, result = train("--stats", path, "--shard-size", 10, "--resume")
    assert result.code == 0 and path.read_bytes() == before


def test_labels_that_are_stored_and_have_no_steps_in_the_file_are_counted(train, tmp_path):
    path = tmp_path / "steps.jsonl"
    assert train("--stats", path, "--shard-size", 10)[1].code == 0
    path.unlink()  # as if the run had been killed after it had stored the last label
    _, result = train("--stats", path, "--shard-size", 10, "--resume")
    assert (
        result.code == 0
        and "--stats: the file has no steps of 29 labels that are stored: the run" in result.err
    )


@pytest.mark.parametrize(("system", "kind"), [("one-vs-all", StepFile), ("multiclass", FitFile)])
def test_a_file_of_a_run_that_ended_meanwhile_stays(train, tmp_path, monkeypatch, system, kind):
    path, enter = tmp_path / "stats.jsonl", kind.__enter__

    def late(file):
        path.write_text("of another run")
        return enter(file)

    monkeypatch.setattr(kind, "__enter__", late)
    directory, result = train("--system", system, "--stats", path)
    result.refused(f"{path}: expected a new file for --stats, found one (nothing was changed)")
    assert path.read_text() == "of another run" and not directory.exists()
    assert list(tmp_path.glob(".*")) == []


def test_what_it_refuses(train, tmp_path):
    path = tmp_path / "steps.jsonl"
    for more, sentence in (
        (("--loss", "hinge"), "--stats: expected a loss with Newton steps, got hinge"),
        (("--local-cluster", "2"), "--stats: expected training in this process, got --local-cluster"),
    ):
        directory, result = train("--stats", path, *more)
        result.refused(sentence)
        assert not path.exists() and not directory.exists()
    directory, result = train("--stats", tmp_path / "nowhere" / "steps.jsonl")
    result.refused("nowhere")
    assert not directory.exists()
    for inside in ("", "steps.jsonl"):
        _, result = train("--stats", directory / inside)
        result.refused(f"--stats: expected a file outside the model {directory}, got {directory / inside}")
        assert not directory.exists()
    _, result = train("--stats", tmp_path)
    result.refused(str(tmp_path))
