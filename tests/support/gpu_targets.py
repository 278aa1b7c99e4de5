"""Compiles programs for a GPU that is not there: by XLA's compiler and a description of the device.

It takes the plug-in of JAX for CUDA, ``pip install --no-deps jax-cuda13-plugin jax-cuda13-pjrt
nvidia-cuda-nvcc`` beside a jax of the same version, and no driver. ``JAX_PLATFORMS=cpu`` keeps JAX from
looking for a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import math
import re
from typing import NamedTuple

import jax
import numpy as np
import pytest
from jax.experimental import topologies


class Gpu(NamedTuple):
    """What XLA's compiler knows of a device; sizes in bytes."""

    name: str
    capability: tuple[int, int]
    cores: int
    bandwidth: float  #: a second
    cache: int
    memory: int
    shared: int  #: of a multiprocessor
    shared_of_block: int
    threads: int  #: of a multiprocessor
    clock: float  #: GHz


GPUS = {
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 4.8e12, 60 << 20, 141 << 30, 233472, 232448, 2048, 1.98),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 3.35e12, 50 << 20, 80 << 30, 233472, 232448, 2048, 1.98
    ),
    "t4": Gpu("Tesla T4", (7, 5), 40, 3.2e11, 4 << 20, 15 << 30, 65536, 65536, 1024, 1.59),
}
_TARGET = """gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: {shared} threads_per_core_limit: {threads} core_count: {cores}
  fpus_per_core: {units} block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f} l2_cache_size: {cache} clock_rate_ghz: {clock}
  device_memory_size: {memory} shared_memory_per_block_optin: {shared_of_block}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 12 }} device_description_str: "{name}"
"""


def abstract_gpu():
    """The context of a GPU that is described only, which jax 0.11 and later ask for."""
    if jax.__version_info__ < (0, 11):
        return contextlib.nullcontext()
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H100", num_cores=132, platform="gpu")
    mesh = jax.sharding.AbstractMesh((1,), ("device",), (jax.sharding.AxisType.Auto,), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


@functools.cache
def _sharding(name: str):
    gpu = GPUS[name]
    major, minor = gpu.capability
    target = _TARGET.format(**gpu._asdict(), units=128 if major == 9 else 64, major=major, minor=minor)
    made = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=target)
    mesh = jax.sharding.Mesh(np.array(made.devices[:1]), ("device",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def sharding(name: str):
    """Of the only device of such a machine; the test is skipped where JAX has no compiler for it."""
    if importlib.util.find_spec("jax_plugins") is None:
        pytest.skip("JAX's plug-in for CUDA is not installed, which compiles for a GPU")
    try:
        return _sharding(name)
    except NotImplementedError as error:
        pytest.skip(
            f"JAX's plug-in for CUDA does not describe a device ({error}); JAX_PLATFORMS=cpu may help"
        )


def described(tree, name: str):
    """Shapes and types of the arrays of a tree, on that device; all else as it is."""
    place = sharding(name)
    return jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place) if hasattr(a, "dtype") else a, tree
    )


def jitted(function):
    """What ``jax.jit`` made, without what is wrapped around it."""
    while not hasattr(function, "lower"):
        function = function.__wrapped__
    return function


def compiled(function, name: str, *args, **static):
    """A program for that device."""
    return jitted(function).lower(*described(args, name), **static).compile()


def enlarged(op, shape: tuple[int, int], larger: tuple[int, int], entries: int):
    """A sparse operator with the shapes of the arrays of a larger one, and no arrays.

    Args:
        op: in plain JAX or of the kernels in CUDA, with rows and columns of one piece each.
        shape: its own, [n, d].
        larger: that it shall have.
        entries: about; in groups of 8, none of which is filled up.
    """
    of = dict(zip(shape, larger, strict=True))

    def length(size: int) -> int:
        """Of rows, columns, either with one more, or of what grows with the entries."""
        return of.get(size) or (of[size - 1] + 1 if size - 1 in of else entries)

    def array(a):
        if a.ndim == 2 and a.shape[1] == 8:
            return jax.ShapeDtypeStruct((entries // 8, 8), a.dtype)
        return jax.ShapeDtypeStruct(tuple(length(k) if k > 1 else k for k in a.shape), a.dtype)

    made = jax.tree.map(array, op)
    parts = {
        name: dataclasses.replace(getattr(made, name), shape=size)
        for name, size in (("rows", larger), ("columns", larger[::-1]))
        if hasattr(made, name)
    }
    return dataclasses.replace(made, shape=larger, **parts)


_SIZES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "pred": 1}
_SHAPE = re.compile(r"\b(" + "|".join(_SIZES) + r")\[([\d,]*)\]")
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call")
_LINE = re.compile(r"^\s+(?:ROOT )?%(\S+) = (.*?) ([\w\-]+)\((.*)$")


def moved(text: str, *, loops: bool = False) -> int:
    """Bytes that the kernels of a program read and write, by the sizes of their operands and results.

    The body of a loop counts once. A gather counts as its whole operand.

    Args:
        text: the program.
        loops: whether the bodies of loops alone count.
    """
    return sum(kernels(text, loops=loops).values())


def kernels(text: str, *, loops: bool = False) -> dict[str, int]:
    """Bytes as :func:`moved` counts them, by kernel; the targets of this library by their own names."""
    bodies = set(re.findall(r"\bbody=%([\w.\-]+)", text))
    found_by_name, sizes, inside = {}, {}, False
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            name = re.match(r"(?:ENTRY )?%?([\w.\-]+)", line).group(1)  # type: ignore[union-attr]
            # what is fused is a part of the kernel that calls it
            part = "fused" in name or re.match(r"\S*(gemm_fusion|region|computation)", name)
            inside = name in bodies or (not loops and not part)
        found = _LINE.match(line)
        if not found or not inside:
            continue
        result, kind, operands = found.group(2), found.group(3), found.group(4)
        size = sum(
            _SIZES[dtype] * math.prod(int(n) for n in shape.split(",") if n)
            for dtype, shape in _SHAPE.findall(result)
            if not (dtype == "s8" and "__cublas" in operands)  # room that the library may use
        )
        sizes[found.group(1)] = size
        if kind not in _FREE:
            read = sum(sizes.get(o, 0) for o in re.findall(r"%([\w.\-]+)", operands.split("),")[0]))
            name = (custom_calls(line) or [found.group(1)])[0]
            found_by_name[name] = found_by_name.get(name, 0) + size + read
    return found_by_name


def custom_calls(text: str) -> list[str]:
    """The targets of this library that a program calls."""
    return re.findall(r'custom_call_target="(xmcjax_\w+)"', text)


def imprecise(text: str) -> list[str]:
    """The matrix products of float32 that may be computed in less, such as TF32."""
    products = [
        line.strip()
        for line in text.splitlines()
        if re.search(r"= \(?f32\[.*\bdot\(|__cublas\$gemm|__cublas\$lt", line)
    ]
    return [
        p for p in products if not re.search(r"highest,highest|HIGHEST\",\s*\"HIGHEST|_F32_F32_F32", p, re.I)
    ]


def atomics(text: str) -> int:
    """Sums of floating-point numbers whose order may differ from run to run."""
    return len(re.findall(r"= \(?f(?:32|64)\[[^=]* scatter\((?!.*unique_indices=true)", text))
