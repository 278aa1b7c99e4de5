"""A valid call of every public function and class, made from the library's own tables.

The calls are attacked with wrong arguments (tests/attack) and made in a forked process (`forked`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import xmcjax
from tests.support import matrices

FEATURES, CLASSES = matrices.features(), matrices.classes()
LABEL_MATRIX = sp.csr_array(matrices.labels())
(N, D), M, K = FEATURES.shape, LABEL_MATRIX.shape[1], 2  # rows, features, classes, labels that count
X, LABELS = FEATURES.toarray(), LABEL_MATRIX.toarray()
SIGNS = np.where(LABELS > 0, 1, -1).astype(np.int8)
SCORES = np.random.default_rng(0).normal(size=(N, M)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Call:
    """A function with arguments by name.

    Attributes:
        function: called with all arguments by name.
        arguments: which it takes.
        host: whether it computes on the host and so can look at every value; a function of JAX arrays sees
            shapes and dtypes alone, and lets NaN through.
        cost: as many times as rarely it is taken as a call that computes in a millisecond.
        free: what a function on the host may take although it is wrong elsewhere: an argument, such as one
            for names of classes, or "argument = value".
        unasked: "argument = value" of what is not asked for, because it is right and takes long.
    """

    function: Callable
    arguments: dict[str, Any]
    host: bool = True
    cost: int = 1
    free: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


class Table(dict[str, Call]):
    """Calls by name."""

    def of(self, name: str, fixed: dict[str, Any] | None = None, **options) -> Callable:
        """Decorates a function whose defaults are a valid call; the options are those of `Call`.

        Args:
            name: without the ``xmcjax.`` that it begins with.
            fixed: arguments that are none of the caller's.
        """

        def add(function):
            given = {key: p.default for key, p in inspect.signature(function).parameters.items()}
            own = {key: value for key, value in given.items() if value is not inspect.Parameter.empty}
            self.add(name, functools.partial(function, **fixed or {}), own, **options)
            return function

        return add

    def add(self, name: str, function: Callable, arguments: dict[str, Any], **options) -> None:
        """A function with a valid value of each argument."""
        assert f"xmcjax.{name}" not in self, name
        self[f"xmcjax.{name}"] = Call(function, arguments, **options)


def packages() -> list[types.ModuleType]:
    """Those with public names."""
    names = [m.name for m in pkgutil.iter_modules(xmcjax.__path__, "xmcjax.") if m.ispkg]
    solvers = ("admm", "multiclass_dual", "multinomial", "kernel_multinomial", "instance_dual", "topk_sdca")
    names += [f"xmcjax.solvers.{name}" for name in solvers]
    return [importlib.import_module(name) for name in names if name != "xmcjax.cli"]


def public() -> dict[str, Any]:
    """Everything that a package exports, by its full name."""
    names = {p: getattr(p, "__all__", [n for n in dir(p) if not n.startswith("_")]) for p in packages()}
    return {f"{p.__name__}.{name}": getattr(p, name) for p in names for name in names[p]}


def public_functions() -> dict[str, Callable]:
    """Every function that a package exports, by its full name."""

    def is_one(thing) -> bool:
        return inspect.isfunction(thing) or (hasattr(thing, "lower") and callable(thing))

    return {name: thing for name, thing in public().items() if is_one(thing)}


def public_classes() -> dict[str, type]:
    """Every class that a caller may make an object of: no exception, protocol or tuple of results."""

    def is_one(thing) -> bool:
        return inspect.isclass(thing) and not (
            issubclass(thing, Exception | tuple | enum.Enum) or getattr(thing, "_is_protocol", False)
        )

    return {name: thing for name, thing in public().items() if is_one(thing)}


def by_signature(function: Callable, values: dict[str, Any]) -> dict[str, Any]:
    """The values that a function takes; a KeyError where one that it needs has none."""
    taken = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in values:
            taken[name] = values[name]
        elif parameter.default is parameter.empty:
            raise KeyError(f"{function.__module__}.{function.__name__} needs {name!r}: give it a value here")
    return taken


def given(folder: Path) -> Table:
    """Those with arguments that a caller may get wrong, by name.

    Args:
        folder: for files that functions write.
    """
    from tests.support import calls_fits, calls_formulas, calls_kernels, calls_stored

    table = Table()
    calls_formulas.add(table)
    calls_stored.add(table, folder)
    calls_fits.add(table)
    calls_kernels.add(table)
    return table


def calls(folder: Path) -> Table:
    """All, by name; those of what others make take seconds, as problems and states are made for them."""
    from tests.support import calls_parts

    table = given(folder)
    calls_parts.add(table)
    return table
