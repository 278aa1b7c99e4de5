"""The figures that need no training, against what their papers say."""

from __future__ import annotations

import math

import numpy as np

from experiments.papers.p000 import figure_2 as quadratic_model
from experiments.papers.p004 import figure_2


def test_the_quadratic_model_of_the_squared_hinge():
    found = quadratic_model.run(quadratic_model.Options(points=61))
    step = np.array(found["step"])
    # at 0 the model is 1 − 2δ + δ², which is the loss up to the margin 1; at 1 it is 0
    np.testing.assert_allclose(found["errors"]["0"], np.maximum(step - 1, 0) ** 2, atol=1e-5)
    np.testing.assert_allclose(found["errors"]["1"], -(np.minimum(step, 0) ** 2), atol=1e-5)


def test_the_vertices_of_the_top_k_simplices(tmp_path):
    options = figure_2.Options(small=True, out=tmp_path).chosen()
    found = figure_2.run(options)["sets"]
    assert [(one["m"], one["k"]) for one in found] == [(3, 1), (3, 2), (3, 3)]
    for one in found:
        corners = np.array(one["vertices"])
        assert len(corners) == math.comb(3, one["k"]) + 1
        np.testing.assert_allclose(np.unique(corners), [0, 1 / one["k"]], atol=1e-4)
