"""Derivatives of a solution by the implicit function theorem, forward and in reverse.

A solution x of a problem with parameters p fulfils F(p, x) = 0, and f(p, x) is the least value there. With
A = ∂F/∂x,

    dx = −A⁻¹ (∂F/∂p) dp,   df = (∂f/∂p) dp,

because ∂f/∂x = 0. Forward mode makes these products from the right to the left, reverse mode from the left to
the right: one linear system either way, whatever the number of parameters. The derivative is that of the
exact solution, as good as the tolerances of the solver and of the system.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from xmcjax.linops import Csr, Dense, LinOp
from xmcjax.native import varying_like


class Conditions(NamedTuple):
    """What the theorem needs of a solver; x, b and F have the same form.

    Attributes:
        evaluated: ``(p, x)`` -> (F, f), which JAX differentiates in p in reverse.
        solve: ``(p, x, b)`` -> A⁻¹ b.
        transposed: ``(p, x, b)`` -> A⁻ᵀ b; the same function where A is symmetric.
    """

    evaluated: Callable[[Any, Any], tuple[Any, Any]]
    solve: Callable[[Any, Any, Any], Any]
    transposed: Callable[[Any, Any, Any], Any]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def implicit(conditions: Conditions, parameters, x, value):
    """(x, value) as they are, as functions of the parameters.

    Args:
        conditions: that x fulfils.
        parameters: p, of which the arrays of floating-point numbers can be differentiated.
        x: the solution; where it comes from is not differentiated.
        value: f(p, x).
    """
    return x, value


def _implicit_jvp(conditions: Conditions, primals, tangents):
    leaves, form = jax.tree.flatten(primals[0])
    moved = [leaf if _is_zero(leaf) else jnp.asarray(leaf) for leaf in jax.tree.leaves(tangents[0])]
    places = [i for i, leaf in enumerate(moved) if not _is_zero(leaf)]
    x, value = primals[1:]
    if not places:
        return (x, value), jax.tree.map(jnp.zeros_like, (x, value))
    # the transpose of a transpose below needs arrays that all vary alike in shard_map
    operand = tuple(moved[i] for i in places)
    leaves, x, value, operand = varying_like((leaves, x, value, operand), (leaves, x))
    leaves, fixed_x = _once((leaves, x))
    tangent = _derivative(conditions, form, tuple(places), leaves, fixed_x, operand, (x, value))
    return (x, value), tangent


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _derivative(conditions: Conditions, form, places: tuple[int, ...], leaves, x, operand, like):
    """(dx, df) of the change `operand` of the parameters' leaves at these places, linear in it.

    It is compiled once for all problems of the same shapes. Without that JAX compiles the functions here for
    each derivative outside jit, because they are new objects in every call.
    """
    parameters = jax.tree.unflatten(form, leaves)

    def evaluated(*some):
        changed = list(leaves)
        for place, leaf in zip(places, some, strict=True):
            changed[place] = leaf
        return conditions.evaluated(jax.tree.unflatten(form, changed), x)

    some = tuple(jnp.asarray(leaves[i]) for i in places)

    def pulled(cotangent):
        return jax.vjp(evaluated, *some)[1](cotangent)

    def forward(moved):
        # products may have a rule for reverse mode alone, and its transpose is forward mode
        zeros = jax.tree.map(jnp.zeros_like, like)
        of_F, of_f = jax.vjp(pulled, zeros)[1](moved)[0]
        return _negative(conditions.solve(parameters, x, of_F)), of_f

    def reverse(cotangent):
        of_x, of_value = cotangent
        return pulled((_negative(conditions.transposed(parameters, x, of_x)), of_value))

    return _linear(forward, reverse, operand, like)


implicit.defjvp(_implicit_jvp, symbolic_zeros=True)


def _is_zero(leaf) -> bool:
    zero = isinstance(leaf, jax.custom_derivatives.SymbolicZero)
    return zero or getattr(leaf, "dtype", None) == jax.dtypes.float0


def _negative(tree):
    return jax.tree.map(jnp.negative, tree)


def _linear(forward, reverse, operand, like):
    """forward(operand), a linear map to what has the form of `like`, whose transpose is `reverse`.

    ``custom_linear_solve`` is what JAX has for linear maps that are given with their transposes, and it takes
    part in vmap and jit. It takes square maps only: this map is a block of (a, b) ↦ (0, forward(a)).
    """

    def solve(_, pair):
        return jax.tree.map(jnp.zeros_like, operand), forward(pair[0])

    def transpose_solve(_, pair):
        return reverse(pair[1]), jax.tree.map(jnp.zeros_like, like)

    # the transpose needs a pair that is linear in the operand, as the sum of none of its numbers is
    none = jnp.sum(operand[0].ravel()[:0])
    pair = operand, jax.tree.map(lambda leaf: jnp.zeros_like(leaf) + none.astype(leaf.dtype), like)
    return jax.lax.custom_linear_solve(lambda pair: pair, pair, solve, transpose_solve)[1]


@jax.custom_jvp
def _once(tree):
    """The arrays as they are, once differentiated."""
    return tree


@_once.defjvp
def _once_jvp(primals, tangents):
    raise NotImplementedError("expected a first derivative of a solution, got a second: there is none")


def refused(reason: str, parameters):
    """The parameters as they are; TypeError with the reason where they are differentiated."""
    leaves, form = jax.tree.flatten(parameters)
    # numbers that are not traced have no derivative, and JAX would convert those of Python
    leaves = [_refused(reason, leaf) if isinstance(leaf, Tracer) else leaf for leaf in leaves]
    return jax.tree.unflatten(form, leaves)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _refused(reason: str, leaf):
    return leaf


@_refused.defjvp
def _refused_jvp(reason, primals, tangents):
    raise TypeError(reason)


def fixed(tree):
    """The arrays without their derivatives; arrays that are not traced stay as they are."""

    def stop(leaf):
        return jax.lax.stop_gradient(leaf) if isinstance(leaf, Tracer) else leaf

    return jax.tree.map(stop, tree)


def system_tolerance(dtype) -> float:
    """Relative tolerance of CG in a system of the theorem: a few digits above rounding."""
    return float(jnp.finfo(dtype).eps) ** 0.75


def differentiable(op: LinOp) -> LinOp:
    """The features as an operator in plain JAX, whose products can be differentiated in their values too.

    Raises:
        TypeError: features that are neither dense nor CSR.
    """
    if isinstance(op, Csr):
        return op.in_jax()
    if not isinstance(op, Dense):
        what = "dense or CSR features for derivatives of a solution"
        raise TypeError(f"expected {what}, got {type(op).__name__}")
    return op
