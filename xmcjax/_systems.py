"""The systems that train models, by the name that a model, and ``xmcjax train --system``, give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The estimator of each, of :mod:`xmcjax.estimators`.
SYSTEMS = {
    "one-vs-all": "OneVsAllClassifier",
    "multiclass": "MulticlassSVC",
    "multinomial": "MultinomialLogisticRegression",
    "top-k": "TopKSVC",
    "kernel": "KernelLogisticClassifier",
}
#: Of models that do not name theirs: those that the command line trained label by label.
FIRST_SYSTEM = "one-vs-all"


def saved_by_estimator(meta: Mapping[str, Any]) -> bool:
    """Whether the meta data are those of a model that an estimator saved, and not of a run of ``train``.

    Both name the arguments of an estimator, but for runs of one-vs-all; of runs alone the data are known.
    """
    return "parameters" in meta and (meta.get("system", FIRST_SYSTEM) == FIRST_SYSTEM or "data" not in meta)
