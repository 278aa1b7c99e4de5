"""Bad input: exit status 2, one line on stderr that says where and what, nothing written."""

import builtins
import errno
import gzip
import os
import shutil

import numpy as np
import pytest

from tests.support.commands import refused
from xmcjax.models import LinearModel

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


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
def test_text_that_breaks_its_format(xmcjax, tmp_path, model, name):
    content, *parts = WRONG_TEXT[name]
    path = tmp_path / "data.txt"
    path.write_text(content)
    refused(xmcjax("train", "--train", path, "--model", tmp_path / "m"), path, *parts)
    if not name.startswith("no "):  # labels are not needed there, and sizes are compared first
        refused(xmcjax("predict", "--model", model, "--data", path, "--out", tmp_path / "p"), path, *parts)
    (tmp_path / "top.txt").write_text("0:1\n")
    refused(xmcjax("evaluate", "--data", path, "--predictions", tmp_path / "top.txt"), path, *parts)
    if not name.startswith("no "):  # an empty data set can be converted, not trained on
        refused(xmcjax("convert", "--data", path, "--out", tmp_path / "d.npz"), path, *parts)
    assert {p.name for p in tmp_path.iterdir()} == {"data.txt", "top.txt"}


def test_a_truncated_archive(xmcjax, tmp_path, files):
    for name, whole in (
        ("d.txt.gz", gzip.compress((files / "train.txt").read_bytes())),
        ("d.npz", npz_of(xmcjax, files, tmp_path)),
    ):
        path = tmp_path / name
        path.write_bytes(whole[: len(whole) // 2])
        refused(
            xmcjax("train", "--train", path, "--model", tmp_path / "m"), f"{path}:" if "gz" in name else path
        )
    assert not (tmp_path / "m").exists()


def npz_of(xmcjax, files, folder) -> bytes:
    out = folder / "whole.npz"
    assert xmcjax("convert", "--data", files / "train.txt", "--out", out).code == 0
    return out.read_bytes()


def test_what_is_no_file(xmcjax, tmp_path, files, model):
    for path, text in (
        (tmp_path / "none.txt", "expected a file, found none"),
        (tmp_path, "found a directory"),
    ):
        line = f"{path}: "
        refused(xmcjax("train", "--train", path, "--model", tmp_path / "m"), line, text)
        refused(
            xmcjax("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--test", path),
            line,
            text,
        )
        refused(xmcjax("predict", "--model", model, "--data", path, "--out", tmp_path / "p"), line, text)
        refused(xmcjax("evaluate", "--data", files / "test.txt", "--predictions", path), line, text)
    predict = ("predict", "--data", files / "test.txt")
    refused(xmcjax(*predict, "--model", model, "--out", tmp_path), f"{tmp_path}: expected a file")
    refused(
        xmcjax(*predict, "--model", tmp_path / "none", "--out", tmp_path / "p"),
        "none: expected a model, found no manifest.json",
    )
    file = files / "train.txt"
    refused(xmcjax("train", "--train", file, "--model", file), f"{file}: expected a directory, found a file")
    assert list(tmp_path.iterdir()) == []


def test_no_permission(xmcjax, tmp_path, files, monkeypatch):
    # The superuser that tests may run as is refused nothing: the system's answer is put in its mouth.
    real = builtins.open

    def no_entry(path, *arguments, **options):
        if str(path) == str(files / "train.txt"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(builtins, "open", no_entry)
    result = xmcjax("train", "--train", files / "train.txt", "--model", tmp_path / "m")
    refused(result, f"{files / 'train.txt'}: permission denied")
    assert not (tmp_path / "m").exists()


def test_a_full_disk(xmcjax, tmp_path, files, model, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "top.txt"
    out.write_text("what was there\n")
    monkeypatch.setattr(os, "fsync", full)
    predicted = xmcjax("predict", "--model", model, "--data", files / "test.txt", "--out", out)
    refused(predicted, out, "no space left on device")
    assert out.read_text() == "what was there\n"
    trained = xmcjax("train", "--train", files / "train.txt", "--model", tmp_path / "m")
    refused(trained, tmp_path / "m", "no space left on device")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["top.txt"]


def test_a_disk_that_fills_up_while_training(xmcjax, tmp_path, files, monkeypatch, contents):
    train = ("train", "--train", files / "train.txt", "--shard-size", 4, "--n-jobs", 2)
    assert xmcjax(*train, "--model", tmp_path / "whole").code == 0
    calls = 0

    def full_later(descriptor):
        nonlocal calls
        calls += 1
        if calls > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_later)
        refused(xmcjax(*train, "--model", tmp_path / "m"), tmp_path / "m", "no space left on device")
    stored = LinearModel.load(tmp_path / "m", partial=True)
    assert len(stored.missing()) > 0 and len(stored.coef().data) > 0
    assert xmcjax(*train, "--model", tmp_path / "m", "--resume").code == 0
    assert contents(tmp_path / "m") == contents(tmp_path / "whole")


def test_a_directory_with_other_files_is_left_alone(xmcjax, tmp_path, files):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.tex").write_text("precious")
    train = ("train", "--train", files / "train.txt", "--model", tmp_path / "m")
    refused(xmcjax(*train), tmp_path / "m", "expected a new or empty directory, found thesis.tex")
    refused(xmcjax(*train, "--resume"), tmp_path / "m", "thesis.tex")
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["thesis.tex"]


def test_a_damaged_model(xmcjax, tmp_path, files, model):
    copy = tmp_path / "m"
    predict = ("predict", "--model", copy, "--data", files / "test.txt", "--out", tmp_path / "p")
    for name in ("manifest.json", "shard-000000.safetensors"):
        shutil.copytree(model, copy)
        raw = bytearray((copy / name).read_bytes())
        raw[len(raw) // 2] ^= 1
        (copy / name).write_bytes(raw)
        refused(xmcjax(*predict), copy / name, "expected ")
        (copy / name).write_bytes(raw[:-3])
        refused(xmcjax(*predict), copy / name, "expected ")
        shutil.rmtree(copy)
    assert not (tmp_path / "p").exists()


def test_an_unfinished_model(xmcjax, tmp_path, files):
    train = ("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--shard-size", 10)
    assert xmcjax(*train).code == 0
    (tmp_path / "m" / "shard-000001.safetensors").unlink()
    predict = ("predict", "--model", tmp_path / "m", "--data", files / "test.txt", "--out", tmp_path / "p")
    refused(xmcjax(*predict), "shard-000001.safetensors: expected a file that the manifest names, found none")


def test_files_that_do_not_fit_each_other(xmcjax, tmp_path, files, model):
    wide = tmp_path / "wide.txt"
    wide.write_text("1 81 30\n0 80:1\n")
    data = ("--data", wide, "--out", tmp_path / "p")
    refused(
        xmcjax("predict", "--model", model, *data), f"{wide}:1: expected 80 features as in {model}, found 81"
    )
    train = ("train", "--train", files / "train.txt", "--model", tmp_path / "m")
    refused(xmcjax(*train, "--test", wide), f"{wide}:1: expected 80 features as in {files / 'train.txt'}")
    wide.write_text("1 80 31\n30 79:1\n")
    refused(
        xmcjax(*train, "--test", wide), f"{wide}:1: expected 30 labels as in {files / 'train.txt'}, found 31"
    )
    svmlight = tmp_path / "s.txt"
    svmlight.write_text("1 80:1\n1 81:1\n")
    predict = (
        "predict",
        "--model",
        model,
        "--data",
        svmlight,
        "--out",
        tmp_path / "p",
        "--format",
        "svmlight",
    )
    refused(xmcjax(*predict), f"{svmlight}:2:3: expected ")
    assert {p.name for p in tmp_path.iterdir()} == {"wide.txt", "s.txt"}


def test_predictions_that_do_not_fit_the_data(xmcjax, tmp_path, files):
    path = tmp_path / "top.txt"
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", path)
    for content, text in (
        ("0:1\n" * 59, ":60: expected 60 lines, one per row of the data, found 59"),
        ("0:1\n" * 61, ":61: expected 60 lines, one per row of the data, found 61"),
        ("", ":1: expected 60 lines, one per row of the data, found 0"),
        (
            "0:1\n" * 59 + "30:1\n",
            f":60: expected labels below 30, the number in {files / 'test.txt'}, found 30",
        ),
        ("0:1\n" * 59 + "1:x\n", ":60:1: expected label:score"),
        ("0:1\n" * 59 + "0:1", "expected a line end"),
    ):
        path.write_text(content)
        refused(xmcjax(*evaluate), f"{path}{text}" if text.startswith(":") else text)


def test_fewer_predictions_than_asked_for_count_as_wrong(xmcjax, tmp_path, files):
    path = tmp_path / "top.txt"
    rows = (files / "test.txt").read_text().splitlines()[1:]
    lists = [row.split(" ")[0].split(",")[0] or "0" for row in rows]
    path.write_text("".join(f"{label}:1\n" for label in lists))
    result = xmcjax("evaluate", "--data", files / "test.txt", "--predictions", path)
    assert result.code == 0
    assert result.err == f"xmcjax: warning: {path} has at most 1 labels a line: the others count as wrong\n"
    lines = result.out.splitlines()
    assert lines[1].split() == ["@1", "@3", "@5"]
    one, three, five = (float(value) for value in lines[2].split()[1:])
    assert one > 0 and abs(three - one / 3) < 0.01 and abs(five - one / 5) < 0.01
    path.write_text("\n" * 60)
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", path)
    refused(xmcjax(*evaluate), f"{path}: expected predictions, found none in any line")


OPTIONS = {
    ("--labels", "3:2"): "--labels: expected A:B with 0 <= A < B <= L, got '3:2'",
    ("--labels", "0:31"): "--labels: expected A:B with 0 <= A < B <= 30, got '0:31'",
    ("--labels", "5"): "--labels: expected A:B",
    ("--labels", "-1:5"): "--labels: expected A:B",
    ("--transform", "log,tf"): "a transform must be one of log, idf, ",
    ("--C", "0"): "--C: expected a finite number above 0, got 0.0",
    ("--C", "nan"): "--C: expected a finite number, got nan",
    ("--tol", "inf"): "--tol: expected a finite number, got inf",
    ("--msi-t", "nan"): "--msi-t: expected a finite number, got nan",
    ("--tol", "-1"): "--tol: expected a finite number above 0, got -1.0",
    ("--clip", "-1"): "--clip: expected a finite number of at least 0, got -1.0",
    ("--l1-ratio", "0.3"): "--l1-ratio is for --penalty elastic_net, got --penalty l2",
    ("--penalty", "elastic_net", "--l1-ratio", "0"): "expected 0 < l1_ratio <= 1, got 0.0",
    ("--sparsify-rise", "0"): "--sparsify-rise: expected a finite number above 0, got 0.0",
    ("--timeout", "0"): "--timeout: expected seconds above 0, got 0.0",
    ("--timeout", "9", "--init", "ova_primal_pp"): "takes labels in the order of its tree",
    ("--propensities", "Amazon"): "--propensities Amazon needs --weighting, got none",
    ("--n-jobs", "0"): "--n-jobs: expected from 1 to 16384 threads, or -1 for one per core, got 0",
    ("--block-size", "0"): "--block-size: expected at least 1, got 0",
    ("--shard-size", "0"): "--shard-size: expected at least 1, got 0",
    ("--C", "1e-50"): "--C: expected a number from 1.18e-38 to 3.4e+38, the range of float32, got 1e-50",
    ("--C", "1e300"): "the range of float32, got 1e+300",
    ("--init", "multi_pos", "--ridge", "-1"): "expected ridge > 0, got -1.0",
    ("--init", "multi_pos", "--max-positives", "-1"): "max_positives: expected at least 0, got -1",
    ("--init", "zero", "--msi-s", "2"): "--msi-s is for --init mean_separating or multi_pos, got --init zero",
    ("--delta", "2"): "--delta is for --loss huber_hinge, got --loss squared_hinge",
    ("--loss", "huber_hinge", "--delta", "0"): "expected delta > 0, got 0.0",
    ("--init", "pretrained"): "init 'pretrained' needs the directory of a model, got none",
    ("--init", "bias", "--no-fit-intercept"): "init 'bias' needs a bias: expected fit_intercept",
    ("--no-fit-intercept", "--no-regularise-intercept"): "--no-regularise-intercept needs an intercept, got",
    ("--max-iter", "-1"): "--max-iter: expected at least 0, got -1",
    ("--eps", "0.1"): "the flag --eps is now --tol",
    ("--eps=0.1",): "the flag --eps is now --tol",
    ("--threads", "2"): "the flag --threads is now --n-jobs",
    ("--sparsify", "0.1"): "the flag --sparsify is now --sparsify-rise",
    ("--bias", "none"): "the flag --bias is now --no-fit-intercept in place of none, and --no-regularise-",
    ("--seed", "1"): "the flag --seed is now --random-state",
    ("--multilabel",): "--multilabel is for --format svmlight",
    ("--first-label", "1"): "--first-label is for svmlight files and classes: ",
    ("--n-features", "80"): "--n-features is for --format svmlight",
}


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_options_that_cannot_be_meant(xmcjax, tmp_path, files, options):
    result = xmcjax("train", "--train", files / "train.txt", "--model", tmp_path / "m", *options)
    refused(result, OPTIONS[options])
    assert list(tmp_path.iterdir()) == []


def test_a_pretrained_model_of_another_size(xmcjax, tmp_path, model):
    other = tmp_path / "other.txt"
    other.write_text("2 5 2\n0 1:1\n1 2:1\n")
    options = ("--init", "pretrained", "--pretrained", model)
    result = xmcjax("train", "--train", other, "--model", tmp_path / "m", *options)
    refused(result, f"{model}: expected a model of 5 features and 2 labels, found 80 and 30")
    assert not (tmp_path / "m").exists()


def test_values_that_a_transform_cannot_take(xmcjax, tmp_path, files, model):
    negative = tmp_path / "negative.txt"
    negative.write_text("3 5 2\n0 1:1\n0\n1 2:1 3:-2\n")
    log = ("--transform", "log", "--model", tmp_path / "m")
    refused(
        xmcjax("train", "--train", negative, *log),
        f"{negative}: 'log' is for values that are not negative, got -2.0 in row 2, column 3",
    )


@pytest.mark.parametrize(
    "arguments",
    [("train",), ("train", "--trian", "x"), ("train", "--loss", "no"), ("predict", "--top-k", "many")],
)
def test_flags_that_cannot_be_read(xmcjax, arguments):
    result = xmcjax(*arguments)
    assert result.code == 2 and result.out == "" and "Traceback" not in result.err


def test_numbers_of_predict_and_evaluate(xmcjax, tmp_path, files, model):
    predict = ("predict", "--model", model, "--data", files / "test.txt", "--out", tmp_path / "p")
    refused(xmcjax(*predict, "--top-k", 0), "--top-k: expected at least 1, got 0")
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", tmp_path / "p")
    refused(xmcjax(*evaluate, "--k", 0), "--k: expected numbers from 1 on, got 0")
    assert xmcjax(*predict, "--top-k", 200).code == 0
    lines = (tmp_path / "p").read_text().splitlines()
    assert {len(line.split()) for line in lines} == {29}  # the label without positives is not there
    assert np.all(np.isfinite([float(pair.split(":")[1]) for pair in lines[0].split()]))


def test_unknown_commands(xmcjax):
    for arguments in (("trian",), ()):
        result = xmcjax(*arguments)
        assert result.code == 2
        assert "expected a command of demo, train, predict, evaluate, convert, info" in result.err
        assert len(result.err.splitlines()) == 1


def test_the_traceback_is_there_for_those_who_ask(xmcjax, tmp_path, monkeypatch):
    monkeypatch.setenv("XMCJAX_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        xmcjax("train", "--train", tmp_path / "none", "--model", tmp_path / "m")


UNLABELLED = {
    "a header without labels": ("2 80 0\n 1:1\n 2:1\n", ()),
    "lists that are empty": (" 2:1\n 3:1\n", ("--format", "svmlight", "--multilabel")),
    "lists with other labels": (
        "0 2:1\n7 3:1\n",
        ("--format", "svmlight", "--multilabel", "--first-label", "1"),
    ),
    "class 0": ("0 2:1\n0 3:1\n", ("--format", "svmlight", "--first-label", "1")),
    "classes of both signs": ("-1 2:1\n+1 3:1\n", ("--format", "svmlight")),
}


@pytest.mark.parametrize("name", UNLABELLED)
def test_labels_of_prediction_data_are_not_looked_at(xmcjax, tmp_path, model, name):
    content, options = UNLABELLED[name]
    (tmp_path / "d.txt").write_text(content)
    out = tmp_path / "p"
    result = xmcjax("predict", "--model", model, "--data", tmp_path / "d.txt", "--out", out, *options)
    assert result.code == 0, result.err
    labelled = tmp_path / "labelled.txt"
    labelled.write_text("2 80 30\n0 1:1\n3 2:1\n")
    assert xmcjax("predict", "--model", model, "--data", labelled, "--out", tmp_path / "q").code == 0
    assert out.read_bytes() == (tmp_path / "q").read_bytes() != b""


def test_prediction_data_without_rows(xmcjax, tmp_path, model):
    path = tmp_path / "d.txt"
    path.write_text("0 80 0\n")
    result = xmcjax("predict", "--model", model, "--data", path, "--out", tmp_path / "p")
    refused(result, f"{path}:1: expected at least one row and feature")


def test_an_output_that_would_replace_an_input(xmcjax, tmp_path, files, model):
    data = tmp_path / "d.txt"
    shutil.copy(files / "test.txt", data)
    before = data.read_bytes()
    (tmp_path / "link.txt").symlink_to(data)
    predict = ("predict", "--model", model, "--data", data, "--out")
    refused(xmcjax(*predict, tmp_path / "link.txt"), "--out: expected another file than the data")
    refused(xmcjax(*predict, model / "p"), "--out: expected a file outside the model")
    refused(xmcjax(*predict, tmp_path / "p.gz"), "--out: predictions are plain text, expected no .gz")
    refused(xmcjax("convert", "--data", data, "--out", data), "--out: expected another file than the data")
    assert data.read_bytes() == before and not (model / "p").exists()


def test_options_without_a_meaning(xmcjax, tmp_path, files):
    classes = tmp_path / "c.txt"
    classes.write_text("1 1:1\n2 2:1\n")
    convert = ("convert", "--data", classes, "--format", "svmlight", "--out", tmp_path / "c.npz")
    refused(
        xmcjax(*convert, "--first-label", 1), "--first-label: convert renumbers svmlight --multilabel files"
    )
    labels = tmp_path / "l.npz"
    assert xmcjax("convert", "--data", files / "train.txt", "--out", labels).code == 0
    train = ("train", "--train", labels, "--model", tmp_path / "m")
    refused(
        xmcjax(*train, "--first-label", 1), f"--first-label is for classes and svmlight, {labels} has lists"
    )
    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", tmp_path / "p")
    refused(xmcjax(*evaluate, "--propensities", "Wikipedia"), "--propensities Wikipedia needs --train")
    for command in (evaluate, ("train", "--train", files / "train.txt", "--model", tmp_path / "m")):
        unknown = xmcjax(*command, "--propensities", "eurlex-5k")
        refused(
            unknown, "--propensities: expected one of default, Amazon, ", "EURLex-4K, ", "got 'eurlex-5k'"
        )


@pytest.mark.parametrize("kind", ["host", "device"])
def test_too_little_memory(xmcjax, tmp_path, files, monkeypatch, kind):
    from jax.errors import JaxRuntimeError

    from xmcjax.cli import train

    errors = {
        "host": MemoryError("Unable to allocate 9 TiB"),
        "device": JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore"),
    }

    def full(*arguments, **options):
        raise errors[kind]

    monkeypatch.setattr(train, "read", full)
    result = xmcjax("train", "--train", files / "train.txt", "--model", tmp_path / "m")
    refused(result, "not enough memory: ")


@pytest.mark.parametrize("size", ["4", "0MB", "1TB", "-1GB", "GB", "0.0000001MB"])
def test_a_memory_that_is_no_size(xmcjax, files, tmp_path, size):
    result = xmcjax("convert", "--data", files / "train.txt", "--out", tmp_path / "o", f"--max-memory={size}")
    refused(result, f"--max-memory: expected a size such as 500MB or 4GB, got '{size}'")


def test_memory_that_is_too_little(xmcjax, files, tmp_path, model):
    train = files / "train.txt"
    top = tmp_path / "top.txt"
    assert xmcjax("predict", "--model", model, "--data", train, "--out", top).code == 0
    for command in (
        ("convert", "--data", train, "--out", tmp_path / "o"),
        ("train", "--train", train, "--model", tmp_path / "m"),
        ("evaluate", "--data", train, "--predictions", top),
    ):
        result = xmcjax(*command, "--max-memory", "0.01MB")
        refused(result, "of memory (max_memory; --max-memory allows more), found about")
        assert xmcjax(*command, "--max-memory", "1.5GB").code == 0
