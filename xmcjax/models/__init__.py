"""Linear models on disk, and top-k prediction with them.

A model is a directory of shards with a manifest (docs/reference/model-format.md). `ShardWriter` writes it
while labels are trained, `LinearModel` reads it, `predict_topk` predicts with it or with weights
in memory (`ArrayModel`).
"""

from xmcjax.models._arrays import ArrayModel as ArrayModel
from xmcjax.models._base import WeightSource as WeightSource
from xmcjax.models._base import is_trained as is_trained
from xmcjax.models._calibration import Calibration as Calibration
from xmcjax.models._calibration import write_calibration as write_calibration
from xmcjax.models._calibrator import Calibrator as Calibrator
from xmcjax.models._calibrator import HeldOut as HeldOut
from xmcjax.models._errors import IncompleteModelError as IncompleteModelError
from xmcjax.models._errors import ModelError as ModelError
from xmcjax.models._errors import ModelFormatError as ModelFormatError
from xmcjax.models._errors import ModelMismatchError as ModelMismatchError
from xmcjax.models._exchange import EXCHANGES as EXCHANGES
from xmcjax.models._exchange import IMPORTS as IMPORTS
from xmcjax.models._exchange import Exchange as Exchange
from xmcjax.models._exchange import export_model as export_model
from xmcjax.models._exchange import import_model as import_model
from xmcjax.models._index import INDEX as INDEX
from xmcjax.models._index import write_index as write_index
from xmcjax.models._kernel import meta_of as meta_of
from xmcjax.models._kernel import read_kernel_model as read_kernel_model
from xmcjax.models._kernel import system_of as system_of
from xmcjax.models._kernel import write_kernel_model as write_kernel_model
from xmcjax.models._linear import LinearModel as LinearModel
from xmcjax.models._manifest import check_regular as check_regular
from xmcjax.models._merge import merge_models as merge_models
from xmcjax.models._names import Names as Names
from xmcjax.models._outside import Outside as Outside
from xmcjax.models._outside import beacon as beacon
from xmcjax.models._outside import write_outside as write_outside
from xmcjax.models._predict import decision_function as decision_function
from xmcjax.models._predict import predict_topk as predict_topk
from xmcjax.models._predict import scores_above as scores_above
from xmcjax.models._predictions import PREDICTION_FORMATS as PREDICTION_FORMATS
from xmcjax.models._predictions import prediction_file as prediction_file
from xmcjax.models._predictions import read_predictions as read_predictions
from xmcjax.models._predictions import write_predictions as write_predictions
from xmcjax.models._predictor import Predictor as Predictor
from xmcjax.models._rows import checked_rows as checked_rows
from xmcjax.models._shard import checked_weights as checked_weights
from xmcjax.models._temperature import fit_temperature as fit_temperature
from xmcjax.models._vacant import check_vacant as check_vacant
from xmcjax.models._vacant import reserved as reserved
from xmcjax.models._writer import RUN_FILE as RUN_FILE
from xmcjax.models._writer import ShardWriter as ShardWriter
