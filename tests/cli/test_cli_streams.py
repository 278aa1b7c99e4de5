"""``-``: data through a pipe give what the same data in a file give, in every format."""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.processes import python
from xmcjax.data import load, load_xmc, save, save_features, save_labels
from xmcjax.models import read_predictions

pytestmark = [
    pytest.mark.usefixtures("no_wait_for_the_disk"),
    pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="streams by their numbers"),
]


@contextlib.contextmanager
def replaced(number: int, descriptor: int):
    """The standard stream with this number is another one."""
    kept = os.dup(number)
    os.dup2(descriptor, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


@contextlib.contextmanager
def feeding(content: bytes):
    """Standard input is a pipe with this content."""

    def feed():
        with contextlib.suppress(BrokenPipeError), open(writing, "wb") as file:
            file.write(content)

    reading, writing = os.pipe()
    thread = threading.Thread(target=feed)
    thread.start()
    with replaced(0, reading):
        os.close(reading)
        yield
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def piped(xmcjax):
    """(how a command ended, what it wrote to standard output) with a pipe at either end."""

    def run(content: bytes, *arguments):
        got: list[bytes] = []
        reading, writing = os.pipe()

        def collect():
            with open(reading, "rb") as file:
                got.append(file.read())

        thread = threading.Thread(target=collect)
        thread.start()
        with feeding(content), replaced(1, writing):
            os.close(writing)
            result = xmcjax(*arguments)
        thread.join(60)
        return result, got[0]

    return run


@pytest.fixture(scope="module")
def forms(tmp_path_factory, files):
    """The rows to predict in each format that can be said by a flag: (file, flags)."""
    folder = tmp_path_factory.mktemp("forms")
    X, Y = load_xmc(files / "test.txt")
    save(folder / "d.svm", X, Y, "svmlight")
    save_features(folder / "d.txt", X)
    save_features(folder / "X.npz", X)
    save_features(folder / "d.npy", X.toarray())
    made = {"xmc": files / "test.txt", "svmlight": folder / "d.svm", "matrix": folder / "d.txt"}
    made |= {"npz": folder / "X.npz", "npy": folder / "d.npy"}
    if importlib.util.find_spec("pyarrow") is not None:
        for name in ("parquet", "arrow"):
            made[name] = folder / f"d.{name}"
            save(made[name], X, Y)
    return made


@pytest.mark.parametrize("format", ["xmc", "svmlight", "matrix", "npz", "npy", "parquet", "arrow"])
def test_rows_from_a_pipe(piped, xmcjax, forms, model, tmp_path, format):
    if format not in forms:
        pytest.skip("needs pyarrow")
    flags = ["--format", format, *(["--multilabel"] if format == "svmlight" else [])]
    predict = ("predict", "--model", model, *flags)
    xmcjax(*predict, "--data", forms[format], "--out", tmp_path / "p").done()
    result, written = piped(forms[format].read_bytes(), *predict, "--data", "-", "--out", "-")
    assert written == (tmp_path / "p").read_bytes()
    assert result.done().out == "" and result.err.startswith("predictions /dev/stdout (60 rows")


@pytest.mark.parametrize("format", ["text", "jsonl", "npz"])
def test_predictions_to_a_pipe_and_from_one(piped, xmcjax, files, model, tmp_path, format):
    file = tmp_path / f"p.{format}"
    predict = ("predict", "--model", model, "--data", files / "test.txt")
    xmcjax(*predict, "--out", file).done()
    written = piped(b"", *predict, "--out=-", "--out-format", format)[1]
    (tmp_path / f"q.{format}").write_bytes(written)
    for a, b in zip(read_predictions(file), read_predictions(tmp_path / f"q.{format}"), strict=True):
        np.testing.assert_array_equal(a, b)
    evaluate = ("evaluate", "--data", files / "test.txt")
    flags = ("--predictions=-", "--predictions-format", format)
    result, data = piped(written, *evaluate, *flags)
    assert data == b"" and result.done().out == xmcjax(*evaluate, "--predictions", file).done().out


def test_a_model_of_a_pipe_is_that_of_the_file(piped, train, files, forms, tmp_path, contents):
    name = files / "train.txt"
    expected, _ = train(name="file")
    for model, given in (("a", ("--train", "-")), ("b", ("--train=-",))):
        arguments = (*given, "--model", tmp_path / model, "--transform", "unit")
        piped(name.read_bytes(), "train", *arguments)[0].done()
        assert contents(tmp_path / model) == contents(expected)


def test_labels_from_a_pipe(piped, xmcjax, files, tmp_path, contents):
    X, Y = load_xmc(files / "train.txt")
    save_features(tmp_path / "X.npz", X)
    save_labels(tmp_path / "Y.npz", Y)
    train = ("train", "--train", tmp_path / "X.npz", "--model")
    xmcjax(*train, tmp_path / "a", "--labels-file", tmp_path / "Y.npz").done()
    given = (*train, tmp_path / "b", "--labels-file", "-", "--labels-format", "npz")
    piped((tmp_path / "Y.npz").read_bytes(), *given)[0].done()
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("written", ["xmc", "svmlight", "npz", "parquet", "arrow"])
def test_convert_in_a_pipe(piped, files, tmp_path, written):
    if written in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    flags = ("--out-format", written)
    result, content = piped((files / "test.txt").read_bytes(), "convert", "--data=-", "--out=-", *flags)
    assert result.done().out == "" and "data        60 rows" in result.err
    (tmp_path / "out").write_bytes(content)
    found = load(tmp_path / "out", written, **({"multilabel": True} if written == "svmlight" else {}))
    for a, b in zip(found, load_xmc(files / "test.txt"), strict=True):
        wide = sp.csr_matrix(a)
        wide.resize(b.shape)
        assert abs(wide - b).max() < 1e-6


def test_one_of_two_outputs_to_a_pipe(piped, files, tmp_path):
    out = ("--out", tmp_path / "X.npz", "--out-labels", "-")
    result, content = piped(b"", "convert", "--data", files / "test.txt", *out)
    assert content.startswith(b"60 30\n") and "data  " not in content.decode()
    assert result.done().out == "" and "data        60 rows" in result.err


def test_the_json_of_a_command_that_writes_to_a_pipe_is_on_stderr(piped, files, model):
    predict = ("predict", "--model", model, "--data", "-", "--out", "-", "--json")
    result, content = piped((files / "test.txt").read_bytes(), *predict)
    assert content.count(b"\n") == 60 and '"rows": 60' in result.done().err and result.out == ""


def test_the_line_about_a_cluster_does_not_stand_among_predictions(files, model):
    pytest.importorskip("distributed")
    predict = [sys.executable, "-m", "xmcjax", "predict", "--model", model, "--data", files / "test.txt"]
    found = [
        subprocess.run(
            [*predict, "--out", "-", *more], capture_output=True, text=True, check=True, timeout=100
        )
        for more in ([], ["--local-cluster", "1"])
    ]
    assert found[0].stdout == found[1].stdout != ""
    assert "cluster     1 workers with " in found[1].stderr


def test_a_vocabulary_and_weights_of_another_program_from_a_pipe(piped, xmcjax, model, tmp_path):
    words = "".join(f"word{j}\n" for j in range(80)).encode()
    shown = piped(words, "inspect", "--model", model, "--label", 1, "--vocabulary", "-")[0].done().out
    assert "word" in shown.split("label 1:")[1]
    xmcjax("export", "--model", model, "--out", tmp_path / "w.npz", "--format", "npz").done()
    written = piped(b"", "export", "--model", model, "--out", "-", "--format", "npz")[1]
    given = ("--format", "npz", "--bias", 1)
    for name, source, content in (
        ("a", tmp_path / "w.npz", b""),
        ("b", "-", (tmp_path / "w.npz").read_bytes()),
        ("c", "-", written),
    ):
        piped(content, "import", "--source", source, "--model", tmp_path / name, *given)[0].done()
    shards = [(tmp_path / name / "shard-000000.safetensors").read_bytes() for name in "abc"]
    assert shards[0] == shards[1] == shards[2]


def test_what_is_wrong_is_said_of_the_stream(piped, files, forms, model, tmp_path):
    predict = ("predict", "--model", model, "--out", tmp_path / "p", "--data", "-")
    text = (files / "test.txt").read_bytes()
    piped(text.replace(b":", b";", 1), *predict)[0].refused("error: /dev/stdin:2:")
    npz = forms["npz"].read_bytes()[:-50]
    piped(npz, *predict, "--format", "npz")[0].refused("error: /dev/stdin: expected a complete npz file")
    piped(b"", *predict, "--format", "npy")[0].refused("error: /dev/stdin: expected an npy file")
    large = ("--format", "npz", "--max-memory", "0.001MB")
    said = "about 0 MB for a copy of the stream"
    piped(forms["npz"].read_bytes(), *predict, *large)[0].refused("error: /dev/stdin: expected data", said)
    assert not (tmp_path / "p").exists()
    wrong = ("import", "--source", "-", "--model", tmp_path / "m", "--format", "dismec")
    piped(b"{}", *wrong)[0].refused("--source: expected a file with its weights beside it, got /dev/stdin")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--train", "-", "--labels-file=-"), "--train and --labels-file"),
        (("evaluate", "--data", "-", "--predictions", "-"), "--data and --predictions"),
        (("convert", "--data", "d", "--out", "-", "--out-labels", "-"), "--out and --out-labels"),
    ],
)
def test_one_stream_for_two_files_is_refused(xmcjax, arguments, said):
    more = ("--model", "m") if arguments[0] == "train" else ()
    stream = "output, written" if "--out" in arguments else "input, which is read"
    xmcjax(*arguments, *more).refused(f"-: expected one file to be standard {stream} once, got {said}")


