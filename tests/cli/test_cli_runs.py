"""run.json beside a model keeps the record of every run."""

import json
import os

import pytest

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
