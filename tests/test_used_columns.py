"""Fits of sparse features of which most columns are empty: as of those that are used, and 0 elsewhere."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import multinomial_certificate, used_columns
from tests.support.lanes import matrix, train
from tests.support.memory import peak_of
from xmcjax import MulticlassSVC, MultinomialLogisticRegression, OneVsAllClassifier, TopKSVC
from xmcjax.estimators import Checkpoint, OutOfTimeError, fit_with_state
from xmcjax.inits import Init, Starts
from xmcjax.models import ArrayModel, decision_function, predict_topk
from xmcjax.solvers import Status
from xmcjax.solvers.multinomial import block_newton

D, N = 20_000, 120


@pytest.fixture(scope="module")
def problem():
    """(X of 20,000 columns, numbers of those with entries, X of these alone, classes)."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N)
    few = sp.csr_matrix(np.where(rng.random((N, 40)) < 0.2, 1 + rng.random((N, 40)), 0))
    few += sp.csr_matrix((np.ones(N), (np.arange(N), 3 * y)), shape=(N, 40))
    few = sp.csr_matrix(few)
    columns = np.sort(rng.choice(D, 40, replace=False))
    wide = sp.csr_matrix((few.data, columns[few.indices].astype(np.int32), few.indptr), shape=(N, D))
    return wide, columns, few, y


def spread(few: Any, columns: np.ndarray) -> np.ndarray:
    """Weights of all columns, of which those of some are known."""
    few = few.toarray() if sp.issparse(few) else few
    wide = np.zeros((len(few), D), few.dtype)
    wide[:, columns] = few
    return wide


def dense(coef: Any) -> np.ndarray:
    return coef.toarray() if sp.issparse(coef) else coef


def with_weight_in_an_empty_column(coef: Any, columns: np.ndarray) -> Any:
    empty = min(set(range(D)) - set(columns.tolist()))
    more = sp.csr_matrix((np.full(3, 5.0), (np.arange(3), np.full(3, empty))), shape=coef.shape)
    return sp.csr_matrix(coef + more) if sp.issparse(coef) else coef + more.toarray()


