"""The benchmarks run at their small size and say what they measured."""

from __future__ import annotations

import dataclasses
import sys

import jax
import pytest

from experiments import _joined
from experiments.bench import (
    admm,
    checks,
    clip,
    cluster,
    everywhere,
    hinge,
    many_labels,
    memory,
    one_vs_all,
    penalties,
    plan,
    prediction,
    processes,
    projections,
    single_rows,
    topk_svm,
    versions,
)
from experiments.papers.p002 import scaling
from experiments.papers.p004 import figure_3
from tests.support.experiments import assert_drawn, written


@pytest.mark.slow
def test_one_vs_all_small(tmp_path):
    options = one_vs_all.Options(inits=("mean_separating",), sample=2, small=False)
    stored, text = written(tmp_path, "one_vs_all", *one_vs_all.run(options))
    ours = stored["runs"]["xmcjax mean_separating"]
    assert stored["labels"] == ours["labels"] == ours["by_step"][0]["labels"] == 1055
    assert ours["statuses"] == {"CONVERGED": 1055}
    assert ours["worst_ratio_to_linear_svc"] < 1.001 and ours["precision"][0] > 60
    assert "| xmcjax mean_separating |" in text


def test_processes_small(monkeypatch, tmp_path):
    asked = []

    def answers(command, request, count, environment, processors):
        asked.append((command[2], count, len(processors)))
        one = {"count": 1, **request}
        if command[2] == "experiments.bench.processes":
            return [processes.answer(one)] * count
        classes, method = request["run"]
        return [scaling.answer(scaling.Options(**request["options"]), classes, method, one)] * count

    monkeypatch.setattr(_joined, "answers", answers)
    monkeypatch.setattr(processes, "usable_processors", lambda: [0, 1])
    options = processes.Options(small=True, out=tmp_path).chosen()
    result = processes.run(dataclasses.replace(options, classes=30))
    assert [count for _, count, _ in asked] == [1, 1, 1, 2, 2, 2] == [many for *_, many in asked]
    assert [row["work"].split(",")[0] for row in result["rows"]] == ["Weston-Watkins", "LC", "L-BFGS"]
    assert result["gap"] <= 1e-3 and all(row["one"] > 0 and row["two"] > 0 for row in result["rows"])
    assert "| Weston-Watkins, digits, order 0 |" in processes.markdown(result)


def test_memory_small():
    result = memory.run(memory.Options(rows=500, features=1_000, labels=(20, 200)))
    assert [run["labels"] for run in result["runs"]] == [20, 200]
    assert all(run["peak_mb"] > run["Y_mb"] for run in result["runs"])


def test_many_labels_small(tmp_path):
    sizes = dict(rows=300, features=400, nonzeros=20, labels=500, test_rows=20, threads=1)
    result = many_labels.run(many_labels.Options(**sizes, folder=tmp_path))
    assert result["positives"] >= 500 and result["model_mb"] > 0.1
    assert "labels      500 converged" in result["training"]["printed"]
    assert min(result[name]["peak_mb"] for name in ("training", "prediction")) > 50
    assert "500 labels with" in many_labels.markdown(result)
    assert len((tmp_path / "best.txt").read_text().splitlines()) == 20
    with pytest.raises(RuntimeError, match="xmcjax train failed with exit code 2"):
        many_labels.command(["train", "--train", tmp_path / "absent.npz", "--model", tmp_path / "other"])


def test_clip_small():
    result = clip.run(clip.Options(small=True).chosen())
    assert [row["scale"] for row in result["rows"]] == [1, 10]
    for row in result["rows"]:
        assert row["accuracy"] > row["linear_svc"] - 1 > 80
        assert 10 < row["kept"] <= 64 and not row["warned"]
    assert "| 10 |" in clip.markdown(result)


def test_checks_small():
    result = checks.run(checks.Options(small=True).chosen())
    assert [row["data"] for row in result["rows"]] == ["naics_demo", "a dense CSR matrix"]
    for row in result["rows"]:
        assert 0 < row["check of a fit"] < row["fit"]
        assert row["check of a prediction"] < row["prediction"]
    assert "share of a fit" in checks.markdown(result)


