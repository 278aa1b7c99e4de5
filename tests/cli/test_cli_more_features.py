"""Features of a second source beside data that state no width: the columns are those of training."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import xmcjax as library
from tests.support.internals import SYSTEMS
from xmcjax.cli import train as train_command
from xmcjax.cli.main import main
from xmcjax.data import join_features, load_svmlight, save_npz, save_parquet
from xmcjax.models import LinearModel, merge_models, meta_of, predict_topk, read_predictions

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")

SVMLIGHT = ("--format", "svmlight")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """10 features as svmlight, of which the test rows show 9, beside embeddings of 5 columns."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    X, y, E = rng.normal(size=(60, 10)), rng.integers(0, 3, 60), rng.normal(size=(60, 5)).astype(np.float32)
    X[40:, 9] = 0
    for part, place in (("train", slice(0, 40)), ("test", slice(40, 60))):
        text = [
            f"{label} " + " ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(row) if value)
            for row, label in zip(X[place], y[place], strict=True)
        ]
        (folder / f"{part}.svm").write_text("\n".join(text) + "\n")
        np.save(folder / f"{part}.npy", E[place])
    np.save(folder / "wide.npy", np.hstack([E[40:], E[40:, :1]]))
    return folder


def training(rows, model, *more, system="one-vs-all"):
    train = ("train", "--system", system, *SVMLIGHT, "--train", rows / "train.svm", "--model", model)
    return (*train, "--more-features", rows / "train.npy", *more)


def predicting(rows, model, *more):
    data = ("--data", rows / "test.svm", *SVMLIGHT)
    return ("predict", "--model", model, *data, "--out", model.with_name("p.txt"), *more)


@pytest.fixture(scope="module")
def joint(tmp_path_factory, rows):
    """A model of both sources."""
    model = tmp_path_factory.mktemp("joint") / "m"
    assert main([str(argument) for argument in training(rows, model)]) == 0
    return model


@pytest.mark.parametrize("system", ["one-vs-all", "multiclass", "multinomial", "top-k", "kernel"])
def test_other_columns_than_in_training_are_refused(xmcjax, rows, tmp_path, system):
    test = ("--test", rows / "test.svm", "--test-more-features")
    train = training(rows, tmp_path / "m", *test, system=system)
    xmcjax(*train, rows / "wide.npy").refused("wide.npy: expected 5 columns as in training, found 6")
    xmcjax(*train[:-1]).refused(
        "--test-more-features: expected further features ", " as in training, got none"
    )
    xmcjax(*train, rows / "test.npy").done()
    assert meta_of(tmp_path / "m")["more_features"] == 5
    predict = predicting(rows, tmp_path / "m")
    xmcjax(*predict, "--more-features", rows / "wide.npy").refused(
        "wide.npy: expected 5 columns as in training"
    )
    xmcjax(*predict).refused(
        "--more-features: expected further features of 5 columns as in training, got none"
    )
    xmcjax(*predict, "--more-features", rows / "test.npy").done()
    again = (*train, rows / "wide.npy", "--resume")
    xmcjax(*again).refused("wide.npy: expected 5 columns as in training, found 6")
    xmcjax(*train, rows / "test.npy", "--resume").done()
    estimator = getattr(library, SYSTEMS[system])
    estimator.load(tmp_path / "m").save(tmp_path / "again")
    xmcjax(*predicting(rows, tmp_path / "again")).refused(
        "--more-features: expected further features of 5 columns as in training, got none"
    )
    report = ("report", "--out", tmp_path / "r.html", "--test", rows / "test.svm", *SVMLIGHT, "--model")
    xmcjax(*report, tmp_path / "again").refused("expected rows with the 5 columns of --more-features")
    loaded, X = estimator.load(tmp_path / "m"), np.zeros((6, 4), np.float32)
    loaded.fit(X + np.eye(6, 4, dtype=np.float32), [0, 1, 2] * 2).save(tmp_path / "other")
    assert not {"data", "more_features"} & set(meta_of(tmp_path / "other"))


