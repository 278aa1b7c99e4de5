"""How often the manifest is written, which names all shards, and what of them a run that ends early keeps."""

import contextlib
import gc
import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.internals import manifest, model_writer
from tests.support.models import LABELS, META, contents, fill, label_result, write
from tests.support.processes import wait_until
from xmcjax import MulticlassSVC
from xmcjax.models import LinearModel, ShardWriter, checked_weights, merge_models, write_outside


@pytest.fixture
def written(monkeypatch):
    """Of each manifest that is written, how many shards it names."""
    render, counts = manifest.render, []

    def counted(made):
        counts.append(len(made.shards))
        return render(made)

    monkeypatch.setattr(manifest, "render", counted)
    return counts


@pytest.fixture
def ticking(monkeypatch):
    """A clock on which a manifest takes one unit, and so does a shard."""
    monkeypatch.setattr(model_writer, "time", SimpleNamespace(monotonic=itertools.count().__next__))


@pytest.fixture
def seldom(monkeypatch):
    """The manifest is written at the beginning and at the end."""
    monkeypatch.setattr(model_writer, "_PAUSES", 10**9)


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


def named(directory):
    """Labels of the shards that the manifest names."""
    return LABELS - sum(last - first for first, last in LinearModel.load(directory, partial=True).missing())


def test_shards_are_named_at_the_end_of_a_pause_in_which_no_other_comes(tmp_path, seldom, written):
    threads = threading.active_count()
    with ShardWriter(tmp_path / "m", META, shard_size=2) as writer:
        writer._naming = 0.3 / 10**9
        fill(writer, range(7))  # of three shards
        assert written == [0] and len(writer.missing()) == LABELS - 6
        wait_until(lambda: named(tmp_path / "m") == 6, seconds=30)
        fill(writer, range(7, 12))
        assert threading.active_count() == threads + 1 and named(tmp_path / "m") == 6  # the next pause
    assert written == [0, 3, 6] and threading.active_count() == threads


def test_a_pause_does_not_end_before_that_of_the_last_manifest(tmp_path, seldom, written):
    with ShardWriter(tmp_path / "m", META, shard_size=2) as writer:
        fill(writer, range(4))
        writer._write_manifest()  # by a shard that came in between
        fill(writer, range(4, 6))
        writer._name_late()
        assert written == [0, 2] and writer._timer is not None


def test_an_error_at_the_end_of_a_pause_is_met_again_by_the_next_shard(tmp_path, seldom, monkeypatch):
    def full(*_):
        tried.append(1)
        raise OSError("full")

    tried, write_file = [], ShardWriter._write
    writer = ShardWriter(tmp_path / "m", META, shard_size=2)
    writer._naming = 0.1 / 10**9
    monkeypatch.setattr(ShardWriter, "_write", full)
    fill(writer, range(4))
    wait_until(lambda: tried and writer._timer is None, seconds=30)
    with pytest.raises(OSError, match="full"):
        fill(writer, range(4, 6))
    monkeypatch.setattr(ShardWriter, "_write", write_file)
    writer.close()
    assert named(tmp_path / "m") == 6


def test_a_failed_manifest_is_not_tried_again_as_the_writer_leaves(tmp_path, seldom, monkeypatch):
    def full(*_):
        tried.append(1)
        raise OSError("full")

    tried, write_file = [], ShardWriter._write
    for end in (ShardWriter.close, lambda writer: writer.__exit__(OSError), ShardWriter.withdraw):
        folder = tmp_path / str(len(tried))
        writer = ShardWriter(folder, META, shard_size=2)
        fill(writer, range(4))
        monkeypatch.setattr(ShardWriter, "_write", full)
        before = len(tried)
        with contextlib.suppress(OSError):
            end(writer)
        assert len(tried) == before + 1 and not writer._lock.held
        monkeypatch.setattr(ShardWriter, "_write", write_file)
        whole = contents(write(folder, shard_size=2, resume=True))
        for again in (ShardWriter.close, lambda writer: writer.__exit__(OSError), ShardWriter.withdraw):
            again(writer)
            writer._naming = 0  # a pause that has ended
            writer._name_late()
        assert contents(folder) == whole


def test_what_another_process_wrote_is_not_taken_by_a_closed_writer(tmp_path):
    writer = ShardWriter(tmp_path / "m", META, shard_size=2)
    dtype = np.dtype("float32")
    labels = [checked_weights(*label_result(label), n_features=50, dtype=dtype) for label in range(2)]
    shard = write_outside(tmp_path / "m", 0, 2, labels, dtype)
    writer.close()
    with pytest.raises(ValueError, match="expected an open writer, found it closed"):
        writer.adopt(shard)


@pytest.mark.parametrize("failed", [False, True])
def test_what_nobody_can_adopt_any_more_is_removed(tmp_path, failed):
    """Of a shard whose first writer died after it had written, and before it had said so."""
    folder, dtype = tmp_path / "m", np.dtype("float32")
    writer = ShardWriter(folder, META, shard_size=2)
    shards = [
        write_outside(
            folder,
            first,
            2,
            [checked_weights(*label_result(first + i), n_features=50, dtype=dtype) for i in (0, 1)],
            dtype,
        )
        for first in (0, 0, 2)
    ]
    writer.adopt(shards[1])
    assert (folder / shards[0].file.file).exists()
    writer.__exit__(OSError if failed else None)
    left = {"manifest.json", "shard-000000.safetensors", shards[2].file.file}
    assert {path.name for path in folder.iterdir()} == left


def test_a_model_whose_folder_cannot_be_swept_is_closed(tmp_path):
    folder = tmp_path / "m"
    writer = ShardWriter(folder, META, shard_size=2)
    fill(writer, range(LABELS))
    seven = ".shard-0000000.safetensors.0123456789abcdef.tmp"  # as nobody names the shard 0
    for name in (seven, ".shard-000000.safetensors.0123456789abcdef.tmp"):
        (folder / name).mkdir()
    writer.close()
    assert LinearModel.load(folder).complete
    (folder / seven).rmdir()


@pytest.mark.parametrize("at_once", [False, True])
def test_a_range_that_is_complete_is_named_before_the_writer_is_closed(tmp_path, seldom, at_once, written):
    writer = ShardWriter(tmp_path / "m", META, shard_size=2, at_once=at_once)
    fill(writer, range(LABELS - 1))
    assert not writer.complete and written == [0] and (writer._timer is None) == at_once
    fill(writer, [LABELS - 1])
    assert writer.complete and LinearModel.load(tmp_path / "m").complete
    writer.close()
    assert written == [0, 12]


def test_a_pause_keeps_no_writer_that_is_forgotten(tmp_path, seldom):
    writer = ShardWriter(tmp_path / "m", META, shard_size=2)
    fill(writer, range(4))
    timer = writer._timer
    assert timer is not None and timer.daemon and timer.is_alive()
    del writer
    gc.collect()
    write(tmp_path / "m", shard_size=2, resume=True)
    timer.function(*timer.args)
    timer.cancel()
    assert LinearModel.load(tmp_path / "m").complete
