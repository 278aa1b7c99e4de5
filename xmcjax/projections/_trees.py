"""Projections of all entries of a pytree together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from xmcjax import _sparse


def over_tree(projection: Callable[..., jax.Array]) -> Callable[..., Any]:
    """The projection of the entries of a pytree as one vector, in the pytree's own shape.

    Args:
        projection: of vectors [m], such as those of this module.

    Returns:
        A function of a pytree of arrays in place of x. Its other arguments are those of the projection; one
        that is a pytree of the same structure has a number for each entry, or for each leaf. The result has
        the structure, shapes and dtypes of the pytree; the projection is computed in the dtype to which its
        leaves are promoted.

    Raises:
        TypeError: the projection cannot be called, or a leaf is not of a floating dtype.
        ValueError: the pytree has no entries, or an argument has another structure or leaves that do not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> from xmcjax import projections
        >>> tree = {"a": jnp.array([0.5, 1.25]), "b": jnp.array(-1.0)}
        >>> {key: leaf.tolist() for key, leaf in over_tree(projections.simplex)(tree).items()}
        {'a': [0.125, 0.875], 'b': 0.0}
    """
    if not callable(projection):
        raise TypeError(f"expected a projection that can be called, got {type(projection).__name__}")

    @functools.wraps(projection)
    def of_tree(tree, *arguments, **named):
        leaves, structure = jax.tree.flatten(tree)
        leaves = [jnp.asarray(_sparse.in_byte_order(leaf)) for leaf in leaves]
        for leaf in leaves:
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise TypeError(f"expected leaves of a floating dtype, got {leaf.dtype}")
        if not sum(leaf.size for leaf in leaves):
            raise ValueError("expected a pytree of at least one entry, got none")

        def of_entries(argument):
            given, own = jax.tree.flatten(argument)
            alone = jax.tree_util.treedef_is_leaf(own)
            if argument is None or (alone and (own != structure or np.ndim(argument) == 0)):
                return argument
            if own != structure:
                raise ValueError(f"expected arguments of the structure of the pytree, {structure}, got {own}")
            pairs = zip(map(_sparse.in_byte_order, given), leaves, strict=True)
            return jnp.concatenate([jnp.broadcast_to(a, leaf.shape).ravel() for a, leaf in pairs])

        vector, restore = ravel_pytree(jax.tree.unflatten(structure, leaves))
        return restore(
            projection(
                vector,
                *map(of_entries, arguments),
                **{key: of_entries(value) for key, value in named.items()},
            )
        )

    return of_tree
