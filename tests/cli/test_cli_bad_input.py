"""Bad input: exit status 2, one line on stderr that says where and what, nothing written."""

import builtins
import errno
import gzip
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from jax.errors import JaxRuntimeError

from tests.support.commands import run_apart
from tests.support.internals import SYSTEMS, device_memory
from xmcjax import linops
from xmcjax.cli.main import COMMANDS
from xmcjax.cli.predict import read_features

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


@pytest.fixture
def ask(xmcjax, tmp_path, model):
    """Runs a command on a file of data, with outputs m, p and d.npz in the folder of the test."""
    others = {
        "train": ("--model", tmp_path / "m", "--train"),
        "predict": ("--model", model, "--out", tmp_path / "p", "--data"),
        "evaluate": ("--predictions", tmp_path / "top.txt", "--data"),
        "convert": ("--out", tmp_path / "d.npz", "--data"),
    }
    return lambda name, path, *more: xmcjax(name, *others[name], path, *more)


# name: content of the file, and what the line must hold beside its name
WRONG_TEXT = {
    "empty file": ("", ":1:1: expected a header 'n d L'"),
    "wrong header": ("3 4\n0 1:1\n", ":1:4: expected a header 'n d L' with "),
    "letters in the header": ("a b c\n", ":1:1: expected a header 'n d L' with ", "found 'a'"),
    "letters": ("1 4 2\n0 1:abc\n", ":2:5: expected ", "'abc'"),
    "nan": ("1 4 2\n0 1:nan\n", ":2:5: expected ", "'nan'"),
    "feature out of range": ("1 4 2\n0 4:1\n", ":2:3: expected ", "'4'"),
    "label out of range": ("1 4 2\n2 3:1\n", ":2:1: expected ", "'2'"),
    "fewer rows than the header says": ("3 4 2\n0 1:1\n", ":3:1: expected 3 rows as in the header"),
    "svmlight": (
        "1 3:0.5\n",
        ":1:3: expected a header 'n d L' with ",
        "--format svmlight reads files without",
    ),
    "no rows": ("0 4 2\n", ":1: expected at least one row, feature and label"),
    "no labels": ("1 4 0\n 1:1\n", ":1: expected at least one row, feature and label"),
}


@pytest.mark.parametrize("name", WRONG_TEXT)
def test_text_that_breaks_its_format(ask, tmp_path, name):
    content, *parts = WRONG_TEXT[name]
    path = tmp_path / "data.txt"
    path.write_text(content)
    (tmp_path / "top.txt").write_text("0:1\n")
    # labels are not needed to predict, where sizes are compared first; an empty set can be converted
    for command in ("train", "evaluate", *(("predict", "convert") if not name.startswith("no ") else ())):
        ask(command, path).refused(path, *parts)
    assert {p.name for p in tmp_path.iterdir()} == {"data.txt", "top.txt"}


def test_a_truncated_archive(ask, tmp_path, files):
    ask("convert", files / "train.txt").done()
    packed = gzip.compress((files / "train.txt").read_bytes())
    for name, whole in (("t.txt.gz", packed), ("t.npz", (tmp_path / "d.npz").read_bytes())):
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        ask("train", tmp_path / name).refused(f"{tmp_path / name}:")
    assert not (tmp_path / "m").exists()


def test_what_is_no_file(ask, xmcjax, tmp_path, files, model):
    for path, text in (
        (tmp_path / "none.txt", "expected a file, found none"),
        (tmp_path, "found a directory"),
    ):
        for command in ("train", "predict"):
            ask(command, path).refused(f"{path}: ", text)
        ask("train", files / "train.txt", "--test", path).refused(f"{path}: ", text)
        xmcjax("evaluate", "--data", files / "test.txt", "--predictions", path).refused(f"{path}: ", text)
    predict = ("predict", "--data", files / "test.txt")
    xmcjax(*predict, "--model", model, "--out", tmp_path).refused(f"{tmp_path}: expected a file")
    none = ("--model", tmp_path / "none", "--out", tmp_path / "p")
    xmcjax(*predict, *none).refused("none: expected a model, found no manifest.json")
    file = files / "train.txt"
    result = xmcjax("train", "--train", file, "--model", file)
    result.refused(f"{file}: expected a directory, found a file")
    assert list(tmp_path.iterdir()) == []


