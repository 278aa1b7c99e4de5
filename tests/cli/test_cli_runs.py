"""run.json beside a model keeps the record of every run."""

import json
import os
import shutil

import pytest

from tests.support.internals import manifest

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


def test_an_idle_resume_keeps_the_record_of_the_training(train, contents):
    directory, trained = train()
    trained.done()
    path = directory / "run.json"
    (first,) = json.loads(path.read_text())
    assert first["labels_trained"] == 30 and first["statuses"] and first["newton_steps"] > 0
    model = contents(directory)
    assert "none left to train" in train("--resume")[1].done().out
    runs = json.loads(path.read_text())
    assert runs[0] == first and len(runs) == 2
    assert runs[1]["labels_trained"] == 0 and runs[1]["options"]["resume"] is True
    # what earlier versions wrote: one record, no list, and other names of options
    first["options"] |= {"eps": first["options"].pop("tol"), "threads": None, "bias": "regularised"}
    path.write_text(json.dumps(first))
    train("--resume")[1].done()
    assert json.loads(path.read_text())[0] == first and len(json.loads(path.read_text())) == 2
    assert contents(directory) == model


@pytest.mark.parametrize("content", ["{", "3", "[1]", '[{"a": 1}, null]', "[" * 100_000, "\xff", None])
def test_a_file_that_is_no_record_stays(train, content):
    directory, trained = train()
    trained.done()
    path = directory / "run.json"
    if content is None:
        path.unlink()
        os.mkfifo(path)  # which is not waited for
    else:
        path.write_bytes(content.encode("latin-1"))
    line = train("--resume")[1].done().err.splitlines()[-1]
    assert line.startswith(f"xmcjax: warning: {path}: expected ")
    assert line.endswith("; it is left as it is, without a record of this run")
    if content is None:
        assert "expected a regular file, found a FIFO" in line
    else:
        assert path.read_bytes() == content.encode("latin-1")


def test_records_that_are_damaged_do_not_hide_the_model(xmcjax, model, tmp_path):
    directory = shutil.copytree(model, tmp_path / "m")
    (directory / "run.json").write_text("{")
    for command in (("inspect",), ("report", "--out", tmp_path / "r.html")):
        line = xmcjax(*command, "--model", directory).done().err
        assert line.startswith(f"xmcjax: warning: {directory / 'run.json'}: expected ")
        assert line.endswith("; it is no part of the model\n")


def test_what_a_terminal_should_not_be_sent_is_escaped(xmcjax, model, tmp_path):
    directory = shutil.copytree(model, tmp_path / "m")
    content, _ = manifest.unsealed(directory / "manifest.json")
    del content["manifest_sha256"]
    content["meta"]["C"] = "\x1b[31mred\n\rü"
    (directory / "manifest.json").write_bytes(manifest.sealed(content))
    (directory / "run.json").write_text(json.dumps([{"host": "\x1b[2J\u202e"}]))
    out = xmcjax("inspect", "--model", directory).done().out
    assert "C \\x1b[31mred\\n\\rü, " in out and "on \\x1b[2J\\u202e\n" in out
