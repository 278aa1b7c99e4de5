"""All five systems: what is trained can be predicted with, evaluated, inspected, and opened in Python."""

import json
import warnings

import numpy as np
import pytest

import xmcjax as library
from tests.support.internals import SYSTEMS
from tests.support.processes import python
from xmcjax.data import load_xmc, save_xmc
from xmcjax.models import LinearModel, Predictor, read_predictions, reserved

LABELS, ABSENT = 6, 3
LINEAR = [name for name in SYSTEMS if name != "kernel"]
MORE = {"one-vs-all": ("--loss", "logistic"), "top-k": ("--k", 2), "kernel": ("--rank", 40)}
LIKELIHOODS = ("one-vs-all", "multinomial", "kernel")


@pytest.fixture(scope="session")
def classes(classes_of):
    return classes_of(LABELS, absent=ABSENT, rows=240, cut=180, noise=0.2)


@pytest.fixture(scope="session")
def trained(classes, tmp_path_factory):
    """Directories of models by system, each trained once."""
    from xmcjax.cli.main import main

    made = {}

    def directory(system: str):
        if system not in made:
            made[system] = tmp_path_factory.mktemp("systems") / system
            train = ["--train", classes / "train.txt", "--model", made[system], "--transform", "log,idf,unit"]
            given = ["train", "--system", system, *train, "--C", 5, *MORE.get(system, ())]
            if system == "kernel":
                given = [argument for argument in given if argument not in ("--C", 5)]
            assert main([str(argument) for argument in given]) == 0
        return made[system]

    return directory


def kind_of(system: str):
    return getattr(library, SYSTEMS[system])


@pytest.mark.parametrize("system", SYSTEMS)
def test_predict_evaluate_and_inspect(xmcjax, classes, trained, tmp_path, system):
    model, out = trained(system), tmp_path / "p.txt"
    said = xmcjax("predict", "--model", model, "--data", classes / "test.txt", "--out", out, "--json").done()
    assert json.loads(said.out)["predictions"] == {"file": str(out), "rows": 60, "labels_per_row": 5}
    labels, _ = read_predictions(out)
    assert labels.shape == (60, 5) and ABSENT not in labels
    said = xmcjax("evaluate", "--data", classes / "test.txt", "--predictions", out, "--json").done()
    found = json.loads(said.out)
    assert found["rows"] == {"rows": 60, "labels": LABELS} and found["metrics"]["P"]["1"] > 80
    told = json.loads(xmcjax("inspect", "--model", model, "--json").done().out)
    assert told["system"] == system and told["problem"]["features"] == 12
    assert told["training"]["transforms"] == ["log", "idf", "unit"] and len(told["training"]["data"]) == 64
    text = xmcjax("inspect", "--model", model).done().out
    assert f"system      {system}\n" in text and "run         train" in text


LISTS = {"cs": ("multiclass", "--formulation", "cs"), "multinomial": ("multinomial",)}


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("system", LISTS)
def test_a_label_that_no_row_has_is_never_predicted(xmcjax, tmp_path, system, several):
    rows = ["0 0:1", "1 1:1", "3 0:1 1:1", "0,1 0:2" if several else "0 0:2", "3 1:1 0:2", "1 1:2"]
    (tmp_path / "train.txt").write_text("\n".join(["6 2 4", *rows, ""]))  # of which none has label 2
    data = ("--train", tmp_path / "train.txt", "--test", tmp_path / "train.txt")
    done = xmcjax("train", "--system", *LISTS[system], *data, "--model", tmp_path / "m").done()
    assert "warning: 1 of 4 labels have no positive row" in done.err and done.err.count("warning") == 1
    assert "3 converged, 1 no_positives" in xmcjax("inspect", "--model", tmp_path / "m").done().out
    predict = ("--data", tmp_path / "train.txt", "--out", tmp_path / "p.txt", "--top-k", 4)
    xmcjax("predict", "--model", tmp_path / "m", *predict).done()
    labels, _ = read_predictions(tmp_path / "p.txt")
    assert not (labels == 2).any() and {0, 1, 3} <= set(labels.ravel())
    model = kind_of(LISTS[system][0]).load(tmp_path / "m")
    np.testing.assert_array_equal(model.classes_, np.arange(4) if several else [0, 1, 3])
    again = xmcjax("train", "--system", *LISTS[system], *data, "--model", tmp_path / "m", "--resume").done()
    assert "nothing left to train" in again.out


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_command_line_and_the_estimator_predict_alike(xmcjax, classes, trained, tmp_path, system):
    out = tmp_path / "p.txt"
    xmcjax("predict", "--model", trained(system), "--data", classes / "test.txt", "--out", out).done()
    labels, scores = read_predictions(out)
    X = load_xmc(classes / "test.txt")[0]
    classifier = kind_of(system).load(trained(system))
    best = classifier.predict_topk(X, 5)
    np.testing.assert_array_equal(labels, best[0])
    np.testing.assert_array_equal(scores, best[1].astype(np.float32))