CASES: dict[str, Any] = {
    "squared hinge": lambda **more: OneVsAllClassifier(**more),
    "logistic": lambda **more: OneVsAllClassifier("logistic", clip=0, regularise_intercept=False, **more),
    "elastic net": lambda **more: OneVsAllClassifier(penalty="elastic_net", **more),
    "l1": lambda **more: OneVsAllClassifier(penalty="l1", fit_intercept=False, **more),
    "tree": lambda **more: OneVsAllClassifier(init="ova_primal_pp", **more),
    "sparsified": lambda **more: OneVsAllClassifier(sparsify_rise=0.01, init="multi_pos", **more),
    "multinomial": lambda **more: MultinomialLogisticRegression(**more),
    "newton": lambda **more: MultinomialLogisticRegression("newton", **more),
    "without intercept": lambda **more: MultinomialLogisticRegression(fit_intercept=False, **more),
}
OF_DUALS: dict[str, Any] = {
    "hinge": lambda: OneVsAllClassifier("hinge"),
    "ww": lambda: MulticlassSVC(random_state=0),
    "cs": lambda: MulticlassSVC("cs", fit_intercept=True, random_state=0),
    "top-k": lambda: TopKSVC(2, random_state=0),
    "top-k with intercept": lambda: TopKSVC(2, fit_intercept=True, random_state=0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES | OF_DUALS)
def test_weights_are_those_of_the_columns_with_entries(problem, name, dtype):
    wide, columns, few, y = problem
    ours, reference = ((CASES | OF_DUALS)[name]().fit(X.astype(dtype), y) for X in (wide, few))
    assert ours.coef_.shape == (3, D) and sp.issparse(ours.coef_) == sp.issparse(reference.coef_)
    np.testing.assert_array_equal(dense(ours.coef_), spread(reference.coef_, columns))
    np.testing.assert_array_equal(ours.intercept_, reference.intercept_)
    assert ours.n_features_in_ == D
    np.testing.assert_array_equal(ours.predict(wide.astype(dtype)), reference.predict(few.astype(dtype)))


@pytest.mark.parametrize("name", [name for name in CASES if name != "tree"])
def test_warm_starts_lose_the_weights_of_empty_columns(problem, name):
    wide, columns, few, y = problem
    ours = CASES[name](warm_start=True, tol=1e-3).fit(wide, y)
    reference = CASES[name](warm_start=True, tol=1e-3).fit(few, y)
    ours.coef_ = with_weight_in_an_empty_column(ours.coef_, columns)
    for one, X in ((ours, wide), (reference, few)):
        one.fit(X, np.where(y == 2, 3, y))
    np.testing.assert_array_equal(dense(ours.coef_), spread(reference.coef_, columns))


def test_labels_that_come_later(problem):
    wide, columns, few, y = problem
    Y = sp.csr_matrix((np.ones(N), (np.arange(N), y)), shape=(N, 3))
    ours, reference = (OneVsAllClassifier().fit(X, Y[:, :2]).partial_fit(X, Y) for X in (wide, few))
    np.testing.assert_array_equal(dense(ours.coef_), spread(reference.coef_, columns))


def test_label_matrices_of_all_in_one_svms(problem):
    wide, columns, few, y = problem
    Y = sp.csr_matrix((np.ones(N), (np.arange(N), y)), shape=(N, 3))
    ours, reference = (MulticlassSVC("cs", random_state=0).fit(X, Y) for X in (wide, few))
    np.testing.assert_array_equal(ours.coef_, spread(reference.coef_, columns))


def test_a_saved_model_is_the_start(problem, tmp_path):
    wide, columns, few, y = problem
    for name, X in (("wide", wide), ("few", few)):
        saved = OneVsAllClassifier().fit(X, y)
        if name == "wide":
            saved.coef_ = with_weight_in_an_empty_column(saved.coef_, columns)
        saved.save(tmp_path / name)
    options: dict[str, Any] = dict(init="pretrained", tol=1e-3)
    ours = OneVsAllClassifier(pretrained=tmp_path / "wide", **options).fit(wide, y)
    reference = OneVsAllClassifier(pretrained=tmp_path / "few", **options).fit(few, y)
    np.testing.assert_array_equal(dense(ours.coef_), spread(reference.coef_, columns))
    # a class that comes later begins as the saved model has it
    again = [
        OneVsAllClassifier(pretrained=tmp_path / name, warm_start=True, **options).fit(X, y)
        for name, X in (("wide", wide), ("few", few))
    ]
    of_both = [one.fit(X, np.array([0, 1, 9])[y]).coef_ for one, X in zip(again, (wide, few), strict=True)]
    np.testing.assert_array_equal(dense(of_both[0]), spread(of_both[1], columns))
    # without a step all of it is kept
    kept = OneVsAllClassifier(pretrained=tmp_path / "wide", init="pretrained", max_iter=0)
    kept.fit(wide, y)
    saved = OneVsAllClassifier.load(tmp_path / "wide")
    np.testing.assert_array_equal(dense(kept.coef_), dense(saved.coef_))


@dataclasses.dataclass(frozen=True)
class OfAll(Init):
    """The same start for all labels, over the features that the caller knows."""

    weight: Any = None
    name: ClassVar[str] = "of_all"

    def prepare(self, data):
        return lambda labels: Starts.constant(len(labels.ids), len(self.weight), self.weight)


def test_an_initialisation_of_ones_own_may_be_of_all_features(problem):
    wide, columns, few, y = problem
    weight = np.random.default_rng(0).normal(size=D)
    ours = OneVsAllClassifier(init=OfAll(weight)).fit(wide, y)
    reference = OneVsAllClassifier(init=OfAll(weight[columns])).fit(few, y)
    np.testing.assert_array_equal(dense(ours.coef_), spread(reference.coef_, columns))


def test_plain_jax_does_the_same(problem):
    wide, columns, few, y = problem
    Y = sp.csr_matrix((np.ones(N), (np.arange(N), y)), shape=(N, 3))
    weight = np.where(np.arange(N) % 7 == 0, 0.0, 1.5)
    options: dict[str, Any] = dict(backend="jnp", sample_weight=weight)
    (W, b), (reference, bias) = (
        matrix(train(X, Y, **options)[0], X.shape[1]) for X in (wide.astype("f4"), few.astype("f4"))
    )
    np.testing.assert_array_equal(W.T, spread(reference.T, columns))
    np.testing.assert_array_equal(b, bias)


def test_a_run_goes_on_where_its_time_was_over(problem, tmp_path):
    wide, _, _, y = problem
    model = MultinomialLogisticRegression("lbfgs", tol=1e-6)
    state = Checkpoint(tmp_path / "state", {"C": 1.0}, time.monotonic())
    assert not state.begin(resume=False)
    with pytest.raises(OutOfTimeError):
        fit_with_state(model, wide, y, state)
    state = Checkpoint(tmp_path / "state", {"C": 1.0})
    assert state.begin(resume=True)
    fit_with_state(model, wide, y, state)
    assert model.history_[0].steps > 0
    whole = MultinomialLogisticRegression("lbfgs", tol=1e-6).fit(wide, y)
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-3)


