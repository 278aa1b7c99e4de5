"""Which problem runs in which lane, and when."""

from xmcjax.lanes._blocks import Job
from xmcjax.lanes._lanes import Lanes, Solved, StepRecord
from xmcjax.lanes._one_vs_all import (
    BIASES,
    LabelResult,
    OneVsAll,
    Summary,
    check_sample_weight,
    train_one_vs_all,
)
from xmcjax.lanes._precision import precision
from xmcjax.lanes._unfinished import Unfinished, worse

__all__ = [
    "BIASES",
    "Job",
    "LabelResult",
    "Lanes",
    "OneVsAll",
    "Solved",
    "StepRecord",
    "Summary",
    "Unfinished",
    "check_sample_weight",
    "precision",
    "train_one_vs_all",
    "worse",
]