@pytest.mark.parametrize("system", SYSTEMS)
def test_balanced_classes(xmcjax, classes, tmp_path, system):
    X, Y = load_xmc(classes / "train.txt")
    X, Y = X[30:], Y[30:]  # of other numbers of rows
    save_xmc(tmp_path / "train.txt", X, Y)
    train = ("train", "--system", system, "--train", tmp_path / "train.txt", "--model", tmp_path / "m")
    more = dict(random_state=0) if "random_state" in kind_of(system)().get_params() else {}
    xmcjax(*train, "--class-weight", "balanced").done()
    y = Y if system == "one-vs-all" else np.asarray(Y.argmax(axis=1)).ravel()
    loaded = kind_of(system).load(tmp_path / "m")
    assert loaded.class_weight == "balanced"
    expected = kind_of(system)(class_weight="balanced", **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the label without rows
        expected.fit(X, y)
    np.testing.assert_allclose(loaded.decision_function(X), expected.decision_function(X), rtol=1e-5)
    plain = kind_of(system)(**more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        plain.fit(X, y)
    assert np.abs(plain.decision_function(X) - loaded.decision_function(X)).max() > 1e-3


@pytest.mark.parametrize("system", LIKELIHOODS)
def test_probabilities(xmcjax, classes, trained, tmp_path, system):
    out = tmp_path / "p.txt"
    command = ("predict", "--model", trained(system), "--data", classes / "test.txt", "--out", out)
    xmcjax(*command, "--probabilities").done()
    labels, p = read_predictions(out)
    X = load_xmc(classes / "test.txt")[0]
    classifier = kind_of(system).load(trained(system))
    places = np.searchsorted(classifier.classes_, labels)
    expected = np.take_along_axis(np.asarray(classifier.predict_proba(X)), places, axis=1)
    np.testing.assert_allclose(p, expected, rtol=1e-5, atol=1e-7)
    if system != "one-vs-all":  # all five classes that there are
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("system", ["multiclass", "top-k"])
def test_a_hinge_has_no_probabilities(xmcjax, classes, trained, tmp_path, system):
    command = ("predict", "--model", trained(system), "--data", classes / "test.txt", "--out", tmp_path / "p")
    xmcjax(*command, "--probabilities").refused("expected a model whose loss is a likelihood")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("system", LINEAR)
def test_a_linear_model_opens_without_jax(classes, trained, system):
    X = load_xmc(classes / "test.txt")[0]
    code = f"""
import sys
import numpy as np
from xmcjax.data import load_xmc
from xmcjax.models import LinearModel, Predictor
model = LinearModel.load({str(trained(system))!r})
X = model.transforms().apply(load_xmc({str(classes / "test.txt")!r})[0])
np.save(sys.argv[1], Predictor(model).decision_function(X))
assert "jax" not in sys.modules
"""
    file = trained(system).parent / f"{system}.npy"
    python(code, file, check=True)
    scores = np.load(file)
    present = [label for label in range(LABELS) if label != ABSENT]
    assert (scores[:, ABSENT] == -np.inf).all()
    expected = kind_of(system).load(trained(system)).decision_function(X)
    expected = expected[:, present] if expected.shape[1] == LABELS else expected
    np.testing.assert_array_equal(scores[:, present], expected)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_an_estimator_saves_the_command_predicts_with(xmcjax, classes, tmp_path, system):
    X, Y = load_xmc(classes / "train.txt")
    y = 10 * np.asarray(Y.argmax(axis=1)).ravel()
    classifier = kind_of(system)().fit(X, y)
    classifier.save(tmp_path / "m")
    out = tmp_path / "p.txt"
    xmcjax("predict", "--model", tmp_path / "m", "--data", classes / "test.txt", "--out", out).done()
    labels, scores = read_predictions(out)
    best = classifier.predict_topk(load_xmc(classes / "test.txt")[0], 5)
    np.testing.assert_array_equal(labels, best[0])  # the classes themselves, which are numbers
    np.testing.assert_array_equal(scores, best[1].astype(np.float32))


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in ("one-vs-all", "multinomial")])
def test_rows_without_one_class_are_refused(xmcjax, files, tmp_path, system):
    train = ("train", "--system", system, "--train", files / "train.txt", "--model", tmp_path / "m")
    wanted = "expected one label in every row", "multinomial and the formulation cs take any number"
    xmcjax(*train).refused(*wanted, "in row ")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "one-vs-all"])
