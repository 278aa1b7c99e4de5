"""What KernelLogisticClassifier says of arguments that are none, by the names that its caller knows."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax import KernelLogisticClassifier, kernels

N, D = 24, 3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)), np.arange(N) % 4


@pytest.fixture(scope="module")
def model(data):
    return KernelLogisticClassifier(v=1.0).fit(*data)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(free=None), TypeError, "free: expected some of v, w, sigma2, got None"),
        (dict(free="vw"), TypeError, "free: expected some of v, w, sigma2, got 'vw'"),
        (dict(free=5), TypeError, "free: expected some of v, w, sigma2, got 5"),
        (dict(free=()), ValueError, r"free: expected some of v, w, sigma2, got \(\)"),
        (dict(free=[["v"]]), ValueError, r"free: expected some of v, w, sigma2, got \(\['v'\],\)"),
        (dict(tol=-1), ValueError, "^tol: expected a finite number of at least 0, got -1"),
        (dict(tol="a"), TypeError, "^tol: expected a number, got 'a'"),
    ],
)
def test_of_tune(data, arguments, error, message):
    X, y = data
    with pytest.raises(error, match=message):
        KernelLogisticClassifier().tune(X, y, 3, **arguments)


def test_an_intercept_variance_that_is_no_number(data):
    X, y = data
    with pytest.raises(TypeError, match="sigma2: expected a number, got '1'"):
        KernelLogisticClassifier(sigma2="1").tune(X, y, 3, free=("sigma2",))


@pytest.mark.parametrize("shape", [(4, 0), (3, 2), (4,)])
def test_loadings_of_another_shape(data, shape):
    expected = r"expected loadings \[4, functions\] of at least one function"
    found = rf"got shape \[{', '.join(map(str, shape))}\]"
    with pytest.raises(ValueError, match=f"{expected}, {found}"):
        KernelLogisticClassifier(loadings=np.ones(shape)).fit(*data)
    gram = kernels.gram(kernels.RBF(1.0), kernels.points(data[0]))
    with pytest.raises(ValueError, match=f"{expected}, {found}"):
        kernels.class_kernels(gram, 1.0, 1.0, 4, loadings=np.ones(shape))


def test_loadings_beside_a_hierarchy(data):
    edges = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    gram = kernels.gram(kernels.RBF(1.0), kernels.points(data[0]))
    with pytest.raises(ValueError, match="loadings: expected None beside a hierarchy"):
        kernels.class_kernels(gram, 1.0, 1.0, 4, hierarchy=edges, loadings=np.ones((4, 2)))


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (
            np.ones((4, 4)) * 1j,
            TypeError,
            "loss: expected an array of real numbers, found values of type complex128",
        ),
        (["a", "b"], TypeError, "loss: expected an array of real numbers, found values of type <U1"),
        ([[1.0], [1.0, 2.0]], ValueError, "loss: expected rows of one length"),
        (
            sp.eye_array(4).tocsr(),
            TypeError,
            "loss: expected a dense array of real numbers, found a sparse matrix",
        ),
        (np.ones((2, 2)), ValueError, r"loss: expected losses \[4, 4\], got shape \[2, 2\]"),
        (np.full((4, 4), np.nan), ValueError, "loss: expected finite losses, found nan"),
    ],
)
def test_losses_of_classes(data, model, loss, error, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=message):
            model.predict(data[0], loss=loss)
