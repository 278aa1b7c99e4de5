"""How one-vs-all problems are trained."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from xmcjax import linops
from xmcjax._arguments import MOST_THREADS, instance, name_of, number, whole_number
from xmcjax.inits import Init, MeanSeparating
from xmcjax.losses import MarginLoss, squared_hinge
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import newton_cg

BIASES = ("regularised", "free", "none")


@dataclasses.dataclass(frozen=True)
class OneVsAll:
    """How to train; the problem of each label is

        min R(w) [+ R(b)] + C Σ_i s_i c_i φ(y_i (w·x_i + b)),

    s_i = 1 without sample weights, and c_i = 1 without weights of the label.

    Attributes:
        loss: φ.
        penalty: R; ½‖w‖² by default.
        init: starting weights.
        C: weight of the losses.
        eps: ε₀ of the stopping rule (paper 000, eqs. 12 and 13). The Newton decrement must be small
            too: see ``decrement`` of :class:`xmcjax.solvers.newton_cg.HParams`. With ½‖w‖² a label that
            ends CONVERGED has f within 0.5% of its minimum: where C ‖x‖² is so large that rows which leave
            the loss, or rounding, may have misled the solver, the duality gap is worked out in float64
            (:mod:`xmcjax.lanes._certificate`).
        clip: weights below this in absolute value are dropped after training; the bias is kept. None for
            those whose part of the label's scores is too small to matter, whatever the scale of the features
            (:mod:`xmcjax.lanes._clipping`); 0 keeps all.
        sparsify: in place of clip: as many of a label's smallest weights are dropped as raise its
            objective by this part at most.
        bias: "regularised" like a feature of value 1, "free" of regularisation, or "none".
        max_iter: Newton steps a label; 0 returns the starting weights, of which none is dropped.
        block_size: lanes that share a pass over X; None for 32 on a CPU and as many as fit, up to 512, on
            a GPU.
        threads: host threads, each with lanes of its own; each GPU has one. The weights of the native
            kernels depend on neither.
        backend: of :func:`xmcjax.linops.make`; "auto" takes the kernels for a GPU for a sparse X where
            :func:`xmcjax.linops.gpu_ready`, and the native kernels for a dense X too, where there are
            any: a step that visits active rows only is as fast, and compiles in a tenth of a second
            instead of three.
    """

    loss: MarginLoss = squared_hinge
    init: Init = dataclasses.field(default_factory=MeanSeparating)
    C: float = 1.0
    eps: float = 0.01
    clip: float | None = None
    sparsify: float | None = None
    bias: Literal["regularised", "free", "none"] = "regularised"
    max_iter: int = 100
    block_size: int | None = None
    threads: int = 1
    backend: str = "auto"
    penalty: Penalty = L2()  # noqa: RUF009 – frozen

    def __post_init__(self):
        for name, base in (("loss", MarginLoss), ("init", Init), ("penalty", Penalty)):
            instance(name, getattr(self, name), base)
        if not 0 < number("C", self.C) < np.inf:
            raise ValueError(f"expected C > 0, got {self.C}")
        if not number("eps", self.eps) > 0:
            raise ValueError(f"expected eps > 0, got {self.eps}")
        if self.clip is not None and not number("clip", self.clip) >= 0:
            raise ValueError(f"expected clip ≥ 0, got {self.clip}")
        if self.sparsify is not None and not 0 < number("sparsify", self.sparsify) < np.inf:
            raise ValueError(f"expected sparsify > 0, got {self.sparsify}")
        name_of("bias", self.bias, BIASES)
        name_of("backend", self.backend, linops.BACKENDS)
        whole_number("max_iter", self.max_iter, 0)
        whole_number("threads", self.threads, 1, MOST_THREADS)
        if self.block_size is not None:
            whole_number("block_size", self.block_size, 1)
        if not self.loss.smooth:
            raise TypeError(
                f"one-vs-all training needs a loss with curvature, which {self.loss.name} has not; "
                "take squared_hinge, huber_hinge or logistic"
            )

    def hparams(self) -> newton_cg.HParams:
        """Of the solver."""
        l2_bias = {"regularised": 1.0, "free": 0.0, "none": -1.0}[self.bias]
        return newton_cg.HParams(l2=1.0, l2_bias=l2_bias, max_steps=self.max_iter)
