"""A fit compiles a handful of programs, the next one of the same shapes none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.lanes import small, train
from tests.support.problems import needs_native
from tests.support.processes import python
from xmcjax import inits, losses


@pytest.mark.parametrize(
    ("backend", "seed"), [pytest.param("native", 1, marks=needs_native), ("jnp", 2), ("dense", 3)]
)
def test_a_handful_and_then_none(compilations, backend, seed):
    X, Y = small(n=111 + seed, d=63, labels=25, seed=seed)  # shapes that no other test has
    options = dict(backend=backend, block_size=6)
    first = compilations(lambda: train(X, Y, init=inits.OvaPrimal(), **options))
    # the native step is no compiled program
    assert (backend == "native" or len(first) >= 1) and len(first) <= 8, first
    # a clip that is given has objectives evaluated again: by their losses and penalties, [d] and of the bias
    clipped = compilations(lambda: train(X, Y, init=inits.OvaPrimal(), clip=0.1, **options))
    assert len(clipped) <= 3, clipped

    def others():
        train(X, Y, init=inits.MeanSeparating(), C=2.0, tol=0.1, clip=0.1, max_iter=7, **options)
        train(X, Y, init=inits.OvaPrimalTree(), regularise_intercept=False, **options)
        train(X, Y[:, :10], labels=np.arange(3), **options)

    assert compilations(others) == []


@needs_native
@pytest.mark.parametrize("loss", [losses.logistic, losses.squared_hinge, losses.huber_hinge])
def test_native_training_compiles_nothing(compilations, loss):
    """Not for rows that the certificate looks at, with a large C or a tiny one, either."""
    X, Y = small(n=119, d=63, labels=5)

    def fits():
        for C in (1e-6, 1.0, 1e4):
            train(X, Y, backend="native", loss=loss, C=C)

    assert compilations(fits) == []


def test_other_losses_compile_anew(compilations):
    """So the counts above are not those of a listener that hears nothing."""
    X, Y = small(n=115, d=63, labels=5)
    train(X, Y, backend="jnp")
    assert compilations(lambda: train(X, Y, backend="jnp", loss=losses.logistic))


def test_many_features_are_compiled_in_time():
    """By a version of XLA that fuses a search with what makes its operands, 1,500 took minutes."""
    program = (
        "import numpy as np, scipy.sparse as sp\n"
        "from xmcjax import OneVsAllClassifier\n"
        "X = sp.random(60, 3000, 0.02, 'csr', rng=np.random.default_rng(0))\n"
        "print(OneVsAllClassifier().fit(X, np.arange(60) % 3).status_.tolist())\n"
    )
    done = python(program, timeout=120, XMCJAX_NATIVE="0", XMCJAX_CACHE="0", JAX_PLATFORMS="cpu")
    assert done.stdout == "[1, 1, 1]\n", done.stderr
