"""``xmcjax train --calibration``: the model of the estimator, its probabilities, and what is refused."""

import json

import numpy as np
import pytest

import xmcjax as library
from tests.support.internals import SYSTEMS, cli_calibration
from xmcjax.data import load_xmc
from xmcjax.inits import OvaPrimalTree
from xmcjax.lanes import OneVsAll, calibrate_one_vs_all
from xmcjax.models import LinearModel, read_predictions

METHODS = {"one-vs-all": "sigmoid", "multiclass": "temperature", "top-k": "temperature"}
LABELS, ABSENT = 5, 3
SIGMOID, TEMPERATURE = ("--calibration", "sigmoid"), ("--calibration", "temperature")


@pytest.fixture(scope="module")
def data(classes_of):
    return classes_of(LABELS, absent=ABSENT, rows=300, cut=200, noise=0.7)


@pytest.fixture
def calibrated(xmcjax, data, tmp_path):
    """Trains with a calibration: (model directory, result of the command)."""

    def run(system="one-vs-all", *more, name="m"):
        given = ("--train", data / "train.txt", "--model", tmp_path / name, "--calibration", METHODS[system])
        return tmp_path / name, xmcjax("train", "--system", system, *given, *more)

    return run


@pytest.mark.parametrize("system", METHODS)
def test_the_model_is_the_one_of_the_estimator(calibrated, xmcjax, data, tmp_path, system):
    directory, result = calibrated(system, "--cv", 3)
    result.done()
    kind = getattr(library, SYSTEMS[system])
    read = kind.load(directory)
    assert (read.calibration, read.cv) == (METHODS[system], 3)
    X, Y = load_xmc(data / "train.txt")
    X_test = load_xmc(data / "test.txt")[0]
    if system == "one-vs-all":
        with pytest.warns(UserWarning, match="1 of 5 labels have no positive rows"):
            fresh = kind(calibration="sigmoid", cv=3).fit(X, Y)
    else:
        fresh = kind(calibration="temperature", cv=3, random_state=0).fit(X, Y.indices)
    np.testing.assert_allclose(read.predict_proba(X_test), fresh.predict_proba(X_test), rtol=1e-5, atol=1e-7)
    # and back: what the estimator stores the command reads, and both are what the command trained
    fresh.save(tmp_path / "saved")
    out = {name: tmp_path / f"{name}.txt" for name in ("m", "saved")}
    for name, path in out.items():
        predict = ("predict", "--model", tmp_path / name, "--data", data / "test.txt", "--out", path)
        xmcjax(*predict, "--probabilities", "--top-k", 4).done()
    labels, p = read_predictions(out["m"])
    assert labels.tolist() == read_predictions(out["saved"])[0].tolist()
    places = np.searchsorted(read.classes_, labels)
    expected = np.take_along_axis(np.asarray(read.predict_proba(X_test)), places, axis=1)
    np.testing.assert_allclose(p, expected, rtol=1e-5, atol=1e-7)
    assert (np.diff(p, axis=1) <= 0).all() and ABSENT not in labels
    # the same labels as those of the scores
    xmcjax(*predict[:-1], tmp_path / "scores.txt", "--top-k", 4).done()
    by_score = read_predictions(tmp_path / "scores.txt")[0]
    np.testing.assert_array_equal(np.sort(labels, axis=1), np.sort(by_score, axis=1))


def test_labels_of_rows_that_have_one_are_calibrated_by_themselves(calibrated, data):
    directory, result = calibrated("one-vs-all")
    result.done()
    X, Y = load_xmc(data / "train.txt")
    assert (np.diff(Y.indptr) == 1).all()
    p = library.OneVsAllClassifier.load(directory).predict_proba(X)
    assert np.abs(p.sum(axis=1) - 1).max() > 0.1
    of_classes = library.OneVsAllClassifier(calibration="sigmoid").fit(X, Y.indices).predict_proba(X)
    np.testing.assert_allclose(of_classes.sum(axis=1), 1)
    # softmax(u) of log odds that are those of the labels
    odds = (p / (1 - p))[:, [label for label in range(LABELS) if label != ABSENT]]
    np.testing.assert_allclose(of_classes, odds / odds.sum(axis=1, keepdims=True), rtol=1e-5)


def test_folds_with_a_tree_of_labels_ask_whether_they_may_go_on(data):
    X, Y = load_xmc(data / "train.txt")
    asked = []

    def may_go_on():
        asked.append(1)
        return len(asked) < 3

    options = OneVsAll(init=OvaPrimalTree())
    assert calibrate_one_vs_all(X, Y, options, cv=4, may_go_on=may_go_on) is None
    assert len(asked) == 3
    assert calibrate_one_vs_all(X, Y, options, cv=4, may_go_on=lambda: True) is not None