@pytest.mark.slow
def test_prediction_small():
    result = prediction.run(prediction.Options(small=True).chosen())
    ours = result["runs"]["xmcjax"]
    # the program does both; which of the two is faster is for a quiet machine to say
    assert 0 < ours["prediction"] < ours["program"] and 0 < ours["first_call"] < ours["program"]
    assert "| xmcjax |" in prediction.markdown(result)
    row = [(3, 1.0), (1, 0.5)]
    assert prediction.different([row], [[(3, 1.0), (2, 0.5)]]) == 0
    assert prediction.different([row], [[(3, 1.0), (2, 0.4)]]) == 1


def test_topk_svm_small(tmp_path):
    result = topk_svm.run(topk_svm.Options(problems=("alpha:1",), repeats=1))
    stored, text = written(tmp_path, "topk_svm", result, topk_svm.markdown(result))
    ours, linear_svc = stored["runs"]
    assert (ours["program"], linear_svc["program"]) == ("xmcjax", "LinearSVC")
    assert ours["status"] == "CONVERGED" and 0 < ours["gap"] <= 1.001e-3
    assert ours["excess"] < linear_svc["excess"] < 0.05
    assert ours["check_seconds"] > 0 and ours["first_call_seconds"] > 0 and ours["seconds"] > 0
    assert "| alpha:1 | LinearSVC |" in text


def test_admm_small(tmp_path):
    options = admm.Options(losses=("cs",), lanes=4, small=True).chosen()
    _, text = written(tmp_path, "admm", result := admm.run(options), admm.markdown(result))
    alone, lanes = result["rows"]
    assert 0 < alone["gap"] <= 1e-3 and 0 < alone["host_gap"] <= 1e-3
    assert lanes["steps"] == sorted(lanes["steps"]) and len(lanes["steps"]) == 4
    assert "| digits | cs | 1 |" in text and "| digits | cs | 4 |" in text


@pytest.mark.slow
def test_projections_small(tmp_path):
    with jax.numpy_dtype_promotion("standard"):  # optax promotes
        result = projections.run(projections.Options(rows=20, length=50, repeats=2))
    stored, text = written(tmp_path, "projections", result, projections.markdown(result))
    programs = {row["program"] for row in stored["runs"] if row["set"] == "simplex"}
    assert {"xmcjax, plain JAX", "bisection", "optax"} <= programs and "| simplex | optax |" in text
    # the figure that the simplex is held against
    ours = [row for row in stored["runs"] if "xmcjax" in row["program"]]
    assert all(row["sum_error"] < 4 for row in ours if "sum_error" in row)


@pytest.mark.slow
def test_p004_figure_3_small(tmp_path):
    result = figure_3.run(figure_3.Options(ks=(5,), lengths=(10,), entries=100, repeats=2))
    stored, _ = written(tmp_path, "p004_figure_3", result, figure_3.markdown(result))
    for sets in stored["ns_per_entry"]["5"].values():
        assert len(sets) == 8 and all(len(times) == 1 and min(times) > 0 for times in sets.values())
    assert_drawn(tmp_path / "scaling.png", lambda axes: figure_3.draw(result, axes))


@pytest.mark.slow
def test_cluster_small(tmp_path):
    result = cluster.run(cluster.Options(small=True, out=tmp_path).chosen())
    assert result["same_bytes"]
    assert all(len(result["runs"][way]) == 1 for way in cluster.WAYS)
    assert "the same bytes" in cluster.markdown(result)


@pytest.mark.slow
def test_plan_small(tmp_path):
    result = plan.run(plan.Options(small=True, out=tmp_path).chosen())
    (row,) = result["rows"]
    assert row["set"] == plan.MADE and row["training_s"] > 0 and row["planned_s"] > 0
    # of a set this small, nearly all is the process itself
    assert row["planned_mb"] == pytest.approx(row["peak_mb"], rel=0.3)
    assert "| made | 1 |" in plan.markdown(result)


def test_hinge_small(tmp_path):
    options = dataclasses.replace(hinge.Options(small=True, out=tmp_path).chosen(), sample=3, C=(1.0,))
    result = hinge.run(options)
    (row,) = result["rows"]
    assert row["converged"] == result["labels"] == 3
    assert 0 <= row["gap"]["ours"] <= hinge.GAP and row["gap"]["liblinear"] <= hinge.GAP
    assert f"| {1e3 * row['median']['ours']:.1f} |" in hinge.markdown(result)


