"""The one check of matrices: what is refused, where, and that nothing is done with a matrix before it."""

from __future__ import annotations

import importlib
import inspect
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from jax.experimental import sparse as jax_sparse

from tests.support.entries import entries
from tests.support.estimators import ESTIMATORS
from tests.support.internals import sparse
from tests.support.matrices import MALFORMED, features
from xmcjax import data, estimators, linops, losses, metrics, models
from xmcjax.solvers import admm, instance_dual, multiclass_dual, multinomial, newton_cg

pytestmark = pytest.mark.usefixtures("default_settings")

FOLDER = tempfile.TemporaryDirectory()  # until the process ends
TABLE = entries(Path(FOLDER.name))
PARTS = [
    *("data", "estimators", "inits", "kernels", "lanes", "linops", "metrics", "models"),
    *("solvers.admm", "solvers.instance_dual", "solvers.multiclass_dual", "solvers.multinomial"),
    *("solvers.newton_cg", "solvers.topk_sdca"),
]
# What has an argument of such a name, and no matrix of a caller in it that anything follows.
NO_MATRIX = {
    "data.Demo": "a result",
    "data.Transform.fit": "behind fit_transforms",
    "lanes.Solved": "a result",
    "linops.from_scipy": "behind make",
    "linops.grouped_from_scipy": "behind make",
    "linops.on_the_device": "behind make",
    "linops.products_backend": "looks at the kind of X alone",
    "estimators.fit_with_state": "behind the fit of a classifier",
    "data.save_arrow": "needs pyarrow; as save_parquet",
    "data.save_npy": "arrays only",
    "data.save_parquet": "needs pyarrow; tests/data_io/test_arrow.py",
    "data.Dataset": "keeps what it is given; tested where it is used",
    "inits.TrainingSet": "made by the trainer",
    "kernels.precomputed": "arrays only",
    "kernels.precomputed_test": "arrays only",
    "lanes.checked_arguments": "behind train_one_vs_all",
    "models.checked_rows": "behind Predictor and predict_on_cluster",
    "lanes.make_trainer": "behind train_one_vs_all",
    "lanes.label_columns": "behind train_one_vs_all",
    "lanes.Forecast": "a result",
    "lanes.training_bytes": "takes numbers alone",
    "lanes.model_bytes": "takes numbers alone",
    "lanes.forecast": "in place of train_one_vs_all, by the same trainer",
    "lanes.make_queue": "behind train_one_vs_all",
    "lanes.train_on_nodes": "processes, tested beside lanes",
    "metrics.reject_curve": "class vectors",
    "metrics.taxonomy_loss": "class vectors",
    "metrics.parent_accuracy": "class vectors",
    "models.Calibration.apply": "arrays only",
    "models.HeldOut": "keeps what it is given; tested where it is used",
    "models.write_predictions": "arrays only",
    "solvers.multiclass_dual.run_over_mesh": "processes; begins as solve",
    "solvers.multinomial.multinomial_problem": "operators, tested below",
}
_ARGUMENTS = "X Y Y_true Y_train y_true y_pred predictions scores coef weights M"
MATRIX_ARGUMENTS = {*_ARGUMENTS.split()}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_malformed_matrices_are_refused_in_one_sentence(name):
    entry = TABLE[name]
    for case, malform in MALFORMED.items():
        with pytest.raises((ValueError, TypeError)) as caught:
            entry.call(malform(entry.valid()))
            pytest.fail(f"{name} took a matrix: {case}")
        said = str(caught.value)
        assert said.startswith(entry.name) and ": expected" in said and "found" in said, (case, said)
        assert "\n" not in said, (case, said)


class Guarded(sp.csr_array):
    """A matrix whose arrays may be looked at, and which nothing of scipy may be asked of."""

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if (
            callable(value)
            and not name.startswith("__")
            and super().__getattribute__("__dict__").get("guarded")
        ):
            raise AssertionError(f"scipy is asked for {name} before the check")
        return value

    def __getitem__(self, key):
        raise AssertionError("rows are taken before the check")

    def __matmul__(self, other):
        raise AssertionError("a product is made before the check")


def guarded(A):
    matrix = Guarded(A)
    matrix.guarded = True
    return matrix


