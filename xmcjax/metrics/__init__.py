"""Scores of predictions: ranking metrics of extreme classification, F1, model density, trees, rejection.

``RANKING_METRICS`` and ``PROPENSITY_METRICS`` are the tables behind ``xmcjax evaluate``: each maps
the heading of a column to its function. All functions here need numpy and scipy only.
"""

from xmcjax.metrics._binary import label_precision_recall as label_precision_recall
from xmcjax.metrics._density import density as density
from xmcjax.metrics._f1 import macro_f1 as macro_f1
from xmcjax.metrics._f1 import micro_f1 as micro_f1
from xmcjax.metrics._propensity import PROPENSITY_PRESETS as PROPENSITY_PRESETS
from xmcjax.metrics._propensity import inverse_propensities as inverse_propensities
from xmcjax.metrics._propensity import propensity_preset as propensity_preset
from xmcjax.metrics._ranking import mean_reciprocal_rank as mean_reciprocal_rank
from xmcjax.metrics._ranking import ndcg_at_k as ndcg_at_k
from xmcjax.metrics._ranking import precision_at_k as precision_at_k
from xmcjax.metrics._ranking import propensity_scored_ndcg_at_k as propensity_scored_ndcg_at_k
from xmcjax.metrics._ranking import propensity_scored_precision_at_k as propensity_scored_precision_at_k
from xmcjax.metrics._ranking import topk_accuracy as topk_accuracy
from xmcjax.metrics._reject import reject_curve as reject_curve
from xmcjax.metrics._retrieval import FrequencyBins as FrequencyBins
from xmcjax.metrics._retrieval import by_frequency as by_frequency
from xmcjax.metrics._retrieval import coverage_at_k as coverage_at_k
from xmcjax.metrics._retrieval import macro_f1_at_k as macro_f1_at_k
from xmcjax.metrics._retrieval import micro_f1_at_k as micro_f1_at_k
from xmcjax.metrics._retrieval import recall_at_k as recall_at_k
from xmcjax.metrics._thresholds import above_thresholds as above_thresholds
from xmcjax.metrics._thresholds import f1_thresholds as f1_thresholds
from xmcjax.metrics._tree import parent_accuracy as parent_accuracy
from xmcjax.metrics._tree import taxonomy_loss as taxonomy_loss

# Each is called as (Y_true, predictions, k).
RANKING_METRICS = {
    "P": precision_at_k,
    "nDCG": ndcg_at_k,
    "top": topk_accuracy,
    "R": recall_at_k,
    "C": coverage_at_k,
    "miF1": micro_f1_at_k,
    "maF1": macro_f1_at_k,
}
# Each is called as (Y_true, predictions, k, inverse_propensities=...).
PROPENSITY_METRICS = {
    "PSP": propensity_scored_precision_at_k,
    "PSnDCG": propensity_scored_ndcg_at_k,
}
