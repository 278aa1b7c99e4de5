"""Linear classifiers as directories: what :mod:`xmcjax.models` stores, and what the command line trains."""

from __future__ import annotations

import dataclasses
import numbers
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import __version__, _sparse
from xmcjax._arguments import job_count
from xmcjax._links import CALIBRATED, link_of
from xmcjax._systems import FIRST_SYSTEM, SYSTEMS
from xmcjax.data import Transforms
from xmcjax.estimators._calibration import own_method
from xmcjax.models import Calibration, LinearModel, ModelFormatError, Names, ShardWriter, is_trained

#: What meta data say of the training that no attribute of a classifier does: the fingerprint of its data, the
#: dtype of the data of a kernel model, and how many columns a second source of features had.
_OF_TRAINING = ("data", "data_dtype", "more_features")


@dataclasses.dataclass(frozen=True)
class Labels:
    """Where the classes of a classifier stand among the labels of a model.

    Attributes:
        n_labels: of the model.
        places: label of each class, ascending, [number of classes].
        names: of classes and features.
    """

    n_labels: int
    places: np.ndarray
    names: Names | None


def labels_of(classifier) -> Labels:
    """The labels of a model: one per class, which has its name; labels of a label matrix are numbers.

    Where the model of a classifier numbered its classes, the classes are numbers of labels, and the model may
    have further labels; classes that are no such numbers any more have their names.
    """
    features = getattr(classifier, "feature_names_in_", None)
    features = None if features is None else tuple(map(str, features))
    n_labels = getattr(classifier, "_n_labels", None)
    if n_labels is not None and _are_numbers_below(classifier.classes_, n_labels):
        numbered = None if features is None else Names(None, features)
        return Labels(n_labels, np.asarray(classifier.classes_), numbered)
    classes = classifier.classes_ if classifier._form == "classes" else None
    named = classes is not None or features is not None
    count = len(classifier.classes_)
    return Labels(count, np.arange(count), Names(classes, features) if named else None)


def _are_numbers_below(classes, count: int) -> bool:
    classes = np.asarray(classes)
    return classes.dtype.kind in "iu" and bool(np.all((classes >= 0) & (classes < count)))


def save(
    classifier, path: str | os.PathLike[str], labels: Labels, more: Mapping[str, Any], *, held: bool = False
):
    """Writes a fitted classifier.

    Args:
        classifier: of :class:`xmcjax.estimators._linear.LinearClassifier`.
        path: directory, new or empty.
        labels: where its classes stand.
        more: of the meta data.
        held: whether the caller has reserved the directory.

    Raises:
        TypeError: an argument of the classifier that JSON cannot hold.
        FileExistsError, OSError: as :class:`xmcjax.models.ShardWriter`.
    """
    from xmcjax.solvers import Status

    coef = _sparse.matrix(classifier.coef_, "coef_")
    if coef.dtype not in (np.float32, np.float64):
        coef = coef.astype(np.float64)
    rows = _sparse.canonical_csr(coef, "coef_") if sp.issparse(coef) else coef
    bias = np.asarray(classifier.intercept_, np.float64)
    count = rows.shape[0]
    status = np.broadcast_to(getattr(classifier, "status_", Status.CONVERGED), count)
    # what is known of each label by itself; what is known of a joint problem goes into `fit` below
    by_label = np.ndim(classifier.n_iter_) > 0
    # in a joint problem all labels are trained except those without rows
    without = Status.NONFINITE if by_label else Status.NO_POSITIVES
    status = np.where(np.isneginf(bias) & is_trained(status), without, status)
    steps = np.broadcast_to(classifier.n_iter_ if by_label else 0, count).astype(np.int64)
    never = np.isneginf(bias)
    if classifier._binary:  # z of two classes belongs to the second; the first scores −z
        both = (-rows, rows)
        rows = _sparse.csr(sp.vstack(both, format="csr")) if sp.issparse(rows) else np.concatenate(both)
        bias = np.concatenate([-bias, bias])
        never, status, steps = (np.tile(array, 2) for array in (never, status, steps))
    transforms = getattr(classifier, "transforms_", None)
    calibration = getattr(classifier, "calibration_", None)
    meta = {
        "xmcjax_version": __version__,
        "n_features": rows.shape[1],
        "n_labels": labels.n_labels,
        "dtype": np.dtype(coef.dtype).name,
        "transforms": [] if transforms is None else list(transforms.names),
        "system": classifier._system,
        "parameters": {name: encoded(name, value) for name, value in classifier.get_params(False).items()},
        "target": classifier._form,
        "n_classes": len(labels.places),
        "dense": not sp.issparse(coef),
        # the two labels of two classes score −z and z
        "link": "sigmoid" if classifier._binary and classifier._link else classifier._link,
        "fit": {
            name: _plain(getattr(classifier, name))
            for name in classifier._fitted
            if hasattr(classifier, name)
        },
        **({} if calibration is None else {CALIBRATED: _of_calibration(classifier, calibration)}),
        **getattr(classifier, "_of_training", {}),
        **more,
    }
    arrays = None if transforms is None else dict(transforms.arrays)
    if calibration is not None:
        if classifier._binary:
            calibration = Calibration.joined(calibration.opposite(), calibration)
        calibration = calibration.placed(labels.places, labels.n_labels)
    beside: dict[str, Any] = dict(
        calibration=calibration, transforms_arrays=arrays, names=labels.names, at_once=True, held=held
    )
    with ShardWriter(path, meta, **beside) as writer:
        numbers = dict(status=status, newton_steps=steps, cg_steps=np.zeros_like(steps))
        writer.add_rows(labels.places, rows, intercept=np.where(never, 0, bias), **numbers)


