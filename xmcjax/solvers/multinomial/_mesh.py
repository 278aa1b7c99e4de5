"""The classes of a problem split over the devices of a mesh.

Every device has its columns of W, and X and y whole. Nothing of the size of the weights is ever sent: what
goes over the mesh are sums over classes, [n], and single numbers. K is filled up to a multiple of the
number of devices with columns that are no classes; their weights are 0.

In a run of several processes (``jax.distributed``) every process calls the same functions with the same
arguments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xmcjax.solvers.multinomial._problem import Evaluation, Form, Problem, evaluate
from xmcjax.solvers.multinomial._state import State


def padded(classes: int, mesh: Mesh) -> int:
    """Columns of W: `classes`, filled up to a multiple of the devices."""
    return -(-classes // mesh.size) * mesh.size


@contextlib.contextmanager
def left_to_the_compiler(mesh: Mesh) -> Iterator[Mesh]:
    """The same devices under axes along which the compiler splits arrays: jax.make_mesh has explicit ones.

    Where the caller has set a mesh, the one yielded here takes its place meanwhile.
    """
    its = Mesh(mesh.devices, mesh.axis_names)
    outside = jax.sharding.get_abstract_mesh().empty
    with contextlib.nullcontext() if outside else jax.set_mesh(its):
        yield its


def over(mesh: Mesh, a: jax.Array) -> jax.Array:
    """The same array, and the same copies of its parts, over another mesh of its devices."""
    parts, sharding = [part.data for part in a.addressable_shards], a.sharding
    assert isinstance(sharding, NamedSharding)
    return jax.make_array_from_single_device_arrays(a.shape, NamedSharding(mesh, sharding.spec), parts)


def shared(problem: Problem, mesh: Mesh) -> Problem:
    """The problem with all its arrays on every device.

    Raises:
        ValueError: a mesh of more than one axis.
    """
    if len(mesh.axis_names) != 1:
        raise ValueError(f"expected a mesh of one axis, got {', '.join(map(str, mesh.axis_names))}")
    everywhere = NamedSharding(mesh, PartitionSpec())
    arrays = jax.tree.map(lambda a: _placed(np.asarray(a), everywhere), problem)
    return dataclasses.replace(arrays, axis=str(mesh.axis_names[0]))


def split_columns(a, classes: int, mesh: Mesh):
    """[…, K] over the devices by its last axis, filled up with zeros; None stays None."""
    if a is None:
        return None
    a = np.asarray(a)
    if a.shape[-1] != classes:
        raise ValueError(f"expected {classes} columns, one for each class, got {a.shape[-1]}")
    missing = padded(classes, mesh) - classes
    a = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)])
    return _placed(a, NamedSharding(mesh, _columns(a.ndim, mesh)))


def _placed(a: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """The same array of every process, without the comparison over the network that device_put makes."""
    a = a.astype(jax.dtypes.canonicalize_dtype(a.dtype), copy=False)
    return jax.make_array_from_callback(a.shape, sharding, lambda index: a[index])


def _columns(dimensions: int, mesh: Mesh) -> PartitionSpec:
    return PartitionSpec(*[None] * (dimensions - 1), mesh.axis_names[0])


def state_specs(module: Any, mesh: Mesh) -> State:
    """How the arrays of a state lie on the mesh; `module` is that of the method."""
    axis, whole = mesh.axis_names[0], PartitionSpec()
    memory = {
        name: whole if place is None else PartitionSpec(*[None] * place, axis)
        for name, place in module.CLASS_AXES.items()
    }
    fields: dict[str, Any] = {name: whole for name in State._fields}
    fields |= {"W": PartitionSpec(None, axis), "bias": PartitionSpec(axis), "memory": module.Memory(**memory)}
    return State(**fields)


@functools.cache
def initial(module: Any, mesh: Mesh, classes: int):
    """`init` of a method over a mesh, compiled: (problem, hp, W0, b0) -> State."""
    axis, whole = mesh.axis_names[0], PartitionSpec()
    width = padded(classes, mesh) // mesh.size
    if _split_by_compiler(module):

        def whole_init(problem, hp, W0, b0):
            state = module.init(problem, hp, W0, b0, padded(classes, mesh), split(mesh))
            return _constrained(state, mesh)

        return jax.jit(whole_init)

    def init(problem, hp, W0, b0):
        return module.init(problem, hp, W0, b0, width)

    return jax.jit(
        jax.shard_map(
            init,
            mesh=mesh,
            in_specs=(whole, whole, PartitionSpec(None, axis), PartitionSpec(axis)),
            out_specs=state_specs(module, mesh),
            check_vma=False,  # the check cannot see that sums in loops are the same everywhere
        )
    )


@functools.cache
def advance(module: Any, mesh: Mesh):
    """`step` of a method over a mesh, compiled: (problem, hp, State) -> State; the state is donated."""
    if _split_by_compiler(module):

        def whole_step(problem, hp, state):
            return _constrained(module.step(problem, hp, state, split(mesh)), mesh)

        return jax.jit(whole_step, donate_argnums=2)
    whole, specs = PartitionSpec(), state_specs(module, mesh)
    step = jax.shard_map(
        module.step, mesh=mesh, in_specs=(whole, whole, specs), out_specs=specs, check_vma=False
    )
    return jax.jit(step, donate_argnums=2)


def can_be_split(module: Any) -> bool:
    """Whether a method runs over a mesh."""
    return hasattr(module, "CLASS_AXES") or _split_by_compiler(module)


def _split_by_compiler(module: Any) -> bool:
    return getattr(module, "SPLIT_BY_COMPILER", False)


@functools.cache
def split(mesh: Mesh) -> Form:
    """Weights as blocks of columns, [devices, d, columns], of which each device has one.

    As a vector such blocks are laid out device by device. The columns of one matrix would not be, and the
    compiler would send the whole matrix to every device for each inner product.
    """
    axis, whole = mesh.axis_names[0], PartitionSpec()
    block, columns, bias = PartitionSpec(axis), PartitionSpec(None, axis), PartitionSpec(axis)

    def over_mesh(function: Callable, in_specs: Any, out_specs: Any) -> Any:
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def evaluate_block(problem, W, bias):
        found = evaluate(problem, W[0], bias)
        return found._replace(gradient=found.gradient[None])

    parts: Any = (whole, block, bias, whole)
    return Form(
        over_mesh(evaluate_block, (whole, block, bias), Evaluation(*parts)),
        over_mesh(lambda W: W[None], columns, block),
        over_mesh(lambda blocks: blocks[0], block, columns),
    )


def _constrained(state: State, mesh: Mesh) -> State:
    """The state, split over the mesh: by blocks, or by its last axis where that is of the classes."""
    width = state.W.shape[1]

    def place(a):
        if a.ndim > 2:
            spec = PartitionSpec(*[None] * (a.ndim - 3), mesh.axis_names[0])
        else:
            spec = _columns(a.ndim, mesh) if a.ndim and a.shape[-1] == width else PartitionSpec()
        return jax.lax.with_sharding_constraint(a, NamedSharding(mesh, spec))

    return jax.tree.map(place, state)
