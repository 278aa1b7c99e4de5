"""Calls of the writers to the disk fail, or the process is killed there, one after the other."""

from __future__ import annotations

import errno

import pytest

from tests.attack import writers

KILLS = (writers.KILL_BEFORE, writers.KILL_AFTER)
# The others write through the same replacement of a file: they are tried at its ends alone.
PLAIN = ("atomic_write", "atomic_write through a link", "save_npz")


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """(context, what can be written by its name)."""
    context = writers.prepare(tmp_path_factory.mktemp("disk"))
    if context.victim is None:
        pytest.skip("needs Linux and a C compiler")
    yield context, {target.name: target for target in context.targets}
    context.victim.communicate(timeout=60)


@pytest.mark.parametrize(
    ("name", "how", "step"),
    [
        # odd steps: the calls of a shard, of which there is an even number, come in turn
        ("ShardWriter", writers.ONCE, 7),
        ("ShardWriter", writers.KILL_BEFORE, 7),
        ("ShardWriter, its manifest at the end", writers.ONCE, 5),
        ("ShardWriter, its manifest at the end", writers.KILL_AFTER, 5),
        ("ShardWriter, going on after an error", writers.ONCE, 13),
        ("xmcjax train", writers.KILL_AFTER, 11),
        ("xmcjax train", writers.FROM_THEN_ON, 31),
    ],
)
def test_a_model_is_resumed_to_the_same_bytes_wherever_its_writing_ends(targets, name, how, step):
    """What was saved stays, what is incomplete is said, and nothing is left over."""
    context, by_name = targets
    assert by_name[name].calls > (35 if name.endswith("at the end") else 70)
    for call in range(1, by_name[name].calls + 1, step):
        number = (errno.ENOSPC, errno.EIO)[call // (2 * step) % 2]
        said = writers.broken(context, by_name[name], call, how, number)
        assert bool(said["signal"]) == (how in KILLS)


@pytest.mark.parametrize("name", [name for name, target in writers.TARGETS.items() if target.file])
def test_a_file_is_the_old_one_or_the_new_one(targets, name):
    context, by_name = targets
    count = by_name[name].calls
    ways = writers.FROM_THEN_ON, writers.KILL_AFTER
    if name in PLAIN:
        last = range(max(1, count - 5), count + 1)  # in which the new file takes the place of the old one
        cases = [(call, how) for call in (1, count // 2, *last) for how in ways]
    else:
        cases = zip((1, max(1, count // 2), max(1, count - 1), count), ways * 2, strict=True)
    for call, how in cases:
        said = writers.broken(context, by_name[name], call, how, errno.ENOSPC)
        assert bool(said["signal"]) == (how in KILLS)
