"""Valid calls of losses, penalties, projections and metrics."""
# ruff: noqa: B008 – the defaults of a function are a valid call of it

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import scipy.sparse as sp

from tests.support.calls import CLASSES, LABEL_MATRIX, LABELS, SCORES, SIGNS, K, M, N, Table, by_signature
from xmcjax import losses, metrics, projections
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.penalties import PENALTIES
from xmcjax.projections import PROJECTIONS

# parents and children of a tree: leaves 1 to 4, whose root is 0
EDGES = [(0, 5), (0, 6), (5, 1), (5, 2), (6, 3), (6, 4)]
# A score of −∞ is no prediction, and one of +∞ is above all; classes may be of any kind; a matrix alone has
# any number of rows.
_FREE = (
    *("predictions = an infinity", "scores = an infinity", "confidence = an infinity"),
    *("thresholds = an infinity", "weights = one row more", "weights = three axes", "Y_train = one row more"),
    *("y_true = complex numbers", "y_pred = complex numbers", "y_true = strings", "y_pred = strings"),
)


def add(table: Table) -> None:
    """All of them."""
    _losses(table)
    values = dict(x=SCORES, radius=1.0, lower=0.0, upper=0.75, k=K, rho=1.0, variant="alpha")
    values |= dict(weights=np.ones((N, M), np.float32))
    for name, function in PROJECTIONS.items():
        table.add(f"projections.{name}", function, by_signature(function, values), host=False)
    for kind in PENALTIES.values():

        @table.of(f"penalties.{kind.__name__}", dict(kind=kind), host=False)
        def valued(kind, w=SCORES, **options):
            return kind(**options).value(w)

        table[f"xmcjax.penalties.{kind.__name__}"].arguments.update(dataclasses.asdict(kind()))
    _metrics(table)


def _losses(table: Table) -> None:
    values = dict(scores=SCORES, duals=np.zeros((N, M), np.float32), labels=CLASSES, targets=SIGNS, k=K)
    values |= dict(where=np.ones((N, M), bool), gamma=1.0, variant="alpha", loss=losses.squared_hinge)
    values |= dict(a=np.ones(N, np.float32), log_a=np.zeros(N, np.float32))
    values |= dict(beta=np.array([1.0, 0.5]), projection=projections.simplex)
    for name in losses.__all__:
        function = getattr(losses, name)
        if inspect.isfunction(function):
            table.add(f"losses.{name}", function, by_signature(function, values), host=False)
    for name, loss in MARGIN_LOSSES.items():
        table.add(f"losses.{name}.value", loss.value, dict(m=SCORES), host=False)
        for method in ("value", "grad", "curv", "conjugate"):

            def asked(m, kind=type(loss), method=method, **options):
                return getattr(kind(**options), method)(m)

            place = -(SCORES**2) / 20 if method == "conjugate" else SCORES
            arguments = dict(m=place) | dataclasses.asdict(loss)
            name = f"losses.{type(loss).__name__}.{method}"
            table.add(name, asked, arguments, host=False)


def _metrics(table: Table) -> None:
    values = dict(Y_true=LABEL_MATRIX, Y_train=LABEL_MATRIX, y_true=CLASSES, y_pred=np.roll(CLASSES, 1), k=K)
    values |= dict(
        predictions=SCORES, scores=sp.csr_array(np.maximum(SCORES, 0)), weights=SCORES, threshold=0.0
    )
    values |= dict(edges=EDGES, confidence=np.linspace(0, 1, N), a=0.55, b=1.5)
    values |= dict(thresholds=np.ones(M), inverse_propensities=np.arange(1.0, M + 1))
    leaves = dict(y_true=1 + CLASSES, y_pred=1 + np.roll(CLASSES, 1))
    sets = dict(y_true=LABELS, y_pred=np.roll(LABELS, 1, axis=0))
    own = dict(taxonomy_loss=leaves, parent_accuracy=leaves, micro_f1=sets, macro_f1=sets)
    own["topk_accuracy"] = dict(y_true=LABELS)
    own["propensity_preset"] = dict(dataset="eurlex-4k")
    own["by_frequency"] = dict(frequencies=np.arange(1.0, M + 1), edges=[2.0, 4.0])
    for name in dir(metrics):
        function = getattr(metrics, name)
        if not name.startswith("_") and inspect.isfunction(function):
            arguments = by_signature(function, values | own.get(name, {}))
            free = ("predictions = one row more",) if name == "above_thresholds" else ()
            table.add(f"metrics.{name}", function, arguments, free=(*_FREE, *free))