# Fits that are compiled anew for each number of entries; the check is the same.
SLOW = (
    "estimators.KernelLogisticClassifier",
    "linops.make X gpu",
    "solvers.multiclass_dual.run X dense",
    "solvers.multiclass_dual.run X jnp",
)
FORMS = {
    "guarded": guarded,
    "csc": sp.csc_array,
    "coo": sp.coo_matrix,
    "bsr": lambda A: A.tobsr((2, 2)),
    "dia": sp.dia_array,
    "lil": sp.lil_matrix,
    "dok": sp.dok_array,
    "BCOO": jax_sparse.BCOO.from_scipy_sparse,
    "BCSR": jax_sparse.BCSR.from_scipy_sparse,
    "indices of 64 bits": lambda A: with_index_type(A, np.int64),
    "unsigned indices": lambda A: with_index_type(A, np.uint8),
    "read-only": lambda A: read_only(A),
    "in halves": lambda A: in_halves(A),
    "rows unsorted": lambda A: unsorted(A),
    "more values than the offsets end with": lambda A: with_more_room(A),
}


@pytest.mark.parametrize("name", [name for name in sorted(TABLE) if not name.startswith(SLOW)])
@pytest.mark.filterwarnings("ignore:Constructing a DIA matrix:scipy.sparse.SparseEfficiencyWarning")
def test_every_form_of_a_matrix_is_the_same_matrix(name):
    entry = TABLE[name]
    expected = entry.call(entry.valid())
    for form, make in FORMS.items():
        # of an entry stored twice it is not known which of two scores counts
        if form == "in halves" and name.endswith(" predictions"):
            continue
        matrix = make(entry.valid())
        before = {key: value.copy() for key, value in vars(matrix).items() if isinstance(value, np.ndarray)}
        same(entry.call(matrix), expected, 0.0 if form == "guarded" else 1e-5)
        for key, value in before.items():  # the caller's matrix is left as it is
            np.testing.assert_array_equal(getattr(matrix, key), value, form)


@pytest.mark.parametrize("name", [name for name in sorted(TABLE) if name.startswith(SLOW)])
def test_nothing_is_asked_of_a_matrix_before_the_check(name):
    """Nor of those whose other forms are not tried."""
    entry = TABLE[name]
    same(entry.call(guarded(entry.valid())), entry.call(entry.valid()))


def with_index_type(A, kind):
    A = A.copy()
    A.indices, A.indptr = A.indices.astype(kind), A.indptr.astype(kind)
    return A


def read_only(A):
    for array in (A.data, A.indices, A.indptr):
        array.flags.writeable = False
    return A


def in_halves(A):
    """Each entry twice, at half its value."""
    parts = np.repeat(A.data / 2, 2), np.repeat(A.indices, 2), A.indptr * 2
    return sp.csr_matrix(parts, shape=A.shape)


def unsorted(A):
    """Rows backwards, which scipy believes to be sorted."""
    order = np.arange(A.nnz).reshape(A.shape[0], 3)[:, ::-1].ravel()
    B = sp.csr_matrix((A.data[order], A.indices[order], A.indptr), shape=A.shape)
    B.has_sorted_indices = B.has_canonical_format = True
    return B


def with_more_room(A):
    """What stands behind the last row is no part of the matrix."""
    A = A.copy()
    A.data, A.indices = np.append(A.data, np.float32(7)), np.append(A.indices, np.int32(10**9))
    return A


def same(ours, theirs, tolerance=0.0):
    if sp.issparse(ours):
        ours, theirs = ours.toarray(), theirs.toarray()
    if isinstance(ours, (tuple, list)):
        for our, their in zip(ours, theirs, strict=True):
            same(our, their, tolerance)
    elif isinstance(ours, (bytes, str)) or ours is None:
        assert ours == theirs
    else:
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_every_function_of_a_matrix_is_in_the_table():
    known = {name.split(" ")[0] for name in TABLE}
    missing = set(NO_MATRIX)
    for part in PARTS:
        module = importlib.import_module(f"xmcjax.{part}")
        for name, function in public_functions(part, module):
            if MATRIX_ARGUMENTS & set(inspect.signature(function).parameters):
                assert name in known | set(NO_MATRIX), f"{name} takes a matrix and is in no table"
            missing.discard(name)
    assert not missing, f"no such functions: {missing}"


def public_functions(part, module):
    for name, value in vars(module).items():
        if name.startswith("_") or not getattr(value, "__module__", "").startswith("xmcjax." + part):
            continue
        if inspect.isfunction(value):
            yield f"{part}.{name}", value
        elif (
            inspect.isclass(value)
            and not issubclass(value, Exception)
            and part in ("estimators", "data", "models", "lanes", "kernels", "inits")
        ):
            yield f"{part}.{name}", value
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith(("_", "set_", "prepare")):
                    yield f"{part}.{name}.{method}", function