def save_with_numbers(
    classifier,
    path: str | os.PathLike[str],
    n_labels: int,
    *,
    data: str,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Stores a classifier whose classes are label numbers, as the command line does.

    The caller has reserved the directory by :func:`xmcjax.models.reserved`.

    Labels without a class, of which training had no row, are never predicted.

    Args:
        classifier: fitted, with classes among 0 … n_labels − 1.
        path: directory, new or empty.
        n_labels: of the problem.
        data: fingerprint of the training data.
        more: of the meta data.

    Classes without a row that counts are classes of the loaded classifier only where every label is a class;
    else they are labels without a class, which are never predicted either.

    Raises:
        FileExistsError, OSError: as :class:`xmcjax.models.ShardWriter`.

    Example:
        >>> import tempfile
        >>> from xmcjax.estimators import MulticlassSVC, save_with_numbers
        >>> from xmcjax.models import LinearModel, reserved
        >>> classifier = MulticlassSVC().fit(np.eye(2), [0, 3])
        >>> with tempfile.TemporaryDirectory() as folder, reserved(f"{folder}/model"):
        ...     save_with_numbers(classifier, f"{folder}/model", n_labels=5, data="of these rows")
        ...     LinearModel.load(f"{folder}/model").n_labels
        5
    """
    told = {"data": data, **(more or {})}
    if classifier._system == "kernel":  # its classes keep their names
        classifier._write(path, held=True, **told)
        return
    save(classifier, path, Labels(n_labels, np.asarray(classifier.classes_), None), told, held=True)


def load(kind: type, path: str | os.PathLike[str]):
    """The classifier of a directory.

    Raises:
        ValueError: the model is of another system.
        ModelError, OSError: as :meth:`xmcjax.models.LinearModel.load`.
    """
    model = LinearModel.load(path)
    meta, where = model.meta, model.directory / "manifest.json"
    system = meta.get("system", FIRST_SYSTEM)
    if system != kind._system:
        if not isinstance(system, str) or system not in SYSTEMS:
            raise ModelFormatError(where, f"a system of {', '.join(SYSTEMS)}", repr(system)[:40])
        raise ValueError(
            f"{path}: expected a model of the system {kind._system}, found one of {system}, which "
            f"{SYSTEMS[system]}.load opens"
        )
    try:
        parameters = meta.get("parameters")
        classifier = kind(**(kind._parameters_of(meta) if parameters is None else decoded(parameters)))
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelFormatError(where, f"parameters of {kind.__name__}", str(error)[:200]) from error
    try:
        job_count(getattr(classifier, "n_jobs", None))  # which each prediction asks for
    except (TypeError, ValueError) as error:
        found = repr(classifier.n_jobs)[:40]
        raise ModelFormatError(where, "parameters.n_jobs as a number of threads", found) from error
    form = meta.get("target", "sparse")
    if form not in ("classes", "sparse", "dense"):
        raise ModelFormatError(where, "target classes, sparse or dense", repr(form)[:40])
    fit = meta.get("fit", {})
    if not isinstance(fit, dict) or not all(is_of_a_fit(*member) for member in fit.items()):
        raise ModelFormatError(where, "fit as finite numbers", repr(fit)[:80])
    _fill(classifier, model, form)
    return classifier


def is_of_a_fit(name: str, value) -> bool:
    """Whether a member of ``fit`` has a value that a fit may have had."""
    from xmcjax.solvers import Status

    if name == "status_":
        return isinstance(value, int) and value in list(Status)
    return isinstance(value, (int, float)) and abs(value) < sys.float_info.max


def _fill(classifier, model: LinearModel, form: str) -> None:
    """Sets what prediction needs."""
    from xmcjax.solvers import Status

    meta, names, status = model.meta, model.names(), model.status.astype(np.int64)
    places = np.arange(model.n_labels)
    if form == "classes" and names.classes is None and meta.get("n_classes") != model.n_labels:
        places = places[status != Status.NO_POSITIVES]  # the file numbers its classes and lacks some
    classifier.classes_ = places if names.classes is None else names.classes
    if form == "classes" and names.classes is None:
        classifier._n_labels = model.n_labels
    remember(classifier, meta)
    if getattr(classifier, "_form", None) != form:  # the same for every fit of some kinds
        classifier._form = form
    rows = places[1:] if form == "classes" and len(places) == 2 else places
    if meta.get("dense") is True:
        classifier.coef_ = model.dense(rows)
    else:
        coef = sp.csr_matrix(model.coef())
        classifier.coef_ = coef[rows] if len(rows) < model.n_labels else coef
    bias = model.intercept()[rows]
    classifier.intercept_ = np.where(is_trained(status[rows]), bias, -np.inf).astype(model.dtype)
    classifier.n_features_in_ = model.n_features
    if names.features is not None:
        classifier.feature_names_in_ = np.array(names.features, object)
    transforms = model.transforms()
    if transforms.names:
        classifier.transforms_ = transforms
    calibration = model.calibration()
    if calibration is not None or hasattr(classifier, "calibration"):
        classifier.calibration_ = None if calibration is None else calibration.at(rows)
    if calibration is not None:  # its method need not be one that a fit makes
        told = meta.get(CALIBRATED)
        method = told.get("method") if isinstance(told, dict) else calibration.method(meta)
        classifier._loaded_calibration = classifier.calibration_, method
    if calibration is not None and getattr(classifier, "calibration", "") is None:
        classifier.calibration = own_method(classifier)  # so that another fit has one again
    for name, value in meta.get("fit", {}).items():
        if name in classifier._fitted:
            setattr(classifier, name, Status(value) if name == "status_" else value)
    classifier._restore(status[rows], model.newton_steps[rows].astype(np.int64), link_of(meta))


def remember(classifier, meta: Mapping[str, Any]) -> None:
    """Keeps what the meta data of a model say of its training, for another one that is saved."""
    known = {key: meta[key] for key in _OF_TRAINING if key in meta}
    if known:
        classifier._of_training = known


def without_data(classifier) -> None:
    """Forgets the fingerprint of the training data, since weights of other data were added."""
    known = getattr(classifier, "_of_training", {})
    if "data" in known:
        classifier._of_training = {key: value for key, value in known.items() if key != "data"}


def applied(transforms: Transforms | None, X):
    """The features as the weights expect them."""
    return X if transforms is None else transforms.apply(X)


def _of_calibration(classifier, calibration: Calibration) -> dict[str, Any]:
    """Method and folds of the calibration that a classifier has, whatever its argument is now.

    The folds are None where `cv` is no number; then the parameters have it.
    """
    loaded, method = getattr(classifier, "_loaded_calibration", (None, None))
    cv = getattr(classifier, "cv", None)
    return {
        "method": method if calibration is loaded else own_method(classifier),
        "cv": int(cv) if isinstance(cv, numbers.Integral) else None,
    }


def _plain(value) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _objects() -> dict[str, type]:
    """The classes of the library of which arguments may be objects."""
    from xmcjax.inits import INITS
    from xmcjax.losses import MARGIN_LOSSES
    from xmcjax.penalties import PENALTIES

    kinds: Iterable[type] = (
        *INITS.values(),
        *PENALTIES.values(),
        *(type(loss) for loss in MARGIN_LOSSES.values()),
    )
    return {kind.__name__: kind for kind in kinds}


def encoded(name: str, value) -> Any:
    """An argument as JSON holds it.

    Raises:
        TypeError: it is an object that is not of the library.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (np.bool_, numbers.Real)):
        return _plain(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None  # as `save` says
    if isinstance(value, (list, tuple, np.ndarray)):
        return [encoded(name, entry) for entry in value]
    if isinstance(value, Mapping):
        pairs = [[encoded(name, key), encoded(name, entry)] for key, entry in value.items()]
        return {"pairs": pairs}
    if _objects().get(type(value).__name__) is type(value):
        fields = {f.name: encoded(name, getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"object": type(value).__name__, "fields": fields}
    raise TypeError(
        f"{name}: expected numbers, texts or objects of this library, found {type(value).__name__}; pickle "
        "stores a classifier with any object"
    )


def decoded(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, of what :func:`encoded` made of them."""
    return {name: _decoded(value) for name, value in parameters.items()}


def _decoded(value) -> Any:
    if isinstance(value, list):
        return [_decoded(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if "pairs" in value:
        return {_decoded(key): _decoded(entry) for key, entry in value["pairs"]}
    return _objects()[value["object"]](**decoded(value["fields"]))
