"""Starting weights of one-vs-all problems; the table ``INITS`` is what the command line offers."""

from __future__ import annotations

from xmcjax.inits._base import Init, Labels, Starts, TrainingSet
from xmcjax.inits._constant import Bias, Zero
from xmcjax.inits._mean_separating import MeanSeparating
from xmcjax.inits._multi_pos import MultiPos
from xmcjax.inits._ova_primal import OvaPrimal, OvaPrimalTree, label_tree
from xmcjax.inits._pretrained import Pretrained

INITS: dict[str, type[Init]] = {
    init.name: init for init in (Zero, Bias, OvaPrimal, OvaPrimalTree, MeanSeparating, MultiPos, Pretrained)
}

__all__ = [
    "INITS",
    "Bias",
    "Init",
    "Labels",
    "MeanSeparating",
    "MultiPos",
    "OvaPrimal",
    "OvaPrimalTree",
    "Pretrained",
    "Starts",
    "TrainingSet",
    "Zero",
    "label_tree",
]
