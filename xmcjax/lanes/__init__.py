"""Which problem runs in which lane, and when."""

from xmcjax.lanes._balanced import balanced_weights
from xmcjax.lanes._calibrate import calibrate_one_vs_all
from xmcjax.lanes._devices import ON_A_CPU, lanes_of_use, lanes_that_fit
from xmcjax.lanes._forecast import Forecast, forecast, forecast_of_shape
from xmcjax.lanes._job import Job
from xmcjax.lanes._label_weights import WEIGHTINGS, LabelWeights, Weighting
from xmcjax.lanes._lanes import Lanes, Solved, StepRecord
from xmcjax.lanes._memory import Shape, model_bytes, training_bytes
from xmcjax.lanes._nodes import train_on_nodes
from xmcjax.lanes._one_vs_all import make_trainer, train_one_vs_all
from xmcjax.lanes._options import OPTIONS, OneVsAll
from xmcjax.lanes._precision import precision
from xmcjax.lanes._queue import by_positives, make_queue
from xmcjax.lanes._results import LabelResult, Summary
from xmcjax.lanes._step_file import StepFile
from xmcjax.lanes._training_data import check_labels, check_sample_weight, checked_arguments, label_columns
from xmcjax.lanes._unfinished import Unfinished, worse

__all__ = [
    "ON_A_CPU",
    "OPTIONS",
    "WEIGHTINGS",
    "Forecast",
    "Job",
    "LabelResult",
    "LabelWeights",
    "Lanes",
    "OneVsAll",
    "Shape",
    "Solved",
    "StepFile",
    "StepRecord",
    "Summary",
    "Unfinished",
    "Weighting",
    "balanced_weights",
    "by_positives",
    "calibrate_one_vs_all",
    "check_labels",
    "check_sample_weight",
    "checked_arguments",
    "forecast",
    "forecast_of_shape",
    "label_columns",
    "lanes_of_use",
    "lanes_that_fit",
    "make_queue",
    "make_trainer",
    "model_bytes",
    "precision",
    "train_on_nodes",
    "train_one_vs_all",
    "training_bytes",
    "worse",
]