def test_rows_of_one_class_are_refused_where_they_stand(xmcjax, tmp_path, system, beside):
    data, labels = tmp_path / "data.txt", tmp_path / "labels.txt"
    data.write_text("2 3\n0:1\n1:1 2:1\n" if beside else "2 3 1\n0 0:1\n0 1:1 2:1\n")
    labels.write_text("2 1\n0:1\n0:1\n")
    flags = ("--labels-file", labels) if beside else ()
    said = xmcjax("train", "--system", system, "--train", data, "--model", tmp_path / "m", *flags)
    assert "2 rows, 3 features (1.5 non-zeros per row), 1 label (1 in use, 1.00 per row)" in said.out
    said.refused(f"{labels if beside else data}: expected at least two classes, found one class")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_directory_with_a_model_is_left_alone(xmcjax, classes, trained, contents, system):
    before = contents(trained(system))
    train = ("train", "--system", system, "--train", classes / "train.txt", "--model", trained(system))
    xmcjax(*train).refused("expected a new or empty directory, found a model")
    assert contents(trained(system)) == before


def test_one_vs_all_goes_on_from_no_other_system(xmcjax, classes, trained, contents):
    before = contents(trained("multiclass"))
    train = ("train", "--train", classes / "train.txt", "--model", trained("multiclass"), "--resume")
    said = "was started with system (--system) = 'multiclass', this run has 'one-vs-all'"
    xmcjax(*train).refused(said)
    assert contents(trained("multiclass")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--system", "svm"),
            f"--system: expected one of {', '.join(SYSTEMS)}, got 'svm'",
        ),
        (("--system",), "kernel, got ''"),
        (("--system", "top-k", "--system=top-k"), "expected it once, got it 2 times"),
    ],
)
def test_a_system_that_there_is_not(xmcjax, classes, tmp_path, arguments, said):
    xmcjax("train", "--train", classes / "train.txt", "--model", tmp_path / "m", *arguments).refused(said)


@pytest.mark.parametrize(
    ("system", "flag", "value"),
    [
        ("multiclass", "--C", 0),
        ("multiclass", "--tol", -1),
        ("multinomial", "--max-iter", 0),
        ("multinomial", "--C", "inf"),
        ("top-k", "--k", 0),
        ("top-k", "--k", 9),
        ("top-k", "--smoothing", -1),
        ("kernel", "--v", -1),
        ("kernel", "--rank", 0),
    ],
)
def test_a_value_out_of_range_is_refused(xmcjax, classes, tmp_path, system, flag, value):
    train = ("train", "--system", system, "--train", classes / "train.txt", "--model", tmp_path / "m")
    xmcjax(*train, flag, value).refused(flag.removeprefix("--"), "expected ")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("flags", [("--smoothing", 0.5), ("--variant", "entropy"), ("--variant", "beta")])
def test_every_loss_of_the_top_k_svm(xmcjax, classes, tmp_path, flags):
    data = ("--train", classes / "train.txt", "--model", tmp_path / "m", "--transform", "unit")
    xmcjax("train", "--system", "top-k", "--k", 2, "--tol", 1e-5, *data, *flags).done()
    opened = library.TopKSVC.load(tmp_path / "m")
    given = {flag.removeprefix("--"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)}
    X, Y = load_xmc(classes / "train.txt")
    ours = library.TopKSVC(2, tol=1e-5, random_state=0, **given)
    ours.fit(opened.transforms_.apply(X), Y.indices)
    np.testing.assert_allclose(opened.coef_, ours.coef_, rtol=1e-6, atol=1e-7)
    assert np.abs(opened.coef_ - library.TopKSVC(2, tol=1e-5).fit(X, Y.indices).coef_).max() > 1e-3


