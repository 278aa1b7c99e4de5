"""Which problem runs in which lane, and when."""

from xmcjax.lanes._lanes import Job, Lanes, Solved, StepRecord
from xmcjax.lanes._one_vs_all import (
    BIASES,
    LabelResult,
    OneVsAll,
    Summary,
    check_features,
    check_sample_weight,
    train_one_vs_all,
)

__all__ = [
    "BIASES",
    "Job",
    "LabelResult",
    "Lanes",
    "OneVsAll",
    "Solved",
    "StepRecord",
    "Summary",
    "check_features",
    "check_sample_weight",
    "train_one_vs_all",
]
