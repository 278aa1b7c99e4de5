"""Valid calls of what reads and writes files: data sets, models, predictions."""
# ruff: noqa: B006, B008 – the defaults of a function are a valid call of it

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from tests.support.calls import FEATURES, LABELS, SCORES, D, K, M, N, Table, by_signature
from xmcjax import data, datasets, models

META = dict(n_features=D, n_labels=M, dtype="float32")
BIASES = np.zeros(M, np.float32)
DENSE = FEATURES.toarray()
TRANSFORMS = ["log", "idf", "unit", "frequency"]
# Features and weights alone may have any number of rows, and a bias of −∞ is a label without a score.
_ROWS = ("X = one row more", "intercept = an infinity")


def add(table: Table, folder: Path) -> None:
    """All of them; files are in the folder."""
    for name, suffix in (("xmc", "txt"), ("svmlight", "txt"), ("npz", "npz")):
        _format(table, folder, name, suffix)
    for name in data.TRANSFORMS:

        @table.of(f"data.fit_transforms({name!r})", free=("X = one row more",))
        def fitted(names=name, X=FEATURES):
            return data.fit_transforms(names, X).apply(X)

    size = dict(n=20, d=10, n_labels=6, labels_per_row=2.0, nonzeros_per_row=4.0, exponent=1.0, seed=0)
    # as many rows as may be asked for take a long time
    table.add("data.make_power_law", data.make_power_law, size, unasked=("n = 1000000000000",))
    table.add("datasets.make_texts", datasets.make_texts, dict(n=20, d=10, n_classes=6, share=0.5, seed=0))
    tree = dict(n=20, d=3, branching=[2, 3], spread=1.0, noise=1.0, seed=0)
    table.add("datasets.make_hierarchy", datasets.make_hierarchy, tree, unasked=("n = 1000000000000",))
    table.add("datasets.fetch", datasets.fetch, dict(name="naics_demo", folder=folder), cost=100)
    table.add("data.parse_transforms", data.parse_transforms, dict(names="log,idf"))
    (folder / "bounded").write_bytes(bytes(100))

    @table.of("data.Dataset.fingerprint")
    def described(X=FEATURES, y=sp.csr_matrix(LABELS)):
        return data.Dataset(X, y).fingerprint()

    @table.of("data.Transforms.apply", free=("X = one row more",))
    def transformed(names=TRANSFORMS, weight=np.linspace(0.5, 2, D), order=np.arange(D)[::-1], X=FEATURES):
        return data.Transforms.from_arrays(names, {"idf.weight": weight, "frequency.order": order}).apply(X)

    (folder / "pairs").write_text("0 1\n2 0\n")

    @table.of("data.load_pairs")
    def pairs(path=folder / "pairs", n_rows=N, n_labels=M, max_memory=10**6):
        return data.load_pairs(path, n_rows=n_rows, n_labels=n_labels, max_memory=max_memory)

    @table.of("data.MemoryBound")
    def bounded(path=folder / "bounded", max_memory=10**6):
        return data.MemoryBound(path, max_memory).size

    _separate(table, folder)
    _models(table, folder)
    _exchange(table, folder)
    _predictions(table, folder)


def _format(table: Table, folder: Path, name: str, suffix: str) -> None:
    labels = sp.csr_matrix(LABELS)
    save, load = getattr(data, f"save_{name}"), getattr(data, f"load_{name}")
    more = dict(multilabel=True) if name == "svmlight" else {}

    def saved(**arguments):
        save(**arguments)
        return load(arguments["path"], **more)

    def saved_as(format, **arguments):
        data.save(**arguments, format=format)
        return data.load(arguments["path"], format)

    def pieces(path, format, piece, **more):
        return [(part.X, part.y) for part in data.load_pieces(path, format, piece=piece, **more)]

    written = {"path": folder / f"{name}.{suffix}", "X": FEATURES, "Y" if name == "xmc" else "y": labels}
    table.add(f"data.save_{name}", saved, written)
    source = folder / f"source-{name}.{suffix}"
    save(**written | dict(path=source))
    options = dict(path=source, parser="python", max_memory=10**8, dtype="float32", multilabel=True)
    options |= dict(n_features=D, n_labels=M, zero_based=False, first_label=0)
    table.add(f"data.load_{name}", load, by_signature(load, options))
    given = dict(path=source, format=name) | more
    table.add(f"data.load({name!r})", data.load, given)
    table.add(f"data.load_pieces({name!r})", pieces, given | dict(piece=1 << 20))
    target = dict(source=source, target=folder / f"converted-{name}.npz", target_format="npz")
    table.add(f"data.convert({name!r})", data.convert, target | dict(format=name) | more)
    if name != "svmlight":
        arguments = dict(path=folder / f"as-{name}.{suffix}", X=FEATURES, y=labels, format=name)
        table.add(f"data.save({name!r})", saved_as, arguments)


