"""Whether lanes fit into the memory of their device, by XLA's count of the program that makes the steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from xmcjax import _device_memory
from xmcjax._device_memory import DeviceMemoryError, counted, described, held, smaller
from xmcjax._memory import size
from xmcjax._pytrees import is_traced
from xmcjax.solvers.admm._problem import Problem


def check_memory(problem: Problem, start: Any, advance: Any, hp: Any) -> None:
    """Checks that the lanes fit beside the features, if the device tells its memory and JAX does not trace.

    The program that is counted is the one that :func:`xmcjax.solvers.admm.run` finds compiled.

    Args:
        problem: of the lanes.
        start: makes the state of the lanes.
        advance: makes the steps.
        hp: hyperparameters of the steps.

    Raises:
        DeviceMemoryError: the lanes do not fit; the text says how many would.
    """
    if is_traced(problem):
        return
    device = _device_memory.device_of(problem.features)
    free = _device_memory.free_memory(device)
    if free is None:
        return

    def needed(some: Problem) -> int:
        found = counted(advance, some, hp, jax.eval_shape(start, some), 1)
        return 0 if found is None else found - held(problem)

    needs = needed(problem)
    if needs <= free:
        return
    n, lanes = len(problem.features), problem.lanes
    one = needed(_lanes(problem, 1)) if lanes > 1 else needs
    remedy = ""
    if one <= free:
        fewer = min(lanes - 1, 1 + (free - one) * (lanes - 1) // max(needs - one, 1))
        remedy = f"about {fewer} lanes would fit; "
    raise DeviceMemoryError(
        f"expected lanes that fit into the memory of {device}: {lanes} of {n} rows and {problem.classes} "
        f"classes need {size(needs)} beside the features, by XLA's count, and {size(free)} are free: {remedy}"
        f"{smaller(problem.features.dtype)}"
    )


def _lanes(problem: Problem, lanes: int) -> Problem:
    """The problem with `lanes` lanes, as shapes and dtypes without values."""
    of_lanes = described({"y": problem.y, "bound": problem.bound, "members": problem.members})
    some = jax.tree.map(lambda a: jax.ShapeDtypeStruct((lanes, *a.shape[1:]), a.dtype), of_lanes)
    return dataclasses.replace(problem, **some)
