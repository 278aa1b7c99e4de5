"""Dataclasses as pytrees whose types are told apart, and trees that JAX traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.core import Tracer

T = TypeVar("T")


def pytree(*, data_fields: list[str], meta_fields: list[str]) -> Callable[[type[T]], type[T]]:
    """A decorator that makes a dataclass a pytree, as ``jax.tree_util.register_dataclass`` does.

    JAX 0.10 takes the structures of two dataclasses of that kind for equal where their numbers of fields
    are: only their hashes differ. Where these meet by chance, one call in a hundred or so, ``jit`` runs for
    one class what was compiled for the other. Structures of nodes registered in this way differ.

    Args:
        data_fields: fields that are arrays or pytrees.
        meta_fields: fields that are known while JAX traces.
    """

    def register(cls: type[T]) -> type[T]:
        keys = [jax.tree_util.GetAttrKey(name) for name in data_fields]

        def flatten(node):
            return [getattr(node, name) for name in data_fields], tuple(
                getattr(node, name) for name in meta_fields
            )

        def flatten_with_keys(node):
            data, meta = flatten(node)
            return list(zip(keys, data, strict=True)), meta

        def unflatten(meta, data):
            # without __init__, which may check what it is given: JAX puts other things in the place of arrays
            node = object.__new__(cls)
            for name, value in (*zip(data_fields, data, strict=True), *zip(meta_fields, meta, strict=True)):
                object.__setattr__(node, name, value)
            return node

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
        return cls

    return register


def unmarked(tree: Any) -> tuple[Any, bool]:
    """The values of an argument of a rule with ``symbolic_zeros``, and whether it is differentiated."""
    leaves, form = jax.tree.flatten(tree, is_leaf=lambda leaf: hasattr(leaf, "perturbed"))
    return form.unflatten([leaf.value for leaf in leaves]), any(leaf.perturbed for leaf in leaves)


def is_traced(tree: Any) -> bool:
    """Whether JAX traces a leaf of a tree, whose numbers are then not known."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))
