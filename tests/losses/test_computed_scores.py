"""Losses of scores that the same program computes: XLA may compute them anew wherever they are used."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.losses import CASES, MULTILABEL, OPEN, ROWS, M, compiled, examples, mask, signs

RNG = np.random.default_rng(11)
NUMBERS = RNG.uniform(0.5, 2, (ROWS, 1)), 1.3, RNG.normal(size=M)
# the last operation of some is a product, which a processor adds to a number without rounding it before
SCORES = {
    "z * r": lambda z, r, s, b: z * r,
    "z / r": lambda z, r, s, b: z / r,
    "tanh(z) * r": lambda z, r, s, b: jnp.tanh(z) * r,
    "z * s + b": lambda z, r, s, b: z * s + b,
    "(z - b) * s": lambda z, r, s, b: (z - b) * s,
}
# losses that compare scores with the largest of them are tested of all these scores, others of one
RANKED = ["topk_entropy", "topk_entropy_of_most", "truncated_topk_entropy", "topk_hinge_alpha"]
RANKED += ["topk_hinge_beta", "ordered_hinge", "multilabel_cross_entropy"]


def value_and_slope(f, z):
    value, pull = jax.vjp(f, z)
    return value, pull(jnp.ones_like(value))[0]


@pytest.mark.parametrize("place", range(len(SCORES)), ids=list(SCORES))
def test_losses_are_those_of_the_scores(place):
    """Both dtypes, with and without a mask, in turn: one program of each takes too long."""
    q, programs, expected = list(SCORES.values())[place], {}, {}
    for i, name in enumerate([*CASES, *MULTILABEL]):
        if name not in RANKED and i % len(SCORES) != place:
            continue
        dtype = (np.float32, np.float64)[(i + place) % 2]
        where = (None, mask())[(i + place) // 2 % 2]
        z = examples(i, dtype)[0]
        numbers = [jnp.asarray(number, dtype) for number in NUMBERS]
        truth = signs() if name in MULTILABEL else examples(i)[1]
        f = MULTILABEL[name][0] if name in MULTILABEL else CASES[name].f

        def of_scores(z, numbers, f=f, truth=truth, where=where):
            return f(q(z, *numbers), truth, where=where)

        programs[name] = of_scores, z, numbers
        scores, pull = jax.vjp(lambda z, numbers=numbers: q(z, *numbers), z)
        if name in MULTILABEL:
            value, slope = value_and_slope(lambda z, f=f, t=truth, where=where: f(z, t, where=where), scores)
        else:
            value, slope = compiled(name)(scores, truth, OPEN if where is None else where)
        expected[name] = value, pull(slope)[0]

    @jax.jit
    def all_of_them(arguments):
        return {
            name: value_and_slope(lambda z, f=f, name=name: f(z, arguments[name][1]), arguments[name][0])
            for name, (f, *_) in programs.items()
        }

    found = all_of_them({name: rest for name, (_, *rest) in programs.items()})
    wrong = []
    for name, pair in found.items():
        accuracy = 2e-5 if programs[name][1].dtype == np.float32 else 1e-12
        for one, other in zip(pair, expected[name], strict=True):
            if not np.allclose(one, other, rtol=accuracy, atol=accuracy):
                wrong.append((name, one.ndim - 1, one.dtype.name, float(np.max(np.abs(one - other)))))
    assert not wrong
