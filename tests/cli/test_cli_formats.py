"""Data, predictions and models in the formats of others, by the command line."""

import json
import re
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax import KernelLogisticClassifier, OneVsAllClassifier
from xmcjax.data import load_xmc, save_features, save_labels, save_npz, save_svmlight, save_xmc
from xmcjax.models import LinearModel, predict_topk, read_predictions

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


@pytest.fixture(scope="module")
def sources(tmp_path_factory, files):
    """The small data in every form: X and Y apart, and embeddings of the rows."""
    folder, rng = tmp_path_factory.mktemp("sources"), np.random.default_rng(0)
    P = rng.standard_normal((80, 7))
    for part in ("train", "test"):
        X, Y = load_xmc(files / f"{part}.txt")
        for suffix in ("npz", "txt"):
            save_features(folder / f"{part}_X.{suffix}", X)
            save_labels(folder / f"{part}_Y.{suffix}", Y)
        save_xmc(folder / f"{part}_one.txt", X, Y, one_based=True)
        save_features(folder / f"{part}_one_X.txt", X)
        save_npz(folder / f"{part}.npz", X, Y)
        save_features(folder / f"{part}_E.npy", (X @ P).astype(np.float32))
        save_labels(folder / f"{part}_y.npy", np.argmax(X @ P, axis=1))
        np.save(folder / f"{part}_Y.npy", Y.toarray().astype(np.int8))
    return folder


def trained(xmcjax, model, *arguments):
    return xmcjax("train", *arguments, "--model", model).done()