def _separate(table: Table, folder: Path) -> None:
    """Features and labels in files of their own."""
    for name, suffix, X in (
        ("scipy_npz", "npz", FEATURES),
        ("matrix", "txt", FEATURES),
        ("npy", "npy", DENSE),
    ):
        save, load = getattr(data, f"save_{name}"), getattr(data, f"load_{name}")

        def saved(save=save, load=load, **arguments):
            save(**arguments)
            return load(arguments["path"])

        free = ("X = one row more",)
        written = dict(path=folder / f"alone-{name}.{suffix}", X=X)
        table.add(f"data.save_{name}", saved, written, free=free)
        source = folder / f"read-{name}.{suffix}"
        save(source, X)
        options = dict(path=source, max_memory=10**8, dtype="float32", parser="python", one_based=False)
        table.add(f"data.load_{name}", load, by_signature(load, options | dict(zeros=True, shape=None)))
        format = "npz" if name == "scipy_npz" else name

        @table.of(f"data.load_feature_pieces({name!r})")
        def pieces(path=source, format=format, piece=100):
            return list(data.load_feature_pieces(path, format, piece=piece))

        table.add(f"data.load_features({name!r})", data.load_features, dict(path=source, format=format))

        @table.of(f"data.save_features({name!r})", free=free)
        def features(path=folder / f"features.{suffix}", X=X, format=format):
            data.save_features(path, X, format)
            return data.load_features(path)

    data.save_scipy_npz(folder / "labels.npz", sp.csr_matrix(LABELS))
    table.add("data.load_labels", data.load_labels, dict(path=folder / "labels.npz", format="npz"))

    @table.of("data.save_labels", free=("y = one row more",))
    def labels(path=folder / "alone-labels.npz", y=sp.csr_matrix(LABELS), format="npz"):
        data.save_labels(path, y, format)
        return data.load_labels(path)

    arguments = dict(path=folder / "alone-labels.npz", y=sp.csr_matrix(LABELS), format="npz")
    table.add("data.labels_format", data.labels_format, arguments, free=("y",))

    table.add("data.join_features", data.join_features, dict(X=FEATURES, more=DENSE))
    table.add("data.promises_other_text", data.promises_other_text, dict(path=folder / "x.csv"))
    table.add("data.format_of", data.format_of, dict(path=folder / "x.npz", format="npy", other="matrix"))


def _exchange(table: Table, folder: Path) -> None:
    """Models of other programs."""

    @table.of("models.export_model")
    def exported(model=folder / "given", path=folder / "weights.npz", format="npz"):
        models.export_model(model, path, format)
        return data.load_scipy_npz(path)

    data.save_scipy_npz(folder / "foreign.npz", FEATURES)

    @table.of("models.import_model")
    def imported(
        path=folder / "foreign.npz", directory=folder / "imported", format="npz", bias=1.0, max_memory=10**8
    ):
        shutil.rmtree(folder / "imported", ignore_errors=True)
        model = models.import_model(path, directory, format, bias=bias, max_memory=max_memory)
        return model.dense_block(0, D)