def test_features_beside_a_model_that_has_none(xmcjax, rows, tmp_path):
    train = ("train", *SVMLIGHT, "--train", rows / "train.svm", "--model", tmp_path / "m")
    beside = rows / "test.npy"
    said = "expected no further features, as training had none, got "
    test = ("--test", rows / "test.svm", "--test-more-features", beside)
    xmcjax(*train, *test).refused(f"--test-more-features: {said}{beside}")
    xmcjax(*train).done()
    assert "more_features" not in meta_of(tmp_path / "m")
    predict = predicting(rows, tmp_path / "m", "--more-features", beside)
    xmcjax(*predict).refused(f"--more-features: {said}{beside}")
    (tmp_path / "m" / "run.json").unlink()  # nothing tells it: the width is all that is compared
    xmcjax(*predict).refused("a feature index from 1 to 5")


def test_columns_of_sources_that_state_their_widths(xmcjax, rows, joint, tmp_path):
    X, y = load_svmlight(rows / "test.svm", n_features=10)
    E = np.load(rows / "test.npy")
    save_npz(tmp_path / "narrow.npz", X[:, :9], y)
    save_npz(tmp_path / "both.npz", sp.csr_matrix(join_features(X, E)), y)
    out = tmp_path / "p.txt"
    predict = ("predict", "--model", joint, "--out", out, "--data")
    beside = ("--more-features", rows / "wide.npy")
    xmcjax(*predict, tmp_path / "narrow.npz", *beside).refused("wide.npy: expected 5 columns as in training")
    xmcjax(*predict, tmp_path / "both.npz").done()  # somebody has joined them
    joined, wanted = read_predictions(out), predict_topk(LinearModel.load(joint), join_features(X, E), 3)
    xmcjax(*predict, rows / "test.svm", *SVMLIGHT, "--more-features", rows / "test.npy").done()
    for found in (joined, read_predictions(out)):
        assert np.array_equal(found[0], wanted[0]) and np.array_equal(found[1], wanted[1])


def test_a_second_source_that_does_not_show_its_last_column(xmcjax, rows, joint, tmp_path):
    pytest.importorskip("pyarrow")
    E = np.load(rows / "test.npy")
    E[:, 4] = 0
    np.save(tmp_path / "E.npy", E)
    save_parquet(tmp_path / "E.parquet", sp.csr_matrix(E), np.zeros(len(E), np.int64))
    found = []
    for name in ("E.npy", "E.parquet"):
        predict = (
            "predict",
            "--model",
            joint,
            "--data",
            rows / "test.svm",
            *SVMLIGHT,
            "--out",
            tmp_path / "p",
        )
        xmcjax(*predict, "--more-features", tmp_path / name).done()
        found.append((tmp_path / "p").read_bytes())
    assert found[0] == found[1]


def test_parts_keep_the_columns_and_a_report_asks_for_them(xmcjax, rows, joint, tmp_path, contents):
    for part in ("0:1", "1:3"):
        xmcjax(*training(rows, tmp_path / part[0], "--labels", part)).done()
    merge_models([tmp_path / "0", tmp_path / "1"], tmp_path / "m")
    assert contents(tmp_path / "m") == contents(joint)
    said = json.loads(xmcjax("inspect", "--model", joint, "--json").done().out)
    assert said["training"]["more_features"] == 5
    pytest.importorskip("matplotlib")
    report = ("report", "--model", joint, "--test", rows / "test.svm", *SVMLIGHT, "--out", tmp_path / "r")
    xmcjax(*report).refused("test.svm: expected rows with the 5 columns of --more-features as in training")


def test_a_model_without_the_record_is_used_and_resumed(xmcjax, rows, tmp_path, monkeypatch, contents):
    made = train_command._training.meta

    def of_earlier_versions(*arguments):
        return {name: value for name, value in made(*arguments).items() if name != "more_features"}

    train = training(rows, tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(train_command._training, "meta", of_earlier_versions)
        xmcjax(*train).done()
    before = contents(tmp_path / "m")
    xmcjax(*train, "--resume").done()
    assert contents(tmp_path / "m") == before
    xmcjax(*predicting(rows, tmp_path / "m", "--more-features", rows / "test.npy")).done()
    xmcjax(*predicting(rows, tmp_path / "m")).done()
