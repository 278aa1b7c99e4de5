"""``xmcjax evaluate --held-out``: thresholds of labels by the predictions of other rows."""

import json

import numpy as np
import pytest

from xmcjax.data import load_xmc, save_xmc
from xmcjax.metrics import above_thresholds, f1_thresholds, macro_f1, micro_f1
from xmcjax.models import LinearModel, Predictor


@pytest.fixture
def predicted(xmcjax, files, model, tmp_path):
    """Paths of held-out rows, of their predictions and of those of the test rows."""
    X, Y = load_xmc(files / "train.txt")
    save_xmc(tmp_path / "held.txt", X[:100], Y[:100])
    for name, data in (("held", tmp_path / "held.txt"), ("test", files / "test.txt")):
        out = tmp_path / f"{name}.npz"
        xmcjax("predict", "--model", model, "--data", data, "--out", out, "--top-k", 30).done()
    return tmp_path / "held.txt", tmp_path / "held.npz", tmp_path / "test.npz"


def test_it_is_what_the_metrics_say(xmcjax, files, model, predicted):
    held, of_held, of_test = predicted
    ask = ("evaluate", "--data", files / "test.txt", "--predictions", of_test)
    said = xmcjax(*ask, "--held-out", held, "--held-out-predictions", of_held, "--json").done()
    found = json.loads(said.out)["thresholds"]
    predictor, transforms = Predictor(model), LinearModel.load(model).transforms()
    (X, Y), (X_test, Y_test) = load_xmc(held), load_xmc(files / "test.txt")
    limits = f1_thresholds(Y, predictor.decision_function(transforms.apply(X)))
    P = above_thresholds(predictor.decision_function(transforms.apply(X_test)), limits)
    assert found["miF1"] == pytest.approx(100 * micro_f1(Y_test, P))
    assert found["maF1"] == pytest.approx(100 * macro_f1(Y_test, P))
    assert found["rows"] == 100 and found["labels"] == np.isfinite(limits).sum() < 30
    text = xmcjax(*ask, "--held-out", held, "--held-out-predictions", of_held).done().out
    assert f"thresholds  miF1 {found['miF1']:.2f}, maF1 " in text
    assert "thresholds" not in json.loads(xmcjax(*ask, "--json").done().out)


def test_pairs_that_are_left_out_count_for_nothing(xmcjax, files, predicted, tmp_path):
    held, of_held, of_test = predicted
    Y = load_xmc(files / "test.txt")[1]
    pairs = [(row, label) for row in range(Y.shape[0]) for label in Y[row].indices]
    (tmp_path / "pairs").write_text("".join(f"{row} {label}\n" for row, label in pairs))
    ask = ("evaluate", "--data", files / "test.txt", "--predictions", of_test, "--held-out", held)
    more = ("--held-out-predictions", of_held, "--filter-labels", tmp_path / "pairs", "--json")
    found = json.loads(xmcjax(*ask, *more).done().out)["thresholds"]
    assert found["miF1"] == found["maF1"] == 0  # all that is true is left out


def test_what_is_refused(xmcjax, files, predicted, tmp_path):
    held, _, of_test = predicted
    ask = ("evaluate", "--data", files / "test.txt", "--predictions", of_test)
    xmcjax(*ask, "--held-out", held).refused("--held-out needs --held-out-predictions, got none")
    xmcjax(*ask, "--held-out-predictions", held).refused("--held-out-predictions needs --held-out, got none")
    xmcjax(*ask, "--held-out-labels-file", held).refused("--held-out-labels-file needs --held-out, got none")
    both = (*ask, "--held-out-predictions", of_test, "--held-out")
    xmcjax(*both, held).refused("test.npz", "expected 100 lines, one per row of the data, found 60")
    xmcjax(*both, tmp_path / "none.txt").refused("none.txt: expected a file, found none")
    X, Y = load_xmc(files / "test.txt")
    wide = Y.tolil()
    wide.resize(Y.shape[0], 31)
    wide[0, 30] = 1
    save_xmc(tmp_path / "wide.txt", X, wide.tocsr())
    xmcjax(*both, tmp_path / "wide.txt").refused("wide.txt:1: expected 30 labels as in")
    (tmp_path / "bad.txt").write_text("0:nan\n")
    xmcjax(*ask, "--held-out", held, "--held-out-predictions", tmp_path / "bad.txt").refused("bad.txt:1:")