def test_no_permission(ask, tmp_path, files, monkeypatch):
    # The superuser that tests may run as is refused nothing: the system's answer is put in its mouth.
    real = builtins.open

    def no_entry(path, *arguments, **options):
        if str(path) == str(files / "train.txt"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(builtins, "open", no_entry)
    ask("train", files / "train.txt").refused(f"{files / 'train.txt'}: permission denied")
    assert not (tmp_path / "m").exists()


def test_a_directory_with_other_files_is_left_alone(ask, tmp_path, files):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.tex").write_text("precious")
    said = "expected a new or empty directory, found thesis.tex"
    ask("train", files / "train.txt").refused(tmp_path / "m", said)
    ask("train", files / "train.txt", "--resume").refused(tmp_path / "m", "thesis.tex")
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["thesis.tex"]


def test_a_damaged_model(xmcjax, tmp_path, files, model):
    copy = tmp_path / "m"
    predict = ("predict", "--model", copy, "--data", files / "test.txt", "--out", tmp_path / "p")
    for name in ("manifest.json", "shard-000000.safetensors"):
        shutil.copytree(model, copy)
        raw = bytearray((copy / name).read_bytes())
        raw[len(raw) // 2] ^= 1
        for damaged in (raw, raw[:-3]):
            (copy / name).write_bytes(damaged)
            xmcjax(*predict).refused(copy / name, "expected ")
        (copy / name).unlink()
        xmcjax(*predict).refused(name if "shard" in name else copy, "expected a ")
        shutil.rmtree(copy)
    assert not (tmp_path / "p").exists()


def test_files_that_do_not_fit_each_other(ask, tmp_path, files, model):
    wide, train = tmp_path / "wide.txt", files / "train.txt"
    wide.write_text("1 81 30\n0 80:1\n")
    ask("predict", wide).refused(f"{wide}:1: expected 80 features as in {model}, found 81")
    ask("train", train, "--test", wide).refused(f"{wide}:1: expected 80 features as in {train}")
    wide.write_text("1 80 31\n30 79:1\n")
    ask("train", train, "--test", wide).refused(f"{wide}:1: expected 30 labels as in {train}, found 31")
    svmlight = tmp_path / "s.txt"
    svmlight.write_text("1 80:1\n1 81:1\n")
    ask("predict", svmlight, "--format", "svmlight").refused(f"{svmlight}:2:3: expected ")
    assert {p.name for p in tmp_path.iterdir()} == {"wide.txt", "s.txt"}


def test_predictions_that_do_not_fit_the_data(ask, tmp_path, files):
    data, path = files / "test.txt", tmp_path / "top.txt"
    for content, text in (
        ("0:1\n" * 59, ":60: expected 60 lines, one per row of the data, found 59"),
        ("0:1\n" * 61, ":61: expected 60 lines, one per row of the data, found 61"),
        ("", ":1: expected 60 lines, one per row of the data, found 0"),
        ("0:1\n" * 59 + "30:1\n", f":60: expected labels below 30, the number in {data}, found 30"),
        ("0:1\n" * 59 + "1:x\n", ":60:1: expected label:score"),
        ("0:1\n" * 59 + "0:1", ":60:4: expected a line end"),
        ("\n" * 60, ": expected predictions, found none in any line"),
    ):
        path.write_text(content)
        ask("evaluate", data).refused(f"{path}{text}")


def test_fewer_predictions_than_asked_for_count_as_wrong(ask, tmp_path, files):
    path = tmp_path / "top.txt"
    rows = (files / "test.txt").read_text().splitlines()[1:]
    lists = [row.split(" ")[0].split(",")[0] or "0" for row in rows]
    path.write_text("".join(f"{label}:1\n" for label in lists))
    result = ask("evaluate", files / "test.txt").done()
    assert result.err == f"xmcjax: warning: {path} has at most 1 label a line: the others count as wrong\n"
    lines = result.out.splitlines()
    assert lines[1].split() == ["@1", "@3", "@5"]
    one, three, five = (float(value) for value in lines[2].split()[1:])
    assert one > 0 and abs(three - one / 3) < 0.01 and abs(five - one / 5) < 0.01


# Of the ranges of numbers a few: every option of training refuses what tests/test_options.py gives it.
OPTIONS = {
    ("--labels", "3:2"): "--labels: expected A:B with 0 <= A < B <= L, got '3:2'",
    ("--labels", "0:31"): "--labels: expected A:B with 0 <= A < B <= 30, got '0:31'",
    ("--labels", "5"): "--labels: expected A:B",
    ("--labels", "-1:5"): "--labels: expected A:B",
    ("--transform", "log,tf"): "a transform must be one of log, idf, ",
    ("--C", "0"): "--C: expected a finite number above 0, got 0.0",
    ("--C", "nan"): "--C: expected a finite number, got nan",
    ("--C", "1e-50"): "--C: expected a number from 1.18e-38 to 3.4e+38, the range of float32, got 1e-50",
    ("--C", "1e300"): "the range of float32, got 1e+300",
    ("--l1-ratio", "0.3"): "--l1-ratio is for --penalty elastic_net, got --penalty l2",
    ("--penalty", "elastic_net", "--l1-ratio", "0"): "--l1-ratio: expected 0 < l1_ratio <= 1, got 0.0",
    ("--timeout", "0"): "--timeout: expected seconds above 0, got 0.0",
    ("--timeout", "9", "--init", "ova_primal_pp"): "takes labels in the order of its tree",
    ("--propensities", "Amazon"): "--propensities Amazon needs --weighting, got none",
    ("--n-jobs", "0"): "--n-jobs: expected from 1 to 16384 threads, or -1 for one per core, got 0",
    ("--shard-size", "0"): "--shard-size: expected at least 1, got 0",
    ("--shard-size", "1" + "0" * 20): "--shard-size: expected at most 2147483647, got 1" + "0" * 20,
    (
        "--clip",
        "0",
        "--sparsify-rise",
        "0.1",
    ): "--clip: expected none beside --sparsify-rise, which takes its",
    ("--init", "multi_pos", "--ridge", "-1"): "--ridge: expected ridge > 0, got -1.0",
    ("--init", "multi_pos", "--max-positives", "-1"): "--max-positives: expected at least 0, got -1",
    ("--init", "zero", "--msi-s", "2"): "--msi-s is for --init mean_separating or multi_pos, got --init zero",
    ("--delta", "2"): "--delta is for --loss huber_hinge, got --loss squared_hinge",
    ("--loss", "huber_hinge", "--delta", "0"): "--delta: expected delta > 0, got 0.0",
    ("--penalty", "huber", "--huber-width", "0"): "--huber-width: expected 1e-6 <= huber_width <= 1e6, got 0",
    ("--init", "pretrained"): "init 'pretrained' needs the directory of a model, got none",
    ("--init", "bias", "--no-fit-intercept"): "init 'bias' needs a bias: expected fit_intercept",
    ("--no-fit-intercept", "--no-regularise-intercept"): "--no-regularise-intercept needs an intercept, got",
    ("--eps=0.1",): "the flag --eps is now --tol",
    ("--bias", "none"): "the flag --bias is now --no-fit-intercept in place of none, and --no-regularise-",
    ("--multilabel",): "--multilabel is for --format svmlight",
    ("--first-label", "1"): "--first-label is for svmlight files and classes: ",
    ("--n-features", "80"): "--n-features is for --format svmlight",
    ("--propensities", "eurlex-5k"): "--propensities: expected one of default, Amazon, ",
}


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_options_that_cannot_be_meant(ask, tmp_path, files, options):
    ask("train", files / "train.txt", *options).refused(OPTIONS[options])
    assert list(tmp_path.iterdir()) == []


def test_a_pretrained_model_of_another_size(ask, tmp_path, model):
    other = tmp_path / "other.txt"
    other.write_text("2 5 2\n0 1:1\n1 2:1\n")
    result = ask("train", other, "--init", "pretrained", "--pretrained", model)
    result.refused(f"{model}: expected a model of 5 features and 2 labels, found 80 and 30")
    assert not (tmp_path / "m").exists()


def test_labels_that_are_no_counts(ask, tmp_path):
    data = tmp_path / "data.svm"
    data.write_text("3 1:1 2:1\n100000000 2:1 3:0.5\n3 1:2\n")
    said = (
        f"{data}: expected labels that count from 0, found numbers up to 100,000,000, of which 2 have a row"
    )
    ask("train", data, "--format", "svmlight").refused(f"{said}: number them anew")


def test_values_that_a_transform_cannot_take(ask, tmp_path):
    negative = tmp_path / "negative.txt"
    negative.write_text("3 5 2\n0 1:1\n0\n1 2:1 3:-2\n")
    said = f"{negative}: 'log' is for values that are not negative, got -2.0 in row 2, column 3"
    ask("train", negative, "--transform", "log").refused(said)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_test_file_that_a_transform_cannot_take_is_refused_before_training(ask, tmp_path, system):
    negative, train = tmp_path / "negative.txt", tmp_path / "train.txt"
    train.write_text("3 4 2\n0 1:1\n0\n1 2:1 3:2\n")
    negative.write_text("3 4 2\n0 1:1\n0\n1 2:1 3:-2\n")
    flags = ("--system", system, "--transform", "log", "--test")
    said = f"{negative}: 'log' is for values that are not negative, got -2.0 in row 2, column 3"
    ask("train", train, *flags, negative).refused(said)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "arguments",
    [("train",), ("train", "--trian", "x"), ("train", "--loss", "no"), ("predict", "--top-k", "many")],
)
def test_flags_that_cannot_be_read(xmcjax, arguments):
    result = xmcjax(*arguments)
    assert result.code == 2 and result.out == "" and "Traceback" not in result.err


def test_numbers_of_predict_and_evaluate(ask, tmp_path, files):
    test = files / "test.txt"
    ask("predict", test, "--top-k", 0).refused("--top-k: expected at least 1, got 0")
    ask("evaluate", test, "--k", 0).refused("--k: expected numbers from 1 on, got 0")
    ask("evaluate", test, "--k", 3, 1, 1).refused("--k: expected each number once, got 3 1 1")
    said = "--k: expected it once, with all of its values behind it, got it 2 times"
    ask("evaluate", test, "--k", 1, "--k=3").refused(said)
    twice = ("--feature-columns", "a", "--feature_columns", "b")
    ask("predict", test, *twice).refused("--feature-columns: expected it once, with all of its values")
    assert "(60 rows, 29 labels per row)" in ask("predict", test, "--top-k", 200).done().out
    lines = (tmp_path / "p").read_text().splitlines()
    assert {len(line.split()) for line in lines} == {29}  # the label without positives is not there
    assert np.all(np.isfinite([float(pair.split(":")[1]) for pair in lines[0].split()]))


def test_unknown_commands(xmcjax):
    for arguments in (("trian",), ()):
        result = xmcjax(*arguments)
        assert result.code == 2
        assert f"expected a command of {', '.join(COMMANDS)}, found" in result.err
        assert len(result.err.splitlines()) == 1


def test_the_traceback_is_there_for_those_who_ask(ask, tmp_path, monkeypatch):
    monkeypatch.setenv("XMCJAX_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        ask("train", tmp_path / "none")


SVMLIGHT = ("--format", "svmlight")
UNLABELLED = {
    "a header without labels": ("2 80 0\n 1:1\n 2:1\n", ()),
    "lists that are empty": (" 2:1\n 3:1\n", (*SVMLIGHT, "--multilabel")),
    "lists with other labels": ("0 2:1\n7 3:1\n", (*SVMLIGHT, "--multilabel", "--first-label", "1")),
    "class 0": ("0 2:1\n0 3:1\n", (*SVMLIGHT, "--first-label", "1")),
    "classes of both signs": ("-1 2:1\n+1 3:1\n", SVMLIGHT),
}


@pytest.mark.parametrize("name", UNLABELLED)
def test_labels_of_prediction_data_are_not_looked_at(ask, tmp_path, name):
    content, options = UNLABELLED[name]
    found = []
    for text, given in ((content, options), ("2 80 30\n0 1:1\n3 2:1\n", ())):
        (tmp_path / "d.txt").write_text(text)
        ask("predict", tmp_path / "d.txt", *given).done()
        found.append((tmp_path / "p").read_bytes())
    assert found[0] == found[1] != b""


def test_prediction_data_without_rows(ask, tmp_path):
    (tmp_path / "d.txt").write_text("0 80 0\n")
    ask("predict", tmp_path / "d.txt").refused(
        f"{tmp_path / 'd.txt'}:1: expected at least one row and feature"
    )


def test_an_output_that_would_replace_an_input(xmcjax, tmp_path, files, model):
    data = tmp_path / "d.txt"
    shutil.copy(files / "test.txt", data)
    before = data.read_bytes()
    (tmp_path / "link.txt").symlink_to(data)
    predict = ("predict", "--model", model, "--data", data, "--out")
    xmcjax(*predict, tmp_path / "link.txt").refused("--out: expected another file than the data")
    xmcjax(*predict, model / "p").refused("--out: expected a file outside the model")
    xmcjax("convert", "--data", data, "--out", data).refused("--out: expected another file than the data")
    assert data.read_bytes() == before and not (model / "p").exists()


def test_files_that_are_never_compressed(xmcjax, tmp_path, files, model):
    data = files / "test.txt"
    predict = ("predict", "--model", model, "--data", data, "--out")
    xmcjax(*predict, tmp_path / "p.gz").refused("--out: predictions are not compressed, expected no .gz")
    for name in ("p.bz2", "p.zst", "p.ZIP", "p.7z"):
        xmcjax(*predict, tmp_path / name).refused("--out: predictions are not compressed, expected no")
    report = ("report", "--model", model, "--out", tmp_path / "r.html.gz")
    xmcjax(*report).refused("--out: pages are not compressed, expected no .gz")
    export = ("export", "--model", model, "--format", "npz", "--out", tmp_path / "w.npz.xz")
    xmcjax(*export).refused("--out: models for other programs are not compressed, expected no .xz")
    source = ("import", "--source", tmp_path / "m.txt.gz", "--format", "liblinear", "--model", tmp_path / "m")
    xmcjax(*source).refused("--source: models of other programs are not compressed, expected no .gz")
    evaluate = ("evaluate", "--data", data, "--predictions")
    xmcjax(*evaluate, tmp_path / "p.xz").refused("--predictions: predictions are not compressed, expected no")
    held_out = ("--held-out", data, "--held-out-predictions", tmp_path / "p.gz")
    xmcjax(*evaluate, data, *held_out).refused("--held-out-predictions: predictions are not compressed")


@pytest.mark.parametrize("name", ["d.bz2", "d.txt.zst", "d.ZIP", "d.7z"])
def test_a_compression_that_is_not_written_is_refused(xmcjax, tmp_path, files, name):
    convert = ("convert", "--data", files / "test.txt")
    refusal = f"--out: expected no compression but .gz or .xz, got {Path(name).suffix}"
    xmcjax(*convert, "--out", tmp_path / name).refused(refusal)
    xmcjax(*convert, "--out", tmp_path / name, "--out-format", "svmlight").refused(refusal)
    two = ("--out", tmp_path / "X.txt", "--out-labels", tmp_path / name)
    xmcjax(*convert, *two).refused(refusal.replace("--out", "--out-labels"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["d.csv", "d.svm", "d.LIBSVM", "d.svmlight.gz"])
def test_a_name_that_promises_another_text_needs_the_format(xmcjax, tmp_path, files, name):
    convert = ("convert", "--data", files / "test.txt", "--out", tmp_path / name)
    xmcjax(*convert).refused("--out: expected --out-format, as the name promises no xmc text")
    assert not (tmp_path / name).exists()
    xmcjax(*convert, "--out-format", "svmlight").done()


def test_options_without_a_meaning(ask, tmp_path, files):
    classes, lists, first = tmp_path / "c.txt", tmp_path / "d.npz", ("--first-label", 1)
    classes.write_text("1 1:1\n2 2:1\n")
    said = "--first-label: convert renumbers svmlight --multilabel files"
    ask("convert", classes, *SVMLIGHT, *first).refused(said)
    ask("convert", files / "train.txt").done()
    ask("train", lists, *first).refused(f"--first-label is for classes and svmlight, {lists} has lists")
    ask("train", classes, *SVMLIGHT, "--n-labels", 7).refused(
        "--n-labels is for lists of labels: of svmlight"
    )
    of_kernel = ("--system", "kernel", "--approximation", "fourier")
    ask("train", classes, *SVMLIGHT, *of_kernel).refused("--approximation fourier needs --rank, got none")
    far = ("--first-label", 10**20)
    ask("train", classes, *SVMLIGHT, *far).refused("--first-label: expected a number of up to", 10**20)
    for preset, said in (("Wikipedia", "Wikipedia needs --train"), ("eurlex-5k", "EURLex-4K, ")):
        ask("evaluate", files / "test.txt", "--propensities", preset).refused(said)
    bins = ("--train", files / "train.txt", "--bins", 5, 10**20)
    ask("evaluate", files / "test.txt", *bins).refused("--bins: expected ascending numbers from 1 on", 10**20)


@pytest.mark.parametrize("platform", ["cuda", "nonsense"])
def test_a_platform_that_is_not_there(tmp_path, files, platform):
    """In a process of its own: JAX has begun on the CPU in this one."""
    models = {system: tmp_path / system for system in ("one-vs-all", "multinomial")}
    train = ("train", "--train", files / "train.txt")
    lines = [(*train, "--system", system, "--model", model) for system, model in models.items()]
    *refused, info = run_apart(*lines, ("info",), JAX_PLATFORMS=platform)
    for found, model in zip(refused, models.values(), strict=True):
        line = found.refused("JAX_PLATFORMS: expected platforms that this machine has, such as cpu, got")
        assert repr(platform) in line and not model.exists()
    assert "none: JAX_PLATFORMS: expected" in info.done().out and "cache" in info.out


def test_an_output_that_lacks_characters(tmp_path, files, model):
    odd = tmp_path / "vorhersage_ö.txt"
    predict = ("predict", "--model", model, "--data", files / "test.txt", "--out", odd)
    lines = (predict, ("inspect", "--model", model), ("train", "--help"))
    for found in run_apart(*lines, PYTHONIOENCODING="ascii"):
        assert found.done().out.isascii()
    assert odd.exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 TiB"),
        JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore"),
    ],
    ids=["host", "device"],
)
def test_too_little_memory(ask, files, monkeypatch, error):
    def full(*arguments, **options):
        raise error

    monkeypatch.setattr("xmcjax.cli.train.read_training", full)
    ask("train", files / "train.txt").refused("not enough memory: ")


@pytest.mark.parametrize(
    ("free", "flags", "said"),
    [
        (40, (), "one lane over 3 rows"),
        (100_000, ("--block-size", 5000), "block_size=5000 over 3 rows"),
        (30, ("--system", "top-k", "--solver", "admm"), "expected X to fit into the memory of "),
    ],
)
def test_too_little_memory_on_a_device(ask, tmp_path, monkeypatch, free, flags, said):
    train = tmp_path / "train.txt"
    train.write_text("3 4 2\n0 0:1\n1 1:2 3:1\n0 2:1\n")
    monkeypatch.setattr(device_memory, "free_memory", lambda device=None: free)
    monkeypatch.setattr(linops, "native_ready", lambda: False)
    ask("train", train, *flags).refused("not enough memory: ", said)
    assert not (tmp_path / "m").exists()


def test_too_few_threads(ask, files, monkeypatch):
    def none_left(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", none_left)
    ask("train", files / "train.txt").refused("not enough threads: can't start new thread")


@pytest.mark.parametrize("size", ["4", "0MB", "1TB", "-1GB", "GB", "0.0000001MB"])
def test_a_memory_that_is_no_size(ask, files, size):
    result = ask("convert", files / "train.txt", f"--max-memory={size}")
    result.refused(f"--max-memory: expected a size such as 500MB or 4GB, got '{size}'")


def test_memory_that_is_too_little(ask, files, tmp_path):
    train = files / "train.txt"
    ask("predict", train).done()
    (tmp_path / "p").rename(tmp_path / "top.txt")
    for command in ("convert", "train", "evaluate"):
        result = ask(command, train, "--max-memory", "0.01MB")
        result.refused("of memory (max_memory; --max-memory allows more), found about")
        ask(command, train, "--max-memory", "1.5GB").done()


@pytest.mark.parametrize("system", ["one-vs-all", "kernel"])
def test_rows_that_cannot_be_predicted_are_those_of_the_file(xmcjax, tmp_path, system, monkeypatch):
    train, data, model = tmp_path / "t.txt", tmp_path / "h.txt", tmp_path / "m"
    train.write_text("4 3 3\n0 0:1 1:2\n1 1:1\n2 2:1\n0 0:2\n")
    data.write_text("3 3 3\n 0:1\n 2:1\n 0:3e38 1:3e38 2:-3e38\n")
    flags = ("--C", 100) if system == "one-vs-all" else ()
    xmcjax("train", "--system", system, "--train", train, "--model", model, *flags).done()
    predict = ("predict", "--model", model, "--data", data, "--out", tmp_path / "p")
    where = "for label 0 in row 2" if system == "one-vs-all" else "which that of row 2 is not"
    said = {"one-vs-all": "expected finite scores, found ", "kernel": "expected rows whose squared norm is "}
    xmcjax(*predict).refused(f"error: {data}: {said[system]}", where)
    monkeypatch.setattr("xmcjax.cli.predict.read_features", rows_one_by_one)
    if system == "kernel":
        said, where = {system: f"after 2 rows: {said[system]}"}, "which that of row 0 is not"
    xmcjax(*predict).refused(f"error: {data}: {said[system]}", where)


def rows_one_by_one(*args, **options):
    """The rows of a file in pieces of one, as those of a long file come in larger ones."""
    for piece in read_features(*args, **options):
        yield from (piece[i : i + 1] for i in range(piece.shape[0]))