def test_the_largest_weights_are_shown_by_name(xmcjax, trained, tmp_path):
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("".join(f"word{j}\n" for j in range(12)))
    inspect = ("inspect", "--model", trained("multinomial"), "--label", 1, "--top-k", 2)
    told = json.loads(xmcjax(*inspect, "--vocabulary", vocabulary, "--json").done().out)
    model = LinearModel.load(trained("multinomial"))
    W = model.weights(1, 2).toarray()[0]
    best = np.argsort(-np.abs(W))[:2]
    expected = [{"feature": f"word{j}", "weight": W[j]} for j in best]
    assert told["largest_weights"]["1"]["weights"] == expected
    text = xmcjax(*inspect).done().out
    assert f"label 1: bias {model.intercept_of(1, 2)[0]:+.4g}" in text and f" {best[0]} " in text
    vocabulary.write_text("one\n")
    xmcjax(*inspect, "--vocabulary", vocabulary).refused("expected 12 lines, one per feature", "found 1")
    xmcjax("inspect", "--model", trained("multinomial"), "--label", 6).refused("expected numbers from 0 to 5")


def test_a_name_ends_where_its_line_does(xmcjax, trained, tmp_path):
    vocabulary = tmp_path / "words.txt"
    separators = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "é", " ", ""]
    names = [f"a{separator}{j}" for j, separator in enumerate(separators)]
    inspect = ("inspect", "--model", trained("multinomial"), "--label", 1, "--top-k", 12, "--json")
    inspect += ("--vocabulary", vocabulary)
    for end, last in (("\n", "\n"), ("\r\n", "\r\n"), ("\n", "")):
        vocabulary.write_bytes((end.join(names) + last).encode())
        told = json.loads(xmcjax(*inspect).done().out)["largest_weights"]["1"]["weights"]
        shown = {entry["feature"] for entry in told}
        assert len(shown) > 9 and shown <= set(names)
    vocabulary.write_bytes("\n".join(names).encode("utf-8-sig"))
    said = "words.txt:1:1: expected the name of a feature, found a byte order mark"
    xmcjax(*inspect).refused(said)
    vocabulary.write_bytes(b"")
    xmcjax(*inspect).refused("expected 12 lines, one per feature, found 0")


def test_a_model_of_another_system_is_refused_by_name(trained):
    with pytest.raises(ValueError, match=r"found one of top-k, which TopKSVC\.load opens"):
        library.MulticlassSVC.load(trained("top-k"))
    with pytest.raises(ValueError, match=r"found one of multinomial, which Multinomial"):
        library.KernelLogisticClassifier.load(trained("multinomial"))
    with pytest.raises(ValueError, match="expected a linear model, found one of the system kernel"):
        library.OneVsAllClassifier.load(trained("kernel"))


def test_probabilities_of_a_predictor_are_those_of_the_estimator(classes, trained):
    classifier = library.MultinomialLogisticRegression.load(trained("multinomial"))
    X = load_xmc(classes / "test.txt")[0]
    labels, p = Predictor(trained("multinomial")).predict_topk(
        classifier.transforms_.apply(X), 2, probabilities=True
    )
    expected = np.sort(classifier.predict_proba(X), axis=1)[:, ::-1][:, :2]
    np.testing.assert_allclose(p, expected, rtol=1e-6)
    np.testing.assert_array_equal(labels[:, 0], classifier.predict(X))


def test_flags_that_do_not_fit_each_other_are_named(xmcjax, classes, tmp_path):
    train = ("train", "--train", classes / "train.txt", "--model", tmp_path / "m", "--system")
    waves = ("--kernel", "linear", "--rank", 4, "--approximation", "fourier")
    xmcjax(*train, "kernel", *waves).refused("expected an RBF or Matern kernel")
    xmcjax(*train, "kernel", "--kernel", "linear", "--w", 1).refused("error: --w: expected None")
    xmcjax(*train, "top-k", "--k", 9).refused("error: --k: expected at most 4")
    xmcjax(*train, "multiclass", "--random-state", -1).refused("--random-state: expected at least 0, got -1")
    assert not (tmp_path / "m").exists()


