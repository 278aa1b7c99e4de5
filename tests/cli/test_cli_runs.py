"""run.json beside a model keeps the record of every run."""

import json
import os

import pytest

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


@pytest.fixture
def train(xmcjax, files, tmp_path):
    def train(*options):
        result = xmcjax("train", "--train", files / "train.txt", "--model", tmp_path / "m", *options)
        assert result.code == 0, result.err
        return result

    return train


def test_an_idle_resume_keeps_the_record_of_the_training(train, tmp_path, contents):
    path = tmp_path / "m" / "run.json"
    train()
    (first,) = json.loads(path.read_text())
    assert first["labels_trained"] == 30 and first["statuses"] and first["newton_steps"] > 0
    model = contents(tmp_path / "m")
    assert "none left to train" in train("--resume").out
    runs = json.loads(path.read_text())
    assert runs[0] == first and len(runs) == 2
    assert runs[1]["labels_trained"] == 0 and runs[1]["options"]["resume"] is True
    # what earlier versions wrote: one record, no list, and other names of options
    first["options"] |= {"eps": first["options"].pop("tol"), "threads": None, "bias": "regularised"}
    path.write_text(json.dumps(first))
    train("--resume")
    assert json.loads(path.read_text())[0] == first and len(json.loads(path.read_text())) == 2
    assert contents(tmp_path / "m") == model


@pytest.mark.parametrize("content", ["{", "3", "[1]", '[{"a": 1}, null]', "[" * 100_000, "\xff"])
def test_a_file_that_is_no_record_stays(train, tmp_path, content):
    path = tmp_path / "m" / "run.json"
    train()
    path.write_bytes(content.encode("latin-1"))
    line = train("--resume").err.splitlines()[-1]
    assert line.startswith(f"xmcjax: warning: {path}: expected ")
    assert line.endswith("; it is left as it is, without a record of this run")
    assert path.read_bytes() == content.encode("latin-1")


def test_a_fifo_is_not_waited_for(train, tmp_path):
    path = tmp_path / "m" / "run.json"
    train()
    path.unlink()
    os.mkfifo(path)
    line = train("--resume").err.splitlines()[-1]
    assert f"{path}: expected a regular file, found a FIFO; it is left" in line
