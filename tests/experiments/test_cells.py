"""Cells are found by every option, keep what made them, and say so on the page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from experiments import _multinomial, _report
from experiments._cells import Cells
from experiments.bench import multinomial
from experiments.papers.p000.starts import _sets
from experiments.papers.p002 import figures_1_4, scaling


@dataclasses.dataclass(frozen=True)
class Options:
    sets: tuple[str, ...] = ("a", "b")
    rows: int = 10
    tol: float = 0.1
    folds: tuple[int, ...] = (1, 2)
    out: Path = Path("results")
    small: bool = False
    full: bool = False


@pytest.fixture
def options(tmp_path):
    return Options(out=tmp_path)


def counted(cells, calls, *without, **asked):
    def work():
        calls.append(asked)
        return {"number": len(calls), "pair": (1, 2)}

    return cells.get(work, without, **asked)


def test_every_option_is_part_of_the_key(options):
    calls = []
    first = counted(Cells(options, "x", listed=("sets",)), calls, set="a")
    for changed in (dict(rows=11), dict(tol=0.2), dict(folds=(1, 3))):
        counted(Cells(dataclasses.replace(options, **changed), "x", listed=("sets",)), calls, set="a")
    assert len(calls) == 4
    counted(Cells(options, "x", listed=("sets",)), calls, set="b")
    assert len(calls) == 5
    # what lists the cells, and what stands for other options, is none of it; results are as JSON has them
    same = dataclasses.replace(options, sets=("a", "c"), small=True, full=True)
    assert (
        counted(Cells(same, "x", listed=("sets",)), calls, set="a") == first == {"number": 1, "pair": [1, 2]}
    )
    # and what a result does not depend on is left out by name
    one = counted(Cells(options, "x", listed=("sets",)), calls, "tol", set="a")
    other = dataclasses.replace(options, tol=0.3)
    assert counted(Cells(other, "x", listed=("sets",)), calls, "tol", set="a") == one
    assert len(calls) == 6


def test_what_is_no_option_is_refused(options):
    with pytest.raises(ValueError, match="expected names of options, got rate"):
        Cells(options, "x", listed=("rate",))
    cells = Cells(options, "x", listed=("sets",))
    for without, asked in ((("rate",), {}), ((), {"rows": 3})):
        with pytest.raises(ValueError, match="asked for twice, or no option"):
            cells.get(dict, without, **asked)
    (options.out / "old.cells.json").write_text('{"a, 10 rows": {"seconds": 1}}')
    with pytest.raises(ValueError, match=r"old.cells.json: expected a list of cells .*take another folder"):
        Cells(options, "old")


def test_what_another_process_stores_stays(options):
    calls = []
    ours, theirs = (Cells(options, "x", listed=("sets",)) for _ in range(2))
    counted(ours, calls, set="a")
    counted(theirs, calls, set="b")
    assert len(json.loads((options.out / "x.cells.json").read_text())) == 2
    both = Cells(options, "x", listed=("sets",))
    assert both.has(set="a") and both.has(set="b") and not both.has(set="c")
    assert [asked["set"] for asked, _ in both.alike()] == ["a", "b"]
    assert [found["number"] for _, found in both.alike(set="a")] == [1]


def test_numbers_of_a_list_stand_on_one_line(options):
    result = {"curve": [1.5, None, -2e-3], "none": [], "rows": [{"a": [1, 2]}, "[\n 1, 2\n]", ["x", 3]]}
    _report.write(options.out, "x", {"made": [], **result}, "| a |\n")
    text = (options.out / "x.json").read_text()
    assert json.loads(text) == {"made": [], **result}
    assert ' "curve": [1.5, null, -0.002],\n' in text and '   "a": [1, 2]\n' in text


def test_a_page_says_what_made_it_and_where_commits_are_mixed(options, monkeypatch):
    calls = []
    cells = Cells(options, "x", listed=("sets",))
    counted(cells, calls, set="a")
    (made,) = cells.made()
    assert made["cells"] == 1 and made["command"].startswith("python ")
    assert made["commit"] == _report.commit() and made["versions"]["jax"]
    text = _report.write(options.out, "x", {"made": cells.made()}, "| a |\n")
    assert text.startswith("| a |\n\nMade by `python ") and made["commit"] in text

    monkeypatch.setattr(_report, "commit", lambda: "0123456789ab")
    later = Cells(options, "x", listed=("sets",))
    for name in ("a", "b", "c"):
        counted(later, calls, set=name)
    assert sorted((one["cells"], one["commit"]) for one in later.made()) == sorted(
        [(1, made["commit"]), (2, "0123456789ab")]
    )
    text = _report.write(options.out, "x", {"made": later.made()}, "| a |\n")
    assert "Made at 2 commits:\n" in text and "- 2 cells: `python " in text
    assert json.loads((options.out / "x.json").read_text())["made"] == later.made()
    # a result that is made at once
    _report.write(options.out, "y", {"seconds": 1}, "")
    assert json.loads((options.out / "y.json").read_text())["made"][0]["commit"] == "0123456789ab"


def asked_again(experiment, options, asked, changes):
    """How often `asked` grew when an experiment ran again with each of the changes."""
    experiment.run(options)
    grown = []
    for changed in ({}, *changes):
        before = len(asked)
        experiment.run(dataclasses.replace(options, **changed))
        grown.append(len(asked) - before)
    return grown


def test_a_scaling_with_another_lambda_is_measured(tmp_path, monkeypatch):
    asked = []
    numbers = dict(processor=1.0, clock=1.0, value=1.0, peak_mb=1.0, weights_mb=1.0)
    monkeypatch.setattr(scaling, "point", lambda *a: asked.append(a) or numbers)
    options = scaling.Options(classes=(70,), processes=(), out=tmp_path)
    changes = [dict(lam=0.2), dict(rows=50), dict(features=9), dict(entries=5), dict(iterations=9)]
    assert asked_again(scaling, options, asked, changes) == [0, 1, 1, 1, 1, 1]


@pytest.fixture
def traces(monkeypatch):
    """Counts the runs, which are not made."""
    asked = []
    lists = dict(value=[2.0, 1.0], gradient_norm=[1.0, 0.1], seconds=[1.0, 2.0], bound=[2.0, 1.0])
    found = lists | {"status": "CONVERGED", "steps": 1, "inner": 1}
    monkeypatch.setattr(_multinomial, "ask", lambda request: asked.append(request) or found)
    return asked


def test_traces_of_other_rows_gaps_and_limits_are_made(tmp_path, traces, monkeypatch):
    errors = []
    monkeypatch.setattr(figures_1_4, "_one_vs_rest", lambda *a: errors.append(a) or {"error": 1.0})
    options = figures_1_4.Options(problems=("digits:1",), methods=("auto",), out=tmp_path)
    options = dataclasses.replace(options, choose_lam=True, lams=(1.0,))
    changes = [dict(rows=50), dict(gap=1e-3), dict(limit=1.0), dict(folds=2)]
    # the optimum and the trace, or the trace alone
    assert asked_again(figures_1_4, options, traces, changes) == [0, 2, 1, 1, 0]
    other = dataclasses.replace(options, out=tmp_path / "other")
    assert asked_again(figures_1_4, other, errors, changes) == [0, 1, 0, 0, 1]


def test_a_benchmark_of_other_rows_and_limits_is_made(tmp_path, traces):
    few = dict(float32=(), float64=("auto",), lams=(1.0,), repeats=1)
    options = multinomial.Options(sets=("digits",), out=tmp_path, **few)
    changes = [dict(rows=50), dict(limit=1.0), dict(gaps=(1e-2,))]
    assert asked_again(multinomial, options, traces, changes) == [0, 2, 1, 1]


def test_naics2017_is_weighted_like_the_set_that_it_is():
    assert _sets.load("naics2017").setting == _sets.load("naics_demo").setting == "tf-idf"


def test_a_cell_of_older_code_is_measured_again_and_stays_until_then(options, monkeypatch):
    from experiments import _cells

    calls = []
    monkeypatch.setattr(_cells, "sources", lambda study: "first")
    monkeypatch.setattr(_report, "made", lambda name: {"sources": now[0], "command": "", "commit": ""})
    now = ["first"]
    for name in ("a", "b"):
        counted(Cells(options, "x", listed=("sets",)), calls, set=name)
    counted(Cells(options, "x", listed=("sets",)), calls, set="a")
    assert len(calls) == 2
    now[0] = "second"
    monkeypatch.setattr(_cells, "sources", lambda study: "second")
    cells = Cells(options, "x", listed=("sets",))
    assert not cells.has(set="a") and list(cells.alike()) == []
    counted(cells, calls, set="a")
    assert len(calls) == 3
    stored = json.loads((options.out / "x.cells.json").read_text())
    assert sorted(cell["made"]["sources"] for cell in stored) == ["first", "second"]


def test_lambda_by_cross_validation_is_that_of_the_trace(tmp_path, traces, monkeypatch):
    wrong = {1.0: 3.0, 10.0: 2.0}
    monkeypatch.setattr(figures_1_4, "_one_vs_rest", lambda options, data, lam: {"error": wrong[lam]})
    options = figures_1_4.Options(problems=("digits:cv",), methods=("auto",), lams=(1.0, 10.0), out=tmp_path)
    result = figures_1_4.run(dataclasses.replace(options, rows=60, curve=2))
    assert list(result["problems"]) == ["digits:10"] and {one.lam for one in traces} == {10.0}
    assert result["cross_validation"]["digits"]["10"]["error"] == 2.0