FORMS = {
    "scipy's npz": ("train_X.npz", "--labels-file", "train_Y.npz"),
    "text of matrices": ("train_X.txt", "--labels-file", "train_Y.txt"),
    "sparse features and dense labels": ("train_X.txt", "--labels-file", "train_Y.npy"),
    "our npz twice": ("train.npz", "--labels-file", "train.npz"),
    "text from 1 on": ("train_one.txt", "--one-based"),
    "formats by name": (
        *("train_X.txt", "--format", "matrix", "--labels-file", "train_one.txt"),
        *("--labels-format", "xmc"),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_model_does_not_depend_on_the_format(xmcjax, files, sources, tmp_path, contents, name):
    first, *more = FORMS[name]
    if name == "formats by name":
        save_xmc(sources / "train_one.txt", *load_xmc(files / "train.txt"))
    arguments = [sources / word if word.startswith("train") else word for word in more]
    trained(xmcjax, tmp_path / "a", "--train", files / "train.txt")
    trained(xmcjax, tmp_path / "b", "--train", sources / first, *arguments)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    if name == "formats by name":
        save_xmc(sources / "train_one.txt", *load_xmc(files / "train.txt"), one_based=True)


def test_embeddings_alone_and_beside_words(xmcjax, files, sources, tmp_path):
    E = np.load(sources / "test_E.npy")
    X = load_xmc(files / "test.txt")[0]
    labels = ("--labels-file", sources / "train_Y.npz")
    test = ("--test", sources / "test_E.npy", "--test-labels-file", sources / "test_Y.txt")
    said = trained(xmcjax, tmp_path / "E", "--train", sources / "train_E.npy", *labels, *test, "--json")
    found = json.loads(said.out)
    assert found["data"] == {"rows": 300, "features": 7, "labels": 30} and found["metrics"]["P"]["1"] > 0
    beside = ("--more-features", sources / "train_E.npy")
    test = ("--test", files / "test.txt", "--test-more-features", sources / "test_E.npy")
    trained(xmcjax, tmp_path / "XE", "--train", sources / "train_X.txt", *labels, *beside, *test)
    both = sp.csr_matrix(sp.hstack([X, sp.csr_matrix(E)]))
    for model, data, Z in (
        ("E", (sources / "test_E.npy",), E),
        ("XE", (files / "test.txt", "--more-features", sources / "test_E.npy"), both),
    ):
        wanted = predict_topk(LinearModel.load(tmp_path / model), Z, 5)
        for suffix in ("txt", "jsonl", "npz"):
            out = tmp_path / f"p.{suffix}"
            xmcjax("predict", "--model", tmp_path / model, "--data", *data, "--out", out).done()
            found = read_predictions(out)
            assert np.array_equal(found[0], wanted[0]) and np.array_equal(found[1], wanted[1])
    scores = sp.load_npz(tmp_path / "p.npz")
    assert scores.shape == (60, 30) and scores.nnz == 300


@pytest.mark.parametrize("system", ["multiclass", "multinomial", "top-k", "kernel"])
def test_every_system_takes_embeddings(xmcjax, sources, tmp_path, system):
    files = ("--train", sources / "train_E.npy", "--labels-file", sources / "train_y.npy")
    test = ("--test", sources / "test_E.npy", "--test-labels-file", sources / "test_y.npy")
    said = trained(xmcjax, tmp_path / "m", "--system", system, *files, *test, "--json")
    assert json.loads(said.out)["metrics"]["P"]["1"] > 50
    out = tmp_path / "p.npz"
    xmcjax("predict", "--model", tmp_path / "m", "--data", sources / "test_E.npy", "--out", out).done()
    best = read_predictions(out)[0][:, 0]
    assert (best == np.load(sources / "test_y.npy")).mean() > 0.5


def test_predictions_of_every_format_are_evaluated_alike(xmcjax, files, sources, model, tmp_path):
    data, found = ("--data", files / "test.txt"), []
    for name, format in (("p", "text"), ("p.jsonl", "auto"), ("p.npz", "auto"), ("q", "jsonl"), ("r", "npz")):
        out = tmp_path / name
        xmcjax("predict", "--model", model, *data, "--out", out, "--out-format", format).done()
        given = ("--predictions", out, "--predictions-format", format)
        apart = ("--data", sources / "test_X.npz", "--labels-file", sources / "test_Y.npz")
        found += [xmcjax("evaluate", *source, *given, "--json").done().out for source in (data, apart)]
    assert len(found) == 10 and len(set(found)) == 1
    train = ("--train", sources / "train_E.npy", "--train-labels-file", sources / "train_Y.txt")
    said = xmcjax("evaluate", *data, "--predictions", tmp_path / "p", *train, "--json").done()
    assert json.loads(said.out)["metrics"]["PSP"]["1"] > 0


def test_data_are_put_together_and_taken_apart(xmcjax, files, sources, tmp_path):
    apart = ("--data", sources / "train_X.npz", "--labels-file", sources / "train_Y.txt")
    xmcjax("convert", *apart, "--out", tmp_path / "both.txt").done()
    assert (tmp_path / "both.txt").read_bytes() == (files / "train.txt").read_bytes()
    both = ("--data", files / "train.txt")
    xmcjax("convert", *both, "--out", tmp_path / "X.npz", "--out-labels", tmp_path / "Y.txt").done()
    for name in ("X.npz", "Y.txt"):
        assert (tmp_path / name).read_bytes() == (sources / f"train_{name}").read_bytes()
    beside = (*both, "--more-features", sources / "train_E.npy")
    xmcjax("convert", *beside, "--out", tmp_path / "joined.npz").done()
    said = xmcjax("convert", "--data", tmp_path / "joined.npz", "--out", tmp_path / "j.txt", "--json").done()
    assert json.loads(said.out)["data"] == {"rows": 300, "features": 87, "labels": 30}
    assert json.loads(said.out)["written"]["bytes"] == (tmp_path / "j.txt").stat().st_size


def test_models_go_out_and_come_back(xmcjax, files, model, tmp_path):
    data = ("--data", files / "test.txt")
    xmcjax("predict", "--model", model, *data, "--out", tmp_path / "p").done()
    wanted, scores = read_predictions(tmp_path / "p")
    xmcjax("convert", *data, "--out", tmp_path / "unit.txt").done()
    earlier = tmp_path / "out.dismec.weights-900-999"  # of a model with more labels
    earlier.write_bytes(b"1:0.5\n")
    for format, more in (("liblinear", ()), ("dismec", ("--bias", 1)), ("npz", ("--bias", 1))):
        out, back = tmp_path / f"out.{format}", tmp_path / format
        said = xmcjax("export", "--model", model, "--out", out, "--format", format, "--json").done()
        said = json.loads(said.out)
        assert said["written"]["bytes"] == out.stat().st_size
        beside = sum(file.stat().st_size for file in tmp_path.glob(f"{out.name}.*") if file != earlier)
        assert said["written"].get("bytes_beside", 0) == beside and (beside > 0) == (format == "dismec")
        assert "the weights are for features after the transforms unit" in said["note"]
        xmcjax("import", "--source", out, "--model", back, "--format", format, *more, "--json").done()
        imported = LinearModel.load(back)
        X = LinearModel.load(model).transforms().apply(load_xmc(files / "test.txt")[0])
        labels, found = predict_topk(imported, X.astype(imported.dtype), 5)
        classes = imported.names().classes
        places = wanted if classes is None else np.searchsorted(classes, wanted)
        assert np.array_equal(labels, places) and np.allclose(found, scores, atol=1e-5)
        assert xmcjax("inspect", "--model", back).done().out.startswith("system      one-vs-all")


BAD = {
    "labels in no file": (
        "train",
        ("--train", "train_E.npy"),
        "train_E.npy: expected features and labels in one",
    ),
    "scipy's npz alone": (
        "train",
        ("--train", "train_X.npz"),
        "labels have a file of their own (--labels-file)",
    ),
    "other rows of labels": (
        "train",
        ("--train", "train_E.npy", "--labels-file", "test_Y.npz"),
        "test_Y.npz: expected 300 rows as in ",
    ),
    "other rows of text": (
        "train",
        ("--train", "train_E.npy", "--labels-file", "test_Y.txt"),
        "test_Y.txt:1: expected 300 rows as in ",
    ),
    "other rows beside": (
        "train",
        ("--train", "train.npz", "--more-features", "test_E.npy"),
        "test_E.npy: expected 300 rows as in ",
    ),
    "features as labels": (
        "train",
        ("--train", "train_E.npy", "--labels-file", "train_E.npy"),
        "train_E.npy: expected a label matrix of zeros and ones, found ",
    ),
    "other features": (
        "predict",
        ("--data", "test_E.npy"),
        "test_E.npy: expected 80 features as in ",
    ),
    "features beside that are too many": (
        "predict",
        ("--data", "test.npz", "--more-features", "test_E.npy"),
        "test.npz: expected 80 features as in ",
    ),
    "a matrix that is not said to be one": (
        "predict",
        ("--data", "test_X.txt"),
        "test_X.txt:1:6: expected a header 'n d L' with the number of labels L (--format matrix reads",
    ),
    "from 1 on, said of what is not": (
        "train",
        ("--train", "train_X.txt", "--labels-file", "train_Y.txt", "--one-based"),
        "80 (leave out one_based or --one-based for files that count from 0), found '0'",
    ),
    "from 1 on, of binary": (
        "train",
        ("--train", "train_X.npz", "--labels-file", "train_Y.npz", "--one-based"),
        "--one-based is for --format xmc or matrix",
    ),
    "columns of text": (
        "train",
        ("--train", "train_one.txt", "--label-column", "tags"),
        "--label-column is for --format parquet or arrow",
    ),
    "test labels without a test": (
        "train",
        ("--train", "train.npz", "--test-labels-file", "test_Y.npz"),
        "--test-labels-file needs --test, got none",
    ),
    "more test features without a test": (
        "train",
        ("--system", "multinomial", "--train", "train.npz", "--test-more-features", "test_E.npy"),
        "--test-more-features needs --test, got none",
    ),
    "training labels without training data": (
        "evaluate",
        ("--data", "test.npz", "--train-labels-file", "train_Y.npz"),
        "--train-labels-file needs --train, got none",
    ),
    "no such labels": (
        "train",
        ("--train", "train_X.npz", "--labels-file", "no_such.npz"),
        "expected a file, found none",
    ),
    "two files as one": (
        "convert",
        ("--data", "train.npz", "--out-labels", "Y.npz", "--out-format", "xmc"),
        "--out: expected one of npz, matrix, npy for a matrix alone, got xmc",
    ),
    "one file as two": (
        "convert",
        ("--data", "train.npz", "--out-format", "npy"),
        "for features and labels (--out-labels writes two files), got npy",
    ),
    "sparse features as dense": (
        "convert",
        ("--data", "train.npz", "--out-labels", "Y.npz", "--out-format", "npy"),
        "expected dense features to write npy, found sparse ones",
    ),
    "no model of LIBLINEAR": (
        "import",
        ("--source", "train_one.txt", "--format", "liblinear"),
        "train_one.txt:1:1: expected a line of solver_type, nr_class, label, nr_feature, bias or w, found",
    ),
    "no model of dismecpp": (
        "import",
        ("--source", "train_one.txt", "--format", "dismec"),
        "train_one.txt: expected a model of dismecpp in JSON, found ",
    ),
    "no weights": (
        "import",
        ("--source", "train.npz", "--format", "npz"),
        "train.npz: expected an npz file of scipy.sparse.save_npz, found one without a member 'data'",
    ),
    "a bias that is known": (
        "import",
        ("--source", "train.npz", "--format", "liblinear", "--bias", "1"),
        "bias: a file of liblinear says it itself, got 1.0",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_said_in_a_line(xmcjax, sources, files, model, tmp_path, name):
    command, words, said = BAD[name]
    arguments = [
        sources / word if "_" in word or word in ("train.npz", "test.npz") else word for word in words
    ]
    arguments = [tmp_path / word if word == "Y.npz" else word for word in arguments]
    (tmp_path / "top").write_text("0:1\n")
    others = {
        "train": ("--model", tmp_path / "m"),
        "predict": ("--model", model, "--out", tmp_path / "p"),
        "evaluate": ("--predictions", tmp_path / "top"),
        "convert": ("--out", tmp_path / "out"),
        "import": ("--model", tmp_path / "m"),
    }
    xmcjax(command, *others[command], *arguments).refused(said)
    left = {path.name for path in tmp_path.iterdir()}
    assert left - {"Y.npz"} == {"top"}


def test_outputs_that_would_replace_inputs(xmcjax, sources, tmp_path):
    apart = ("--data", sources / "train_X.npz", "--labels-file", sources / "train_Y.npz")
    for out in ("train_X.npz", "train_Y.npz"):
        xmcjax("convert", *apart, "--out", sources / out).refused(
            "--out: expected another file than the data"
        )
        both = ("--out", tmp_path / "X.npz", "--out-labels", sources / out)
        xmcjax("convert", *apart, *both).refused("--out-labels: expected another file than the data")
    same = ("--out", tmp_path / "X.npz", "--out-labels", tmp_path / "X.npz")
    xmcjax("convert", *apart, *same).refused("--out-labels: expected another file than the data")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_import_and_merge_name_the_flags(xmcjax, tmp_path):
    sp.save_npz(tmp_path / "W.npz", sp.csr_matrix(np.float32([[1, 0], [0, 1]])))
    of = ("import", "--source", tmp_path / "W.npz", "--model", tmp_path / "m")
    xmcjax(*of, "--format", "npz", "--bias", "nan").refused("--bias: expected a finite number, got nan")
    xmcjax(*of, "--format", "liblinear", "--bias", 1).refused("error: --bias: a file of liblinear says it")
    merge = ("merge", "--model", tmp_path / "m", "--parts")
    xmcjax(*merge).refused("error: --parts: expected at least one directory, got none")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("folder", ["sub", "sub/sub"])
def test_no_model_is_made_in_another_one(xmcjax, files, model, tmp_path, folder):
    shutil.copytree(model, tmp_path / "m")
    before = sorted(tmp_path.rglob("*"))
    place = tmp_path / "m" / folder
    sp.save_npz(tmp_path / "W.npz", sp.csr_matrix(np.float32([[1, 0], [0, 1]])))
    said = f"{place}: expected a directory outside other models, found one in {tmp_path / 'm'}"
    xmcjax("import", "--source", tmp_path / "W.npz", "--format", "npz", "--model", place).refused(said)
    xmcjax("train", "--train", files / "train.txt", "--model", place).refused(said)
    xmcjax("train", "--train", files / "train.txt", "--model", place, "--resume").refused(said)
    for estimator in (OneVsAllClassifier(), KernelLogisticClassifier()):
        with pytest.raises(ValueError, match=re.escape(said)):
            estimator.fit(np.eye(4), [0, 1, 0, 1]).save(place)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "W.npz"])
    (tmp_path / "m" / "manifest.json").write_text("{}")  # of another program
    xmcjax("import", "--source", tmp_path / "W.npz", "--format", "npz", "--model", place).done()


def test_a_model_that_is_not_linear(xmcjax, sources, tmp_path):
    files = ("--train", sources / "train_E.npy", "--labels-file", sources / "train_y.npy")
    trained(xmcjax, tmp_path / "m", "--system", "kernel", *files)
    export = ("export", "--model", tmp_path / "m", "--format", "npz")
    xmcjax(*export, "--out", tmp_path / "W.npz").refused(
        "expected a linear model, found one of the system kernel"
    )
    xmcjax(*export, "--out", tmp_path / "m" / "W.npz").refused("--out: expected a file outside the model")


def test_an_output_does_not_replace_the_further_features(xmcjax, sources, files, tmp_path):
    (tmp_path / "E.npy").write_bytes(before := (sources / "test_E.npy").read_bytes())
    joined = ("--more-features", sources / "train_E.npy", "--train", files / "train.txt")
    trained(xmcjax, tmp_path / "m", *joined)
    predict = ("predict", "--model", tmp_path / "m", "--data", files / "test.txt")
    more = ("--more-features", tmp_path / "E.npy", "--out-format", "text")
    xmcjax(*predict, *more, "--out", tmp_path / "E.npy").refused("--out: expected another file than the data")
    assert (tmp_path / "E.npy").read_bytes() == before


def test_labels_are_not_replaced_where_features_are_refused(xmcjax, files, tmp_path):
    (tmp_path / "Y.txt").write_text("old")
    convert = ("convert", "--data", files / "test.txt", "--out", tmp_path / "X.npy")
    xmcjax(*convert, "--out-labels", tmp_path / "Y.txt").refused("expected dense features to write npy")
    assert (tmp_path / "Y.txt").read_text() == "old" and not (tmp_path / "X.npy").exists()


def test_lists_of_a_table_are_not_renumbered_in_silence(xmcjax, sources, files, tmp_path):
    pytest.importorskip("pyarrow")
    data = ("--data", files / "train.txt", "--out", tmp_path / "t.parquet")
    xmcjax("convert", *data).done()
    train = ("train", "--train", tmp_path / "t.parquet", "--model", tmp_path / "m", "--first-label", 1)
    xmcjax(*train).refused("--first-label is for classes and svmlight", "has lists that count from 0")


def test_a_matrix_too_wide_for_its_memory_is_no_model(xmcjax, tmp_path):
    sp.save_npz(tmp_path / "wide.npz", sp.csr_array((2, 2 * 10**9), dtype=np.float32))
    give = ("import", "--source", tmp_path / "wide.npz", "--model", tmp_path / "m", "--format", "npz")
    xmcjax(*give, "--max-memory", "100MB").refused("for 2,000,000,000 labels")


FOR_ONE_FILE = {
    "text that counts from 1": (("--train", "train_one.txt"), "train.npz", ("--one-based",)),
    "test data that count from 1": (("--train", "train.npz"), "train_one.txt", ("--one-based",)),
    "sizes of a table": (("--train", "t.parquet"), "train.npz", ("--n-labels", 30, "--n-features", 80)),
    "columns of a table": (
        ("--train", "train.npz"),
        "t.parquet",
        ("--feature-columns", "feature_indices", "feature_values"),
    ),
}


@pytest.mark.parametrize("name", FOR_ONE_FILE)
def test_an_option_for_one_file_of_several(xmcjax, files, sources, tmp_path, contents, name):
    first, test, options = FOR_ONE_FILE[name]
    if "t.parquet" in (*first, test):
        pytest.importorskip("pyarrow")
        xmcjax("convert", "--data", files / "train.txt", "--out", sources / "t.parquet").done()
    trained(xmcjax, tmp_path / "a", "--train", files / "train.txt")
    given = ("--train", sources / first[1], "--test", sources / test, *options)
    trained(xmcjax, tmp_path / "b", *given)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_truth_that_counts_from_1_beside_training_data_that_do_not(xmcjax, files, sources, model, tmp_path):
    out = tmp_path / "p.txt"
    xmcjax("predict", "--model", model, "--data", files / "test.txt", "--out", out).done()
    evaluate = ("evaluate", "--predictions", out, "--train", sources / "train.npz", "--data")
    wanted = xmcjax(*evaluate, files / "test.txt").done().out
    assert xmcjax(*evaluate, sources / "test_one.txt", "--one-based").done().out == wanted


def test_the_first_label_of_svmlight_beside_lists_that_count_from_0(xmcjax, files, sources, tmp_path):
    X, Y = load_xmc(files / "train.txt")
    save_svmlight(tmp_path / "from_1.svm", X, sp.hstack([sp.csr_matrix((Y.shape[0], 1)), Y]).tocsr())
    svmlight = ("--labels-file", tmp_path / "from_1.svm", "--labels-format", "svmlight", "--multilabel")
    train = ("train", "--train", sources / "train.npz", *svmlight, "--first-label", 1, "--n-labels", 30)
    for test in (files / "train.txt", sources / "train.npz"):
        said = xmcjax(*train, "--model", tmp_path / test.suffix, "--test", test, "--json").done()
        assert json.loads(said.out)["metrics"]["P"]["1"] > 50
    lists = ("train", "--train", sources / "train.npz", "--model", tmp_path / "m", "--first-label", 1)
    xmcjax(*lists).refused("--first-label is for classes and svmlight", "has lists that count from 0")


def test_an_option_for_no_file_names_files_and_formats(xmcjax, files, sources, tmp_path):
    train = ("train", "--model", tmp_path / "m", "--train", sources / "train.npz", "--test")
    xmcjax(*train, files / "test.txt", "--zero-based").refused(
        f"--zero-based is for --format svmlight: {sources / 'train.npz'} is npz and",
        f"{files / 'test.txt'} is xmc",
    )
    xmcjax(*train, sources / "test.npz", "--n-labels", 9).refused("--n-labels is for labels in svmlight, par")
    pytest.importorskip("pyarrow")
    xmcjax("convert", "--data", files / "train.txt", "--out", sources / "t.parquet").done()
    xmcjax(*train, sources / "t.parquet", "--n-labels", 9).refused("--n-labels: expected 30 for ", ", got 9")


def test_an_option_for_a_kind_of_file_that_is_not_there(xmcjax, files, sources, model, tmp_path):
    data, out = files / "test.txt", tmp_path / "out"
    train = ("train", "--train", data, "--model", out)
    for command in (train, ("predict", "--model", model, "--data", data, "--out", out)):
        for flag, what in (("--labels-format", "labels alone"), ("--more-format", "more features")):
            xmcjax(*command, flag, "npz").refused(f"{flag} is for a file of {what}, got none")
    lists = ("--labels-file", sources / "train_Y.npz", "--train", sources / "train_X.npz")
    xmcjax(*train[:1], *lists, *train[3:], "--labels-format", "npz").done()
    shape = ("plan", "--shape", "2000,300,20000,3000", "--n-jobs", 1)
    xmcjax(*shape, "--format", "npz").refused("--format is for data files, got none")


def test_the_number_of_labels_is_for_lists_in_files_that_do_not_state_it(xmcjax, sources, tmp_path):
    rows, labels, classes = tmp_path / "t.svm", sources / "train_Y.npz", tmp_path / "c.parquet"
    X, Y = load_xmc(sources / "train_one.txt", one_based=True)
    save_svmlight(rows, X, Y)
    train = ("train", "--model", tmp_path / "m", "--n-labels", 30, "--train")
    of_svmlight = ("--format", "svmlight", "--labels-file", labels)
    said = "--n-labels is for labels in svmlight, parquet or arrow, which do not state how many"
    for lists in ((), ("--multilabel",)):
        assert xmcjax(*train, rows, *of_svmlight, *lists).refused(said).endswith(f": {labels} is npz")
    pytest.importorskip("pyarrow")
    save_npz(tmp_path / "y.npz", X, np.arange(X.shape[0]) % 6)
    xmcjax("convert", "--data", tmp_path / "y.npz", "--out", classes).done()
    said = f"--n-labels is for lists of labels, {classes} has a class for each row"
    for system in ("one-vs-all", "multiclass", "kernel"):
        xmcjax(*train, classes, "--system", system).refused(said)
        xmcjax(*train, classes, "--system", system, "--test", classes).refused(said)
    xmcjax("convert", "--data", classes, "--out", tmp_path / "c.npz", "--n-labels", 30).refused(said)
    assert not (tmp_path / "m").exists() and not (tmp_path / "c.npz").exists()


def test_predict_does_not_look_at_labels(xmcjax, files, model, tmp_path):
    X, Y = load_xmc(files / "test.txt")
    rows = tmp_path / "rows.svm"
    save_svmlight(rows, X, Y)
    predict = ("predict", "--model", model, "--format", "svmlight", "--out")
    xmcjax(*predict, tmp_path / "lists", "--data", rows).done()
    rows.write_text("".join(f" {line.partition(' ')[2]}\n" for line in rows.read_text().splitlines()))
    xmcjax(*predict, tmp_path / "none", "--data", rows).done()
    xmcjax("predict", "--model", model, "--data", files / "test.txt", "--out", tmp_path / "xmc").done()
    assert len({(tmp_path / name).read_bytes() for name in ("lists", "none", "xmc")}) == 1
    rows.write_text("1,2 1:1\n")
    train = ("train", "--train", rows, "--format", "svmlight", "--model", tmp_path / "new")
    xmcjax(*train).refused("lists of labels are read with multilabel or --multilabel")


@pytest.mark.parametrize("name", ["test_X.txt", "test.npz", "test_one.txt"])
def test_predict_reads_no_labels_that_a_first_one_could_be_of(xmcjax, files, sources, model, tmp_path, name):
    predict = ("predict", "--model", model, "--first-label", 1)
    more = {"test_X.txt": ("--format", "matrix"), "test_one.txt": ("--one-based",)}.get(name, ())
    xmcjax(*predict, "--data", sources / name, "--out", tmp_path / "p.txt", *more).done()
    xmcjax(*predict, "--data", files / "test.txt", "--out", tmp_path / "q.txt").done()
    assert (tmp_path / "p.txt").read_bytes() == (tmp_path / "q.txt").read_bytes()
