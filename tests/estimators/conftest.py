"""Estimators are tested with JAX's settings as a user has them."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax import OneVsAllClassifier
from xmcjax.data import make_power_law


@pytest.fixture(autouse=True)
def settings_of_users(default_settings):
    """In every file here."""


@pytest.fixture(scope="module")
def multilabel():
    X, Y = make_power_law(150, 60, 12, seed=3)
    Y = sp.csr_matrix(Y[:, np.asarray(Y.sum(0)).ravel() > 0])
    return X, Y


@pytest.fixture(scope="module")
def fitted(multilabel):
    return OneVsAllClassifier().fit(*multilabel)
