"""Models of other programs: what is written is read by a parser of the format that shares no code with ours,
and by the program itself where it is installed."""

import re
import shutil
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.foreign_models import HAS_ONNX, ROWS, D, best, model_of
from xmcjax.data import DataFormatError, fit_transforms, load_scipy_npz
from xmcjax.estimators import MulticlassSVC, MultinomialLogisticRegression, OneVsAllClassifier
from xmcjax.models import (
    EXCHANGES,
    IMPORTS,
    Calibration,
    ModelError,
    Names,
    decision_function,
    export_model,
    import_model,
    write_calibration,
)
from xmcjax.solvers import Status

RNG = np.random.default_rng(2)


# LIBLINEAR


def liblinear_says(path, X) -> np.ndarray:
    """What LIBLINEAR predicts with a model, by its format (`predict_values`)."""
    head, _, rest = path.read_text().partition("\nw\n")
    fields = dict(line.split(" ", 1) for line in head.splitlines())
    classes = [int(c) for c in fields["label"].split()]
    assert len(classes) == int(fields["nr_class"])
    W = np.array([[float(w) for w in line.split()] for line in rest.strip().splitlines()])
    bias = float(fields["bias"])
    assert len(W) == int(fields["nr_feature"]) + (bias >= 0)
    if bias >= 0:
        X = np.hstack([X, np.full((len(X), 1), bias)])
    scores = X @ W
    if len(classes) == 2 and fields["solver_type"] != "MCSVM_CS":
        assert W.shape[1] == 1
        return np.where(scores[:, 0] > 0, *classes)
    assert W.shape[1] == len(classes)
    return np.array(classes)[scores.argmax(axis=1)]


