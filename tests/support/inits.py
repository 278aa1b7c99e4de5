"""What an initialisation sees, made of dense arrays."""

import numpy as np
import scipy.sparse as sp

from xmcjax.inits import Labels, TrainingSet
from xmcjax.losses import squared_hinge


def no_solver(positives, loose):
    raise AssertionError("this start needs no solution")


def training_set(X, Y, loss=squared_hinge, bias=True, solve=no_solver, weight=None):
    """X and Y may be lists."""
    X, Y = sp.csr_array(np.asarray(X, float)), sp.csc_array(np.asarray(Y, float))
    mean = np.average(X.toarray(), axis=0, weights=weight)
    return TrainingSet(X, Y, mean, loss, bias, solve, weight)


def all_labels(data):
    """Every label of the training set."""
    Y = data.Y.toarray()
    s = np.ones(len(Y)) if data.weight is None else data.weight
    positives = [np.flatnonzero(column) for column in Y.T]
    sums = sp.csr_array((Y * s[:, None]).T @ data.X.toarray())
    return Labels(np.arange(Y.shape[1]), positives, s @ Y, sums)


def starts(init, data):
    """(W0 [d, L], b0 [L])."""
    return init.prepare(data)(all_labels(data)).dense()


def random_problem(n=40, d=12, labels=6, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5) + offset
    Y = rng.random((n, labels)) < np.linspace(0.05, 0.8, labels)
    Y[0], Y[1] = 1, 0  # every label has a positive and a negative
    return X, Y.astype(float)
