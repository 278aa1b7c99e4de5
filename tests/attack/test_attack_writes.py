"""Calls of the writers to the disk fail, or the process is killed there, one after the other."""

from __future__ import annotations

import errno

import pytest

from tests.attack import writers

KILLS = (writers.KILL_BEFORE, writers.KILL_AFTER)


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
        ("ShardWriter", writers.ONCE, 2),
        ("ShardWriter", writers.KILL_BEFORE, 2),
        ("ShardWriter, going on after an error", writers.ONCE, 6),
        ("xmcjax train", writers.KILL_AFTER, 4),
        ("xmcjax train", writers.FROM_THEN_ON, 20),
    ],
)
def test_a_model_is_resumed_to_the_same_bytes_wherever_its_writing_ends(targets, name, how, step):
    """What was saved stays, what is incomplete is said, and nothing is left over."""
    context, by_name = targets
    assert by_name[name].calls > 70
    for call in range(1, by_name[name].calls + 1, step):
        said = writers.broken(context, by_name[name], call, how, (errno.ENOSPC, errno.EIO)[call // step % 2])
        assert bool(said["signal"]) == (how in KILLS)


@pytest.mark.parametrize("name", [name for name, target in writers.TARGETS.items() if target.file])
def test_a_file_is_the_old_one_or_the_new_one(targets, name):
    context, by_name = targets
    count = by_name[name].calls
    last = range(max(1, count - 5), count + 1)  # in which the new file takes the place of the old one
    for call in (1, count // 2, *last):
        for how in (writers.FROM_THEN_ON, writers.KILL_AFTER):
            said = writers.broken(context, by_name[name], call, how, errno.ENOSPC)
            assert bool(said["signal"]) == (how in KILLS)