def liblinear_predicts(path, X) -> np.ndarray | None:
    """What LIBLINEAR's own program predicts; None where it is not installed."""
    program = shutil.which("liblinear-predict")
    if program is None:
        return None
    rows = (" ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row) if v) for row in X)
    (path.parent / "rows").write_text("".join(f"1 {row}\n" for row in rows))
    out = path.parent / "said"
    subprocess.run([program, "-q", path.parent / "rows", path, out], check=True, timeout=60)
    return np.array([int(line) for line in out.read_text().split()])


def agrees_with_liblinear(model, path) -> None:
    said = liblinear_says(path, ROWS)
    assert np.array_equal(said, best(model, ROWS)) and len(set(said.tolist())) > 1
    peer = liblinear_predicts(path, ROWS)
    assert peer is None or np.array_equal(peer, said)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_liblinear_predicts_as_the_model_does(tmp_path, weights, dtype):
    model = model_of(tmp_path / "m", weights[0].astype(dtype), weights[1])
    assert export_model(model, tmp_path / "out", "liblinear") == []
    agrees_with_liblinear(model, tmp_path / "out")
    back = import_model(tmp_path / "out", tmp_path / "back", "liblinear")
    assert (back.coef() != model.coef().astype(np.float64)).nnz == 0
    assert np.array_equal(back.intercept(), model.intercept())
    agrees_with_liblinear(back, tmp_path / "out")


SYSTEMS = {
    "squared hinge": (OneVsAllClassifier(), "L2R_L2LOSS_SVC", None),
    "logistic": (OneVsAllClassifier(loss="logistic"), "L2R_LR", "one_of"),
    "Crammer and Singer": (MulticlassSVC(formulation="cs"), "MCSVM_CS", None),
    "multinomial": (MultinomialLogisticRegression(), "MCSVM_CS", None),
}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("classes", [[7, -3], [30, -2, 5]])
def test_every_system_with_two_classes_and_with_three(tmp_path, name, classes):
    classifier, solver, _ = SYSTEMS[name]
    y = np.array(classes)[np.argmax(ROWS[:, : len(classes)], axis=1)]
    classifier.fit(ROWS, y).save(tmp_path / "m")
    export_model(tmp_path / "m", tmp_path / "out", "liblinear")
    said = liblinear_says(tmp_path / "out", ROWS)
    assert np.array_equal(said, classifier.predict(ROWS))
    peer = liblinear_predicts(tmp_path / "out", ROWS)
    assert peer is None or np.array_equal(peer, said)
    # with two classes one weight for each feature, which the solver of Crammer and Singer has not
    two = len(classes) == 2
    assert (
        f"solver_type {'L2R_L2LOSS_SVC' if two and solver == 'MCSVM_CS' else solver}\n"
        in (tmp_path / "out").read_text()
    )
    back = import_model(tmp_path / "out", tmp_path / "back", "liblinear")
    assert np.array_equal(best(back, ROWS), said)


TEXTS = {
    "three classes in another order": (
        "solver_type L2R_LR\nnr_class 3\nlabel 30 -2 5\nnr_feature 2\nbias -1\nw\n1 0 -1 \n0 2 1e-3 \n",
        [[0, 2], [-1, 1e-3], [1, 0]],
        [0, 0, 0],
        [-2, 5, 30],
        ("one-vs-all", "one_of"),
    ),
    "two classes": (
        "solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 2\nlabel -1 1\nnr_feature 2\nbias 2\nw\n1 \n-3\n0.5 \n",
        [[1, -3], [-1, 3]],
        [1, -1],
        [-1, 1],
        ("one-vs-all", None),
    ),
    "two classes, logistic": (
        "solver_type L1R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias -1\nw\n2 \n",
        [[-2], [2]],
        [0, 0],
        [-1, 1],
        ("one-vs-all", "sigmoid"),
    ),
    "two classes of Crammer and Singer": (
        "solver_type MCSVM_CS\nnr_class 2\nlabel 4 3\r\nnr_feature 1\nbias 1\r\nw\n2 5 \n+1.5e0 -.5 \n\n",
        [[1.5], [-1.5]],  # half the difference: a model of two classes has opposite scores
        [-1, 1],
        [3, 4],
        ("multiclass", None),
    ),
    "one class": (
        "solver_type MCSVM_CS\nnr_class 1\nlabel 0\nnr_feature 1\nbias -1\nw\n2\n",
        [[2]],
        [0],
        [0],
        ("multiclass", None),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_files_of_liblinear(tmp_path, name):
    text, W, bias, classes, kind = TEXTS[name]
    (tmp_path / "in").write_text(text)
    model = import_model(tmp_path / "in", tmp_path / "m", "liblinear")
    assert model.dtype == np.float64 and model.coef().toarray().tolist() == W
    names = model.names().classes
    assert names is not None and names.tolist() == classes and model.intercept().tolist() == bias
    assert (model.meta["system"], model.meta["link"]) == kind
    kinds = {"one-vs-all": OneVsAllClassifier, "multiclass": MulticlassSVC}
    X = RNG.standard_normal((9, len(W[0])))
    if len(classes) > 1:
        classifier = kinds[kind[0]].load(tmp_path / "m")
        assert classifier.predict(X).tolist() == liblinear_says(tmp_path / "in", X).tolist()
    if kind[1]:
        # LIBLINEAR gives σ(z) of two classes, and σ(z) / Σ σ(z) of more (`predict_probability`)
        p = 1 / (1 + np.exp(-decision_function(model, X)))
        found = classifier.predict_proba(X)
        assert np.allclose(found, p / p.sum(axis=1, keepdims=True))


GOOD = "solver_type L2R_LR\nnr_class 3\nlabel 3 1 2\nnr_feature 2\nbias -1\nw\n1 2 3 \n4 5 6 \n"
BAD = [
    ("", ":1:1: expected a line 'w' before the weights, found the end of the file"),
    ("solver_type\n" + GOOD, ":1:13: expected a solver of classification, one of L2R_LR, "),
    (GOOD.replace("L2R_LR", "L2R_L2LOSS_SVR"), ":1:13: expected a solver of classification"),
    (GOOD.replace("L2R_LR", "ONECLASS_SVM"), ":1:13: expected a solver of classification"),
    (GOOD.replace("nr_class 3", "nr_class 0"), ":2:10: expected a whole number from 1 to"),
    (GOOD.replace("nr_class 3", "nr_class 2147483648"), ":2:10: expected a whole number from 1 to"),
    (GOOD.replace("nr_class 3", "nr_class 2147483647"), ":2: expected at most 44, as many as the file has"),
    (GOOD.replace("nr_class 3", "nr_class 4"), ":3:7: expected 4 classes as in 'nr_class', found 3"),
    (GOOD.replace("label 3 1 2", "label 3 1 3"), ":3:7: expected each class once, found 3 again"),
    (GOOD.replace("label 3 1 2", "label 3 1 x"), ":3:7: expected classes, whole numbers, found others"),
    (GOOD.replace("label 3 1 2", "label 3 1 2147483648"), ":3:7: expected classes of 32 bits"),
    (
        GOOD.replace("label 3 1 2\n", ""),
        ":5:1: expected a line 'label' before the weights, found none, as in",
    ),
    (GOOD.replace("nr_class 3\nlabel", "label"), ":2:1: expected a line 'nr_class' before the line 'label'"),
    (GOOD.replace("bias -1\n", ""), ":5:1: expected a line 'bias' before the weights, found none"),
    (GOOD.replace("bias -1", "bias nan"), ":5:6: expected a finite number, found 'nan'"),
    (
        GOOD.replace("bias -1", "bias 1"),
        ":9:1: expected 3 lines of weights, found the end of the file after 2",
    ),
    (
        GOOD.replace("bias", "rho"),
        ":5:1: expected a line of solver_type, nr_class, label, nr_feature, bias or",
    ),
    ("bias 1\n" + GOOD, ":6:1: expected each line of the header once, found 'bias' again"),
    (GOOD.replace("5", "x"), ":8:1: expected 3 weights, found others"),
    (GOOD.replace("5", "nan"), ":8:1: expected 3 weights, found others"),
    (GOOD.replace("5", "1_0"), ":8:1: expected 3 weights, found others"),
    (GOOD.replace("5", "1e999"), ":8:1: expected weights that float64 can hold, found larger ones"),
    (GOOD.replace(" 5", ""), ":8:1: expected 3 weights, found 2"),
    (GOOD.replace("5", "5 5"), ":8:1: expected 3 weights, found 4"),
    (GOOD + "7 8 9\n", ":9:1: expected 2 lines of weights, found one more line"),
    (GOOD.replace("6 \n", "6."), ":8:7: expected a line break after the last weight"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_text_that_is_no_model_of_liblinear(tmp_path, text, said):
    (tmp_path / "in").write_text(text)
    with pytest.raises(DataFormatError) as caught:
        import_model(tmp_path / "in", tmp_path / "m", "liblinear")
    assert str(caught.value).startswith(f"{tmp_path / 'in'}{said}"), caught.value
    assert not (tmp_path / "m").exists()


def test_labels_that_are_never_predicted(tmp_path, weights):
    status = [Status.CONVERGED, Status.NO_POSITIVES, Status.CONVERGED, Status.CONVERGED, Status.NONFINITE]
    W, bias = weights
    model = model_of(tmp_path / "m", W, np.where(np.isin(status, (4, 5)), 0, bias), status=status)
    told = export_model(model, tmp_path / "lib", "liblinear")
    assert told == ["2 labels that are never predicted are left out"]
    assert "nr_class 3\nlabel 0 2 3\n" in (tmp_path / "lib").read_text()
    agrees_with_liblinear(model, tmp_path / "lib")
    for format in ("dismec", "npz"):
        told = export_model(model, tmp_path / format, format)
        assert "2 labels that are never predicted have a bias of -1e+30" in told
        back = import_model(tmp_path / format, tmp_path / f"{format}-back", format, bias=1)
        assert back.status.tolist() == [1, 5, 1, 1, 5]
        assert np.array_equal(best(back, ROWS), best(model, ROWS))
    none = model_of(tmp_path / "none", W, 0 * bias, status=[Status.NO_POSITIVES] * 5)
    with pytest.raises(ValueError, match="expected a label that can be predicted, found none"):
        export_model(none, tmp_path / "out", "liblinear")
    assert not (tmp_path / "out").exists()


def test_two_labels_of_liblinear_are_told(tmp_path, weights):
    W, bias = weights
    model = model_of(tmp_path / "m", W[:2], bias[:2])
    (told,) = export_model(model, tmp_path / "lib", "liblinear")
    assert told == "of two labels the difference of the scores counts: of each row one is positive"
    opposite = model_of(tmp_path / "o", np.stack([-W[0], W[0]]), np.array([-bias[0], bias[0]]))
    assert export_model(opposite, tmp_path / "lib2", "liblinear") == []


def test_classes_that_liblinear_has_no_words_for(tmp_path, weights):
    for number, classes in enumerate((np.array(["a", "b", "c", "d", "e"]), np.arange(5) * 2**31)):
        names = Names(classes)
        model = model_of(tmp_path / f"m{number}", *weights, names=names)
        (told,) = export_model(model, tmp_path / "out", "liblinear")
        assert told == "classes are no whole numbers of 32 bits: labels in the file are their places"
        said = liblinear_says(tmp_path / "out", ROWS)
        assert np.array_equal(classes[said], best(model, ROWS))


_TWO = GOOD.replace("nr_class 3\nlabel 3 1 2", "nr_class 2\nlabel 1 2")
_W = sp.csr_matrix(np.float32([[1, 2], [-4, 1]]))


@pytest.mark.parametrize(
    ("format", "content", "bias"),
    [
        ("npz", -_W, 1e39),
        ("npz", _W, 1e38),  # one bias is −∞, as if the label were never predicted
        ("liblinear", _TWO.replace("bias -1", "bias 1e200").replace(_TWO[-14:], "1\n2\n1e200\n"), None),
        ("liblinear", _TWO.replace("L2R_LR", "MCSVM_CS").replace(_TWO[-14:], "1e308 -1e308\n1 2\n"), None),
    ],
)
def test_weights_and_biases_that_are_too_large_are_refused_before_anything_is_written(
    tmp_path, format, content, bias
):
    file = tmp_path / "in"
    if format == "npz":
        with open(file, "wb") as out:
            sp.save_npz(out, content)
    else:
        file.write_text(content)
    with pytest.raises(ModelError, match=r"in: expected weights and biases that float\d\d can hold, found"):
        import_model(file, tmp_path / "m", format, bias=bias)
    assert not (tmp_path / "m").exists()


# A matrix of scipy


def test_a_matrix_of_scipy(tmp_path, weights):
    model = model_of(tmp_path / "m", *weights)
    export_model(model, tmp_path / "W.npz", "npz")
    W = sp.load_npz(tmp_path / "W.npz")
    assert W.shape == (D + 1, 5)
    scores = np.hstack([ROWS, np.ones((50, 1))]) @ W.toarray()
    assert np.allclose(scores, decision_function(model, ROWS), atol=1e-6)
    back = import_model(tmp_path / "W.npz", tmp_path / "back", "npz", bias=1)
    assert (back.coef() != model.coef()).nnz == 0 and np.array_equal(back.intercept(), model.intercept())
    # as PECOS has them: CSC, and what is to be multiplied by the features as they are
    sp.save_npz(tmp_path / "V.npz", sp.csc_matrix(weights[0].T.astype(np.float64)))
    plain = import_model(tmp_path / "V.npz", tmp_path / "plain", "npz")
    assert plain.dtype == np.float64 and np.array_equal(plain.coef().toarray(), weights[0])
    sp.save_npz(tmp_path / "E.npz", sp.csr_matrix((0, 5)))
    with pytest.raises(
        ModelError, match=r"weights \[d, L\] of at least 1 features and one label, found \[0, 5"
    ):
        import_model(tmp_path / "E.npz", tmp_path / "e", "npz")


# All of them


def test_what_is_told_of_transforms(tmp_path, weights):
    fitted = fit_transforms("log,idf,unit", np.abs(ROWS))
    more = dict(transforms=list(fitted.names), arrays=dict(fitted.arrays))
    model = model_of(tmp_path / "m", *weights, **more)
    for format in ("liblinear", "dismec", "npz"):
        told = export_model(model, tmp_path / format, format)
        assert told[-1] == "the weights are for features after the transforms log,idf,unit"


@pytest.mark.parametrize("format", ["liblinear", "dismec", "npz"])
def test_what_is_told_of_classes_and_a_calibration(tmp_path, weights, format):
    calibration = "the calibration is left out: the file has scores and no probabilities"
    classes = "the classes are left out: labels in the file are their places"
    texts = "classes are no whole numbers of 32 bits: labels in the file are their places"
    for number, (names, expected) in enumerate(
        [
            (None, []),
            (np.arange(5), []),
            (np.arange(5) + 10, [] if format == "liblinear" else [classes]),
            (np.array(["a", "b", "c", "d", "e"]), [texts if format == "liblinear" else classes]),
        ]
    ):
        model = model_of(tmp_path / str(number), *weights, names=None if names is None else Names(names))
        bias = [note for note in export_model(model, tmp_path / "out", format) if "is the bias" in note]
        assert len(bias) == (format != "liblinear")
        assert export_model(model, tmp_path / "out", format) == bias + expected
        write_calibration(model.directory, Calibration.identity(5))
        told = export_model(model.directory, tmp_path / "out", format)
        assert told == [*bias, *expected, calibration]


def test_models_and_formats_that_there_are_not(tmp_path, weights):
    model = model_of(tmp_path / "m", *weights)
    with pytest.raises(ValueError, match="format: expected one of liblinear, dismec, npz, onnx, got 'pmml'"):
        export_model(model, tmp_path / "out", "pmml")
    with pytest.raises(ValueError, match="format: expected one of liblinear, dismec, npz, got 'onnx'"):
        import_model(tmp_path / "in", tmp_path / "b", "onnx")
    (tmp_path / "in").write_text(GOOD)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match=r"expected a new or empty directory, found thesis\.tex"):
        import_model(tmp_path / "in", tmp_path / "full", "liblinear")
    assert set(IMPORTS) < set(EXCHANGES)


def test_bytes_depend_on_the_model_alone(tmp_path, weights):
    model = model_of(tmp_path / "m", *weights)
    for format in ("liblinear", "dismec", "npz", *(["onnx"] if HAS_ONNX else [])):
        (tmp_path / format).mkdir()
        for name in ("a", "b"):
            export_model(model, tmp_path / format / name, format)
        one, two = ((tmp_path / format / name).read_bytes() for name in ("a", "b"))
        assert re.sub(rb"\bb\.weights", b"a.weights", two) == one
    assert load_scipy_npz(tmp_path / "npz" / "a").shape == (D + 1, 5)


def test_two_labels_of_many_keep_a_weight_each(tmp_path):
    # LIBLINEAR reads one weight per feature where there are two classes, but for Crammer and Singer
    X, y = RNG.normal(size=(60, 4)), RNG.integers(0, 2, 60)
    Y = np.zeros((60, 5))
    Y[np.arange(60), np.array([1, 4])[y]] = 1
    with pytest.warns(UserWarning, match="3 of 5 labels have no positive rows"):
        model = OneVsAllClassifier(clip=0).fit(X, Y)
    model.save(tmp_path / "m")
    export_model(tmp_path / "m", tmp_path / "two.txt", "liblinear")
    np.testing.assert_array_equal(liblinear_says(tmp_path / "two.txt", X), model.predict_topk(X, 1)[0][:, 0])
    back = import_model(tmp_path / "two.txt", tmp_path / "back", "liblinear")
    W, labels = back.coef().toarray(), model.predict_topk(X, 1)[0][:, 0]
    np.testing.assert_array_equal((X @ W.T + back.intercept()).argmax(axis=1), labels == 4)
