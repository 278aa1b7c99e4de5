"""The methods with which Lapin, Hein and Schiele, 2015, compare the top-k SVM, one file each.

Every one is a :class:`Method`: ``fit(X, y, C)`` trains on features [n, d] and classes 0 … m−1 and
returns a :class:`Fitted`, whose ``scores`` rank the classes of new rows, and whose ``gap`` is the
relative duality gap.
"""

from __future__ import annotations

from experiments.papers.p004.baselines._base import GRID as GRID
from experiments.papers.p004.baselines._base import TOL as TOL
from experiments.papers.p004.baselines._base import Fitted as Fitted
from experiments.papers.p004.baselines._base import Method as Method
from experiments.papers.p004.baselines.one_vs_all import OneVsAll
from experiments.papers.p004.baselines.softmax import Softmax
from experiments.papers.p004.baselines.svm_perf import PrecisionAt, RecallAt
from experiments.papers.p004.baselines.top_push import TopPush, TopPushEarly
from experiments.papers.p004.baselines.wsabie import Wsabie

# The methods by their names in the paper's Table 1; W++,Q/m has queue Q and an embedding of m dimensions.
BASELINES: dict[str, Method] = {
    "SVM OVA": OneVsAll(),
    "TopPush": TopPush(joint=True),
    "TopPush, ended early": TopPushEarly(),
    "TopPush OVA": TopPush(joint=False),
    **{f"Prec@{k}": PrecisionAt(k) for k in (1, 5, 10)},
    **{f"Recall@{k}": RecallAt(k) for k in (1, 2, 3, 4, 5, 10)},
    **{
        f"W++,{queue}/{dimension or 'm'}": Wsabie(dimension, queue)
        for dimension in (None, 192, 256)
        for queue in (0, 1, 2, 4, 8)
    },
    "softmax": Softmax(),
}