@pytest.mark.parametrize("system", METHODS)
def test_inspect_shows_it(calibrated, xmcjax, system):
    directory, result = calibrated(system)
    result.done()
    told = json.loads(xmcjax("inspect", "--model", directory, "--json").done().out)
    assert told["training"]["calibration"] == {"method": METHODS[system], "cv": 5}
    low, middle, high = told["calibration"]["slopes"]
    assert 0 < low <= middle <= high and told["calibration"]["shared"] == 0
    assert "calibration slopes " in xmcjax("inspect", "--model", directory).done().out


def test_a_run_says_how_long_it_took_and_a_plain_model_stays_as_it_was(calibrated, xmcjax, data, tmp_path):
    directory, result = calibrated()
    assert "calibration " in result.done().out
    record = json.loads((directory / "run.json").read_text())[-1]
    assert record["seconds"]["calibration"] > 0 and record["options"]["calibration"] == "sigmoid"
    xmcjax("train", "--train", data / "train.txt", "--model", tmp_path / "plain").done()
    plain = tmp_path / "plain"
    assert not (plain / "calibration.safetensors").exists()
    assert json.loads((plain / "manifest.json").read_text())["schema_version"] == 1
    for shard in plain.glob("shard*"):
        assert shard.read_bytes() == (directory / shard.name).read_bytes()
    predict = ("predict", "--model", plain, "--data", data / "test.txt", "--out", tmp_path / "p")
    xmcjax(*predict, "--probabilities").refused("or that is calibrated")
    assert not (tmp_path / "p").exists()


def test_a_run_that_was_interrupted_before_it_is_resumed(
    calibrated, xmcjax, data, tmp_path, monkeypatch, contents
):
    whole, result = calibrated(name="whole")
    result.done()

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cli_calibration, "calibrate_one_vs_all", interrupted)
        assert calibrated()[1].code == 130
    directory = tmp_path / "m"
    predict = ("predict", "--model", directory, "--data", data / "test.txt", "--out", tmp_path / "p")
    xmcjax(*predict).done()
    xmcjax(*predict, "--probabilities").refused("expected a calibration, found none yet; finish the training")
    calibrated("one-vs-all", "--resume", "--cv", 4)[1].refused("calibration (--calibration, --cv) = ")
    calibrated("one-vs-all", "--resume")[1].done()
    assert contents(directory) == contents(whole)
    before = (directory / "calibration.safetensors").stat().st_mtime_ns
    calibrated("one-vs-all", "--resume")[1].done()
    assert (directory / "calibration.safetensors").stat().st_mtime_ns == before
    (directory / "calibration.safetensors").write_bytes(b"damaged")
    calibrated("one-vs-all", "--resume")[1].done()
    assert contents(directory) == contents(whole)


def test_a_run_out_of_time_says_that_it_is_not_calibrated(calibrated, monkeypatch):
    monkeypatch.setattr(cli_calibration, "calibrate_one_vs_all", lambda *given, **more: None)
    directory, result = calibrated("one-vs-all", "--timeout", 600)
    assert result.code == 75 and "the model was not calibrated when the time was over" in result.err
    assert not LinearModel.load(directory).calibrated


def test_labels_of_few_rows_share_a_fit_within_their_part(xmcjax, files, tmp_path):
    train = ("train", "--train", files / "train.txt", "--calibration", "sigmoid")
    for name, labels in {"whole": "0:30", "a": "0:15", "b": "15:30"}.items():
        xmcjax(*train, "--model", tmp_path / name, "--labels", labels).done()
    merge = ("merge", "--parts", tmp_path / "a", tmp_path / "b", "--model", tmp_path / "merged")
    xmcjax(*merge).done()
    whole, merged = (LinearModel.load(tmp_path / name).calibration() for name in ("whole", "merged"))
    assert whole is not None and merged is not None
    positives = np.diff(load_xmc(files / "train.txt")[1].tocsc().indptr)
    few = (positives > 0) & (positives < 10)
    same = (whole.slope == merged.slope) & (whole.offset == merged.offset)
    assert same[~few].all() and not same[few].any() and 3 < few.sum() < 27
    for shard in (tmp_path / "whole").glob("shard*"):
        assert shard.read_bytes() == (tmp_path / "merged" / shard.name).read_bytes()


def test_parts_are_merged_with_theirs(calibrated, xmcjax, tmp_path, contents):
    """All labels here have rows enough for numbers of their own, so that the parts make the whole."""
    for name, labels in (("a", "0:2"), ("b", "2:5")):
        calibrated("one-vs-all", "--labels", labels, name=name)[1].done()
    whole = calibrated(name="whole")[0]
    xmcjax("merge", "--parts", tmp_path / "b", tmp_path / "a", "--model", tmp_path / "merged").done()
    assert contents(tmp_path / "merged") == contents(whole)
    calibrated("one-vs-all", "--labels", "2:5", "--cv", 3, name="c")[1].done()
    merge = ("merge", "--parts", tmp_path / "a", tmp_path / "c", "--model", tmp_path / "other")
    xmcjax(*merge).refused("expected calibration = ")
    assert not (tmp_path / "other").exists()


