"""Several writers of one file: one that is to be alone is, and nobody's temporary file is lost."""

from __future__ import annotations

import fcntl
import os

import pytest

from xmcjax.data import atomic_write

REFUSED = "expected no other writer, found one at work"


def test_a_second_writer_before_the_rename_is_refused(tmp_path, monkeypatch):
    path, rename = tmp_path / "steps.jsonl", os.replace

    def replace(source, target):
        monkeypatch.setattr(os, "replace", rename)
        with pytest.raises(FileExistsError, match=REFUSED), atomic_write(path, alone=True):
            pass
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with atomic_write(path, alone=True) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole" and list(tmp_path.iterdir()) == [path]
    with atomic_write(path, alone=True) as file:  # the lock ends with its writer
        file.write(b"next")
    assert path.read_bytes() == b"next"


def test_writers_that_are_not_alone_are_at_work_too(tmp_path):
    path = tmp_path / "report.html"
    with atomic_write(path) as file:
        file.write(b"whole")
        with pytest.raises(FileExistsError, match=REFUSED), atomic_write(path, alone=True):
            pass
    assert path.read_bytes() == b"whole" and list(tmp_path.iterdir()) == [path]


def test_long_names_are_told_apart(tmp_path):
    first, second = tmp_path / ("a" * 250), tmp_path / ("b" * 250)
    with atomic_write(first, alone=True) as file:
        file.write(b"first")
        with atomic_write(second, alone=True) as other:
            other.write(b"second")
        with pytest.raises(FileExistsError, match=REFUSED), atomic_write(first, alone=True):
            pass
    assert (first.read_bytes(), second.read_bytes()) == (b"first", b"second")
    assert len(list(tmp_path.iterdir())) == 2


def test_what_another_takes_for_a_left_over_is_made_again(tmp_path, monkeypatch):
    """One looks for left-overs when the file is made and not locked yet: it is done, or holds it still."""
    path, flock, looking = tmp_path / "steps.jsonl", fcntl.flock, []

    def late(descriptor, operation):
        if len(looking) < 2:
            (scratch,) = tmp_path.iterdir()
            looking.append(os.open(scratch, os.O_RDONLY))
            flock(looking[-1], operation)
            scratch.unlink()
            if len(looking) == 1:
                os.close(looking[-1])
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic_write(path) as file:
        file.write(b"whole")
    os.close(looking[1])
    assert path.read_bytes() == b"whole" and list(tmp_path.iterdir()) == [path]


def test_the_folder_is_a_models_to_lock(tmp_path, monkeypatch):
    listed, looked = os.listdir, []

    def listdir(folder):
        model = os.open(folder, os.O_RDONLY)
        fcntl.flock(model, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a model's writer begins meanwhile
        os.close(model)
        looked.append(folder)
        return listed(folder)

    monkeypatch.setattr(os, "listdir", listdir)
    with atomic_write(tmp_path / "steps.jsonl", alone=True):
        assert looked == [tmp_path]
