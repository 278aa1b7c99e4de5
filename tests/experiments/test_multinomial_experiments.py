"""The experiments with multinomial logistic regression run at a small size and say what they measured."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import _multinomial
from experiments.bench import multinomial
from experiments.papers.p002 import figures_1_4, scaling
from tests.support.experiments import assert_drawn, written
from xmcjax import linops
from xmcjax.solvers.multinomial import METHODS, evaluate, multinomial_problem


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(_multinomial, "ask", _multinomial.answer)


def test_benchmark_small(tmp_path):
    few = dict(lams=(1.0,), float32=(), float64=("auto", "sklearn lbfgs", "sklearn newton-cg"), repeats=2)
    options = multinomial.Options(sets=("digits",), rows=300, limit=30, out=tmp_path, **few)
    result = multinomial.run(options)
    stored, text = written(tmp_path, "multinomial", result, multinomial.markdown(result))
    optimum = stored["optimum"]["digits: 1"]
    assert optimum["error"] < 1e-8 * optimum["value"]
    assert [row["program"] for row in stored["rows"]] == list(few["float64"])
    for row in stored["rows"]:
        # all of them minimise the same objective
        assert -1e-12 < row["gap"] <= 1e-5 and row["runs"] == 2
        assert all(row[call][0] <= row[call][1] for call in multinomial.CALLS)
    assert [ratio["gap"] for ratio in stored["ratios"]] == [1e-3, 1e-5]
    assert all(ratio[call] > 0 for ratio in stored["ratios"] for call in multinomial.CALLS)
    assert not any(ratio["at_least"] for ratio in stored["ratios"])
    assert "| digits | 1 | sklearn lbfgs | float64 |" in text
    assert multinomial.run(options) == result  # what was run is not run again


def test_a_peer_that_was_given_up_counts_with_its_limit():
    programs = (
        ("auto", [1.0, 2.0], [0.5, 1.0], 2.0),
        ("sklearn lbfgs", [5.0, None], None, 30.0),
        ("sklearn newton-cg", [7.0, None], [4.0, None], 20.0),
    )
    rows = [
        {
            "set": "s",
            "lam": 1.0,
            "dtype": "float64",
            "program": program,
            "first": first,
            "second": second,
            "last": last,
        }
        for program, first, second, last in programs
    ]
    found = multinomial._ratios(multinomial.Options(), "s", 1.0, rows)
    assert [(r["first"], r["second"], r["at_least"]) for r in found] == [
        (5.0, 8.0, False),
        (10.0, 20.0, True),
    ]


def test_near_the_target_the_objective_is_exact():
    """Whatever a program says that G is."""
    rng = np.random.default_rng(0)
    X, y, W = rng.normal(size=(20, 3)), rng.integers(0, 4, 20), rng.normal(size=(3, 4))
    problem = multinomial_problem(linops.make(X), y, 0.5, classes=4)
    exact = float(evaluate(problem, W, np.zeros(4)).value)
    assert _multinomial.objective(X, y, 0.5, W) == pytest.approx(exact, rel=1e-12)
    trace = _multinomial.Trace(
        _multinomial.Request("digits", 0.5, "auto", target=exact * 0.999), lambda W: exact
    )
    trace.note(lambda: W, value=exact * 0.998)
    trace.note(lambda: W, value=exact * 1.1)
    assert trace.lists["value"] == [exact, exact * 1.1]
    with pytest.raises(_multinomial._Enough):
        trace._objective = lambda W: exact * 0.99
        trace.note(lambda: W, value=exact)


@pytest.mark.slow
def test_convergence_small(tmp_path):
    chosen = dict(rows=300, out=tmp_path, choose_lam=True, lams=(0.01, 100.0))
    options = figures_1_4.Options(("digits:1",), methods=("auto", "dm", "lc"), **chosen)
    result = figures_1_4.run(options)
    stored, text = written(tmp_path, "convergence", result, figures_1_4.markdown(result))
    found = stored["problems"]["digits:1"]
    runs, optimum = found["runs"], found["optimum"]["value"]
    # the bound is no tight one
    assert min(runs["auto"]["value"]) <= (1 + 1e-6) * optimum < 1.01 * optimum < min(runs["dm"]["bound"])
    assert np.all(np.diff(runs["dm"]["seconds"]) >= 0)
    errors = result["cross_validation"]["digits"]
    assert errors["0.01"]["error"] < errors["100"]["error"] and "| digits |" in text
    for number, draw in enumerate(figures_1_4.FIGURES):
        assert_drawn(tmp_path / f"figure{number}.png", lambda axes, draw=draw: draw(result, axes))


def test_scaling_small(tmp_path, monkeypatch):
    def point(options, classes, count, method):
        return scaling.answer(options, classes, method, {"count": count})

    monkeypatch.setattr(scaling, "point", point)
    sizes = dict(classes=(70,), processes=(), rows=50, features=30, iterations=2)
    options = scaling.Options(**sizes, out=tmp_path)
    result = scaling.run(options)
    (one,) = result["by_classes"]
    assert one["processor"] > 0 and one["weights_mb"] == pytest.approx(4 * 30 * 70 / 2**20)
    assert "| 70 | 1 |" in scaling.markdown(result)
    X, y = scaling.rows_and_classes(options, 70)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert y.max() < 70


def test_a_program_of_the_experiment_leaves_the_table_of_the_library_as_it_is():
    before = dict(METHODS)
    few = dict(lam=1.0, dtype="float64", tolerance=1e-6, rows=200)
    found = _multinomial.answer(_multinomial.Request("digits", program="block_newton", **few))
    newton = _multinomial.answer(_multinomial.Request("digits", program="newton", **few))
    assert found["status"] == newton["status"] == "CONVERGED"
    assert found["value"][-1] == pytest.approx(newton["value"][-1], rel=1e-9)
    assert dict(METHODS) == before


def test_the_best_rho_of_admm_is_shown_and_stays(tmp_path, monkeypatch):
    from xmcjax.solvers.multinomial import advance

    calls = []

    def watched(problem, hp, state, *, method):
        calls.append(float(state.memory.rho))
        return advance(problem, hp, state, method=method)

    monkeypatch.setattr("xmcjax.solvers.multinomial.advance", watched)
    few = dict(problems=("digits:1",), methods=("admm", "admm, best ρ"), rhos=(0.01, 1.0), curve=2)
    options = figures_1_4.Options(rows=60, limit=2.0, out=tmp_path, **few)
    result = figures_1_4.run(options)
    found = result["problems"]["digits:1"]
    assert set(calls) == {np.float32(0.01), 1.0}
    seen = found["rhos"]
    assert list(seen) == ["0.01", "1"] and seen["0.01"] != seen["1"]
    best = found["runs"]["admm, best ρ"]
    gap = max(min(best["value"]) / found["optimum"]["value"] - 1, 1e-8)
    assert gap == pytest.approx(min(seen.values())) and best["value"][-1] < best["value"][0]
    text = figures_1_4.markdown(result)
    assert "| admm, best ρ |" in text
    assert "| set:λ | ρ = 0.01 | ρ = 1 | best |" in text
