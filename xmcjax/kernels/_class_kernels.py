"""K̃ of all classes: K = (Φ ⊗ I) diag_p(v_p M⁽ˡ⁽ᵖ⁾⁾) (Φᵀ ⊗ I), and σ² is added for every class.

Seeger, 2006, eqs. 2 and 4 and section 6.2.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax._fork import methods_need_threads_of_jax, needs_threads_of_jax
from xmcjax._hierarchy import Hierarchy
from xmcjax._pytrees import pytree
from xmcjax.kernels._factored import Factored
from xmcjax.kernels._functions import check_columns, positive
from xmcjax.kernels._gram import Gram
from xmcjax.kernels._mixing import Independent, Loadings, Mixing, tree
from xmcjax.linops import real_array


@methods_need_threads_of_jax
@pytree(
    data_fields=["gram", "v", "sigma2", "mixing", "chains", "columns", "slots"],
    meta_fields=["n_classes", "n_functions"],
)
@dataclasses.dataclass(frozen=True)
class ClassKernels:
    """The kernel of C class functions on n training points, made by :func:`class_kernels`.

    Its gradient is that in the hyperparameters v, σ² and those of ``gram.kernel`` (and B where
    there is one): ``jax.grad`` of any function of products gives an object of the same form.

    Attributes:
        gram: the base kernels M⁽ˡ⁾, a :class:`Gram` or an approximation.
        v: variances v_p of the independent functions, [P].
        sigma2: σ², the variance of the intercepts; a number.
        mixing: Φ.
        chains: where a tree was merged, the function of the merged tree that each node went to, [P].
        columns: for several base kernels, the functions of each, [L, most], filled up beyond P.
        slots: for several base kernels, where each function stands among those columns, [P]; None
            where each has a base kernel of its own, in order.
        n_classes: C.
        n_functions: columns of Φ, P or fewer in a merged tree.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0]])), 2.0, 0.1, 3)
        >>> family.matmat(jnp.ones((2, 3, 1), jnp.float32)).shape
        (2, 3, 1)
    """

    gram: Any
    v: jax.Array
    sigma2: jax.Array
    mixing: Mixing
    chains: jax.Array | None
    columns: jax.Array | None
    slots: jax.Array | None
    n_classes: int
    n_functions: int

    @property
    def n(self) -> int:
        """Training points."""
        return self.gram.n

    @property
    def dtype(self) -> Any:
        return self.gram.dtype

    def matmat(self, S: jax.Array) -> jax.Array:
        """K̃ S of S [n, C, B] or [n, C]: all classes and lanes in one product with each M⁽ˡ⁾.

        Raises:
            TypeError: S that is no array.
            ValueError: S of another shape.
        """
        if getattr(S, "ndim", 3) == 2:
            return self.matmat(S[..., None])[..., 0]
        return self._product(self.gram.matmat, self.gram.sandwich, S)

    def cross(self, points, alpha: jax.Array) -> jax.Array:
        """u(points) = K̃(points, training points) α, [m, C, B], of α [n, C, B]."""
        product = functools.partial(self.gram.cross, points)
        return self._product(product, product, alpha)

    def matrices(self) -> jax.Array:
        """K̃_c of independent functions, [C, n, n]: for few points."""
        base = self.gram.matrices()
        if self.columns is not None and self.slots is not None:
            base = base[self.slots // self.columns.shape[1]]
        return self.v[:, None, None] * base + self.sigma2

    def _product(self, product, sandwich, S: jax.Array) -> jax.Array:
        check_columns(S, self.n, self.n_classes)
        n, C, B = S.shape
        if self.columns is None:
            # one M for all functions: M (S Φ diag(v) Φᵀ), C columns instead of P
            def between(T):
                T = T.reshape(T.shape[0], C, B)
                return self.mixing.mixed(self._variances(), T).reshape(-1, C * B)

            u = sandwich(S.reshape(n, 1, C * B), between).reshape(-1, C, B)
        else:
            groups = self._groups(product, self.mixing.transpose(S))
            u = self.mixing.apply(self._variances()[None, :, None] * groups)
        # σ² 1 1ᵀ S
        return u + self.sigma2 * jnp.sum(S, axis=0, keepdims=True)

    def _groups(self, product, S: jax.Array) -> jax.Array:
        """M⁽ˡ⁽ᵖ⁾⁾ S_p, [·, P, B]: the functions that share a base kernel are columns of one product."""
        assert self.columns is not None
        n, _, B = S.shape
        L, most = self.columns.shape
        if self.slots is None:
            return product(S)
        grouped = jnp.take(S, self.columns.ravel(), axis=1, mode="fill", fill_value=0)
        out = product(grouped.reshape(n, L, most * B)).reshape(-1, L * most, B)
        return jnp.take(out, self.slots, axis=1)

    def _variances(self) -> jax.Array:
        v = self.v
        if self.chains is not None:
            v = jnp.zeros(self.n_functions, v.dtype).at[self.chains].add(v)
        return v


@needs_threads_of_jax
def class_kernels(
    gram: Gram | Factored,
    v,
    sigma2,
    n_classes: int,
    *,
    share=None,
    hierarchy=None,
    loadings=None,
) -> ClassKernels:
    """K_c = v_c M⁽ˡ⁽ᶜ⁾⁾ of C classes, of the nodes of a tree, or of the factors of a matrix B.

    Args:
        gram: L base kernels on the training points, or an approximation of them.
        v: variances, above 0; a number or [P]. P is the number of classes, of columns of B, or of nodes
            without the root (level by level; within one, by rising number of children, leaves last).
        sigma2: σ² ≥ 0, of the intercepts; 0 for a model without.
        n_classes: C.
        share: l(p), [P], whole numbers below L; None gives every function the one base kernel
            there is, or one each where L = P.
        hierarchy: the tree whose leaves are the classes: (parent, child) pairs of node numbers, [P, 2],
            of which 0 is the root.
        loadings: B, [C, P].

    Raises:
        TypeError: edges that are no whole numbers.
        ValueError: edges that are no tree, a variance that is not above 0, or sizes that do not match.

    Example:
        >>> from xmcjax.kernels import RBF, gram, points
        >>> base = gram(RBF(1.0), points([[0.0], [1.0]]))
        >>> family = class_kernels(base, v=2.0, sigma2=0.5, n_classes=3)
        >>> of_one = jnp.zeros((2, 3, 1)).at[0, 1, 0].set(1.0)  # one point, one class
        >>> print(family.matmat(of_one)[..., 0].round(3))  # v k + σ² in its class
        [[0.    2.5   0.   ]
         [0.    1.713 0.   ]]
    """
    dtype = gram.dtype
    P = n_classes = whole_number("n_classes", n_classes, 1)
    if hierarchy is not None:
        hierarchy = Hierarchy.of(hierarchy)
        P = hierarchy.n_nodes
        if hierarchy.n_classes != n_classes:
            raise ValueError(f"expected a hierarchy of {n_classes} leaves, got {hierarchy.n_classes}")
    if loadings is not None:
        loadings = jnp.asarray(real_array("loadings", loadings, finite=True), dtype)
        if hierarchy is not None:
            raise ValueError("loadings: expected None beside a hierarchy, which mixes functions itself")
        if loadings.ndim != 2 or loadings.shape[0] != n_classes or not loadings.size:
            expected = f"expected loadings [{n_classes}, functions] of at least one function"
            raise ValueError(f"{expected}, got shape {list(loadings.shape)}")
        P = loadings.shape[1]
    v, sigma2 = real_array("v", v), real_array("sigma2", sigma2)
    if v.shape not in ((), (P,)) or sigma2.shape:
        shapes = f"{np.shape(v)} and {np.shape(sigma2)}"
        raise ValueError(f"expected v as a number or [{P}] and sigma2 as a number, got shapes {shapes}")
    v, sigma2 = positive("v", v, (P,), dtype), positive("sigma2", sigma2, (), dtype, zero=True)

    L, share = gram.count, _shares(share, gram.count, P)
    chains = columns = slots = None
    if L == 1:
        if hierarchy is not None:
            hierarchy, merged = hierarchy.merged()
            chains = jnp.asarray(merged, jnp.int32)
            P = hierarchy.n_nodes
    else:
        most = np.bincount(share, minlength=L).max()
        table, place = np.full((L, most), P), np.zeros(P, int)
        for l in range(L):
            members = np.flatnonzero(share == l)
            table[l, : len(members)] = members
            place[members] = l * most + np.arange(len(members))
        columns = jnp.asarray(table, jnp.int32)
        slots = None if L == P and (place == np.arange(P)).all() else jnp.asarray(place, jnp.int32)
    mixing: Mixing = Independent()
    if hierarchy is not None:
        mixing = tree(hierarchy)
    elif loadings is not None:
        mixing = Loadings(loadings)
    return ClassKernels(gram, v, sigma2, mixing, chains, columns, slots, n_classes, P)


def _shares(share, L: int, P: int) -> np.ndarray:
    if share is None:
        if L not in (1, P):
            raise ValueError(
                f"expected one base kernel, or one for each of {P} functions, got {L}: give share"
            )
        return np.zeros(P, int) if L == 1 else np.arange(P)
    share = _sparse.array(share, "share")
    if share.shape != (P,) or share.dtype.kind not in "iu" or share.min() < 0 or share.max() >= L:
        raise ValueError(f"share: expected {P} whole numbers from 0 to {L - 1}, got {share}")
    return share
