"""The study of Schultheis and Babbar, 2022, on a set of thirty labels, and what its traces mean."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from experiments import _one_vs_all
from experiments._rehearsal import REHEARSAL
from experiments.bench import _dismecpp, cost_growth, everywhere
from experiments.papers.p000.starts import __main__ as study
from experiments.papers.p000.starts import _figures, _runs, _sets
from tests.support.experiments import assert_drawn, written
from xmcjax.data import save_xmc
from xmcjax.inits import MeanSeparating, OvaPrimal

TINY = "power_law:30x200x150"


@pytest.fixture
def in_process(monkeypatch):
    """Workers run here: a process each would take minutes."""
    monkeypatch.setenv(REHEARSAL, "1")


@pytest.fixture(scope="module")
def tiny():
    return _sets.load(TINY).split


def traced(split, solver, start, **options):
    X = _one_vs_all.features(split.X, solver)
    labels = _one_vs_all.sample(split.Y, 0)
    return _one_vs_all.trace(X, split.Y, _one_vs_all.method(solver, start, **options), labels)


def test_a_trace_has_every_step(tiny):
    n = tiny.X.shape[0]
    positives = np.sort(np.diff(sp.csc_matrix(tiny.Y).indptr))
    for solver in _one_vs_all.SOLVERS:
        trace = traced(tiny, solver, "mean_separating")
        np.testing.assert_array_equal(trace.positives, positives[positives > 0])
        assert np.all(np.diff(trace.label) >= 0) and np.all(trace.seconds > 0)
        for label in range(len(trace.positives)):
            here = trace.label == label
            np.testing.assert_array_equal(trace.step[here], np.arange(here.sum()))
            assert np.all(np.diff(trace.value[here]) <= 0)
            assert np.all((trace.active[here] > 0) & (trace.active[here] <= 1))
    zero = traced(tiny, "published", "zero")
    begins = zero.step == 0
    np.testing.assert_array_equal(zero.value[begins], n)  # Σ max(0, 1 − 0)²
    np.testing.assert_array_equal(zero.active[begins], 1)


def test_the_bias_start_of_the_paper_stands_still_at_first(tiny):
    """λ = 1 has the negatives at the kink: the first step is much shorter than with λ = 2."""
    multiplier = {}
    for number in ("1", "2"):
        trace = traced(tiny, "published", f"bias:{number}")
        multiplier[number] = trace.multiplier[trace.step == 1].mean()
        # ½λ² + Σ_P max(0, 1 + λ)² + Σ_N max(0, 1 − λ)²
        expected = int(number) ** 2 / 2 + trace.positives * (1 + int(number)) ** 2
        np.testing.assert_allclose(trace.value[trace.step == 0], expected, rtol=1e-6)
    assert multiplier["1"] < multiplier["2"] / 2


def test_distances(tiny):
    """‖w − w0‖ with the bias, against weights that were trained and started on their own."""
    labels = _one_vs_all.sample(tiny.Y, 0)
    how = _one_vs_all.method("xmcjax", "bias:2", clip=0.0)
    ends = _one_vs_all.Collected(tiny.Y.shape[1], tiny.X.shape[1])
    _one_vs_all.train_one_vs_all(tiny.X, tiny.Y, how, ends)
    w, b = ends.weights().toarray()[labels], ends.bias[labels]
    expected = np.sqrt((w**2).sum(axis=1) + (b + 2) ** 2)
    np.testing.assert_allclose(
        np.sort(traced(tiny, "xmcjax", "bias:2").distance), np.sort(expected), rtol=1e-5
    )


def test_a_summary():
    """Two labels: one of 1 positive with objectives 4, 2 after 1 and 3 ms; one of 5 with 9, 5, 1."""
    trace = _one_vs_all.Trace(
        label=np.array([0, 0, 1, 1, 1]),
        step=np.array([0, 1, 0, 1, 2]),
        value=np.array([4.0, 2, 9, 5, 1]),
        active=np.array([1.0, 0.5, 1, 0.25, 0.125]),
        multiplier=np.array([1.0, 0.5, 1, 0.75, 1]),
        seconds=np.array([1.0, 2, 1, 1, 2]) / 1e3,
        positives=np.array([1, 5]),
        distance=np.array([0.5, 3]),
    )
    found = _one_vs_all.summarise(trace)
    assert (found["labels"], found["steps"], found["initial"]) == (2, 1.5, 6.5)
    assert found["ms"] == pytest.approx(3.5)
    assert [row["labels"] for row in found["by_step"]] == [2, 2, 1]
    assert [row["value"]["mean"] for row in found["by_step"]] == [6.5, 3.5, 1]
    assert found["by_step"][1]["multiplier"]["sd"] == 0.125
    ranges = [(row["low"], row["high"], row["labels"], row["ms"]["mean"]) for row in found["by_positives"]]
    assert ranges == [(1, 1, 1, 3), (4, 7, 1, 4)]
    assert found["histograms"]["steps"] == [0, 1, 1]
    assert sum(found["histograms"]["ms"]["labels"]) == 2
    times, values = found["by_time"]["ms"], found["by_time"]["value"]
    assert times[0] == pytest.approx(1) and times[-1] == pytest.approx(4)
    # both begin at 1 ms; the second is at 5 after 2 ms, the first at 2 after 3 ms
    for time, value in zip(times[1:-1], values[1:-1], strict=True):
        assert value == (6.5 if time < 2 else 4.5 if time < 3 else 3.5)
    assert values[-1] == 1.5


@pytest.mark.slow
def test_all_tables_and_figures(in_process, tmp_path, capsys):
    options = study.Options(sets=(TINY, "stackexchange"), traced=TINY, out=tmp_path)
    with pytest.raises(ValueError, match=r"expected a set of .*naics2017.*'stackexchange'"):
        study.run(options)
    options = dataclasses.replace(options, sets=(TINY, f"{TINY}x1"))
    with pytest.raises(ValueError, match="expected power_law:LABELS or"):
        study.run(options)
    options = dataclasses.replace(options, sets=(TINY,))
    result = study.run(options)
    stored, text = written(tmp_path, study.NAME, result, study.markdown(result))
    runs = stored["times"][TINY]["squared_hinge"]["xmcjax"]
    assert list(runs) == ["zero", "bias", "ova_primal", "mean_separating", "ova_primal_pp"]
    for found in runs.values():
        assert found["statuses"]["CONVERGED"] == found["labels"] == stored["sets"][TINY]["trained"]
        assert found["precision_at"][0] > 20 and 0 < found["recall"] < 100
    # the starts lead to the same models
    first = [found["precision_at"][0] for found in runs.values()]
    assert max(first) - min(first) < 5
    for number in range(1, 5):
        assert f"**Table {number}.**" in text
    assert text.count(f"| {TINY} | tf-idf | xmcjax |") == 2 and "| Amazon-3M |" in text
    assert "| published | bias:1 | 1 |" in text
    # what was run is not run again
    cells = (tmp_path / "p000_starts.cells.json").stat().st_mtime_ns
    again = study.run(options)
    assert again == result and (tmp_path / "p000_starts.cells.json").stat().st_mtime_ns == cells
    # a set may be in the figures alone
    alone = study.markdown(study.run(dataclasses.replace(options, sets=())))
    assert f"| {TINY} | tf-idf | xmcjax |" not in alone and "| published | bias:1 | 1 |" in alone
    for name, draw in _figures.drawings(study.NAME).items():
        assert_drawn(tmp_path / f"{name}.png", lambda axes, draw=draw: draw(result, axes))


# Prints what dismecpp's train does, with made-up steps, and writes the weights that are asked for.
FAKE = """#!{python}
import pathlib, sys, numpy as np
words = [word for word in sys.argv[1:] if not word.startswith("-")]
flags = dict(word.split("=") for word in sys.argv[1:] if "=" in word)
labels, features = (int(size) for size in open(words[0]).readline().split()[:0:-1])
steps = {{"zero": 12, "bias": 9, "ova-primal": 11, "msi": 8}}[flags["--init-mode"]]
with open(pathlib.Path(words[1]).parent / "asked.txt", "a") as asked:
    print(*sys.argv[3:], file=asked)
