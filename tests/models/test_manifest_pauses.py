"""How often the manifest is written, which names all shards, and what of them a run that ends early keeps."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.models import LABELS, META, contents, fill, write
from xmcjax import MulticlassSVC
from xmcjax.models import LinearModel, ShardWriter, _manifest, _writer, merge_models


@pytest.fixture
def written(monkeypatch):
    """Of each manifest that is written, how many shards it names."""
    render, counts = _manifest.render, []

    def counted(manifest):
        counts.append(len(manifest.shards))
        return render(manifest)

    monkeypatch.setattr(_manifest, "render", counted)
    return counts


@pytest.fixture
def ticking(monkeypatch):
    """A clock on which a manifest takes one unit, and so does a shard."""
    monkeypatch.setattr(_writer, "time", SimpleNamespace(monotonic=itertools.count().__next__))


@pytest.fixture
def seldom(monkeypatch):
    """The manifest is written at the beginning and at the end."""
    monkeypatch.setattr(_writer, "_PAUSES", math.inf)


def test_the_manifest_is_written_for_a_tenth_of_the_time(tmp_path, written, ticking):
    meta = META | {"n_labels": 200}
    with ShardWriter(tmp_path / "m", meta, shard_size=1) as writer:
        for label in range(200):
            writer.add(label, [1], np.float32([1]))
    assert written[0] == 0 and written[-1] == 200 and 15 < len(written) < 22
    assert all(later - before == 10 for before, later in itertools.pairwise(written[:-1]))
    assert LinearModel.load(tmp_path / "m").complete


def test_merging_writes_it_for_a_tenth_of_the_time(tmp_path, written, ticking):
    for part, bounds in enumerate([(0, 7), (7, LABELS)]):
        write(tmp_path / str(part), label_range=bounds, shard_size=1)
    written.clear()
    merge_models([tmp_path / "0", tmp_path / "1"], tmp_path / "m")
    assert written == [0, 10, 20, LABELS]


def test_a_model_that_is_saved_has_one_at_the_beginning_and_one_at_the_end(tmp_path, monkeypatch, written):
    classifier = MulticlassSVC().fit(np.eye(3), [0, 1, 2])
    monkeypatch.setattr(ShardWriter.__init__, "__defaults__", (None, 1, None, False))  # labels of a shard
    classifier.save(tmp_path / "m")
    assert len(list((tmp_path / "m").glob("shard-*"))) == 3 and written == [0, 3]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
def test_shards_are_named_when_an_error_ends_a_run(tmp_path, seldom, written, error):
    expected = contents(write(tmp_path / "whole", shard_size=2))
    written.clear()
    with pytest.raises(error), ShardWriter(tmp_path / "m", META, shard_size=2) as writer:
        fill(writer, range(9))
        raise error
    assert written == [0, 4]
    assert LinearModel.load(tmp_path / "m", partial=True).missing() == [(8, LABELS)]
    write(tmp_path / "m", shard_size=2, resume=True)
    assert contents(tmp_path / "m") == expected


def test_a_full_disk_at_the_end_does_not_hide_the_first_error(tmp_path, seldom, monkeypatch):
    def full(*_):
        raise OSError("full")

    with pytest.raises(MemoryError), ShardWriter(tmp_path / "m", META, shard_size=2) as writer:
        fill(writer, range(9))
        monkeypatch.setattr(writer, "_write", full)
        raise MemoryError
    with pytest.raises(OSError, match="full"), ShardWriter(tmp_path / "n", META, shard_size=2) as writer:
        fill(writer, range(9))
        monkeypatch.setattr(writer, "_write", full)
    assert not writer._lock.held


def test_shards_that_a_run_that_was_killed_has_not_named_are_made_again(tmp_path, seldom):
    expected = contents(write(tmp_path / "whole", shard_size=2))
    writer = ShardWriter(tmp_path / "m", META, shard_size=2)
    fill(writer, range(9))
    writer._lock.release()  # as the kernel does
    assert len(list((tmp_path / "m").glob("shard-*"))) == 4
    (tmp_path / "m" / "shard-000001.safetensors").write_bytes(b"of another run")
    with ShardWriter(tmp_path / "m", META, shard_size=2, resume=True) as writer:
        assert len(writer.missing()) == LABELS
        fill(writer)
    assert contents(tmp_path / "m") == expected


def test_a_withdrawn_run_keeps_and_names_what_is_stored(tmp_path, seldom):
    with pytest.raises(MemoryError), ShardWriter(tmp_path / "m", META, shard_size=2) as writer:
        fill(writer, range(4))
        writer.withdraw()
        raise MemoryError
    assert LinearModel.load(tmp_path / "m", partial=True).missing() == [(4, LABELS)]
