"""The systems that train models, by the name that a model, and ``xmcjax train --system``, give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The estimator of each system, of :mod:`xmcjax.estimators`.
SYSTEMS = {
    "one-vs-all": "OneVsAllClassifier",
    "multiclass": "MulticlassSVC",
    "multinomial": "MultinomialLogisticRegression",
    "top-k": "TopKSVC",
    "kernel": "KernelLogisticClassifier",
}
#: The system of models that do not name theirs, which the command line trained label by label.
FIRST_SYSTEM = "one-vs-all"


def saved_by_estimator(meta: Mapping[str, Any]) -> bool:
    """Whether the meta data are those of a model that an estimator saved, and not of a run of ``train``.

    Both name the arguments of an estimator, except runs of one-vs-all; only runs name their data.
    """
    return "parameters" in meta and (meta.get("system", FIRST_SYSTEM) == FIRST_SYSTEM or "data" not in meta)
