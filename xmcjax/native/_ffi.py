"""The C++ kernels as JAX functions, through ``jax.ffi``.

Each has a twin in plain JAX: the products in :mod:`xmcjax.native.ref`, the Newton step in
:mod:`xmcjax.solvers.newton_cg`, dual ascent over instances in :mod:`xmcjax.solvers._instance_twin`. Shapes
and dtypes are checked by the callers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from xmcjax.native import _library
from xmcjax.native._partition import over_rows

_TARGETS = (
    "xmcjax_csr_matmat",
    "xmcjax_csr_rmatmat",
    "xmcjax_csr_gram_matmat",
    "xmcjax_merge_topk",
    "xmcjax_newton_step",
    "xmcjax_project_box",
    "xmcjax_project_topk",
    "xmcjax_instance_dual",
    "xmcjax_instance_gap",
    "xmcjax_softmax_pass",
    "xmcjax_softmax_round",
    "xmcjax_symmetric_matmat",
    "xmcjax_tree_sums_below",
    "xmcjax_tree_sums_of_paths",
)


# A part of the key of JAX's caches: what was compiled with native calls is not used where there must be none.
twins_wanted = jax.make_user_context(False)


def available() -> bool:
    """Whether the library is there and wanted; the first call registers its handlers with JAX.

    Where it is not there and the CPU is the default device, the first call warns (``PerformanceWarning``).

    Raises:
        ImportError: the library is there but cannot be used, or JAX refuses its handlers.
    """
    return not twins_wanted.value and _registered()


@functools.cache
def _registered() -> bool:
    library = _library.load()
    if library is None:
        if not _library.switched_off() and jax.default_backend() == "cpu":
            _library.warn_of_twins()
        return False
    for name in _TARGETS:
        try:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
        except RuntimeError as error:
            raise ImportError(
                f"jax {jax.__version__} refuses the kernels of {_library.path()}, install the package again: "
                f"{str(error).splitlines()[0]}"
            ) from error
    return True


def available_here() -> bool:
    """:func:`available`, and JAX allows a native call where this is traced.

    It does not in a ``shard_map`` over some axes of a mesh while others are Auto.
    """
    kinds = jax.sharding.get_abstract_mesh().axis_types
    return available() and not {AxisType.Manual, AxisType.Auto} <= set(kinds)


def csr_matmat(value, column, offset, V, *, threads: int):
    """X V, [n, B]."""
    out = jax.ShapeDtypeStruct((offset.shape[0] - 1, V.shape[1]), value.dtype)
    call = jax.ffi.ffi_call("xmcjax_csr_matmat", out, vmap_method="sequential")
    return call(value, column, offset, V, threads=np.int64(threads))


def csr_rmatmat(value, column, offset, C, d: int, *, threads: int):
    """Xᵀ C, [d, B]; zero entries of C cost nothing."""
    out = jax.ShapeDtypeStruct((d, C.shape[1]), value.dtype)
    call = jax.ffi.ffi_call("xmcjax_csr_rmatmat", out, vmap_method="sequential")
    return call(value, column, offset, C, threads=np.int64(threads))


def csr_gram_matmat(value, column, offset, D, V, *, threads: int):
    """Xᵀ(D ∘ (X V)), [d, B]; zero entries of D cost nothing."""
    out = jax.ShapeDtypeStruct(V.shape, value.dtype)
    call = jax.ffi.ffi_call("xmcjax_csr_gram_matmat", out, vmap_method="sequential")
    return call(value, column, offset, D, V, threads=np.int64(threads))


def merge_topk(value, column, offset, W, b, first, best_scores, best_labels, *, threads: int):
    """The best so far with a block of labels merged into them; B of W [d, B] is a multiple of 16."""
    out = [jax.ShapeDtypeStruct(best.shape, best.dtype) for best in (best_scores, best_labels)]
    call = jax.ffi.ffi_call(
        "xmcjax_merge_topk", out, vmap_method="sequential", input_output_aliases={6: 0, 7: 1}
    )
    return call(value, column, offset, W, b, first, best_scores, best_labels, threads=np.int64(threads))


def newton_step(problem: Sequence[jax.Array], state: Sequence[jax.Array], *, loss: int):
    """One Newton step; `problem` and `state` in the order of native/interface/ffi_newton.cc."""
    out = [jax.ShapeDtypeStruct(field.shape, field.dtype) for field in state]
    aliases = {len(problem) + i: i for i in range(len(state))}
    call = jax.ffi.ffi_call("xmcjax_newton_step", out, vmap_method="sequential", input_output_aliases=aliases)
    return call(*problem, *state, loss=np.int64(loss))


def project_box(b, radius, lower, upper, rho, *, at_most: bool):
    """Projections between fixed bounds, of xmcjax/projections/_knapsack.py."""
    return _box_over_rows(at_most)(b, radius, lower, upper, rho)


def project_topk(b, radius, rho, *, k: int):
    """Projections with a bound of 1ᵀx/k, of xmcjax/projections/_topk.py."""
    return _topk_over_rows(k)(b, radius, rho)


@functools.cache
def _box_over_rows(at_most: bool):
    def call(b, *numbers):
        vectors, row = jax.eval_shape(lambda b: (b, b[..., 0]), b)
        call = jax.ffi.ffi_call("xmcjax_project_box", (vectors, row), vmap_method="broadcast_all")
        return call(b, *_on_the_mesh_of(b, *numbers), at_most=np.int64(at_most))

    return over_rows(call, numbers=4, results=1)


@functools.cache
def _topk_over_rows(k: int):
    def call(b, *numbers):
        vectors, row = jax.eval_shape(lambda b: (b, b[..., 0]), b)
        call = jax.ffi.ffi_call("xmcjax_project_topk", (vectors, row, row), vmap_method="broadcast_all")
        return call(b, *_on_the_mesh_of(b, *numbers), k=np.int64(k))

    return over_rows(call, numbers=2, results=2)


def _on_the_mesh_of(b, *numbers):
    """The numbers of each vector [...], varying over the axes of a mesh as b does in shard_map."""
    return [jnp.where(b[..., 0] == b[..., 0], number, number) for number in numbers]


def instance_dual(problem: Sequence[jax.Array], state: Sequence[jax.Array], **options: int):
    """Epochs of dual ascent; the arguments in the order of native/interface/ffi_instance_dual.cc."""
    out = [jax.ShapeDtypeStruct(field.shape, field.dtype) for field in state]
    aliases = {len(problem) + i: i for i in range(len(state))}
    call = jax.ffi.ffi_call(
        "xmcjax_instance_dual", out, vmap_method="sequential", input_output_aliases=aliases
    )
    return call(*problem, *state, **{name: np.int64(value) for name, value in options.items()})


def instance_gap(problem: Sequence[jax.Array], state: Sequence[jax.Array], **options: int):
    """P, D, P − D and the support of each lane; the arguments as above, of the state the first three."""
    lanes = (state[0].shape[0],)
    number, count = jax.ShapeDtypeStruct(lanes, state[0].dtype), jax.ShapeDtypeStruct(lanes, np.int32)
    call = jax.ffi.ffi_call("xmcjax_instance_gap", [number, number, number, count], vmap_method="sequential")
    return call(*problem, *state, **{name: np.int64(value) for name, value in options.items()})


def softmax_pass(value, column, offset, y, weight, W, bias):
    """(Σ c (log Σ e^z − z_y), Xᵀ c (P − Y) [d, K], Σ c (P − Y) [K]) at z = X W + b."""
    out = (
        jax.ShapeDtypeStruct((), value.dtype),
        jax.ShapeDtypeStruct(W.shape, value.dtype),
        jax.ShapeDtypeStruct(bias.shape, value.dtype),
    )
    call = jax.ffi.ffi_call("xmcjax_softmax_pass", out, vmap_method="sequential")
    return call(value, column, offset, y, weight, W, bias)


def softmax_round(value, column, offset, weight, squared_norms, bias, order, l2, W, log_p):
    """A round of dual ascent: (W, log P, counts int32 [4]); see native/softmax/simd_softmax.cc."""
    out = (
        jax.ShapeDtypeStruct(W.shape, W.dtype),
        jax.ShapeDtypeStruct(log_p.shape, log_p.dtype),
        jax.ShapeDtypeStruct((4,), np.int32),
    )
    aliases = {8: 0, 9: 1}
    call = jax.ffi.ffi_call(
        "xmcjax_softmax_round", out, vmap_method="sequential", input_output_aliases=aliases
    )
    return call(value, column, offset, weight, squared_norms, bias, order, l2, W, log_p)


def symmetric_matmat(M, S, *, threads: int):
    """M S, [n, k], of a symmetric M [n, n], of which only the upper half is read; the sums do not depend on
    the threads."""
    out = jax.ShapeDtypeStruct(S.shape, S.dtype)
    call = jax.ffi.ffi_call("xmcjax_symmetric_matmat", out, vmap_method="sequential")
    return call(M, S, threads=np.int64(threads))


def tree_sums_below(parent, leaf, s, *, threads: int):
    """Σ over the leaves below each node, [rows, P, B], of s [rows, C, B].

    Args:
        parent: place of each node's parent, before its own; −1 for none; int32 [P].
        leaf: places of the leaves, int32 [C].
        s: as above.
        threads: which take rows.
    """
    out = jax.ShapeDtypeStruct((s.shape[0], parent.shape[0], s.shape[2]), s.dtype)
    call = jax.ffi.ffi_call("xmcjax_tree_sums_below", out, vmap_method="sequential")
    return call(parent, leaf, s, threads=np.int64(threads))


def tree_sums_of_paths(parent, leaf, x, *, threads: int):
    """Σ over the path of each leaf, [rows, C, B], of x [rows, P, B]; the other arguments as above."""
    out = jax.ShapeDtypeStruct((x.shape[0], leaf.shape[0], x.shape[2]), x.dtype)
    call = jax.ffi.ffi_call("xmcjax_tree_sums_of_paths", out, vmap_method="sequential")
    return call(parent, leaf, x, threads=np.int64(threads))
