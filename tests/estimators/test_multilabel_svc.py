"""MulticlassSVC("cs") on label matrices: the multi-label SVM with scikit-learn's conventions."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from tests.support.commands import run_apart
from tests.support.multilabel import D, L, N, check_that_one_label_a_row_is_a_class, problem
from xmcjax import MulticlassSVC, MultinomialLogisticRegression
from xmcjax.data import save_xmc
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md

C = 2.0
# the last label of the problem has no row, and each fit says so
pytestmark = pytest.mark.filterwarnings("ignore:1 of 6 labels have no positive rows:UserWarning")


def svc(**options):
    return MulticlassSVC("cs", C=C, random_state=0, **options)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_it_is_the_solver(form, intercept):
    X, Y = problem()
    model = svc(fit_intercept=intercept, tol=1e-6).fit(form(X), form(Y))
    assert model.status_ == Status.CONVERGED and model.dual_gap_ <= 1e-6
    np.testing.assert_array_equal(model.classes_, np.arange(L))
    features = np.hstack([X, np.ones((N, 1))]) if intercept else X
    found = md.run_multilabel(features, Y[:, :-1], C=C, tol=1e-7)  # the last label has no row
    coef, bias = model.coef_[:-1], model.intercept_[:-1]
    np.testing.assert_allclose(coef, found.W[:D].T, atol=1e-2)
    np.testing.assert_allclose(bias, found.W[D] if intercept else 0, atol=1e-2)
    np.testing.assert_allclose(model.decision_function(X)[:, :-1], X @ coef.T + bias, atol=1e-9)


def test_weights_are_repeated_rows():
    X, Y = problem()
    s = np.random.default_rng(1).integers(0, 3, N)
    weighted = svc(tol=1e-6).fit(X, Y, s)
    repeated = svc(tol=1e-6).fit(np.repeat(X, s, axis=0), np.repeat(Y, s, axis=0))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=5e-3)


def test_one_label_a_row_is_a_class():
    check_that_one_label_a_row_is_a_class(lambda: svc(tol=1e-6), 5e-3)


def test_predictions_are_labels_and_score_is_precision_at_1(tmp_path):
    X, Y = problem()
    model = svc().fit(sp.csr_matrix(X), sp.csr_matrix(Y))
    best = model.predict_topk(X, 2)[0]
    np.testing.assert_array_equal(model.predict(X), best[:, 0])
    hits = Y[np.arange(N), best[:, 0]]
    assert model.score(X, Y) == model.score(sp.csr_matrix(X), sp.csr_matrix(Y)) == hits.mean()
    model.save(tmp_path / "model")
    again = MulticlassSVC.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_a_fit_that_goes_on():
    X, Y = problem()
    model = svc(warm_start=True, tol=1e-5).fit(X, Y)
    before = model.n_iter_
    assert model.set_params(tol=1e-4).fit(X, Y).n_iter_ < before / 10 and model.status_ == Status.CONVERGED
    # near the end the last bit of X decides how many passes there are: 7 to 35 of 78 to 105
    assert model.set_params(tol=1e-5).fit(X, Y).n_iter_ < before and model.status_ == Status.CONVERGED
    other = svc(tol=1e-5).fit(X, 1 - Y)
    np.testing.assert_allclose(model.fit(X, 1 - Y).coef_, other.coef_, atol=2e-2)  # of other labels


@pytest.mark.parametrize("formulation", ["ww", "llw", "ovr", "ovr_squared"])
def test_other_formulations_have_no_place_for_several_labels(formulation):
    X, Y = problem()
    said = "^y: expected one class per row, found a sparse matrix"
    model = MulticlassSVC(formulation)
    with pytest.raises(TypeError, match=said):
        model.fit(X, sp.csr_matrix(Y))
    with pytest.raises(TypeError, match=said):
        model.fit(X, Y[:, 0]).score(X, sp.csr_matrix(Y))


def test_what_a_label_matrix_has_no_place_for_is_refused():
    X, Y = problem()
    with pytest.raises(ValueError, match=r"^class_weight: expected None with a label matrix as y"):
        svc(class_weight="balanced").fit(X, Y)
    with pytest.raises(ValueError, match=r"^calibration: expected None with a label matrix as y"):
        svc(calibration="temperature").fit(X, Y)
    with pytest.raises(ValueError, match=r"^Y: expected a row that has a label and lacks another"):
        svc().fit(X, 0 * Y)
    with pytest.raises(ValueError, match="expected a matrix of 0 and 1 as y, found 2"):
        svc().fit(X, 2 * Y)


def test_warnings_name_the_line_that_called():
    with pytest.warns(UserWarning, match="relative duality gap|no positive rows") as caught:
        svc(tol=1e-9, max_iter=1).fit(*problem())
    assert [warning.category for warning in caught] == [ConvergenceWarning, UserWarning]
    assert [warning.filename for warning in caught] == [__file__, __file__]


def test_the_command_trains_on_rows_with_several_labels(tmp_path):
    X, Y = problem()
    save_xmc(tmp_path / "train.txt", sp.csr_matrix(X), sp.csr_matrix(Y))
    train = ["train", "--system", "multiclass", "--C", C, "--tol", "1e-6", "--dtype", "float64"]
    train += ["--train", tmp_path / "train.txt", "--test", tmp_path / "train.txt"]
    train += ["--model", tmp_path / "model"]
    cs = [*train, "--formulation", "cs"]
    other = [*train[:-1], tmp_path / "other"]
    done, again, refused = run_apart([*cs, "--json"], [*cs, "--resume"], other)
    fields = json.loads(done.done().out)
    assert fields["training"]["gap"] <= 1e-6
    stored = MulticlassSVC.load(tmp_path / "model")
    ours = svc(tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(stored.coef_, ours.coef_, atol=1e-2)
    assert "nothing left to train" in again.done().out
    refused.refused("one label in every row")


@pytest.mark.parametrize("model", [MulticlassSVC("cs"), MultinomialLogisticRegression()])
def test_score_takes_the_labels_that_fit_takes(model):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 3)), (rng.random((40, 3)) < 0.4).astype(int)
    model.fit(X, Y)
    expected = model.score(X, Y)
    for wrong in (2 * Y - 1, np.where(Y, 1, np.nan), 2 * Y):
        with pytest.raises(ValueError, match="y: expected a matrix of 0 and 1, found"):
            model.score(X, wrong)
    for weight in (np.full(40, np.nan), np.full(40, -1.0), np.ones(3), np.zeros(40)):
        with pytest.raises(ValueError, match="weight"):
            model.score(X, Y, weight)
    assert model.score(X, Y, np.full(40, 2.0)) == expected
