"""A valid call of every public function, made from the library's own tables.

The calls are attacked with wrong arguments (tests/attack) and made in a forked process (`forked`).
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import xmcjax

N, D, M, K = 12, 5, 4, 2  # rows, features, classes, labels that count
_RNG = np.random.default_rng(0)
X = np.abs(_RNG.normal(size=(N, D))).astype(np.float32)
X[_RNG.random((N, D)) < 0.3] = 0
X[:, 0] = 1
CLASSES = np.arange(N) % M
LABELS = (_RNG.random((N, M)) < 0.4).astype(np.float32)
LABELS[:M] = np.eye(M)
SCORES = _RNG.normal(size=(N, M)).astype(np.float32)
SIMPLEX = np.full((N, M), 1 / M, np.float32)
# parents and children of a tree: leaves 1 to 4, whose root is 0
EDGES = [(0, 5), (0, 6), (5, 1), (5, 2), (6, 3), (6, 4)]


@dataclasses.dataclass(frozen=True)
class Call:
    """A function with arguments by name.

    Attributes:
        function: called with all arguments by name.
        arguments: which it takes.
        host: whether it computes on the host and so can look at every value; a function of JAX arrays sees
            shapes and dtypes alone, and lets NaN through.
        cost: as many times as rarely it is taken as a call that computes in a millisecond.
        free: what a function on the host may take although it is wrong elsewhere: an argument, such as one
            for names of classes, or "argument = value".
        unasked: "argument = value" of what is not asked for, because it is right and takes long.
    """

    function: Callable
    arguments: dict[str, Any]
    host: bool = True
    cost: int = 1
    free: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


def packages() -> list[types.ModuleType]:
    """Those with public names."""
    names = [m.name for m in pkgutil.iter_modules(xmcjax.__path__, "xmcjax.") if m.ispkg]
    solvers = ("multiclass_dual", "multinomial", "kernel_multinomial", "instance_dual", "topk_sdca")
    names += [f"xmcjax.solvers.{name}" for name in solvers]
    return [importlib.import_module(name) for name in names if name != "xmcjax.cli"]


def public() -> dict[str, Any]:
    """Everything that a package exports, by its full name."""
    names = {p: getattr(p, "__all__", [n for n in dir(p) if not n.startswith("_")]) for p in packages()}
    return {f"{p.__name__}.{name}": getattr(p, name) for p in names for name in names[p]}


def public_functions() -> dict[str, Callable]:
    """Every function that a package exports, by its full name."""

    def is_one(thing) -> bool:
        return inspect.isfunction(thing) or (hasattr(thing, "lower") and callable(thing))

    return {name: thing for name, thing in public().items() if is_one(thing)}


def public_classes() -> dict[str, type]:
    """Every class that a caller may make an object of: no exception, protocol or tuple of results."""

    def is_one(thing) -> bool:
        return inspect.isclass(thing) and not (
            issubclass(thing, Exception | tuple | enum.Enum) or getattr(thing, "_is_protocol", False)
        )

    return {name: thing for name, thing in public().items() if is_one(thing)}


def calls(folder: Path) -> dict[str, Call]:
    """By name.

    Args:
        folder: for files that functions write.
    """
    from tests.support import calls_fits, calls_objects, calls_parts

    own = _losses() | _projections() | _metrics() | _data(folder) | _models(folder)
    return own | calls_fits.calls() | calls_objects.calls(folder) | calls_parts.calls()


def by_signature(function: Callable, values: dict[str, Any]) -> dict[str, Any]:
    """The values that a function takes; a KeyError where one that it needs has none."""
    taken = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in values:
            taken[name] = values[name]
        elif parameter.default is parameter.empty:
            raise KeyError(f"{function.__module__}.{function.__name__} needs {name!r}: give it a value here")
    return taken


def _losses() -> dict[str, Call]:
    from xmcjax import losses

    values = dict(
        scores=SCORES,
        duals=np.zeros((N, M), np.float32),
        labels=CLASSES,
        targets=np.where(LABELS > 0, 1, -1),
        where=np.ones((N, M), bool),
        k=K,
        gamma=1.0,
        variant="alpha",
        a=np.ones(N, np.float32),
        log_a=np.zeros(N, np.float32),
        loss=losses.squared_hinge,
    )
    names = [name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))]
    found = {}
    for name in names:
        function = getattr(losses, name)
        found[f"xmcjax.losses.{name}"] = Call(function, by_signature(function, values), host=False)
    for name, loss in losses.MARGIN_LOSSES.items():
        found[f"xmcjax.losses.{name}.value"] = Call(loss.value, dict(m=SCORES), host=False)
    return found


def _projections() -> dict[str, Call]:
    from xmcjax.projections import PROJECTIONS

    values = dict(x=SCORES, radius=1.0, lower=0.0, upper=0.75, k=K, rho=1.0, variant="alpha")
    return {
        f"xmcjax.projections.{name}": Call(f, by_signature(f, values), host=False)
        for name, f in PROJECTIONS.items()
    }


# A score of −∞ is no prediction, and one of +∞ is above all; classes may be of any kind; a matrix alone has
# any number of rows.
_FREE = (
    "predictions = an infinity",
    "scores = an infinity",
    "confidence = an infinity",
    "weights = one row more",
    "weights = three axes",
    "Y_train = one row more",
    "y_true = complex numbers",
    "y_pred = complex numbers",
    "y_true = strings",
    "y_pred = strings",
)


def _metrics() -> dict[str, Call]:
    from xmcjax import metrics

    values = dict(
        Y_true=sp.csr_array(LABELS),
        Y_train=sp.csr_array(LABELS),
        y_true=CLASSES,
        y_pred=np.roll(CLASSES, 1),
        predictions=SCORES,
        scores=sp.csr_array(np.maximum(SCORES, 0)),
        k=K,
        inverse_propensities=np.ones(M),
        edges=EDGES,
        confidence=np.linspace(0, 1, N),
        weights=SCORES,
        a=0.55,
        b=1.5,
        threshold=0.0,
        dataset="eurlex-4k",
    )
    found = {}
    for name in dir(metrics):
        function = getattr(metrics, name)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        mine = dict(values)
        if name == "inverse_propensities":
            del mine["dataset"]
        if name in ("taxonomy_loss", "parent_accuracy"):
            mine |= dict(y_true=1 + CLASSES, y_pred=1 + np.roll(CLASSES, 1))
        if name in ("micro_f1", "macro_f1"):
            mine |= dict(y_true=LABELS, y_pred=np.roll(LABELS, 1, axis=0))
        found[f"xmcjax.metrics.{name}"] = Call(function, by_signature(function, mine), free=_FREE)
    return found


def _data(folder: Path) -> dict[str, Call]:
    from xmcjax import data

    features, labels = sp.csr_matrix(X), sp.csr_matrix(LABELS)
    found = {}
    for name, suffix in (("xmc", "txt"), ("svmlight", "txt"), ("npz", "npz")):
        path = folder / f"{name}.{suffix}"
        save, load = getattr(data, f"save_{name}"), getattr(data, f"load_{name}")
        arguments = dict(path=path, X=features)
        arguments["Y" if name == "xmc" else "y"] = labels

        def saved(save=save, load=load, multilabel=name == "svmlight", **arguments):
            save(**arguments)
            more = dict(multilabel=True) if multilabel else {}
            return load(arguments["path"], **more)

        found[f"xmcjax.data.save_{name}"] = Call(saved, arguments)
        source = folder / f"source-{name}.{suffix}"
        save(**arguments | dict(path=source))
        options = dict(path=source, parser="python", max_memory=10**8, dtype="float32")
        options |= dict(multilabel=True, n_features=D, n_labels=M, zero_based=False, first_label=0)
        found[f"xmcjax.data.load_{name}"] = Call(load, by_signature(load, options))
        given = dict(path=source, format=name)
        found[f"xmcjax.data.load({name!r})"] = Call(data.load, given)
        found[f"xmcjax.data.load_pieces({name!r})"] = Call(_pieces, given | dict(piece=1 << 20))
        found[f"xmcjax.data.convert({name!r})"] = Call(
            data.convert,
            dict(source=source, target=folder / f"converted-{name}.npz", format=name, target_format="npz"),
        )

        def saved_as(format, load=load, **arguments):
            data.save(**arguments, format=format)
            return data.load(arguments["path"], format)

        if name != "svmlight":
            arguments = dict(path=folder / f"as-{name}.{suffix}", X=features, y=labels, format=name)
            found[f"xmcjax.data.save({name!r})"] = Call(saved_as, arguments)
    for name in data.TRANSFORMS:

        def fitted(names, X):
            return data.fit_transforms(names, X).apply(X)

        found[f"xmcjax.data.fit_transforms({name!r})"] = Call(
            fitted, dict(names=name, X=features), free=("X = one row more",)
        )
    size = dict(n=20, d=10, n_labels=6, labels_per_row=2.0, nonzeros_per_row=4.0, exponent=1.0, seed=0)
    # as many rows as may be asked for take a long time
    found["xmcjax.data.make_power_law"] = Call(data.make_power_law, size, unasked=("n = 1000000000000",))
    found["xmcjax.data.parse_transforms"] = Call(data.parse_transforms, dict(names="log,idf"))
    return found


def _pieces(path, format, piece):
    options = dict(multilabel=True) if format == "svmlight" else {}
    return [(part.X, part.y) for part in xmcjax.data.load_pieces(path, format, piece=piece, **options)]


def _models(folder: Path) -> dict[str, Call]:
    from xmcjax import models

    coef, intercept = np.resize(SCORES, (M, D)), np.zeros(M, np.float32)

    def best(coef, intercept, status, X, k, threads):
        return models.predict_topk(models.ArrayModel(coef, intercept, status), X, k, threads=threads)

    def above(coef, intercept, X, threshold):
        return models.scores_above(models.ArrayModel(coef, intercept), X, threshold)

    def written(path, labels, scores):
        models.write_predictions(path, labels, scores)
        return models.read_predictions(path)

    def stored(
        directory, meta, label_range, shard_size, weight, resume, label, indices, values, bias, status
    ):
        shutil.rmtree(folder / "model", ignore_errors=True)
        arrays = {"idf.weight": weight}
        with models.ShardWriter(directory, meta, label_range, shard_size, arrays, resume) as writer:
            writer.add(label, indices, values, bias, status)
            for other in range(1, M):
                writer.add(other, [0], np.ones(1, np.float32))
        return models.LinearModel.load(directory).dense_block(0, M)

    def opened(directory, verify, partial):
        return models.LinearModel.load(directory, verify, partial).dense_block(0, M)

    def read_back(path, labels, scores):
        with models.prediction_file(path) as write:
            write(labels, scores)
        return models.read_predictions(path)

    meta = dict(n_features=D, n_labels=M, dtype="float32")
    entry = dict(label=0, indices=np.array([1, 3]), values=np.ones(2, np.float32), bias=0.5, status=1)
    with models.ShardWriter(folder / "given", meta) as writer:
        for label in range(M):
            writer.add(label, [0, 2], np.ones(2, np.float32))
    labels = np.tile(np.arange(K), (N, 1))
    scores = -labels.astype(np.float32)
    models.write_predictions(folder / "given.txt", labels, scores)
    model = dict(coef=coef, intercept=intercept)
    return {
        "xmcjax.models.predict_topk": Call(
            best, model | dict(status=np.ones(M, np.int8), X=sp.csr_matrix(X), k=K, threads=1), free=_ROWS
        ),
        "xmcjax.models.scores_above": Call(
            above, model | dict(X=sp.csr_matrix(X), threshold=0.0), free=_ROWS
        ),
        "xmcjax.models.write_predictions": Call(
            written, dict(path=folder / "top.txt", labels=labels, scores=scores)
        ),
        "xmcjax.models.prediction_file": Call(
            read_back, dict(path=folder / "rows.txt", labels=labels, scores=scores)
        ),
        "xmcjax.models.read_predictions": Call(
            models.read_predictions, dict(path=folder / "given.txt", max_memory=10**8)
        ),
        "xmcjax.models.ShardWriter": Call(
            stored,
            dict(directory=folder / "model", meta=meta, label_range=(0, M), shard_size=2)
            | dict(weight=np.ones(D), resume=False)
            | entry,
        ),
        "xmcjax.models.LinearModel.load": Call(
            opened, dict(directory=folder / "given", verify="full", partial=False)
        ),
        "xmcjax.models.check_vacant": Call(models.check_vacant, dict(directory=folder / "nothing")),
    }


# Features and weights alone may have any number of rows, and a bias of −∞ is a label without a score.
_ROWS = ("X = one row more", "intercept = an infinity")