def test_weights_that_end_a_run_are_kept_where_its_time_is_over(problem, tmp_path, monkeypatch):
    """Those of the certificate, which are no iteration of the method."""
    wide, _, _, y = problem
    state = Checkpoint(tmp_path / "state", {"C": 1.0})
    assert not state.begin(resume=False)
    plain = multinomial_certificate.Certifier.certified

    def certified(*given):
        state.deadline = time.monotonic()
        return plain(*given)

    monkeypatch.setattr(multinomial_certificate.Certifier, "certified", certified)
    monkeypatch.setattr(block_newton.Host, "_searched", lambda *_: None)
    monkeypatch.setattr("xmcjax.estimators._checkpoint.EVERY", 0)
    model = MultinomialLogisticRegression("block_newton")
    fit_with_state(model, wide, y, state)
    assert model.status_ == Status.CONVERGED
    assert [record.steps for record in model.history_] == [0, 1, 1]
    assert model.history_[-1].value == model.objective_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_prediction_with_all_weights_reads_those_of_the_rows(problem, dtype):
    wide, columns, few, _ = problem
    coef = np.random.default_rng(0).normal(size=(20, D)).astype(dtype)
    bias, X = np.zeros(20, dtype), wide.astype(dtype)
    models = ArrayModel(coef, bias), ArrayModel(np.ascontiguousarray(coef[:, columns]), bias)
    rows = X, few.astype(dtype)
    both, most = peak_of(
        lambda: [predict_topk(model, part, 3) for model, part in zip(models, rows, strict=True)]
    )
    (found, scores), reference = both
    assert most < coef.nbytes / 2
    np.testing.assert_array_equal(found, reference[0])
    np.testing.assert_array_equal(scores, reference[1])
    ours, theirs = (decision_function(model, some) for model, some in zip(models, rows, strict=True))
    np.testing.assert_array_equal(ours, theirs)


def test_without_entries(problem):
    wide, y = sp.csr_matrix((N, D)), problem[3]
    for model in (OneVsAllClassifier(clip=0), MultinomialLogisticRegression(), MulticlassSVC()):
        model.fit(wide, y)
        assert model.coef_.shape == (3, D) and not model.coef_.any()


@pytest.mark.parametrize("kind", [OneVsAllClassifier, MultinomialLogisticRegression, MulticlassSVC, TopKSVC])
def test_the_column_that_is_named_is_the_callers(problem, kind):
    wide, _, _, y = problem
    X = wide.copy()
    X.data[-1] = np.nan
    with pytest.raises(ValueError, match=f"column {X.indices[-1]} of X"):
        kind().fit(X, y)


@pytest.mark.parametrize(("used", "left_out"), [(100, True), (9_999, True), (10_001, False), (D, False)])
def test_columns_are_left_out_where_half_of_them_are_empty(used, left_out):
    X = sp.csr_matrix((np.ones(used), (np.arange(used) % 50, np.arange(used))), shape=(50, D))
    found = used_columns(X)
    assert (found.numbers is not None) == left_out
    if left_out:
        np.testing.assert_array_equal(found.numbers, np.arange(used))
    else:
        assert found.of(X) is X


def test_few_columns_are_kept():
    assert used_columns(sp.csr_matrix((3, 4096))).numbers is None
    np.testing.assert_array_equal(used_columns(sp.csr_matrix((3, 4097))).numbers, [0])


@pytest.mark.parametrize("entries", [3, 3_000], ids=["few", "many"])
def test_columns_of_a_matrix_that_has_others(entries):
    columns = used_columns(sp.csr_matrix(([1.0, 1.0], ([0, 0], [3, 9_000])), shape=(1, 10_000)))
    other = np.zeros((entries, 10_000))
    other[np.arange(entries), np.resize([9_000, 4, 3, 9_999, 0], entries)] = np.arange(1, entries + 1)
    expected = other[:, [3, 9_000]]
    np.testing.assert_array_equal(columns.of(sp.csr_matrix(other)).toarray(), expected)
    np.testing.assert_array_equal(columns.of(other), expected)


def test_columns_of_which_there_are_too_many_for_memory():
    """Nothing of the size of all columns is made where entries are few."""
    X = sp.csr_matrix(([1.0, 2.0], ([0, 1], [7, 2**31 - 2])), shape=(2, 2**31 - 1))
    found, most = peak_of(lambda: used_columns(X).of(X))
    assert found.toarray().tolist() == [[1, 0], [0, 2]]
    assert most < 1 << 20
    # and where more of them are used than may be
    np.testing.assert_array_equal(used_columns(sp.csr_matrix(np.eye(1, 4200, 7))).numbers, [7])
    many = sp.csr_matrix((np.ones(262), (np.zeros(262, int), np.arange(262))), shape=(1, 4200))
    assert used_columns(many).numbers is None