def test_a_change_between_two_calls_is_seen():
    X = features()
    linops.make(X)
    X.indices[1] = 10**9
    with pytest.raises(ValueError, match=r"^X: expected indices from 0 to 29, found 1000000000 in row 0"):
        linops.make(X)


def test_a_model_keeps_weights_of_its_own():
    W = features()
    model = models.ArrayModel(W)
    before = models.predict_topk(model, features(), 2)
    W.indices[:] = 10**9
    same(models.predict_topk(model, features(), 2), before)


def test_a_model_without_a_copy_leaves_weights_as_they_are():
    W = features()
    W.has_sorted_indices = False
    indices, data = W.indices[::-1].copy(), W.data[::-1].copy()
    unsorted = sp.csr_matrix((data, indices, len(data) - W.indptr[::-1]), shape=W.shape)
    model = models.ArrayModel(unsorted, copy=False)
    same(
        models.predict_topk(model, features(), 2),
        models.predict_topk(models.ArrayModel(unsorted), features(), 2),
    )
    assert np.array_equal(unsorted.indices, indices) and unsorted.data.flags.writeable
    assert np.shares_memory(models.ArrayModel(W, copy=False).coef().data, W.data)


def test_a_mark_ends_with_the_arrays_that_were_checked():
    X = sparse.csr(features())
    assert sparse.csr(X) is X
    X.indices = X.indices + 100
    with pytest.raises(ValueError, match="expected indices from 0 to 29"):
        sparse.csr(X)
    with pytest.raises(TypeError, match="expected a matrix that was checked, found csr_matrix"):
        sparse.require_checked(features())


def test_what_has_no_entries_is_a_matrix():
    for shape in [(0, 3), (3, 0), (0, 0), (3, 3)]:
        for form in ("csr", "csc", "coo", "lil", "dok", "dia"):
            assert metrics.density(sp.csr_matrix(shape).asformat(form)) == 0


def test_wide_matrices_have_wide_indices():
    X = sp.coo_array(([1.0], ([0], [2**40])), shape=(1, 2**41))
    assert metrics.density(X) == 2.0**-41
    with pytest.raises(ValueError, match=r"expected at most 2\^31-1 columns"):
        linops.make(X)


DENSE = {
    "masked": (np.ma.masked_greater(np.eye(4), 0.5), "masked array"),
    "ragged": ([[1.0, 2.0], [1.0]], "ragged list"),
    "of text": (np.full((4, 4), "a"), "<U1"),
    "of objects": (np.full((4, 4), None), "object"),
    "complex": (np.eye(4) + 1j, "complex128"),
    "no array": (object(), "found object"),
}


@pytest.mark.parametrize("case", DENSE)
def test_arrays_of_something_else_are_refused(case):
    X, found = DENSE[case]
    model = models.ArrayModel(np.eye(4))
    for call in (
        linops.make,
        lambda X: models.predict_topk(model, X, 1),
        lambda X: data.fit_transforms("idf", X),
        metrics.density,
        models.ArrayModel,
    ):
        with pytest.raises((ValueError, TypeError), match=found) as caught:
            call(X)
        assert ": expected" in str(caught.value)


