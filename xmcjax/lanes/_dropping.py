"""The objective of a label, and which of its weights are dropped after training, as the options say."""

from __future__ import annotations

from xmcjax.lanes._clipping import Clipping, make_clipping
from xmcjax.lanes._objective import Objective
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._sparsify import Sparsifier
from xmcjax.lanes._training_data import TrainingData


def objective_of(data: TrainingData, options: OneVsAll) -> Objective:
    """The objective of a label."""
    l2_bias = max(options.hparams().l2_bias, 0)
    return Objective(data.X.shape[0], options.loss, options.penalty, data.row_weight, l2_bias)


def dropping(
    data: TrainingData, options: OneVsAll, objective: Objective
) -> tuple[Sparsifier | None, Clipping]:
    """The search that takes the place of a clip, or None, and the rule of the clip."""
    X = data.X
    # starting weights that were asked for stay as they are
    solved = options.max_iter > 0
    rise = options.sparsify_rise if solved else None
    sparsifier = None if rise is None else Sparsifier(X, objective, rise)
    clip = options.clip if solved and rise is None else 0
    return sparsifier, make_clipping(X, data.row_weight, options.loss, clip)