def _models(table: Table, folder: Path) -> None:
    with models.ShardWriter(folder / "given", META) as writer:
        for label in range(M):
            writer.add(label, [0, 2], np.ones(2, np.float32))
    model = models.LinearModel.load(folder / "given")
    weights = np.resize(SCORES, (M, D))

    @table.of("models.predict_topk", free=_ROWS)
    def best(
        coef=weights, intercept=BIASES, status=np.ones(M, np.int8), X=FEATURES, k=K, row_block=5, threads=1
    ):
        model = models.ArrayModel(coef, intercept, status)
        return models.predict_topk(model, X, k, row_block=row_block, threads=threads)

    @table.of("models.Predictor.predict_topk", free=_ROWS)
    def predictor(model=models.ArrayModel(weights, BIASES), X=FEATURES, k=K, n_jobs=1):
        return models.Predictor(model, n_jobs=n_jobs).predict_topk(X, k)

    predicted = models.Predictor(models.ArrayModel(weights)).decision_function
    table.add("models.Predictor.decision_function", predicted, dict(X=FEATURES), free=_ROWS)

    @table.of("models.decision_function", free=_ROWS)
    def scores(coef=weights, intercept=BIASES, X=FEATURES, threads=1):
        return models.decision_function(models.ArrayModel(coef, intercept), X, threads=threads)

    @table.of("models.write_index")
    def indexed(directory=folder / "given", memory=1 << 20):
        return models.write_index(directory, memory=memory).stat().st_size

    @table.of("models.Names")
    def named(classes=np.arange(M), features=("a", "b", "c")):
        return models.Names(classes, features).encode()

    @table.of("models.write_kernel_model", free=("arrays = a dictionary",))
    def kept(
        directory=folder / "kernel", meta=META, arrays={"a": np.ones(3)}, names=models.Names(np.arange(M))
    ):
        shutil.rmtree(folder / "kernel", ignore_errors=True)
        models.write_kernel_model(directory, meta, arrays, names)
        return models.read_kernel_model(directory).arrays["a"]

    @table.of("models.merge_models")
    def merged(parts=[folder / "given"], directory=folder / "merged", resume=False):
        shutil.rmtree(folder / "merged", ignore_errors=True)
        return models.merge_models(parts, directory, resume=resume).dense_block(0, M)

    @table.of("models.scores_above", free=_ROWS)
    def above(coef=weights, intercept=BIASES, X=FEATURES, threshold=0.0):
        return models.scores_above(models.ArrayModel(coef, intercept), X, threshold)

    _calibration(table, folder, weights)
    entry = dict(label=0, indices=np.array([1, 3]), values=np.ones(2, np.float32), bias=0.5, status=1)
    options = dict(directory=folder / "model", meta=META, label_range=(0, M), shard_size=2, resume=False)

    def stored(directory, meta, label_range, shard_size, weight, resume, **entry):
        shutil.rmtree(folder / "model", ignore_errors=True)
        arrays = {"idf.weight": weight}
        with models.ShardWriter(directory, meta, label_range, shard_size, arrays, resume) as writer:
            writer.add(**entry)
            for other in range(1, M):
                writer.add(other, [0], np.ones(1, np.float32))
        return models.LinearModel.load(directory).dense_block(0, M)

    table.add("models.ShardWriter", stored, options | dict(weight=np.ones(D)) | entry)

    @table.of("models.LinearModel.load")
    def opened(directory=folder / "given", verify="full", partial=False):
        return models.LinearModel.load(directory, verify, partial).dense_block(0, M)

    for method in ("weights", "dense_block", "trained", "intercept_of"):
        table.add(f"models.LinearModel.{method}", getattr(model, method), dict(first=0, last=M))

    @table.of("models.ArrayModel")
    def held(coef=weights, first=0, last=M):
        return models.ArrayModel(coef).dense_block(first, last)

    table.add("models.is_trained", models.is_trained, dict(status=np.ones(M, np.int8)), free=("status",))
    table.add("models.check_vacant", models.check_vacant, dict(directory=folder / "nothing"))


def _calibration(table: Table, folder: Path, weights: np.ndarray) -> None:
    ones, none = np.ones(M), np.zeros(M, bool)
    with models.ShardWriter(folder / "scaled", META) as writer:
        for label in range(M):
            writer.add(label, [0, 2], np.ones(2, np.float32))

    @table.of(
        "models.Calibration",
        free=("scores = a NaN", "scores = an infinity", "scores = one row more", "scores = three axes"),
    )
    def scaled(slope=ones, offset=np.zeros(M), shared=none, scores=np.ones((2, M))):
        return models.Calibration(slope, offset, shared).apply(scores)

    @table.of("models.write_calibration")
    def written(directory=folder / "scaled", calibration=models.Calibration(ones, ones, none)):
        models.write_calibration(directory, calibration)
        found = models.LinearModel.load(directory).calibration()
        assert found is not None
        return found.slope

    Y, rows = (np.arange(N)[:, None] % 5 == np.arange(M)).astype(float), np.arange(N)

    @table.of("models.Calibrator.add")
    def fitted(n_labels=M, weight=np.ones(N), threads=1, labels=np.arange(M), Y=Y, X=FEATURES):
        calibrator = models.Calibrator(n_labels, weight, threads=threads)
        calibrator.add(labels, Y, [models.HeldOut(rows, X, models.ArrayModel(weights))])
        return calibrator.finish().slope

    given = dict(Y=Y, cv=3, labels=np.arange(M))
    table.add("models.Calibrator.folds", models.Calibrator.folds, given, free=("Y = one row more",))

    @table.of("models.Calibrator.splits", free=("Y = one row more",))
    def left_out(Y=Y, cv=3):
        return np.concatenate([out for _, out in models.Calibrator.splits(Y, cv)])

    @table.of("models.fit_temperature")
    def tempered(y=rows % M, weight=np.ones(N), threads=1, X=FEATURES):
        part = models.HeldOut(rows, X, models.ArrayModel(weights))
        return models.fit_temperature([part], y, weight, threads=threads).slope


def _predictions(table: Table, folder: Path) -> None:
    best = np.tile(np.arange(K), (N, 1))

    @table.of("models.write_predictions")
    def written(
        path=folder / "top.txt", labels=best, scores=-best.astype(np.float32), format="npz", n_labels=M
    ):
        models.write_predictions(path, labels, scores, format, n_labels=n_labels)
        return models.read_predictions(path, format)

    @table.of("models.prediction_file")
    def read_back(path=folder / "rows.txt", labels=best, scores=-best.astype(np.float32)):
        with models.prediction_file(path) as write:
            write(labels, scores)
        return models.read_predictions(path)

    written(folder / "given.txt", format="text")
    given = dict(path=folder / "given.txt", format="text", max_memory=10**8)
    table.add("models.read_predictions", models.read_predictions, given)
