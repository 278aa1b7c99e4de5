"""What ``xmcjax evaluate`` shows beside the ranking metrics: bins of labels, and pairs that do not count."""

import json

import numpy as np
import pytest

from xmcjax import metrics
from xmcjax.data import load_xmc
from xmcjax.models import read_predictions


@pytest.fixture
def predicted(xmcjax, model, files, tmp_path):
    out = tmp_path / "p.txt"
    xmcjax("predict", "--model", model, "--data", files / "test.txt", "--out", out).done()
    return out


def test_bins(xmcjax, files, predicted):
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", predicted, "--k", 1, 3)
    train = ("--train", files / "train.txt")
    told = json.loads(xmcjax(*evaluate, *train, "--bins", 10, 40, "--json").done().out)
    Y, labels = load_xmc(files / "test.txt")[1], read_predictions(predicted)[0]
    frequencies = np.bincount(load_xmc(files / "train.txt")[1].indices, minlength=30)
    for k in (1, 3):
        found = metrics.by_frequency(Y, labels, k, frequencies=frequencies, edges=[10, 40])
        bins = told["bins"][str(k)]
        assert [b["bin"] for b in bins] == ["< 10", "10 to 39", ">= 40"]
        np.testing.assert_allclose([b["P"] for b in bins], 100 * found.precision)
        np.testing.assert_allclose([b["R"] for b in bins], 100 * found.recall)
        assert sum(b["P"] for b in bins) == pytest.approx(told["metrics"]["P"][str(k)])
    text = xmcjax(*evaluate, *train, "--bins", 10).done().out
    assert "rows in training" in text and ">= 10" in text
    xmcjax(*evaluate, "--bins", 10).refused("--bins needs --train")
    xmcjax(*evaluate, *train, "--bins", 3, 2).refused("expected ascending numbers from 1")


def test_numbers_of_labels_beyond_those_of_any_row(xmcjax, files, predicted):
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", predicted, "--json")
    evaluate += ("--train", files / "train.txt", "--bins", 10, "--k")
    few, many, all_ = 3, 25, 1_000_000_000
    told = json.loads(xmcjax(*evaluate, few, many, all_).done().out)
    Y, labels = load_xmc(files / "test.txt")[1], read_predictions(predicted)[0]
    q = metrics.inverse_propensities(load_xmc(files / "train.txt")[1])
    labels = np.pad(labels, ((0, 0), (0, many - labels.shape[1])), constant_values=-1)
    found = told["metrics"]
    assert set(found) == {*metrics.RANKING_METRICS, *metrics.PROPENSITY_METRICS}
    for name in found:
        more = {} if name in metrics.RANKING_METRICS else {"inverse_propensities": q}
        metric = (metrics.RANKING_METRICS | metrics.PROPENSITY_METRICS)[name]
        wanted = [100 * metric(Y, labels, k, **more) for k in (few, many)]
        wanted.append(wanted[-1] * (many / all_ if name == "P" else 1))
        np.testing.assert_allclose(list(found[name].values()), wanted, rtol=1e-12)
    for k in (few, many, all_):
        parts = sum(part["P"] for part in told["bins"][str(k)])
        assert parts == pytest.approx(found["P"][str(k)], rel=1e-12)


def test_pairs_that_do_not_count(xmcjax, files, predicted, tmp_path):
    Y, (labels, _) = load_xmc(files / "test.txt")[1].toarray(), read_predictions(predicted)
    pairs = [(i, labels[i, 0]) for i in range(0, 60, 2)] + [(1, 29)]
    (tmp_path / "pairs").write_text("".join(f"{i} {l}\n" for i, l in pairs))
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", predicted, "--k", 1, 2, "--json")
    told = json.loads(xmcjax(*evaluate, "--filter-labels", tmp_path / "pairs").done().out)
    hits = {1: 0, 2: 0}
    for i, row in enumerate(labels):
        left = [l for l in row if (i, l) not in pairs]
        for k in hits:
            hits[k] += sum(Y[i, l] for l in left[:k]) / k
    for k, hit in hits.items():
        assert told["metrics"]["P"][str(k)] == pytest.approx(100 * hit / 60)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 1\n60 0\n", ":2:1: expected rows from 0 to 59, found 60"),
        ("0 30\n", ":1:3: expected labels from 0 to 29, found 30"),
        ("0\n", ":1:1: expected a pair of numbers, row and label, found '0"),
        ("0 1 2\n", "expected a pair of numbers"),
        ("-1 2\n", "expected a pair of numbers"),
        ("0 " + "1" * 1000, "expected a pair of numbers"),
        ("0 1" + " " * 300 + "2 3\n", "expected a pair of numbers"),
    ],
)
def test_pairs_with_mistakes(xmcjax, files, predicted, tmp_path, text, said):
    (tmp_path / "pairs").write_text(text)
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", predicted)
    xmcjax(*evaluate, "--filter-labels", tmp_path / "pairs").refused(f"{tmp_path / 'pairs'}", said)


def test_a_label_that_would_take_much_memory_is_refused(xmcjax, tmp_path):
    (tmp_path / "d.svm").write_text("1 1:1\n2 2:1\n")
    (tmp_path / "p.txt").write_text("1:1\n2147483646:1\n")
    evaluate = ("evaluate", "--format", "svmlight", "--data", tmp_path / "d.svm")
    evaluate = (*evaluate, "--predictions", tmp_path / "p.txt")
    said = ("p.txt: expected data that take at most 64 MB", "labels up to 2147483646, which no row of")
    xmcjax(*evaluate).refused(*said)
    (tmp_path / "p.txt").write_text("1:1\n50000:1\n")
    assert "P " in xmcjax(*evaluate).done().out


def test_predictions_that_hold_every_label_are_not_warned_of(xmcjax, tmp_path):
    data, predicted = tmp_path / "three.txt", tmp_path / "p.txt"
    data.write_text("2 4 3\n0 1:1\n1,2 2:1\n")
    evaluate = ("evaluate", "--data", data, "--predictions", predicted)
    predicted.write_text("0:3 2:2 1:1\n2:3 1:2 0:1\n")
    assert not xmcjax(*evaluate).done().err  # @5 beside 3 labels
    predicted.write_text("0:3 2:2\n2:3 1:2\n")
    assert "has at most 2 labels a line: the others count as wrong" in xmcjax(*evaluate).done().err