def test_a_place_that_cannot_be_written_is_refused_before_training(xmcjax, classes, tmp_path, monkeypatch):
    def never(*arguments):
        raise AssertionError

    monkeypatch.setattr(library.MulticlassSVC, "fit", never)
    (tmp_path / "file").touch()
    train = ("train", "--system", "multiclass", "--train", classes / "train.txt", "--model")
    xmcjax(*train, tmp_path / "file" / "m").refused("file")
    with reserved(tmp_path / "held"):
        xmcjax(*train, tmp_path / "held").refused("expected no other writer, found one at work")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_model_that_is_loaded_and_saved_is_the_same(trained, contents, tmp_path, system):
    kind_of(system).load(trained(system)).save(tmp_path / "m")
    if system != "one-vs-all":  # to which a classifier adds its arguments
        assert contents(tmp_path / "m") == contents(trained(system))
        return
    model, again = LinearModel.load(trained(system)), LinearModel.load(tmp_path / "m")
    assert again.meta["data"] == model.meta["data"]
    more = library.OneVsAllClassifier.load(tmp_path / "m")
    Y = np.zeros((12, LABELS + 1))
    Y[::2, ABSENT] = Y[1::2, LABELS] = 1
    more.partial_fit(np.eye(12), Y).save(tmp_path / "more")
    assert "data" not in LinearModel.load(tmp_path / "more").meta


def test_two_features_of_one_name_keep_their_weights(xmcjax, trained, tmp_path):
    (tmp_path / "words.txt").write_text("a\n" * 12)
    inspect = ("inspect", "--model", trained("multinomial"), "--label", 1, "--json")
    told = json.loads(xmcjax(*inspect, "--vocabulary", tmp_path / "words.txt").done().out)
    weights = [entry["weight"] for entry in told["largest_weights"]["1"]["weights"]]
    assert len(weights) == 10 and sorted(map(abs, weights), reverse=True) == list(map(abs, weights))


def test_the_classes_of_an_estimator_are_shown(xmcjax, classes, tmp_path):
    X, Y = load_xmc(classes / "train.txt")
    y = np.array(list("abcdef"))[np.asarray(Y.argmax(axis=1)).ravel()]
    for system in ("multinomial", "kernel"):
        kind_of(system)().fit(X, y).save(tmp_path / system)
        told = json.loads(xmcjax("inspect", "--model", tmp_path / system, "--json").done().out)
        assert told["classes"]["names"] == list("abcef")
        predict = ("predict", "--model", tmp_path / system, "--data", classes / "test.txt")
        told = json.loads(xmcjax(*predict, "--out", tmp_path / "out.txt", "--json").done().out)
        assert told["classes"] == {"numbered": False}


@pytest.mark.parametrize("command", ["index", "merge"])
def test_commands_of_linear_models_say_so(xmcjax, trained, tmp_path, command):
    given = {"index": ("--model", trained("kernel"))}
    given["merge"] = ("--parts", trained("kernel"), "--model", tmp_path / "m")
    xmcjax(command, *given[command]).refused("expected a linear model, found one of the system kernel")


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "one-vs-all"])
def test_statistics_of_a_joint_fit(xmcjax, classes, tmp_path, system):
    path, directory, page = tmp_path / "fit.jsonl", tmp_path / "m", tmp_path / "r.html"
    given = ("train", "--system", system, "--train", classes / "train.txt", "--model", directory)
    xmcjax(*given, "--stats", directory / "fit.jsonl").refused("--stats: expected a file outside the model")
    xmcjax(*given, "--stats", path).done()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    told = {"multiclass": "gap", "top-k": "gap"}.get(system, "objective")
    assert all(row["run"] == row["fit"] == 0 for row in rows)
    assert rows[-1][told] < rows[0][told] and rows[-1]["passes"] > rows[0]["passes"]
    before = path.read_bytes()
    xmcjax(*given[:-1], tmp_path / "other", "--stats", path).refused(
        f"{path}: expected a new file for --stats, found one (nothing was changed)"
    )
    xmcjax(*given, "--stats", path, "--resume").done()  # the model is complete
    assert path.read_bytes() == before
    pytest.importorskip("matplotlib")
    xmcjax("report", "--model", directory, "--stats", path, "--out", page).done()
    assert "Progress of the fit" in page.read_text() and "by passes</figcaption>" in page.read_text()
    path.write_text("")
    xmcjax("report", "--model", directory, "--stats", path, "--out", page).refused(
        "--stats: expected the progress of a training"
    )


def test_statistics_of_a_run_that_goes_on(xmcjax, classes, tmp_path):
    path, directory = tmp_path / "fit.jsonl", tmp_path / "m"
    given = ("train", "--system", "kernel", "--train", classes / "train.txt", "--model", directory)
    given = (*given, "--stats", path)
    assert xmcjax(*given, "--timeout", 1e-9).code == 75
    first = [json.loads(line)["run"] for line in path.read_text().splitlines()]
    assert first and set(first) == {0}
    xmcjax(*given, "--resume").done()
    assert [json.loads(line)["run"] for line in path.read_text().splitlines()][len(first) :] >= [1]
