"""The devices that train, each with its own copy of X and its own blocks, and how many lanes fit on one."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np

from xmcjax._device_memory import free_memory, used_device
from xmcjax._platform import default_platform
from xmcjax.linops import Csr, LinOp

# Lanes of a block on a CPU: two tiles of the native kernels, which share a pass over X. More do not fit
# the caches.
ON_A_CPU = 32
# Fewest and most lanes of a block on a GPU: 512 lanes read 2 kB per entry of X, and more gain little.
FEWEST, MOST = 16, 512
# OF_ROWS, OF_COLUMNS: about how many arrays of [n, B] and of [d, B] a Newton step holds, by XLA's count for
# GPUs. PART: the part of the free memory that they may fill.
OF_ROWS, OF_COLUMNS, PART = 7, 6, 0.8
# Most blocks of a device: while the host reads out one and prepares starts for it, the device makes a step
# of the other.
BLOCKS = 2


class Place(NamedTuple):
    """A device that trains."""

    device: Any  #: None for the default one
    op: LinOp  #: X on it


def placed(op: LinOp) -> list[Place]:
    """X on every device of the default platform; on one for the native kernels, or where the caller chose it.

    Args:
        op: X on the default device, which keeps it.
    """
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    devices = jax.local_devices()
    if (isinstance(op, Csr) and op.native) or chosen is not None or len(devices) == 1:
        return [Place(None, op)]
    return [Place(device, op if k == 0 else jax.device_put(op, device)) for k, device in enumerate(devices)]


def worker_count(places: list[Place], threads: int) -> int:
    """Host threads, each with a block: one per device; on a CPU, which they share, at least `threads`."""
    return max(threads, len(places)) if default_platform() == "cpu" else len(places)


def lanes_that_fit(op: LinOp, device: Any = None) -> int:
    """The default number of lanes of a block, by the sizes of X; training then checks it by XLA's count.

    Args:
        op: X, on its device already.
        device: that one; None for the default one.

    Warns:
        RuntimeWarning: the device does not tell its memory, and what was assumed.

    Example:
        >>> import numpy as np
        >>> from xmcjax import linops
        >>> lanes_that_fit(linops.make(np.eye(3, dtype=np.float32))) >= 1
        True
    """
    device = used_device(device)
    if device.platform == "cpu":
        return ON_A_CPU
    free = free_memory(device)
    if free is None:
        warnings.warn(
            f"{device} does not tell how much memory it has: {FEWEST} lanes are taken, the fewest; "
            "block_size takes another number",
            RuntimeWarning,
            stacklevel=2,
        )
        return FEWEST
    return lanes_in(free, *op.shape, np.dtype(op.dtype).itemsize)


def lanes_in(free: int, n: int, d: int, itemsize: int) -> int:
    """Lanes whose arrays fit into so many bytes, about: from 16 to 512, in whole tiles of the kernels."""
    lanes = int(PART * free / (itemsize * (OF_ROWS * n + OF_COLUMNS * d)))
    return min(max(whole_tiles(lanes), FEWEST), MOST)


def lanes_of_use(lanes: int, labels: int) -> int:
    """`lanes`, or the number of labels rounded up to a multiple of 16 where that is less.

    Example:
        >>> lanes_of_use(4, labels=3), lanes_of_use(512, labels=40)
        (4, 48)
    """
    return min(lanes, max(1, -(-labels // FEWEST)) * FEWEST)


def whole_tiles(lanes: int) -> int:
    """`lanes` rounded down to a multiple of 128 or 32, or, below 32, to a power of 2; at least one."""
    for tile in (128, 32):
        if lanes >= tile:
            return lanes // tile * tile
    return 1 << max(lanes, 1).bit_length() - 1