def test_weights_of_labels_and_threads(calibrated, contents):
    one, result = calibrated("one-vs-all", "--class-weight", "balanced", "--n-jobs", 1)
    result.done()
    two, _ = calibrated(
        "one-vs-all", "--class-weight", "balanced", "--n-jobs", 2, "--block-size", 3, name="n"
    )
    assert contents(one) == contents(two)


def test_other_programs_get_scores_and_are_told(calibrated, xmcjax, tmp_path):
    directory, _ = calibrated()
    out = tmp_path / "liblinear"
    said = xmcjax("export", "--model", directory, "--out", out, "--format", "liblinear").done()
    assert "the calibration is left out" in said.out and "solver_type L2R_L2LOSS_SVC" in out.read_text()


def test_one_row_makes_no_calibration(xmcjax, tmp_path):
    (tmp_path / "one.txt").write_text("1 3 2\n0 1:1\n")
    train = ("train", "--train", tmp_path / "one.txt", "--model", tmp_path / "m", *SIGMOID)
    xmcjax(*train).refused("--calibration: expected at least 2 rows, of which some are held out, got 1")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("system", "given", "said"),
    [
        ("one-vs-all", ("--cv", 3), "--cv 3 needs --calibration, got none"),
        ("multiclass", ("--cv", 3), "--cv 3 needs --calibration, got none"),
        ("one-vs-all", (*SIGMOID, "--cv", 1), "--cv: expected at least 2, got 1"),
        ("top-k", (*TEMPERATURE, "--cv", 1), "cv: expected at least 2, got 1"),
        (
            "one-vs-all",
            (*SIGMOID, "--cv", 201),
            "--cv: expected at most 200, the number of",
        ),
        (
            "multiclass",
            (*TEMPERATURE, "--cv", 201),
            "--cv: expected at most 200, the number",
        ),
    ],
)
def test_what_makes_no_calibration_is_refused_and_nothing_is_written(
    xmcjax, data, tmp_path, system, given, said
):
    train = ("train", "--system", system, "--train", data / "train.txt", "--model", tmp_path / "m")
    xmcjax(*train, *given).refused(said)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("system", "name"), [("one-vs-all", "temperature"), ("multiclass", "sigmoid"), ("top-k", "isotonic")]
)
def test_the_choices_are_those_of_the_system(xmcjax, data, tmp_path, system, name):
    train = ("train", "--system", system, "--train", data / "train.txt", "--model", tmp_path / "m")
    result = xmcjax(*train, "--calibration", name)
    assert result.code == 2 and "--calibration" in result.err and not (tmp_path / "m").exists()


def of_rows(path, rows):
    """Text of rows that have one feature and these labels."""
    path.write_text(f"{len(rows)} 1 4\n" + "".join(f"{row} 0:1\n" for row in rows))
    return path


def test_a_part_of_labels_without_rows_is_merged_to_the_calibration_of_a_whole_run(xmcjax, tmp_path):
    data = of_rows(tmp_path / "d.txt", ["0", "1", "2", "0,1", "0", "1"])
    for name, labels in (("whole", "0:4"), ("first", "0:3"), ("empty", "3:4")):
        train = ("train", "--train", data, "--model", tmp_path / name, "--labels", labels, "--cv", 2)
        xmcjax(*train, *SIGMOID).done()
    xmcjax("merge", "--parts", tmp_path / "first", tmp_path / "empty", "--model", tmp_path / "m").done()
    whole, merged = (LinearModel.load(tmp_path / name).calibration() for name in ("whole", "m"))
    assert whole is not None and merged is not None and whole.encode() == merged.encode()
    said = xmcjax("inspect", "--model", tmp_path / "empty", "--json").done().out
    known = json.loads(said, parse_constant=pytest.fail)
    assert known["calibration"] == {"slopes": None, "shared": 0}


def test_a_part_that_has_nothing_to_share_is_told_what_helps(xmcjax, tmp_path):
    data = of_rows(tmp_path / "d.txt", ["0", "1", "2", "0,1", "0", "1"])
    train = ("train", "--train", data, "--model", tmp_path / "m", "--labels", "2:4", "--cv", 2, *SIGMOID)
    said = "found none among labels 2 to 3: give --labels a range with labels of more rows"
    xmcjax(*train).refused("--calibration: expected a label with positive rows in two folds", said)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("part", ["0:4", "1:3"])
def test_data_without_a_label_have_nothing_to_calibrate_by(xmcjax, tmp_path, part):
    data = of_rows(tmp_path / "d.txt", [""] * 6)
    train = ("train", "--train", data, "--model", tmp_path / "m", "--labels", part, "--cv", 2, *SIGMOID)
    said = xmcjax(*train).refused("--calibration: expected a label with positive rows in two folds")
    assert said.endswith("found none") and not (tmp_path / "m").exists()
