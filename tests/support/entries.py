"""Every public function of the library that a sparse matrix may be given to, as a function of that matrix."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tests.support import calls_fits, calls_formulas, calls_stored
from tests.support.calls import Call, Table
from tests.support.matrices import ROWS, classes, features, labels, weights
from xmcjax import data, estimators, kernels, linops, metrics
from xmcjax.solvers import multiclass_dual

#: Estimators that take matrices of labels.
LABELS: dict[str, dict[str, Any]] = {
    "OneVsAllClassifier": dict(clip=0.0),
    "MulticlassSVC": dict(formulation="cs", random_state=0),
    "MultinomialLogisticRegression": {},
}
#: A matrix for each argument that a call names so, where it has one there.
MATRICES: dict[str, Callable[[], sp.csr_matrix]] = {
    **dict.fromkeys(("X",), features),
    **dict.fromkeys(("coef", "weights"), weights),
    **dict.fromkeys(("Y", "y", "Y_true", "Y_train", "y_true", "y_pred", "predictions", "scores"), labels),
}
#: What messages name an argument of another name.
SAID = {"metrics.topk_accuracy y_true": "Y_true"}
#: Calls whose matrix is an array always, or is not looked at.
OTHERS = ("data.save_npy", "linops.make(dense)", "models.write_predictions", "models.prediction_file")
OTHERS += ("models.Calibration", "data.labels_format")
# solvers that take operators; sequences of rows, which stand below
OTHERS += ("solvers.newton_cg.lane_problem", "solvers.multinomial.run", "estimators.KernelChainClassifier")


class Entry(NamedTuple):
    """A function of one matrix."""

    call: Callable[[Any], Any]  #: what it returns depends on the matrix alone, and not on its format
    valid: Callable[[], sp.csr_matrix]  #: a matrix that it takes
    name: str  #: of the argument, in messages


def entries(folder: Path) -> dict[str, Entry]:
    """The table, by public name and argument; files are written to `folder`."""
    table = {**_labels(), **_weights(), **_chains(), **_folds(), **_backends()}
    for name, call in _calls(folder).items():
        # one call of each function
        for argument in call.arguments.keys() & MATRICES.keys():
            if np.ndim(call.arguments[argument]) == 2:
                function = f"{name.partition('(')[0]} {argument}"
                said = SAID.get(function, "Y" if argument == "y" else argument)
                asked = _written if name.startswith("data.save") else _with
                entry = Entry(functools.partial(asked, call, argument), MATRICES[argument], said)
                table.setdefault(function, entry)
    return table


def _calls(folder: Path) -> dict[str, Call]:
    """Those that a matrix is given to, by public name."""
    table = Table()
    calls_formulas.add(table)
    calls_stored.add(table, folder)
    calls_fits.add(table)
    given = {name.removeprefix("xmcjax."): call for name, call in table.items() if call.host}
    return {name: call for name, call in given.items() if not name.startswith(OTHERS)}


def _with(call: Call, argument: str, matrix: Any) -> Any:
    return call.function(**call.arguments | {argument: matrix})


def _written(call: Call, argument: str, matrix: Any) -> Any:
    """What is loaded again, and the file."""
    return _with(call, argument, matrix), call.arguments["path"].read_bytes()


@functools.cache
def _fitted_to_labels(name: str) -> Any:
    return getattr(estimators, name)(**LABELS[name]).fit(features(), labels())


def _labels() -> dict[str, Entry]:
    """Labels that estimators are given."""
    table = {}
    for name, options in LABELS.items():

        def fit(Y, X, name=name, options=options):
            return getattr(estimators, name)(**options).fit(X, Y).decision_function(features())

        def score(Y, name=name):
            return _fitted_to_labels(name).score(features(), Y)

        first = f"estimators.{name}"
        dense = functools.partial(fit, X=features().toarray())
        table[f"{first}.fit y beside a dense X"] = Entry(dense, labels, "y")
        table[f"{first}.fit y"] = Entry(functools.partial(fit, X=features()), labels, "y")
        table[f"{first}.score y"] = Entry(score, labels, "y")

    def more(Y):
        classifier = estimators.OneVsAllClassifier(clip=0.0).fit(features(), labels()[:, :2])
        return classifier.partial_fit(features(), Y).decision_function(features())

    return table | {"estimators.OneVsAllClassifier.partial_fit y": Entry(more, labels, "y")}


def _weights() -> dict[str, Entry]:
    """Weights that a user puts into an estimator."""

    def put(coef):
        classifier = copy.copy(_fitted_to_labels("OneVsAllClassifier"))
        classifier.coef_ = coef
        return classifier

    def asked(coef, method):
        return getattr(put(coef), method)(features(), *((2,) if method == "predict_topk" else ()))

    def further(coef, method):
        classifier = put(coef).set_params(warm_start=True)
        more = sp.hstack([labels(), labels()[:, :1]], format="csr")  # one that has no weights yet
        return getattr(classifier, method)(features(), more).decision_function(features())

    methods = dict.fromkeys(("predict", "decision_function", "predict_topk"), asked)
    methods |= dict.fromkeys(("fit", "partial_fit"), further)
    return {
        f"estimators.OneVsAllClassifier.{method} coef_": Entry(
            functools.partial(call, method=method), weights, "coef_"
        )
        for method, call in methods.items()
    }


def _chains() -> dict[str, Entry]:
    """One sequence, whose positions are the rows of the matrix; and the search of kernels."""

    def fit(X):
        return estimators.KernelChainClassifier("linear", tol=0.01).fit([X], [classes()])

    fitted = functools.cache(lambda: fit(features()))
    kernel, folds = estimators.KernelLogisticClassifier(max_iter=2, tol=10.0), np.arange(ROWS) // 4
    asked: dict[str, Callable[[Any], Any]] = {
        "KernelChainClassifier.fit": lambda X: fit(X).decision_function([features()])[0],
        "KernelChainClassifier.decision_function": lambda X: fitted().decision_function([X])[0],
        "KernelChainClassifier.predict": lambda X: fitted().predict([X])[0],
        "KernelChainClassifier.predict_marginals": lambda X: fitted().predict_marginals([X])[0],
        "KernelChainClassifier.score": lambda X: fitted().score([X], [classes()]),
        "KernelLogisticClassifier.tune": lambda X: kernel.tune(X, classes(), folds, max_iter=1).v_,
        "KernelLogisticClassifier.cv_criterion": lambda X: kernel.cv_criterion(X, classes(), folds)[0],
    }
    return {f"estimators.{method} X": Entry(call, features, "X") for method, call in asked.items()}


def _folds() -> dict[str, Entry]:
    """Features whose rows are cut into folds."""

    def calibrated(X, name):
        model = getattr(estimators, name)(random_state=0, calibration="temperature", cv=2)
        return model.fit(X, classes()).predict_proba(features())

    return {
        f"estimators.{name}.fit X in folds": Entry(functools.partial(calibrated, name=name), features, "X")
        for name in ("MulticlassSVC", "TopKSVC")
    }


def _backends() -> dict[str, Entry]:
    """Features of functions that choose by them how to compute, and what depends on the format otherwise."""

    def product(X, backend):
        op = linops.make(X, backend=backend)
        return op.matmat(np.ones((op.shape[1], 2), op.dtype))

    def run(X, backend):
        return multiclass_dual.run(X, classes(), backend=backend).primal

    def run_multilabel(X, backend):
        # a tolerance at which float32 and float64 end with the same objective
        return multiclass_dual.run_multilabel(X, labels(), tol=1e-6, backend=backend).primal

    calls = {("linops.make", backend): product for backend in linops.BACKENDS if backend != "auto"}
    first = "solvers.multiclass_dual"
    calls |= {(f"{first}.run", backend): run for backend in ("jnp", "dense")}
    calls |= {(f"{first}.run_multilabel", "jnp"): run_multilabel}

    def with_best(predictions):  # dense scores have zeros below, and sparse ones nothing
        limits = metrics.f1_thresholds(labels(), predictions)
        return metrics.above_thresholds(predictions, limits).toarray()

    def fitted(X):
        return list(data.fit_transforms("log,idf,unit,frequency", X).arrays.values())

    return {
        "data.fit_transforms X": Entry(fitted, features, "X"),
        "metrics.f1_thresholds predictions": Entry(with_best, labels, "predictions"),
        "kernels.points X": Entry(lambda X: kernels.points(X).norms2, features, "X"),
        **{
            f"{name} X {backend}": Entry(functools.partial(call, backend=backend), features, "X")
            for (name, backend), call in calls.items()
        },
    }
