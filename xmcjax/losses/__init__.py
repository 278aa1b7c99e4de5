"""Loss functions.

``squared_hinge``, ``hinge``, ``huber_hinge`` and ``logistic`` are objects of the margin m = y z:
``.value(m)``, ``.grad(m)``, ``.curv(m)``, elementwise and of any shape.
"""

from xmcjax.losses._margin import Hinge, HuberHinge, Logistic, MarginLoss, SquaredHinge

squared_hinge = SquaredHinge()
hinge = Hinge()
huber_hinge = HuberHinge()
logistic = Logistic()

MARGIN_LOSSES: dict[str, MarginLoss] = {
    loss.name: loss for loss in (squared_hinge, logistic, huber_hinge, hinge)
}

__all__ = [
    "MARGIN_LOSSES",
    "Hinge",
    "HuberHinge",
    "Logistic",
    "MarginLoss",
    "SquaredHinge",
    "hinge",
    "huber_hinge",
    "logistic",
    "squared_hinge",
]
