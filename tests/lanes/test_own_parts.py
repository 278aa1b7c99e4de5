"""Starts and penalties of one's own that cannot be used: a sentence names each."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax import OneVsAllClassifier
from xmcjax.inits import Init, Starts
from xmcjax.penalties import L1, Penalty

X, Y = np.eye(4, dtype=np.float32), [0, 1, 2, 2]  # three classes


def init(starts, prepare=None):
    members = {"name": "ours", "prepare": prepare or (lambda self, data: starts)}
    return dataclasses.dataclass(frozen=True)(type("Ours", (Init,), members))()


def parts(scale=0.0, sparse=None, bias=0.0, base=None):
    sparse = sp.csr_array((3, 4)) if sparse is None else sparse
    return lambda labels: Starts(base, np.full(3, scale), sparse, np.full(3, bias))


NO_STARTS = {
    "no function": (None, "expected a function of labels from prepare, got None"),
    "nothing": (lambda labels: None, "expected an object of Starts, got None"),
    "dense": (parts(sparse=np.zeros((3, 4))), "sparse: expected a sparse matrix, found ndarray"),
    "features": (parts(sparse=sp.csr_array((3, 5))), r"expected sparse of shape \[3, 4\], got \[3, 5\]"),
    "labels": (lambda labels: Starts.constant(1, 4), r"expected sparse of shape \[3, 4\], got \[1, 4\]"),
    "base": (parts(base=np.ones(5)), r"expected base of shape \[4\], got \[5\]"),
    "no base": (parts(scale=1.0), "expected a base where a scale is not 0, got None"),
    "NaN": (parts(bias=np.nan), "expected bias of finite numbers, got nan"),
    "a number": (
        lambda labels: Starts(None, np.zeros(3), sp.csr_array((3, 4)), 0.0),  # pyright: ignore
        r"expected bias of shape \[3\], got \[\]",
    ),
}


@pytest.mark.parametrize("case", NO_STARTS)
def test_starts_that_do_not_fit_are_refused_by_the_name_of_the_init(case):
    starts, sentence = NO_STARTS[case]
    with pytest.raises((TypeError, ValueError), match=f"^init ours: {sentence}"):
        OneVsAllClassifier(init=init(starts)).fit(X, Y)


class NoFields(Penalty):
    name = "ours"

    def __init__(self, scale):
        self.scale = scale


def penalty(**more):
    members = {"name": "ours", **{part: getattr(L1, part) for part in ("value", "violation", "minimiser")}}
    return dataclasses.dataclass(frozen=True)(type("Ours", (Penalty,), members | more))()


NO_PENALTIES = {
    "a sum": (
        penalty(value=lambda self, w: jnp.sum(w)),
        r"a value of the shape .*, got float32 \[\]",
    ),
    "NumPy": (penalty(minimiser=lambda self, h, hu, lam: np.sign(hu) / h), "a minimiser that JAX works out"),
    "no proximal map": (penalty(minimiser=Penalty.minimiser), "a minimiser that .* has no proximal map"),
    "no field": (NoFields(2.0), "a frozen dataclass .* got the attribute scale"),
}


@pytest.mark.parametrize("case", NO_PENALTIES)
def test_penalties_that_cannot_be_compiled_are_refused_by_their_name(case):
    made, sentence = NO_PENALTIES[case]
    with pytest.raises(TypeError, match=f"^penalty ours: expected {sentence}"):
        OneVsAllClassifier(penalty=made).fit(X, Y)
