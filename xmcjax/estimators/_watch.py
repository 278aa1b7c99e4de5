"""What goes on beside a joint fit: a bar, the state on disk, and in the end a line that gives the reason."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._options import SHARED
from xmcjax.estimators._checkpoint import Checkpoint, Fold


class Watch:
    """The watch over one fit; a context manager while the fit runs.

    Args:
        estimator: with the argument ``verbose``. Where a command runs it, the attribute ``_checkpoint`` is
            the place of its state, and there is a bar whatever ``verbose`` says.
        unit: of the bar.
    """

    def __init__(self, estimator: Any, unit: str):
        self._name, self._unit = type(estimator).__name__, unit
        self._verbose = SHARED["verbose"].check(estimator.verbose)
        self.checkpoint: Checkpoint | Fold | None = getattr(estimator, "_checkpoint", None)
        self._statistics = None if self.checkpoint is None else self.checkpoint.statistics
        self._bar: Any = None
        self._begin = 0.0

    def __enter__(self) -> Watch:
        self._begin = time.perf_counter()
        if self._statistics is not None:
            self._statistics.begin()
        if self.watching:
            from tqdm import tqdm

            # disable=None: silent where stderr is no terminal
            self._bar = tqdm(desc=self._name, unit=self._unit, disable=None, file=sys.stderr)
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.close()

    @property
    def watching(self) -> bool:
        """Whether anybody wants to know how far the fit is."""
        return self._verbose or self.checkpoint is not None

    def observer(self, observe: Callable[..., None]) -> Callable[..., None] | None:
        """The function, where anybody wants to know."""
        return observe if self.watching else None

    def start(self, last: Any = None, shape: tuple[int, int] | None = None) -> Any:
        """Dual variables to start from: those of the state on disk, of the last fit, or none."""
        kept = None if self.checkpoint is None else self.checkpoint.load(shape)
        return last if kept is None else kept

    def show(self, passes: float, **values: Any) -> None:
        """Moves the bar, and adds to the statistics."""
        if self._statistics is not None:
            self._statistics(passes, **values)
        self._bar.n = round(passes)
        texts = {name: v if isinstance(v, str) else f"{v:.3g}" for name, v in values.items()}
        self._bar.set_postfix(texts, refresh=False)
        self._bar.update(0)

    def dual(self, progress: Any) -> None:
        """Takes the progress of a dual solver, a :class:`xmcjax.solvers._progress.Progress`."""
        self.show(progress.passes, gap=progress.gap, method=progress.method)
        if self.checkpoint is not None:
            self.checkpoint.offer(progress.alpha)

    def kernel(self, n: int) -> Callable[[Any], None]:
        """The function that is called with the state of a kernel machine, whose first n rows were given."""

        def told(state: Any) -> None:
            steps = int(state.steps[0]) + int(state.cg_steps[0])
            self.show(steps, residual=float(state.residual[0]), objective=float(state.value[0]))
            if self.checkpoint is not None:
                self.checkpoint.offer(lambda: np.asarray(state.alpha)[:n, :, 0])

        return told

    def end(self, reason: str, **values: Any) -> None:
        """Prints what came out and why by this method, where ``verbose`` asks for it."""
        if self._verbose:
            say(self._name, time.perf_counter() - self._begin, reason, **values)


def say(name: str, seconds: float, reason: str, **values: Any) -> None:
    """The line at the end of a fit."""
    said = ", ".join(f"{name.replace('_', ' ')} {value:.6g}" for name, value in values.items())
    with contextlib.suppress(OSError):  # a terminal that is gone ends no fit
        print(f"{name}: {said}, {seconds:.2f} s; {reason}", file=sys.stderr)


def last_dual(estimator: Any, classes: np.ndarray, n: int) -> sp.csr_array | None:
    """The dual variables [n, m] of the last fit, where it was of as many rows and the same classes."""
    alpha = getattr(estimator, "_dual", None)
    if not SHARED["warm_start"].check(estimator.warm_start) or alpha is None:
        return None
    same = alpha.shape == (n, len(classes)) and np.array_equal(estimator.classes_, classes)
    return alpha if same else None


def keep_dual(estimator: Any, alpha: sp.csr_array) -> None:
    """Keeps the dual variables for the next fit, where it is to start from them."""
    if estimator.warm_start:
        estimator._dual = alpha
    else:
        vars(estimator).pop("_dual", None)
