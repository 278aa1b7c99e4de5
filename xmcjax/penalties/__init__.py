"""Penalties of weights, which regularise the losses."""

from xmcjax.penalties._base import Penalty
from xmcjax.penalties._elastic_net import L1, ElasticNet
from xmcjax.penalties._huber import HuberPenalty
from xmcjax.penalties._l2 import L2

PENALTIES: dict[str, type[Penalty]] = {
    penalty.name: penalty for penalty in (L2, L1, ElasticNet, HuberPenalty)
}

__all__ = ["L1", "L2", "PENALTIES", "ElasticNet", "HuberPenalty", "Penalty"]
