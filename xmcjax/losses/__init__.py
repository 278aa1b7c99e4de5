"""Loss functions.

``squared_hinge``, ``hinge``, ``huber_hinge`` and ``logistic`` are objects of the margin m = y z:
``.value(m)``, ``.grad(m)``, ``.curv(m)``, ``.conjugate(dual)``, elementwise and of any shape.
``poisson`` is a loss of the score and the target, ``.score_value(s, y)``. The objects of the margin have this
method too; it is what a lane of ``newton_cg`` minimises.

The others are functions of scores [..., m] and integer labels [...] that return the loss of each row,
[...]. The convex conjugate of ``x`` is ``x_conjugate``.
"""

from xmcjax.losses._bounds import dm_bound, dm_bound_conjugate, lc_bound, lc_bound_conjugate
from xmcjax.losses._entropies import (
    softmax_cross_entropy,
    softmax_cross_entropy_conjugate,
    topk_entropy,
    topk_entropy_conjugate,
    truncated_topk_entropy,
)
from xmcjax.losses._fenchel_young import fenchel_young, sparsemax, sparsemax_conjugate
from xmcjax.losses._hinges import (
    crammer_singer,
    crammer_singer_conjugate,
    lee_lin_wahba,
    lee_lin_wahba_conjugate,
    weston_watkins,
    weston_watkins_conjugate,
)
from xmcjax.losses._lane import LaneLoss, Poisson
from xmcjax.losses._margin import (
    MARGIN_LOSSES,
    SMOOTH_LOSSES,
    Hinge,
    HuberHinge,
    Logistic,
    MarginLoss,
    SquaredHinge,
)
from xmcjax.losses._multilabel import (
    multilabel_cross_entropy,
    multilabel_cross_entropy_conjugate,
    multilabel_hinge,
    multilabel_hinge_conjugate,
)
from xmcjax.losses._one_vs_all import one_vs_all, one_vs_all_conjugate
from xmcjax.losses._ordered_hinge import ordered_hinge, ordered_hinge_conjugate
from xmcjax.losses._smooth_topk_hinge import smooth_topk_hinge, smooth_topk_hinge_conjugate
from xmcjax.losses._topk_hinge import topk_hinge, topk_hinge_conjugate

squared_hinge = MARGIN_LOSSES["squared_hinge"]
logistic = MARGIN_LOSSES["logistic"]
huber_hinge = MARGIN_LOSSES["huber_hinge"]
hinge = MARGIN_LOSSES["hinge"]
poisson = Poisson()

__all__ = [
    "MARGIN_LOSSES",
    "SMOOTH_LOSSES",
    "Hinge",
    "HuberHinge",
    "LaneLoss",
    "Logistic",
    "MarginLoss",
    "Poisson",
    "SquaredHinge",
    "crammer_singer",
    "crammer_singer_conjugate",
    "dm_bound",
    "dm_bound_conjugate",
    "fenchel_young",
    "hinge",
    "huber_hinge",
    "lc_bound",
    "lc_bound_conjugate",
    "lee_lin_wahba",
    "lee_lin_wahba_conjugate",
    "logistic",
    "multilabel_cross_entropy",
    "multilabel_cross_entropy_conjugate",
    "multilabel_hinge",
    "multilabel_hinge_conjugate",
    "one_vs_all",
    "one_vs_all_conjugate",
    "ordered_hinge",
    "ordered_hinge_conjugate",
    "poisson",
    "smooth_topk_hinge",
    "smooth_topk_hinge_conjugate",
    "softmax_cross_entropy",
    "softmax_cross_entropy_conjugate",
    "sparsemax",
    "sparsemax_conjugate",
    "squared_hinge",
    "topk_entropy",
    "topk_entropy_conjugate",
    "topk_hinge",
    "topk_hinge_conjugate",
    "truncated_topk_entropy",
    "weston_watkins",
    "weston_watkins_conjugate",
]