TAGS = {
    "lists with an empty one": [["a"], ["a", "b"], ["c"], []],
    "lists of different length": [["a", "b"], ["c"], ["d"], ["a"]],
    "lists of equal length": [["a", "b"], ["c", "d"], ["d", "a"], ["a", "b"]],
    "numbers": [[1, 2], [3], [4], [1]],
    "sets": [{"a", "b"}, {"c"}, {"d"}, {"a"}],
    "an array of lists": np.array([["a", "b"], ["c"], ["d"], ["a"]], dtype=object),
    "tuples": [("a",), ("c", "d"), ("d",), ("a",)],
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_lists_of_tags_are_refused_with_the_remedy(name):
    for case, y in TAGS.items():
        with pytest.raises(ValueError, match=r"^y: expected one class per row.*MultiLabelBinarizer"):
            getattr(estimators, name)().fit(np.eye(4), y)
            pytest.fail(case)


def test_solvers_take_operators_only():
    for problem in (
        lambda X: newton_cg.lane_problem(X, np.ones((12, 1)), None),
        lambda X: multinomial.multinomial_problem(X, np.arange(12) % 4, 1.0),
        lambda X: instance_dual.problem(X, np.arange(12) % 4, set_name="topk_alpha", bound=1.0),
    ):
        with pytest.raises(TypeError, match=r"expected features of xmcjax\.linops\.make, got csr_matrix"):
            problem(features())


def test_a_dense_array_is_asked_for_where_no_sparse_matrix_is_taken():
    op = linops.make(features())
    said = r"^y: expected a dense array of real numbers, found a sparse matrix \(csr_matrix\)$"
    with pytest.raises(TypeError, match=said):
        newton_cg.lane_problem(op, features()[:, :2], losses.Poisson())
    with pytest.raises(TypeError, match=r"^y: expected an array of real numbers, found values of type <U1$"):
        newton_cg.lane_problem(op, np.full((12, 1), "a"), losses.Poisson())


def test_an_array_becomes_rows_without_zeros(monkeypatch):
    monkeypatch.setattr("xmcjax._sparse._PART", 7)
    dense = features().toarray()
    dense[1] = 0
    dense[2, 1] = np.nan
    for X in (
        dense,
        np.asfortranarray(dense),
        dense[:0],
        dense[:, :0],
        dense > 0,
        (dense > 0).astype(np.int8),
        dense + 10,
    ):
        found = sparse.of_dense(X, np.float64 if X.dtype != np.float32 else None)
        same(found, sp.csr_array(X.astype(found.dtype)))
        assert found.has_canonical_format and sparse.csr(found) is found


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array, np.asarray])
def test_rows_side_by_side_are_parts_of_the_matrix(make):
    dense = features().toarray()
    dense[[0, 3, -1]] = 0
    X = make(dense)
    X = sparse.csr(X) if sp.issparse(X) else X
    n = len(dense)
    for rows in (
        slice(0, 3),
        slice(2, 5),
        slice(3, 4),
        slice(n - 1, n),
        slice(0, n),
        slice(2, n + 9),
        slice(2, 2),
    ):
        found = sparse.rows_of(X, rows)
        same(found, sp.csr_array(dense[rows]) if sp.issparse(X) else dense[rows])
        values, whole = (found.data, X.data) if sp.issparse(X) else (found, X)
        assert not values.size or np.shares_memory(values, whole)
        if sp.issparse(X):
            sparse.require_checked(found)
            found.copy().check_format(full_check=True)
    with pytest.raises(TypeError, match="expected a matrix that was checked"):
        sparse.rows_of(sp.csr_array(dense), slice(0, 2))


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, lambda f: lambda C: jax.vmap(f)(np.array([C]))])
def test_arrays_that_jax_traces_are_refused(transform):
    """By what works on the host, as makers of problems do."""
    X, y = np.eye(3, dtype=np.float32), np.arange(3)
    said = "^[CX]: expected numbers, found an array that JAX traces: make what takes it outside of jit"
    for make in (
        lambda C: admm.problem(linops.make(X), y, C=C).bound.sum(),
        lambda C: multiclass_dual.multiclass_problem(X, y, C=C).C.sum(),
        lambda factor: estimators.OneVsAllClassifier().fit(factor * X, y).coef_.sum(),
    ):
        with pytest.raises(TypeError, match=said):
            transform(make)(1.0)


@pytest.mark.parametrize(("dtype", "value"), [(np.int8, 100), (np.uint8, 200), (np.int32, 2**30), (bool, 1)])
def test_entries_of_one_place_are_added_up_whatever_the_format_and_type(dtype, value):
    values, rows, columns = np.full(4, value, dtype), [0, 0, 1, 1], [1, 1, 0, 0]
    expected = np.array([[0.0, 2.0 * value], [2.0 * value, 0.0]])
    by_row = sp.csr_array((values, columns, [0, 2, 4]), shape=(2, 2))
    by_column = sp.csc_array((values, [1, 1, 0, 0], [0, 2, 4]), shape=(2, 2))
    for X in (by_row, by_column, sp.coo_array((values, (rows, columns)), shape=(2, 2))):
        found = sparse.canonical_csr(X).toarray()
        # truth values stay such, as of pairs of rows and labels of which one is there twice
        assert found.tolist() == (expected > 0 if dtype is bool else expected).tolist()
        assert sparse.csr(X).astype(float).toarray().tolist() == expected.tolist()
