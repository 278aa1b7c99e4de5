"""The functions of arrays that the tables of losses and projections name, as the contracts take them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tests.support import losses as multiclass
from tests.support import projections
from tests.support.objectives import VALUES
from xmcjax import losses
from xmcjax.losses import MARGIN_LOSSES, HuberHinge
from xmcjax.projections import capped_simplex, knapsack

ROWS = multiclass.ROWS
MARGINS = {**MARGIN_LOSSES, "narrow_huber": HuberHinge(delta=0.25)}
FORMULAS = {**VALUES, "narrow_huber": functools.partial(VALUES["huber_hinge"], delta=0.25)}
# the losses of a label whose gradients have derivatives
SMOOTH = ["smooth_topk_hinge_alpha", "smooth_topk_hinge_beta", "softmax_cross_entropy", "topk_entropy"]
SMOOTH += ["sparsemax", "lc_bound", "dm_bound"]


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of arrays whose first axis is a batch of ROWS.

    Attributes:
        call: arrays -> array.
        arguments: seed -> arguments; those of float64 are differentiated and rounded.
        oracle: the same in NumPy, in float64; None where another test has one.
        accuracy: of the oracle.
        floor: of what rounding may change, as a part of that of numbers of size 1.
    """

    call: Callable
    arguments: Callable[[int], tuple]
    oracle: Callable | None
    accuracy: float = 1e-12
    floor: float = 0.01


def _loss(name: str) -> Function:
    case = multiclass.CASES[name]
    return Function(
        lambda z, y, where: case.f(z, y, where=where),
        lambda seed: (*multiclass.examples(seed), multiclass.mask(seed + 1)),
        lambda z, y, where: multiclass.expected(case.reference, z, y, where),
    )


def _multilabel(name: str) -> Function:
    f, reference, _ = multiclass.MULTILABEL[name]
    return Function(
        lambda z, t, where: f(z, t, where=where),
        lambda seed: (multiclass.examples(seed)[0], multiclass.signs(seed), multiclass.mask(seed + 1)),
        lambda z, t, where: multiclass.expected_of_signs(reference, z, t, where),
    )


def _conjugate(f, conjugate, truth) -> Function:
    """f*(∇f(z)) = ⟨∇f(z), z⟩ − f(z): in z, because the domain of f* may be too flat for finite differences.

    `truth` is seed -> what f takes beside scores and mask. tests/losses/test_conjugates.py has the values.
    """

    def call(z, t, where):
        slope = jax.grad(lambda z: jnp.sum(f(z, t, where=where).astype(jnp.float32)))(z)
        # with 0 z a slope of f* that is no number is seen where f, too, does not depend on z
        return conjugate(slope + 0 * z, t, where=where)

    def arguments(seed):
        where = multiclass.mask(seed + 1)
        # of one class beside y the domain of the top-k entropy is a point
        few = (jnp.sum(where, axis=-1) - 1) // 2 == 0
        return multiclass.examples(seed)[0], truth(seed), where | few[:, None]

    return Function(call, arguments, None, floor=1)


def _fenchel_young() -> Function:
    """Of the points below a sum of 2 that are at most 1, γ = 0.7."""

    def arguments(seed):
        z, _ = multiclass.examples(seed)
        return z, jnp.asarray(np.random.default_rng(seed).uniform(0, 0.2, z.shape))

    def oracle(z, t):
        b, one = z / 0.7, np.ones(ROWS)
        p = projections.Problem(b, 2 * one, 0 * one, one, 0 * one, 1)
        x = np.stack([projections.by_quadratic_program("capped_simplex", p.row(i)) for i in range(ROWS)])
        return np.sum((x - t) * z - 0.35 * (x * x - t * t), axis=-1)

    def call(z, t):
        return losses.fenchel_young(z, t, lambda x: capped_simplex(x, 2.0, 1.0), 0.7)

    return Function(call, arguments, oracle, 1e-9, floor=1)


def _margins(seed: int) -> tuple:
    return (jnp.asarray(3 * np.random.default_rng(seed).normal(size=ROWS)),)


def _slopes(loss) -> Callable:
    return lambda m: jnp.stack([loss.grad(m), loss.curv(m)], axis=-1)


def _projection(name: str) -> Function:
    fields = projections.NUMBERS[name]

    def problem(b, numbers):
        one = np.ones(b.shape[:-1])
        p = projections.Problem(b, one, -one, one, one, 3)
        return p._replace(**dict(zip(fields, numbers, strict=True)))

    def arguments(seed):
        """The radius holds some of the vectors and not others."""
        rng = np.random.default_rng(seed)
        b = rng.standard_normal((ROWS, 9)) + rng.choice([0, 1], (ROWS, 1))
        r = np.resize([0.3, 1.5, 4.0, 30.0], ROWS)
        numbers = dict(r=r, l=-0.4 * r / 9, u=2.2 * r / 9, rho=np.resize([0.2, 0.5, 1.0], ROWS))
        return tuple(map(jnp.asarray, (b, *(numbers[field] for field in fields))))

    def oracle(b, *numbers):
        rows = [problem(row, [number[i] for number in numbers]) for i, row in enumerate(b)]
        return np.stack([projections.by_quadratic_program(name, row) for row in rows])

    return Function(
        lambda b, *numbers: projections.project(name, problem(b, numbers)), arguments, oracle, 1e-9, floor=1
    )


def _knapsack_of_entries() -> Function:
    """Bounds and weights of every entry, some weights 0 or negative."""

    def arguments(seed):
        rng = np.random.default_rng(seed)
        b, w = rng.standard_normal((2, ROWS, 9))
        w[:, 0] = 0
        l, u = -rng.uniform(size=b.shape), rng.uniform(size=b.shape)
        r = np.sum(w * rng.uniform(l, u), axis=-1)
        return tuple(map(jnp.asarray, (b, r, l, u, w)))

    def oracle(*arguments):
        return np.stack([projections.weighted_by_breakpoints(*row) for row in zip(*arguments, strict=True)])

    return Function(knapsack, arguments, oracle, 1e-11, floor=1)


FUNCTIONS = {f"loss {name}": _loss(name) for name in multiclass.CASES}
FUNCTIONS |= {f"loss {name}": _multilabel(name) for name in multiclass.MULTILABEL}
for _name in SMOOTH:
    _case = multiclass.CASES[_name]
    FUNCTIONS[f"conjugate of {_name}"] = _conjugate(
        _case.f, _case.conjugate, lambda seed: multiclass.examples(seed)[1]
    )
_f, _, _f_conjugate = multiclass.MULTILABEL["multilabel_cross_entropy"]
FUNCTIONS["conjugate of multilabel_cross_entropy"] = _conjugate(_f, _f_conjugate, multiclass.signs)
FUNCTIONS["conjugate of one_vs_all"] = _conjugate(
    functools.partial(losses.one_vs_all, loss=losses.logistic),
    functools.partial(losses.one_vs_all_conjugate, loss=losses.logistic),
    multiclass.signs,
)
FUNCTIONS["loss fenchel_young"] = _fenchel_young()
FUNCTIONS["projection knapsack of entries"] = _knapsack_of_entries()
FUNCTIONS |= {f"projection {name}": _projection(name) for name in projections.SETS}
for _name, _of in MARGINS.items():
    FUNCTIONS[f"margin loss {_name}"] = Function(_of.value, _margins, FORMULAS[_name])
    FUNCTIONS[f"slopes of {_name}"] = Function(_slopes(_of), _margins, None)
