"""The experiments on kernel multinomial regression run at a small size and say what they measured."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from experiments.papers import _pages
from experiments.papers.p003 import chains, cost, extensions, figures_3_4, tables_1_2
from tests.support.experiments import assert_drawn

pytestmark = pytest.mark.usefixtures("data_folder")


def test_satimage_small(tmp_path):
    options = figures_3_4.Options(methods=("mc-tied",), scalings=("range",), max_iter=1, out=tmp_path)
    assert options.rows == 1_000
    result = figures_3_4.run(options)
    (row,) = result["runs"]
    assert row["error"] == row["curve"][-1] and row["error"] < 0.25
    assert row["evaluations"][-1] > 1 and len(row["v"]) == 6
    # a second run takes what is stored
    (stored,) = tmp_path.glob("*.cells.json")
    (cell,) = json.loads(stored.read_text())
    cell["found"]["seconds"] = 1.25
    stored.write_text(json.dumps([cell]))
    again = figures_3_4.run(options)
    assert again["runs"][0]["seconds"] == 1.25
    text = figures_3_4.markdown(again)
    assert f"| range | mc-tied | 1 | {row['error']:.4f} |" in text
    assert_drawn(tmp_path / "curves.png", lambda axes: figures_3_4.draw(again, axes))


@pytest.mark.slow
def test_hierarchy_small(tmp_path):
    options = tables_1_2.Options(
        sets=("clef",),
        methods=("F", "H1", "HSΔ"),
        splits=(0, 1),
        rows=150,
        test_rows=200,
        folds=2,
        max_iter=1,
        out=tmp_path,
    )
    result = tables_1_2.run(options)
    assert [(r["method"], r["split"]) for r in result["runs"]] == [
        (method, split) for split in (0, 1) for method in ("H1", "F", "HSΔ")
    ]
    # with another list of methods those that are stored are shown too
    again = tables_1_2.run(dataclasses.replace(options, methods=("F",), splits=(1,)))
    assert again["runs"] == result["runs"]
    row, unit, svm = result["runs"][:3]
    assert (row["C"], row["P"], row["hyperparameters"]) == (63, 96, 3) and unit["v"] == [1.0]
    for run in result["runs"]:
        assert run["accuracy"] > 0.3 and run["precision"] > run["accuracy"]
        assert 1 - run["curve"][-1] == pytest.approx(run["accuracy"])
    assert 0 < row["taxonomy_loss_least"] < 2 and row["parent_accuracy_least"] >= row["accuracy"]
    assert 0 <= svm["gap"] <= 1e-3 and svm["penalty"] in tables_1_2.PENALTIES
    text = tables_1_2.markdown(result)
    assert "| clef | H1 | 96 / 63 |" in text and "| paper, A to H | +0.30 to +1.30 |" in text
    assert_drawn(tmp_path / "curves.png", lambda axes: tables_1_2.draw(result, axes))


def test_the_tables_say_which_fits_ended_at_their_limits():
    result = json.loads((_pages.RESULTS / "p003_tables_1_2.json").read_text())
    runs = [run for run in result["runs"] if run["set"] == "clef"]
    result["runs"] = runs
    for run in runs:
        run["status"] = "CONVERGED"
    assert "before they had converged" not in tables_1_2.markdown(result)
    flat = [run for run in runs if run["method"] == "F1"]
    flat[0]["status"] = "MAX_STEPS"
    for run, seconds in zip(flat, (9.0, 2.0, 3.0), strict=True):
        run["fold_seconds"] = seconds
    text = tables_1_2.markdown(result)
    assert "before they had converged: clef F1 1 of 3.\n" in text
    assert f"| 3.00 | {flat[0]['evaluations']} |" in text  # the median of a fold


@pytest.mark.slow
def test_the_other_splits_draw_from_all_rows():
    first, second = (tables_1_2.load("clef", split) for split in (0, 1))
    assert [part.shape for part in first[:4]] == [part.shape for part in second[:4]]
    both = [np.sort(np.concatenate([part[1], part[3]])) for part in (first, second)]
    assert (both[0] == both[1]).all() and (first[1] != second[1]).any()


@pytest.mark.slow
def test_scaling_small():
    result = cost.run(cost.Options(rows=(60,), gp_rows=60, classes=(9,), points=60, repeats=1))
    (row,) = result["rows"]
    assert row["gp_seconds"] > 0 and row["error"] < 0.3 and row["gp_error"] < 0.3
    assert [r["P"] for r in result["nodes"]] == [9, 11, 19]
    assert "| 60 |" in cost.markdown(result)


def test_the_digits_of_a_code_are_a_sequence():
    X, digits, X_test, digits_test = chains.load()
    assert digits.shape == (X.shape[0], 6) and digits_test.shape == (X_test.shape[0], 6)
    (first, second) = chains.sequences(X[:2], 6)
    assert first.shape == second.shape == (6, 6 * X.shape[1])
    for t in range(6):  # the words in the columns of the position, and nothing beside
        blocks = first[[t]].toarray().reshape(6, -1)
        np.testing.assert_array_equal(blocks[t], X[[0]].toarray()[0])
        assert np.count_nonzero(blocks) == X[[0]].nnz


@pytest.mark.slow
def test_chains_small(tmp_path):
    options = chains.Options(rows=40, test_rows=60, max_iter=3, out=tmp_path)
    result = chains.run(options)
    alone, chain = result["runs"]
    assert (alone["method"], chain["method"]) == ("single points", "chain")
    for run in result["runs"]:
        assert run["digits"] > 0.25 and run["prefixes"][-1] == run["codes"] <= run["digits"]
        assert run["digits"] == pytest.approx(np.mean(run["by_position"]))
    # without transitions the likeliest sequence has the likeliest digits
    assert alone["digits"] == pytest.approx(alone["by_marginals"])
    assert chain["objective"] < alone["objective"]  # of which the chain may do all, and more
    assert "| chain (40 sequences) | 1 |" in chains.markdown(result)


@pytest.mark.slow
def test_em_ends_where_the_direct_fit_does(tmp_path):
    options = extensions.Options(
        labels=("direct", "EM"), mixing=("B",), rows=60, factors=2, max_iter=1, out=tmp_path
    )
    result = extensions.run(options)
    direct, em = result["labels"]
    assert em["objective"] == pytest.approx(direct["objective"], rel=1e-3)
    assert em["rounds"] > 2 and direct["vague"] > 10
    (mixed,) = result["mixing"]
    assert mixed["criterion"] < mixed["criterion_at_start"]
    assert mixed["hyperparameters"] == 1 + 2 * mixed["classes"]
    text = extensions.markdown(result)
    assert "| direct | 1 |" in text and "| B | 1 |" in text
