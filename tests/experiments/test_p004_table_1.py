"""The tables of accuracies, on a set that needs no files."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from experiments import _data
from experiments.papers.p004 import table_1
from experiments.papers.p004.baselines import BASELINES, TOL


@pytest.fixture
def few_digits(monkeypatch):
    """A hundred digits in every part."""

    def load(name):
        data = CLASS_SETS[name]()
        return _data.ClassSplit(*(array[:100] for array in data))

    CLASS_SETS = _data.CLASS_SETS
    monkeypatch.setattr(_data, "load_classes", load)


def test_small(few_digits, tmp_path, capsys):
    options = dataclasses.replace(
        table_1.Options(small=True).chosen(),
        methods=("top-k SVM alpha", "top-k SVM beta", "softmax"),
        out=tmp_path,
    )
    result = table_1.run(options)
    stored = json.loads((tmp_path / "p004_table_1.json").read_text())
    assert stored["fits"] == result["fits"]
    methods = result["fits"]["digits"]
    assert sorted(methods) == ["softmax", "top-1 SVM alpha", "top-3 SVM alpha", "top-3 SVM beta"]
    for records in methods.values():
        assert len(records) > 3  # accuracies rise up to C = 1
        for fit in records.values():
            assert len(fit["test"]) == 10 and fit["test"] == sorted(fit["test"])
            assert fit["test"][-1] == pytest.approx(100)
    test, Cs, gap = table_1.selected(methods["top-1 SVM alpha"])
    assert test[0] > 80 and Cs[0] >= 1 and gap is not None
    text = (tmp_path / "p004_table_1.md").read_text()
    assert "| top-3 SVM beta |" in text

    # a second run finds every fit
    capsys.readouterr()
    assert table_1.run(options)["fits"] == result["fits"]
    assert not capsys.readouterr().out
    # another limit asks for other fits, and the first stay
    few = table_1.run(dataclasses.replace(options, methods=("top-k SVM alpha",), max_epochs=5))
    assert few["settings"]["max_epochs"] == 5 and few["fits"] != result["fits"]
    assert max(fit["epochs"] for fits in few["fits"]["digits"].values() for fit in fits.values()) <= 5
    assert table_1.Fits(options).result() == result


def test_choice_of_C():
    valid = {0.1: [50.0, 60.0], 1.0: [55.0, 60.0], 10.0: [55.0, 70.0]}
    records = {C: {"valid": v, "test": [C, -C], "gap": TOL * C, "epochs": None} for C, v in valid.items()}
    assert table_1.best(records) == [1.0, 10.0]
    assert table_1.outside(records, (0.1, 1.0, 10.0), 1) == [100.0]
    assert table_1.outside(records, (0.1, 1.0, 10.0), 0) == []
    assert table_1.outside(records, (0.1, 1.0), 1) == []  # it is extended
    chosen = table_1.selected({repr(C): fit for C, fit in records.items()})
    assert chosen == ([1.0, -10.0], [1.0, 10.0], 10 * TOL)
    # a top-k SVM that was given up is not chosen
    records = {C: fit | {"epochs": 300} for C, fit in records.items()}
    assert table_1.best(records) == [1.0, 0.1]
    assert table_1.outside(records, (0.1, 1.0, 10.0), 1) == [0.01]


def test_larger_C_are_left_out_where_accuracy_has_fallen():
    def of(*valid):
        return {10.0**i: {"valid": list(tops)} for i, tops in enumerate(valid)}

    best = (60.0, 80.0)
    assert table_1.fallen(of(best, (58.0, 78.0), (57.0, 77.0)))
    assert not table_1.fallen(of(best, (59.5, 79.5), (57.0, 77.0)))  # the last alone
    assert not table_1.fallen(of(best, (58.0, 78.0), (57.0, 81.0)))  # not at every top
    assert not table_1.fallen(of(best, (58.0, 78.0)))


def test_a_top_k_svm_goes_up_to_the_first_C_that_is_not_solved():
    records = {0.1: {"gap": TOL}, 1.0: {"gap": 2 * TOL}}
    assert table_1.to_fit(records, (0.01, 0.1, 0.5, 1.0, 10.0)) == {0.01, 0.5}
    assert table_1.to_fit({}, (0.01, 10.0)) == {0.01, 10.0}


def test_accuracies_equal_the_metric():
    from xmcjax.metrics import topk_accuracy as metric

    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(50, 12)), rng.integers(12, size=50)
    expected = [100 * metric(y, scores, top) for top in range(1, 11)]
    np.testing.assert_allclose(table_1.accuracies(scores, y), expected)


def test_the_row_of_the_paper_is_below_ours(capsys):
    fit = {"valid": [50.0] * 10, "test": [51.0] * 10, "gap": None, "epochs": None}
    result = {"fits": {"caltech101_silhouettes": {"W++,0/m": {"0.1": fit}, "top-5 SVM beta": {"1.0": fit}}}}
    lines = table_1.markdown(result).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("| W++,0/m"))
    assert "*62.33*" in lines[place + 1] and "*89.08*" in lines[place + 1]
    assert "stepsize 0.1" in lines[place]


def test_what_is_asked_for_stays():
    options = table_1.Options(full=True, sets=("caltech101_silhouettes",), grid=(1.0, 10.0)).chosen()
    assert options.sets == ("caltech101_silhouettes",) and options.grid == (1.0, 10.0)
    assert len(options.ks) == 11 and len(options.methods) == 2 + len(BASELINES)


def test_unknown_method():
    with pytest.raises(ValueError, match="expected methods of"):
        table_1.run(table_1.Options(methods=("top-k",)).chosen())


def test_top_k_below_top_1_is_said():
    def fit(value):
        return {"1.0": {"valid": [0.0] * 10, "test": [value] * 10, "gap": 0.0, "epochs": 9}}

    methods = {"top-1 SVM alpha": fit(70.0), "top-5 SVM alpha": fit(71.0), "top-10 SVM beta": fit(69.0)}
    lines = table_1.comparison(methods)
    assert len(lines) == 2 and "at least" in lines[0] and "BELOW" in lines[1]
