"""The experiments with all-in-one SVMs, on a set that comes with scikit-learn and on the authors' files."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import _multiclass
from experiments.bench import multiclass_svm
from experiments.papers.p001 import cost_model, figure_2_dense, figures_2_3, table_1, tables_3_5
from tests.support.experiments import assert_drawn


def test_table1_is_the_papers_on_the_authors_files(data_folder, tmp_path):
    options = table_1.Options(sets=("iris", "glass"), out=tmp_path)
    result = table_1.run(options)
    assert len(result["rows"]) == 12
    for row in result["rows"]:
        paper = table_1.published(row)
        assert paper is not None
        assert round(row["error"], 2) == paper["D"] == paper["S"], row
        assert row["gap"] <= 1e-3
    assert "| glass | WW | 1 | 19.05 | 19.05 | 19.05 | +0.00 | +0.00 | 100.0 | 100.0 |" in table_1.markdown(
        result
    )


def test_a_run_goes_on_where_it_was_stopped(monkeypatch, tmp_path):
    monkeypatch.setattr(table_1, "LOG_C", (-1, 0))
    options = table_1.Options(formulations=("ww",), out=tmp_path, small=True).chosen()
    first = table_1.run(options)
    kept = tmp_path / "p001_table_1.cells.json"
    assert len(json.loads(kept.read_text())) == 2
    again = table_1.run(options)
    assert again == first  # the seconds, too


def test_a_small_run_over_many_classes(tmp_path):
    options = tables_3_5.Options(out=tmp_path, small=True).chosen()
    result = tables_3_5.run(options)
    assert all(row["solved"] == 1 for row in result["rows"])
    assert len(result["rows"]) == 8 and len(result["choices"]) == 4
    for row in result["rows"]:
        assert row["error"] == pytest.approx(100 - row["micro_f1"])
    assert all(c["error"] < 15 for c in result["choices"] if c["formulation"] != "llw")
    text = tables_3_5.markdown(result)
    assert "C chosen on the held-out rows" in text and " * |" not in text


def test_what_is_not_solved_is_marked(tmp_path):
    options = tables_3_5.Options(
        sets=("digits",), formulations=("ww",), log_C=(-3, 1), max_epochs=2, orders=2, out=tmp_path
    )
    result = tables_3_5.run(options)
    easy, hard = result["rows"]
    assert (easy["solved"], hard["solved"]) == (2, 0)
    assert easy["gap"] <= 1e-3 < hard["gap"]
    lines = tables_3_5.markdown(result).splitlines()
    assert f"| {hard['error']:.2f} * |" in next(line for line in lines if line.startswith("| 1 |"))
    assert "*" not in next(line for line in lines if line.startswith("| -3 |"))
    assert "not solved in 2 epochs (the worst order): digits WW 1: 2 of 2 orders" in "\n".join(lines)


def test_no_class_is_held_out_as_a_whole():
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(50), rng.integers(0, 50, 100)])
    fewer = tables_3_5.held_out(_multiclass.Parts(np.arange(150)[:, None], y, None, None))
    assert set(fewer.y) == set(y)
    assert 15 <= len(fewer.y_test) <= 30
    together = np.concatenate([fewer.X, fewer.X_test]).ravel()
    np.testing.assert_array_equal(np.sort(together), np.arange(150))


def test_the_benchmark_compares_the_same_problem(monkeypatch, tmp_path):
    speed_ups = {"speed_up": 1.5, "scipy_speed_up": 1.8}
    monkeypatch.setattr(multiclass_svm, "two_threads", lambda options: speed_ups)
    options = multiclass_svm.Options(out=tmp_path, small=True).chosen()
    result = multiclass_svm.run(options)
    rows = result["rows"]["digits"]
    assert all(row["converged"] and len(row["seconds"]) == 1 for row in rows.values())
    assert rows["cs"]["primal"] == pytest.approx(rows["liblinear cs"]["primal"], rel=5e-3)
    text = multiclass_svm.markdown(result)
    assert "| digits |" in text and "The ratio is 0.83." in text


def test_the_benchmark_of_one_vs_rest_compares_the_same_problem(tmp_path):
    options = multiclass_svm.Options(out=tmp_path, small=True, separate=True, C=(1.0,), gap=0.01).chosen()
    result = multiclass_svm.run(options)
    (row,) = result["separate"]
    assert row["status"] == "CONVERGED" and row["certified"] <= row["gap"] <= 0.01
    assert all(-1e-9 <= gap <= row["gap"] for gap in row["gaps"].values())
    assert "| digits | 1 | no |" in multiclass_svm.markdown(result)


def test_speed_and_training_times(tmp_path):
    options = figures_2_3.Options(out=tmp_path, small=True).chosen()
    options = dataclasses.replace(options, log_C=(-1,), runs=2)
    result = figures_2_3.run(options)
    # nothing of it is measured again
    assert json.dumps(figures_2_3.run(options)) == json.dumps(result)
    assert [(r["kind"], r["count"]) for r in result["speed"]] == [("threads", 1), ("threads", 2)] * 2
    assert all(r["speed_up"] > 0 for r in result["speed"])
    assert all(r["converged"] for r in result["training"])
    orders = [r["order"] for r in result["training"]]
    assert orders == [0] * 4 + [1] * 4
    seconds, mark = figures_2_3.of_training(result, "liblinear cs", -1)
    assert len(seconds) == 2 and mark == ""
    text = figures_2_3.markdown(result)
    assert f"| LIBLINEAR CS | {np.mean(seconds):.2f} ± " in text
    for number, draw in enumerate((figures_2_3.draw_speed, figures_2_3.draw_training)):
        assert_drawn(tmp_path / f"{number}.png", lambda axes, draw=draw: draw(result, axes))


def test_the_processes_say_what_each_took():
    seconds, processor = figures_2_3.on_processes("digits", "ww", 2)
    assert seconds > 0 and len(processor) == 2 and min(processor) > 0
    rows = [dict(formulation="ww", kind="processes", count=c, busiest=b) for c, b in ((1, 3.0), (2, 2.0))]
    rows.append(dict(formulation="llw", kind="processes", count=1, busiest=7.0))
    assert [figures_2_3.drawn_work(rows, row) for row in rows] == [1.0, 1.5, 1.0]
    for row, seconds in zip(rows, (3.1, 9.0, 10.0), strict=True):
        row |= dict(together=row["busiest"], median=seconds)
    assert [figures_2_3.drawn_beside_work(rows, row) for row in rows] == [False, False, True]


def test_speed_over_processes_of_several_sets(tmp_path, monkeypatch):
    found = {1: (4.2, [4.0]), 2: (2.1, [1.9, 2.0]), 4: (2.8, [1.0, 1.6, 1.5, 1.4])}
    monkeypatch.setattr(figures_2_3, "on_processes", lambda data, formulation, count: found[count])
    options = figure_2_dense.Options(out=tmp_path, sets=("digits", "made_speech"), repeats=2)
    result = figure_2_dense.run(options)
    monkeypatch.setattr(figures_2_3, "on_processes", None)  # nothing of it is measured again
    assert json.dumps(figure_2_dense.run(options)) == json.dumps(result)
    digits, speech = result["sets"]
    assert (digits["entries"], speech["entries"]) == (64.0, 600.0) and speech["classes"] == 26
    assert [row["count"] for row in digits["rows"]] == [1, 2, 4] * 2
    result["made"][0]["cores"] = 2
    text = figure_2_dense.markdown(result)
    assert (
        "| made_speech, 600.0 entries a row | Weston-Watkins | 4 | 2.80 | 1.50 | 1.60 | 2.50 | 5.50 |" in text
    )
    assert "the clock says nothing" not in text
    digits["rows"][1]["median"] = 2.5  # of two processors, of which the two had 1.6
    text = figure_2_dense.markdown(result)
    assert "| digits, 64.0 entries a row | Weston-Watkins | 2 | 2.50 | – | 2.00 | 2.00 | 3.90 |" in text
    assert "the clock says nothing" in text
    assert_drawn(tmp_path / "drawn.png", lambda axes: figure_2_dense.draw(result, axes))


def test_the_cost_model_is_fixed_by_one_and_two_processes(tmp_path, monkeypatch):
    a, b, c, bytes_ = 8.0, 1e-8, 1e-3, 1_000_000
    truth = {p: a / p + (b * 2 * bytes_ + c * 400) * (p > 1) for p in (1, 2, 4)}
    monkeypatch.setattr(
        *(cost_model, "measured"),
        lambda data, count: {"seconds": truth[count], "bytes": bytes_, "messages": 400, "message": c},
    )
    result = cost_model.run(cost_model.Options(out=tmp_path))
    assert (result["a"], result["c"]) == (a, c) and result["b"] == pytest.approx(b)
    found = {row["count"]: row for row in result["rows"]}
    assert found[4]["seconds"] == pytest.approx(truth[4])
    # what one of two tells, and what three of four tell, each of them half as much
    assert found[2]["bytes"] == bytes_ and found[4]["bytes"] == 3 * bytes_ / 2
    assert "With 4 processes, whose messages take 1 ms on the cores here, the model is 1.00" in (
        cost_model.markdown(result)
    )
    assert_drawn(tmp_path / "model.png", lambda axes: cost_model.draw(result, axes))


def test_a_process_says_what_it_took(tmp_path):
    one, two = (cost_model.measured("made_few", count) for count in (1, 2))
    assert one["seconds"] > 0 and two["seconds"] > 0
    assert one["bytes"] == 0 < two["bytes"] and 0 < two["message"] < 1
    assert one["messages"] == 0 and two["messages"] >= 32 * cost_model.EPOCHS
