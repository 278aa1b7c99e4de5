"""Statistics of a joint fit, as JSON lines and as Parquet."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xmcjax import MulticlassSVC
from xmcjax.estimators import Checkpoint, FitFile, fit_with_state

NAMES = ["fit.jsonl", "fit.parquet"]
NUMBERS = ("gap", "objective", "gradient_norm", "residual")


@pytest.fixture(params=NAMES)
def path(request, tmp_path):
    if request.param.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    return tmp_path / request.param


def written(path, *rows, resume=False):
    with FitFile(path, resume) as statistics:
        statistics.begin()
        for passes, numbers in rows:
            statistics(passes, **numbers)
    return FitFile.rows(path)


def test_what_is_told_is_read_again(path):
    first, second = written(
        path, (0, dict(gap=np.inf, method="ascent")), (1.5, dict(gap=0.25, method="ascent"))
    )
    assert (first["run"], first["fit"], first["passes"], first["gap"]) == (0, 0, 0.0, None)
    assert (second["passes"], second["method"], second["gap"]) == (1.5, "ascent", 0.25)
    assert all(second[name] is None for name in NUMBERS[1:])
    assert 0 <= first["seconds"] <= second["seconds"]


def test_rows_of_earlier_runs_come_first(path):
    before = written(path, (0, dict(objective=2.0)))
    rows = written(path, (1, dict(objective=1.0)), resume=True)
    assert rows[:1] == before and [row["run"] for row in rows] == [0, 1]
    assert [row["run"] for row in written(path, (2, {}))] == [0]  # without resume it is a new file


def test_rows_of_a_run_that_ended_before_the_block_are_kept(path):
    later = FitFile(path, resume=True)
    before = written(path, (0, dict(gap=0.5)))
    with later:
        later.begin()
        later(1, gap=0.25)
    rows = FitFile.rows(path)
    assert rows[:1] == before and [row["run"] for row in rows] == [0, 1]


def test_one_writer_at_a_time_who_removes_what_others_left(tmp_path):
    (tmp_path / ".fit.jsonl.0123456789abcdef.tmp").touch()
    with FitFile(tmp_path / "fit.jsonl"):
        with pytest.raises(FileExistsError, match="expected no other writer, found one at work"):
            FitFile(tmp_path / "fit.jsonl").__enter__()
        assert len(list(tmp_path.iterdir())) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["fit.jsonl"]


def test_an_error_keeps_the_rows_that_are_there(path):
    with pytest.raises(ZeroDivisionError), FitFile(path):
        _ = 1 / 0
    assert not path.exists()  # there was none yet
    with pytest.raises(ZeroDivisionError), FitFile(path) as statistics:
        statistics.begin()
        statistics(3, gap=0.5)
        _ = 1 / 0
    assert [row["passes"] for row in FitFile.rows(path)] == [3.0]


def test_of_a_fit_and_the_folds_of_its_calibration(tmp_path):
    X, y = np.repeat(np.eye(4, dtype=np.float32), 6, axis=0), np.arange(24) // 6
    X[:, 0] += np.linspace(0, 1, 24)
    state = Checkpoint(tmp_path / "state", {})
    state.begin(resume=False)
    classifier = MulticlassSVC(calibration="temperature", cv=2, random_state=0)
    with FitFile(tmp_path / "fit.jsonl") as statistics:
        fit_with_state(classifier, X, y, state, statistics)
    rows = FitFile.rows(tmp_path / "fit.jsonl")
    assert {row["fit"] for row in rows} == {0, 1, 2}
    last = [row for row in rows if row["fit"] == 0][-1]
    assert last["gap"] <= classifier.tol and last["passes"] > 0
    np.testing.assert_array_equal(classifier.coef_, MulticlassSVC(random_state=0).fit(X, y).coef_)


ROW = dict(run=0, fit=0, passes=1.0, method=None, **dict.fromkeys(NUMBERS), seconds=0.5)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (json.dumps(ROW) + "\n{", "line 2 of another form"),
        (json.dumps([1]), "row 1 of another form"),
        (json.dumps(ROW | {"gap": "small"}), "row 1 of another form"),
        (json.dumps(ROW | {"run": True}), "row 1 of another form"),
        (json.dumps(ROW | {"label": 3}), "row 1 of another form"),
        ("[" * 100_000, "line 1 of another form"),
        ("\x00\xff", "line 1 of another form"),
    ],
)
def test_other_files_are_refused(tmp_path, text, found):
    path = tmp_path / "fit.jsonl"
    path.write_text(text, "latin-1")
    expected = f"{path.name}: expected statistics of a joint fit, run, fit, .*, found {found}"
    with pytest.raises(ValueError, match=expected):
        FitFile.rows(path)
    with pytest.raises(ValueError, match=expected), FitFile(path, resume=True):
        pass
    assert path.read_text("latin-1") == text and list(tmp_path.iterdir()) == [path]


def test_other_parquet_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "fit.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"fit.parquet: expected statistics .*, found no Parquet file"):
        FitFile.rows(path)
    parquet.write_table(pa.table({"gap": [1.0]}), path)
    with pytest.raises(ValueError, match=r"found row 1 of another form"):
        FitFile.rows(path)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.jsonl"):
        FitFile.rows(tmp_path / "none.jsonl")
    with pytest.raises(OSError, match="nowhere"), FitFile(tmp_path / "nowhere" / "fit.jsonl"):
        pass