def test_a_flag_given_twice_is_one_use(xmcjax, files, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text('data = "-"\n')
    given = ("convert", "--config", config, "--data", files / "test.txt", "--out", tmp_path / "o")
    xmcjax(*given, "--labels-file", "-", "--print-config").done()


def test_a_file_of_this_name_is_still_a_file(xmcjax, files, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_bytes((files / "test.txt").read_bytes())
    xmcjax("predict", "--model", model, "--data", "./-", "--out", "./p").done()
    assert (tmp_path / "p").read_text().count("\n") == 60


def test_a_file_behind_standard_input_is_read_in_place(xmcjax, forms, model, tmp_path):
    predict = ("predict", "--model", model, "--format", "npz")
    xmcjax(*predict, "--data", forms["npz"], "--out", tmp_path / "p").done()
    with open(forms["npz"], "rb") as file, replaced(0, file.fileno()):
        xmcjax(*predict, "--data", "-", "--out", tmp_path / "q").done()
    assert (tmp_path / "p").read_bytes() == (tmp_path / "q").read_bytes()


def test_a_reader_that_goes_ends_the_command_quietly(files, tmp_path):
    """As `xmcjax convert … --out - | head -1` does."""
    big = tmp_path / "big.txt"
    head, _, rows = (files / "train.txt").read_text().partition("\n")
    big.write_text(f"{300 * 40} {head.split(maxsplit=1)[1]}\n{rows * 40}")
    command = [sys.executable, "-m", "xmcjax", "convert", "--data", "-", "--out", "-"]
    pipe = subprocess.PIPE
    with open(big, "rb") as data, subprocess.Popen(command, stdin=data, stdout=pipe, stderr=pipe) as run:
        assert run.stdout is not None and run.stderr is not None
        assert run.stdout.readline().startswith(b"12000 ")
        run.stdout.close()
        assert run.stderr.read() == b"" and run.wait(60) == 1


EACH = """
import json, sys
from xmcjax.cli.main import main

codes = []
for line in json.loads(sys.argv[1]):
    try:
        codes.append(main(line))
    except SystemExit as leave:
        codes.append(leave.code)
with open(sys.argv[2], "w") as file:
    json.dump([code or 0 for code in codes], file)
"""


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_outputs_that_are_closed_are_nowhere(files, model, tmp_path, closed):
    program = (
        f"import os, sys\nfor number in {closed}: os.close(number)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'xmcjax', *sys.argv[1:]])"
    )

    def command(*arguments):
        return python(program, *arguments, timeout=120)

    def predict(name, model=model, data=files / "test.txt"):
        return "predict", "--model", model, "--data", data, "--out", name

    def codes(*lines):
        """Of commands one after the other, and what they said."""
        each = program.replace("'-m', 'xmcjax'", f"'-c', {EACH!r}")
        done = python(each, json.dumps([[*map(str, line)] for line in lines]), tmp_path / "codes")
        return json.loads((tmp_path / "codes").read_text()), done.stderr

    done = command("inspect", "--model", model)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("converged" in done.stdout) == (1 not in closed)
    # what is asked for is not lost without a word
    done = command("predict", "--model", model, "--data", files / "test.txt", "--out", "-")
    assert done.returncode == (2 if 1 in closed else 0)
    said = "xmcjax predict: error: --out: expected standard output to be open, found it closed\n"
    assert done.stderr == (said if closed == (1,) else "")
    if 1 in closed:
        (tmp_path / "link").symlink_to("/dev/stdout")
        names = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", tmp_path / "link")
        assert codes(*map(predict, names)) == ([2] * 4, 4 * said if closed == (1,) else "")
    lines = [predict("/dev/null"), predict(tmp_path / "predictions.txt")]
    if 0 in closed:
        new = tmp_path / "m"
        lines += [("train", "--train", files / "train.txt", "--model", new), predict(new, new)]
        lines += [predict(tmp_path / "p.txt", data="-")]
    assert codes(*lines)[0] == [0, 0, 0, 2, 2][: len(lines)]
    assert not (tmp_path / "p.txt").exists()


def test_standard_input_that_is_closed_is_said_to_be(xmcjax, model, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # which is what Python makes of a closed one
    predict = ("predict", "--model", model, "--data", "-", "--out", tmp_path / "p.txt")
    xmcjax(*predict).refused("--data: expected standard input to be open, found it closed")


def test_a_directory_is_no_stream(xmcjax, model, files):
    for arguments in (
        ("predict", "--model", "-", "--data", files / "test.txt", "--out", "new.txt"),
        ("inspect", "--model=-"),
        ("merge", "--model", "-", "--parts", model),
    ):
        xmcjax(*arguments).refused("--model: expected a directory, which no stream is, got -")


def test_statistics_have_a_file_which_no_stream_is(xmcjax, files, tmp_path):
    train = ("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--stats")
    for wrong, said in (
        ("-", "a file, which no stream is, got -"),
        ("", "the name of a file, got an empty one"),
    ):
        xmcjax(*train, wrong).refused(f"--stats: expected {said}")
    assert not (tmp_path / "m").exists()


def test_a_terminal_shows_how_many_rows_are_predicted(model, files, tmp_path):
    import fcntl
    import pty
    import struct
    import termios

    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
    command = ["predict", "--model", model, "--data", files / "test.txt", "--out", tmp_path / "p.txt"]
    running = subprocess.Popen(
        [sys.executable, "-m", "xmcjax", *map(str, command)], stderr=theirs, stdout=subprocess.DEVNULL
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # what Linux says once nobody else has the terminal
        while part := os.read(terminal, 1 << 16):
            shown += part
    os.close(terminal)
    assert running.wait(60) == 0
    assert re.search(rb"predict: 60.0row \[", shown)
