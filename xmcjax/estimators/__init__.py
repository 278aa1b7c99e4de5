"""scikit-learn estimators: conventions of its interface over the solvers of this package."""

from xmcjax.estimators._checkpoint import Checkpoint as Checkpoint
from xmcjax.estimators._checkpoint import OutOfTimeError as OutOfTimeError
from xmcjax.estimators._checkpoint import fit_with_state as fit_with_state
from xmcjax.estimators._fit_file import FitFile as FitFile
from xmcjax.estimators._kernel_chains import KernelChainClassifier as KernelChainClassifier
from xmcjax.estimators._kernel_logistic import KernelLogisticClassifier as KernelLogisticClassifier
from xmcjax.estimators._multiclass_svc import MulticlassSVC as MulticlassSVC
from xmcjax.estimators._multinomial import MultinomialLogisticRegression as MultinomialLogisticRegression
from xmcjax.estimators._one_vs_all import OneVsAllClassifier as OneVsAllClassifier
from xmcjax.estimators._options import OPTIONS as OPTIONS
from xmcjax.estimators._stored import save_with_numbers as save_with_numbers
from xmcjax.estimators._topk_svc import TopKSVC as TopKSVC
