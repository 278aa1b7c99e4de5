"""Every public function of the library that a sparse matrix may be given to, as a function of that matrix."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.sharding import Mesh

from tests.support.matrices import ROWS, classes, features, labels, weights
from xmcjax import data, estimators, inits, kernels, lanes, linops, metrics, models
from xmcjax.solvers import admm, multiclass_dual, topk_sdca

ESTIMATORS: dict[str, dict[str, Any]] = {
    "OneVsAllClassifier": dict(clip=0.0, loss="logistic"),
    "MulticlassSVC": dict(random_state=0, calibration="temperature", cv=2),
    "MultinomialLogisticRegression": {},
    "TopKSVC": dict(random_state=0, calibration="temperature", cv=2),
    "KernelLogisticClassifier": {},
}
#: Of those that take label matrices.
LABELS: dict[str, dict[str, Any]] = {
    "OneVsAllClassifier": dict(clip=0.0),
    "MulticlassSVC": dict(formulation="cs", random_state=0),
    "MultinomialLogisticRegression": {},
}
METHODS = ("predict", "decision_function", "predict_proba", "predict_log_proba", "predict_topk", "score")
FOLDS = np.arange(ROWS) // 4


class Entry(NamedTuple):
    """A function of one matrix."""

    call: Callable[[Any], Any]  #: what it returns depends on the matrix alone, and not on its format
    valid: Callable[[], sp.csr_matrix]  #: a matrix that it takes
    name: str  #: of the argument, in messages


def entries(folder: Path) -> dict[str, Entry]:
    """The table, by public name and argument; files are written to `folder`."""
    return {**_estimators(), **_parts(), **_files(folder), **_metrics()}


@functools.cache
def fitted(name: str) -> Any:
    """A trained estimator of that name."""
    return getattr(estimators, name)(**ESTIMATORS[name]).fit(features(), classes())


@functools.cache
def _fitted_to_labels(name: str = "OneVsAllClassifier") -> Any:
    return getattr(estimators, name)(**LABELS[name]).fit(features(), labels())


def _estimators() -> dict[str, Entry]:
    table = {}
    for name, options in ESTIMATORS.items():
        kind = getattr(estimators, name)

        def fit(X, kind=kind, options=options):
            return kind(**options).fit(X, classes()).decision_function(features())

        table[f"estimators.{name}.fit X"] = Entry(fit, features, "X")
        for method in METHODS:
            if hasattr(kind, method):
                further = {"predict_topk": (2,), "score": (classes(),)}.get(method, ())

                def ask(X, name=name, method=method, further=further):
                    return getattr(fitted(name), method)(X, *further)

                table[f"estimators.{name}.{method} X"] = Entry(ask, features, "X")

    table.update(_chains())

    for name, options in LABELS.items():

        def fit_labels(Y, X, name=name, options=options):
            return getattr(estimators, name)(**options).fit(X, Y).decision_function(features())

        table[f"estimators.{name}.fit y beside a dense X"] = Entry(
            lambda Y, fit=fit_labels: fit(Y, features().toarray()), labels, "y"
        )
        table[f"estimators.{name}.fit y"] = Entry(lambda Y, fit=fit_labels: fit(Y, features()), labels, "y")
        table[f"estimators.{name}.score y"] = Entry(
            lambda Y, name=name: _fitted_to_labels(name).score(features(), Y), labels, "y"
        )

    def more(X, Y, first=labels):
        classifier = estimators.OneVsAllClassifier(clip=0.0).fit(features(), first()[:, :2])
        return classifier.partial_fit(X, Y).decision_function(features())

    table["estimators.OneVsAllClassifier.partial_fit X"] = Entry(lambda X: more(X, labels()), features, "X")
    table["estimators.OneVsAllClassifier.partial_fit y"] = Entry(lambda Y: more(features(), Y), labels, "y")

    def with_weights(coef):
        classifier = copy.copy(_fitted_to_labels())
        classifier.coef_ = coef
        return classifier

    for method in ("predict", "decision_function", "predict_topk"):
        further = (2,) if method == "predict_topk" else ()

        def changed(coef, method=method, further=further):
            return getattr(with_weights(coef), method)(features(), *further)

        table[f"estimators.OneVsAllClassifier.{method} coef_"] = Entry(changed, weights, "coef_")

    def from_weights(coef, method):
        classifier = with_weights(coef).set_params(warm_start=True)
        more = sp.hstack([labels(), labels()[:, :1]], format="csr")  # one that has no weights yet
        return getattr(classifier, method)(features(), more).decision_function(features())

    for method in ("fit", "partial_fit"):
        table[f"estimators.OneVsAllClassifier.{method} coef_"] = Entry(
            functools.partial(from_weights, method=method), weights, "coef_"
        )
    kernel = estimators.KernelLogisticClassifier(max_iter=2, tol=10.0)
    table["estimators.KernelLogisticClassifier.tune X"] = Entry(
        lambda X: kernel.tune(X, classes(), FOLDS, max_iter=1).v_, features, "X"
    )
    table["estimators.KernelLogisticClassifier.cv_criterion X"] = Entry(
        lambda X: kernel.cv_criterion(X, classes(), FOLDS)[0], features, "X"
    )
    return table


@functools.cache
def _fitted_chains() -> Any:
    return _fit_chains(features())


def _fit_chains(X: Any) -> Any:
    return estimators.KernelChainClassifier("linear", tol=0.01).fit([X], [classes()])


def _chains() -> dict[str, Entry]:
    """One sequence, whose positions are the rows of the matrix."""
    name = "estimators.KernelChainClassifier"
    asked = {
        "decision_function": lambda X: _fitted_chains().decision_function([X])[0],
        "predict": lambda X: _fitted_chains().predict([X])[0],
        "predict_marginals": lambda X: _fitted_chains().predict_marginals([X])[0],
        "score": lambda X: _fitted_chains().score([X], [classes()]),
    }
    fit = Entry(lambda X: _fit_chains(X).decision_function([features()])[0], features, "X")
    return {f"{name}.fit X": fit} | {f"{name}.{m} X": Entry(ask, features, "X") for m, ask in asked.items()}


def _parts() -> dict[str, Entry]:
    table = {}

    def product(X, backend):
        op = linops.make(X, backend=backend)
        return np.asarray(op.matmat(jnp.ones((op.shape[1], 2), op.dtype)))

    for backend in linops.BACKENDS:
        table[f"linops.make X {backend}"] = Entry(functools.partial(product, backend=backend), features, "X")
    table["linops.check_features X"] = Entry(linops.check_features, features, "X")
    table["kernels.points X"] = Entry(lambda X: np.asarray(kernels.points(X).norms2), features, "X")

    def train(X, Y):
        found: dict[int, Any] = {}
        lanes.train_one_vs_all(X, Y, lanes.OneVsAll(), lambda r: found.__setitem__(r.label, r.value))
        return [found[label] for label in sorted(found)]

    table["lanes.train_one_vs_all X"] = Entry(lambda X: train(X, labels()), features, "X")
    table["lanes.train_one_vs_all Y"] = Entry(lambda Y: train(features(), Y), labels, "Y")

    def calibrate(X, Y):
        found = lanes.calibrate_one_vs_all(X, Y, lanes.OneVsAll(), cv=2)
        assert found is not None
        return found.slope

    table["lanes.calibrate_one_vs_all X"] = Entry(lambda X: calibrate(X, labels()), features, "X")
    table["lanes.calibrate_one_vs_all Y"] = Entry(lambda Y: calibrate(features(), Y), labels, "Y")
    table["lanes.balanced_weights Y"] = Entry(lambda Y: lanes.balanced_weights(Y).positive, labels, "Y")
    table["lanes.Weighting.weights Y"] = Entry(
        lambda Y: lanes.Weighting("propensity", 0.55, 1.5).weights(Y).positive, labels, "Y"
    )
    table["inits.label_tree Y"] = Entry(inits.label_tree, labels, "Y")
    for backend in ("native", "jnp", "dense"):
        table[f"solvers.multiclass_dual.run X {backend}"] = Entry(
            lambda X, backend=backend: multiclass_dual.run(X, classes(), backend=backend).primal,
            features,
            "X",
        )
    for backend in ("native", "jnp"):
        # a tolerance at which float32 and float64 end with the same objective
        table[f"solvers.multiclass_dual.run_multilabel X {backend}"] = Entry(
            lambda X, b=backend: multiclass_dual.run_multilabel(X, labels(), tol=1e-6, backend=b).primal,
            features,
            "X",
        )
    table["solvers.multiclass_dual.run_multilabel Y"] = Entry(
        lambda Y: multiclass_dual.run_multilabel(features(), Y).primal, labels, "Y"
    )

    def over_mesh(X):
        mesh = Mesh(np.array(jax.devices()[:1]), ("classes",))
        return multiclass_dual.run_over_mesh(X, classes(), mesh, tol=0.01).primal

    table["solvers.multiclass_dual.run_over_mesh X"] = Entry(over_mesh, features, "X")
    table["solvers.topk_sdca.solve X"] = Entry(
        lambda X: topk_sdca.solve(X, classes(), tol=0.01).primal, features, "X"
    )
    table["solvers.admm.solve X"] = Entry(
        lambda X: admm.solve(X, classes(), formulation="cs", tol=1e-5).primal, features, "X"
    )
    table["solvers.multiclass_dual.multiclass_problem X"] = Entry(
        lambda X: np.asarray(multiclass_dual.multiclass_problem(X, classes()).norms2), features, "X"
    )
    model = models.ArrayModel(weights())
    table["models.predict_topk X"] = Entry(lambda X: models.predict_topk(model, X, 2), features, "X")
    table["models.predict_topk X in blocks"] = Entry(
        lambda X: models.predict_topk(model, X, 2, row_block=5), features, "X"
    )
    predictor = models.Predictor(model)
    table["models.Predictor.predict_topk X"] = Entry(lambda X: predictor.predict_topk(X, 2), features, "X")
    table["models.Predictor.decision_function X"] = Entry(predictor.decision_function, features, "X")
    table["models.decision_function X"] = Entry(lambda X: models.decision_function(model, X), features, "X")
    table["models.scores_above X"] = Entry(lambda X: models.scores_above(model, X).toarray(), features, "X")

    def calibrated(X, Y):
        Y_columns, part = labels().shape[1], models.HeldOut(np.arange(ROWS), X, model)
        calibrator = models.Calibrator(Y_columns)
        calibrator.add(np.arange(Y_columns), Y, [part])
        return calibrator.finish().slope

    assert model.n_labels == labels().shape[1]
    table["models.Calibrator.add Y"] = Entry(lambda Y: calibrated(features(), Y), labels, "Y")
    table["models.Calibrator.add X"] = Entry(lambda X: calibrated(X, labels()), features, "X")
    table["models.Calibrator.splits Y"] = Entry(
        lambda Y: np.concatenate([out for _, out in models.Calibrator.splits(Y, 2)]), labels, "Y"
    )
    table["models.Calibrator.folds Y"] = Entry(lambda Y: models.Calibrator.folds(Y, 2), labels, "Y")
    table["models.fit_temperature X"] = Entry(
        lambda X: (
            models.fit_temperature(
                [models.HeldOut(np.arange(ROWS), X, model)], np.arange(ROWS) % model.n_labels
            ).slope
        ),
        features,
        "X",
    )
    table["models.ArrayModel coef"] = Entry(
        lambda coef: models.predict_topk(models.ArrayModel(coef), features(), 2), weights, "coef"
    )
    return table


def _files(folder: Path) -> dict[str, Entry]:
    table = {}

    def written(X, Y, save, path):
        save(path, X, Y)
        return path.read_bytes()

    for name in ("save_npz", "save_xmc", "save_svmlight", "save"):
        path, save = folder / f"{name}.{'txt' if name != 'save_npz' else 'npz'}", getattr(data, name)
        table[f"data.{name} X"] = Entry(
            lambda X, save=save, path=path: written(X, labels(), save, path), features, "X"
        )
        table[f"data.{name} Y"] = Entry(
            lambda Y, save=save, path=path: written(features(), Y, save, path), labels, "Y"
        )
    for name in ("save_scipy_npz", "save_matrix", "save_features"):
        path, save = folder / name, getattr(data, name)

        def alone(X, save=save, path=path):
            save(path, X)
            return path.read_bytes()

        table[f"data.{name} X"] = Entry(alone, features, "X")

    def labels_alone(Y):
        data.save_labels(folder / "save_labels", Y)
        return (folder / "save_labels").read_bytes()

    table["data.save_labels Y"] = Entry(labels_alone, labels, "Y")
    table["data.join_features X"] = Entry(lambda X: data.join_features(X, features()), features, "X")
    table["data.Dataset.fingerprint X"] = Entry(
        lambda X: data.Dataset(X, labels()).fingerprint(), features, "X"
    )
    table["data.Dataset.fingerprint Y"] = Entry(
        lambda Y: data.Dataset(features(), Y).fingerprint(), labels, "Y"
    )
    table["data.fit_transforms X"] = Entry(
        lambda X: data.fit_transforms("idf", X).arrays["idf.weight"], features, "X"
    )
    fit = data.fit_transforms("log,idf,unit,frequency", features())
    table["data.Transforms.apply X"] = Entry(lambda X: fit.apply(X), features, "X")
    return table


def _metrics() -> dict[str, Entry]:
    inverse = dict(inverse_propensities=np.arange(1.0, labels().shape[1] + 1))
    functions: dict[Any, tuple[tuple, dict]] = {
        metrics.precision_at_k: ((2,), {}),
        metrics.ndcg_at_k: ((2,), {}),
        metrics.topk_accuracy: ((2,), {}),
        metrics.recall_at_k: ((2,), {}),
        metrics.coverage_at_k: ((2,), {}),
        metrics.micro_f1_at_k: ((2,), {}),
        metrics.macro_f1_at_k: ((2,), {}),
        metrics.by_frequency: ((2,), dict(frequencies=np.arange(labels().shape[1]), edges=[2, 4])),
        metrics.mean_reciprocal_rank: ((), {}),
        metrics.propensity_scored_precision_at_k: ((2,), inverse),
        metrics.propensity_scored_ndcg_at_k: ((2,), inverse),
        metrics.label_precision_recall: ((), {}),
        metrics.micro_f1: ((), {}),
        metrics.macro_f1: ((), {}),
    }
    table = {}
    for function, (further, options) in functions.items():
        truth, predictions = {
            "label_precision_recall": ("Y_true", "scores"),
            "micro_f1": ("y_true", "y_pred"),
            "macro_f1": ("y_true", "y_pred"),
        }.get(function.__name__, ("Y_true", "predictions"))

        def as_truth(Y, function=function, further=further, options=options):
            return function(Y, labels(), *further, **options)

        def as_predictions(P, function=function, further=further, options=options):
            return function(labels(), P, *further, **options)

        table[f"metrics.{function.__name__} {truth}"] = Entry(as_truth, labels, truth)
        table[f"metrics.{function.__name__} {predictions}"] = Entry(as_predictions, labels, predictions)
    table["metrics.inverse_propensities Y_train"] = Entry(metrics.inverse_propensities, labels, "Y_train")
    limits = np.full(labels().shape[1], 0.5)

    def with_best(P):  # dense scores have zeros below, and sparse ones nothing
        return metrics.above_thresholds(P, metrics.f1_thresholds(labels(), P)).toarray()

    table["metrics.f1_thresholds predictions"] = Entry(with_best, labels, "predictions")
    table["metrics.f1_thresholds Y_true"] = Entry(
        lambda Y: metrics.f1_thresholds(Y, labels()), labels, "Y_true"
    )
    table["metrics.above_thresholds predictions"] = Entry(
        lambda P: metrics.above_thresholds(P, limits).toarray(), labels, "predictions"
    )
    table["metrics.density weights"] = Entry(metrics.density, weights, "weights")
    return table