def test_penalties_small(tmp_path):
    options = penalties.Options(small=True, out=tmp_path).chosen()
    result = penalties.run(dataclasses.replace(options, sample=3))
    rows = result["rows"]
    assert rows["L1()"]["weights"] < rows["L2()"]["weights"] / 4
    assert rows["L1()"]["worst_objective"] < 1.001
    assert rows["L1()"]["statuses"] == {"converged": 3}
    text = penalties.markdown(result)
    assert text.startswith("naics_demo, 3 labels") and "| HuberPenalty(huber_width=0.01) |" in text


@pytest.mark.slow
def test_versions_small(tmp_path):
    result = versions.run(versions.Options(small=True).chosen())
    stored, text = written(tmp_path, "versions", result, versions.markdown(result))
    assert [row["name"] for row in stored["rows"]] == [
        "multiclass svm ww digits C=1 tol=0.01",
        "projection simplex normal",
    ]
    for row in stored["rows"]:
        assert row["values"][0] == row["values"][1] != 0 and row["ratio"] > 0
    assert stored["before"] == stored["now"]
    assert "| multiclass svm ww digits C=1 tol=0.01 |" in text and "before: " in text


def test_a_version_that_cannot_be_imported_is_an_error(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(RuntimeError, match="ended with 3"):
        versions.run(versions.Options(before=python, small=True).chosen())


def test_single_rows_small(tmp_path):
    result = single_rows.run(single_rows.Options(small=True).chosen())
    stored, text = written(tmp_path, "single_rows", result, single_rows.markdown(result))
    assert len(stored["models"]) == 3
    assert all(row["rows_that_differ"] == 0 and row["xmcjax"] > 0 for row in stored["models"].values())
    assert stored["stored"]["labels"] == 500 and stored["stored"]["jax"] == 0
    assert "| dense, 768 features, 500 labels |" in text and "| 500 |" in text


@pytest.mark.slow
def test_everywhere_small(tmp_path):
    options = everywhere.Options(small=True, isas=("baseline",), out=tmp_path).chosen()
    result = everywhere.run(options)
    stored, text = written(tmp_path, "everywhere", result, everywhere.markdown(result))
    assert stored["isas"][-1] == "baseline"
    works = [row["work"] for row in stored["rows"]]
    assert list(dict.fromkeys(works)) == [
        *("one-vs-all", "prediction of one row", "prediction of many rows", "multinomial regression"),
        *("multi-class SVM", "top-k SVM", "kernel regression", "start-up"),
    ]
    for row in stored["rows"]:
        assert set(row["ratios"]) == set(row["seconds"]) == set(stored["isas"])
        assert row["peer_seconds"] > 0 and all(ratio > 0 for ratio in row["ratios"].values())
    assert_drawn(tmp_path / "everywhere.png", lambda axes: everywhere.draw(stored, axes))
    # no more lines than README has room for
    table = text.split("\n\n")[1].splitlines()
    assert table[0].startswith("| work | times faster than |") and len(table) == 10


def test_ratios_of_everywhere_are_those_of_a_turn():
    class Made:
        def __init__(self, *seconds):
            self.seconds = lambda *asked: seconds_of.pop(0)
            seconds_of = list(seconds)

    row = everywhere.Row("w", "d", "p", lambda folder: folder.mkdir(), ("ours", {}), ("theirs", {}))
    found = everywhere.by_turns(row, {"avx2": Made(1.0, 2.0, 4.0), "": Made(3.0, 8.0, 8.0)}, 3)
    assert found["ratios"] == {"avx2": 3.0} and found["seconds"] == {"avx2": 2.0}
    other = {**found, "ratios": {"avx2": 0.56}}
    text = everywhere.summary({"isas": ["avx2"], "rows": [found, other]})
    assert "| w | p | 0.56 to 3 |" in text


def test_a_program_that_fails_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match=r"failed: .*no-such"):
        everywhere.finished([sys.executable, "-m", "xmcjax", "train", "--train", "no-such", "--model", "m"])
    (tmp_path / "x").touch()
    assert everywhere.placed(["a", "{folder}/b", "{new}"], tmp_path) == [
        "a",
        f"{tmp_path}/b",
        f"{tmp_path}/new-1",
    ]
