"""What machine this is, what the library finds on it, and how fast its memory is."""

from __future__ import annotations

import contextlib
import importlib
import io
import shutil
import subprocess
import warnings
from pathlib import Path

from experiments.bench.gpu_kit._kit import Kit, copy_bandwidth, seconds_of

GPU_STATE = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem,power.limit,temperature.gpu"


def run(kit: Kit) -> None:
    """`xmcjax info`, the devices, the state of the GPU; then the two ceilings."""
    import jax

    from xmcjax import linops, native
    from xmcjax.cli import info

    with kit.attempt("library"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            info.run(info.Options())
        kit.figure("library", info=printed.getvalue().splitlines())
    with kit.attempt("device"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        importlib.import_module("jax.experimental.pallas.triton")

        device = jax.local_devices()[0]
        kit.figure(
            "device",
            devices=[str(device) for device in jax.local_devices()],
            kind=device.device_kind,
            memory_stats=device.memory_stats() or {},
            gpu_ready=linops.gpu_ready(),
            cuda_absence=native.cuda_absence(),
            native_ready=linops.native_ready(),
            warnings=[str(warning.message) for warning in warned],
            nvidia_smi=_nvidia_smi(),
            memory_of_the_host=_first_line("/proc/meminfo"),
        )
    with kit.attempt("ceilings"):
        copy = copy_bandwidth(kit)
        n = kit.size(8192, 256)
        a, b = (jax.random.normal(jax.random.key(k), (n, n), "float32") for k in range(2))
        product = jax.jit(lambda a, b: jax.numpy.dot(a, b, precision="highest"))
        seconds = seconds_of(lambda: product(a, b))[1]
        kit.figure("ceilings", copy_gb_s=copy / 1e9, float32_tflop_s=2 * n**3 / seconds / 1e12)


def _nvidia_smi() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "not there"
    command = [program, f"--query-gpu={GPU_STATE}", "--format=csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return (done.stdout + done.stderr).strip()


def _first_line(path: str) -> str:
    return Path(path).read_text().splitlines()[0] if Path(path).exists() else "not known"
