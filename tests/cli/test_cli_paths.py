"""Names that lead to no file or directory that the command can use: one line, and nothing is written."""

import os
import shutil

import pytest

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")

CIRCLE = "expected a file or a directory, found symbolic links that lead in a circle"


@pytest.fixture
def place(tmp_path, files, monkeypatch):
    """The current folder, with files, links l1 and l2 to each other, and a link to nothing."""
    shutil.copy(files / "test.txt", tmp_path / "data.txt")
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "top.txt").write_text("0:1\n")
    (tmp_path / "l1").symlink_to("l2")
    (tmp_path / "l2").symlink_to("l1")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    yield tmp_path
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "old.txt").read_text() == "old"


def test_links_that_lead_in_a_circle(xmcjax, place, model):
    predict = ("predict", "--model", model, "--data", "data.txt")
    for name in ("l1", "l1/x"):
        xmcjax(*predict, "--out", name).refused(f"error: {name}: {CIRCLE}")
        xmcjax("convert", "--data", "data.txt", "--out", name).refused(f"error: {name}: {CIRCLE}")
        xmcjax("convert", "--data", name, "--out", "new").refused(f"error: {name}: {CIRCLE}")
        for command in (
            ("predict", "--model", model, "--data", name, "--out", "new"),
            ("predict", "--model", name, "--data", "data.txt", "--out", "new"),
            ("train", "--train", name, "--model", "new"),
            ("train", "--train", "data.txt", "--model", name),
            ("train", "--train", "data.txt", "--model", name, "--resume"),
            ("evaluate", "--data", name, "--predictions", "top.txt"),
            ("evaluate", "--data", "data.txt", "--predictions", name),
        ):
            xmcjax(*command).refused(f"error: {name}: {CIRCLE}")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("dangling", "a symbolic link to nowhere, where there is nothing"),
        ("fifo", "a FIFO"),
        ("/dev/null", "a device"),
        ("old.txt", "a file"),
    ],
)
def test_a_model_that_is_no_directory(xmcjax, place, name, found):
    said = f"error: {name}: expected a directory, found {found}"
    xmcjax("predict", "--model", name, "--data", "data.txt", "--out", "new").refused(said)
    for more in ((), ("--resume",)):
        xmcjax("train", "--train", "data.txt", "--model", name, *more).refused(said)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder of the system")
def test_where_nothing_can_be_made_permission_is_denied(xmcjax, place, model):
    """In /proc even root makes nothing, and the system says that there is no such file."""
    for command in (
        ("train", "--train", "data.txt", "--model"),
        ("predict", "--model", model, "--data", "data.txt", "--out"),
    ):
        xmcjax(*command, "/proc/new").refused("error: /proc/new: permission denied")


def test_names_that_paths_do_not_keep(xmcjax, place, model):
    predict = ("predict", "--model", model, "--data", "data.txt")
    for out in ("old.txt/", "old.txt/.", "new/", "."):
        said = f"--out: expected the name of a file, got that of a directory: {out}"
        xmcjax(*predict, "--out", out).refused(said)
        xmcjax(*predict, f"--out={out}").refused(said)
        xmcjax("convert", "--data", "data.txt", "--out", out).refused(said)
    xmcjax(*predict, "--out", "").refused("--out: expected the name of a file, got an empty one")
    xmcjax(*predict, "--out=").refused("--out: expected the name of a file, got an empty one")
    xmcjax("convert", "--data", "", "--out", "new").refused("--data: expected the name of a file, got an")
    empty = ("train", "--train", "data.txt", "--model", "")
    xmcjax(*empty).refused("--model: expected the name of a directory, got an empty one")


def test_a_current_folder_that_is_gone(xmcjax, model, files, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in (
        ("predict", "--model", model, "--data", files / "test.txt", "--out", "new"),
        ("predict", "--model", model, "--data", "../test.txt", "--out", tmp_path / "new"),
        ("train", "--train", files / "train.txt", "--model", "new"),
    ):
        xmcjax(*command).refused("error: the current folder is no longer there")
    xmcjax("predict", "--model", model, "--data", tmp_path / "none", "--out", tmp_path / "new").refused()
    for command in ("--version", "--help", "info"):
        xmcjax(command).done()