print("[2026-01-01 10:00:00.000] [info] Processed feature matrix has 1 rows and 1 columns.")
for label in range(labels):
    print(f"[2026-01-01 10:00:00.100] [info] Thread 0 finished minimization for label {{label:5}} in "
          f"{{steps:4}} iterations (3ms) with loss 1 -> 1 and gradient 1 -> 1.")
print("[2026-01-01 10:00:00.100] [warning] Minimization for label     0 failed after    3 iterations")
print("[2026-01-01 10:00:02.500] [info] Threads finished after 2s (per thread 2s).")
W = np.zeros((labels, features + 1), np.float32)
W[:, 0], W[:, 1], W[:, -1] = 1, 0.001, np.arange(labels) - labels
np.save(open(words[1] + f".weights-0-{{labels - 1}}", "wb"), W)
"""


@pytest.fixture
def fake_dismecpp(tmp_path):
    program = tmp_path / "train"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    return program


def test_dismecpp_stands_beside_ours(in_process, tmp_path, fake_dismecpp, monkeypatch, capsys):
    monkeypatch.setattr(_figures, "STARTS", ("zero",))
    options = study.Options(sets=(TINY,), traced=TINY, out=tmp_path, dismecpp=str(fake_dismecpp))
    monkeypatch.setattr(_one_vs_all, "SOLVERS", ("xmcjax",))
    result = study.run(options)
    trained = result["sets"][TINY]["trained"]
    for runs in result["times"][TINY].values():
        theirs = runs["dismecpp"]
        assert [run["newton_steps"] for run in theirs.values()] == [12, 9, 11, 8]
        for run in theirs.values():
            assert run["labels"] == trained and run["failed"] == 1
            assert run["seconds"] == 2.5 and 0 < run["cpu_seconds"] <= 2.5
            assert 0 <= run["precision_at"][0] <= 100
    text = study.markdown(result)
    assert text.count(f"| {TINY} | tf-idf | dismecpp |") == 2
    for start in ("Zero", "Bias", "OvAP", "MSI"):
        assert f"| {TINY} | tf-idf | {start} | dismecpp |" in text


@pytest.mark.slow
def test_every_kind_of_work_has_dismecpp_beside_one_vs_all(tmp_path, fake_dismecpp):
    options = everywhere.Options(
        isas=("baseline",), works=("dismecpp",), small=True, dismecpp=str(fake_dismecpp), out=tmp_path
    )
    (row,) = everywhere.run(options.chosen())["rows"]
    assert (row["work"], row["peer"], row["peer_seconds"]) == ("one-vs-all", "dismecpp", 2.5)
    assert row["ratios"]["baseline"] == pytest.approx(2.5 / row["seconds"]["baseline"])


def test_how_dismecpp_is_asked(tmp_path, fake_dismecpp, tiny):
    text = tmp_path / "train.txt"
    save_xmc(text, tiny.X, tiny.Y)
    _dismecpp.train(str(fake_dismecpp), text, tmp_path / "m", "ova_primal", [])
    _dismecpp.train(str(fake_dismecpp), text, tmp_path / "m", "mean_separating", [], loss="logistic", eps=1.0)
    first, second = (set(line.split()) for line in (tmp_path / "asked.txt").read_text().splitlines())
    both = {"--augment-for-bias", "--reg-bias", "--threads=1"}
    assert first >= both | {"--epsilon=0.01", "--init-mode=ova-primal", "--loss=squared-hinge"}
    assert second >= both | {"--epsilon=1.0", "--init-mode=msi", "--loss=logistic", "--msi-neg=-3"}
    W = _dismecpp.weights(tmp_path / "m", tiny.Y.shape[1])
    assert W.shape == (tiny.Y.shape[1], tiny.X.shape[1] + 1)
    kept, bias = _runs._clipped(W[:2], np.array([3, 5]), 30)
    np.testing.assert_array_equal(kept.toarray()[[3, 5], :2], [[1, 0], [1, 0]])  # 0.001 is dropped
    assert kept.nnz == 2 and np.isfinite(bias).sum() == 2 and bias[5] == W[1, -1]


def test_another_program_is_no_dismecpp(tmp_path):
    with pytest.raises(RuntimeError, match="expected the log of dismecpp's train, found another"):
        _dismecpp.train("/bin/echo", tmp_path / "train.txt", tmp_path / "m", "zero", [])


def test_sets_that_are_not_there_are_left_out(in_process, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XMCJAX_DATA", str(tmp_path))
    monkeypatch.setattr(_figures, "STARTS", ("zero",))
    options = study.Options(sets=(TINY, "rcv1_subset1"), traced=TINY, out=tmp_path / "out")
    result = study.run(options)
    assert list(result["times"]) == [TINY] and result["absent"] == ["rcv1_subset1"]
    assert "rcv1_subset1 is left out: " in capsys.readouterr().out


def test_a_dense_set(monkeypatch):
    found = _sets.load("naics_demo:svd20")
    assert found.split.X.shape == (16108, 20) and found.eps == 1 and found.setting == "dense"
    norms = np.linalg.norm(found.split.X_test, axis=1)
    assert np.all((np.abs(norms - 1) < 1e-5) | (norms == 0))
    with pytest.raises(ValueError, match="NAME:svd"):
        _sets.load("naics_demo:20")


def test_starts_by_name():
    lower, exact = _one_vs_all.start("mean_separating:-3"), _one_vs_all.start("ova_primal:strict")
    assert isinstance(lower, MeanSeparating) and lower.msi_t == -3
    assert isinstance(exact, OvaPrimal) and exact.ova_primal == "strict"
    for wrong in ("middle", "zero:1"):
        with pytest.raises(ValueError, match=f"expected a start of zero.*{wrong}"):
            _one_vs_all.start(wrong)
    with pytest.raises(ValueError, match="expected a solver of xmcjax, published"):
        _one_vs_all.method("liblinear", "zero")


def test_cost_growth(in_process, tmp_path):
    sizes = dict(rows=100, features=100, labels=10, nonzeros=10, factors=(1, 2), threads=(1,))
    result = cost_growth.run(cost_growth.Options(**sizes, inits=("zero",), out=tmp_path))
    assert [p["number"] for p in result["curves"]["zero"]["features"]] == [100, 200]
    assert result["exponents"]["zero"]["threads"]["seconds"] is None
    assert "| zero | labels | 20 |" in cost_growth.markdown(result)
    points = [{"number": number, "seconds": 3 * number**1.5} for number in (1, 2, 4)]
    assert cost_growth._exponent(points, "seconds") == pytest.approx(1.5)
    assert_drawn(tmp_path / "growth.png", lambda axes: cost_growth.draw(result, axes))


def test_the_sets_of_the_full_study():
    options = study.Options(full=True).chosen()
    for name in (options.traced, *options.sets, *study.Options().sets, "amazon-670k"):
        _sets.check(name)
    assert sum(name.startswith("power_law") for name in options.sets) == 3 and options.repeats == 5
    asked = study.Options(full=True, sets=("bibtex",), traced="bibtex").chosen()
    assert (asked.sets, asked.traced) == (("bibtex",), "bibtex")
