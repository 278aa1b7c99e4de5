"""Each call of a writer to the disk fails, or the process is killed there, and the next run goes on."""

from __future__ import annotations

import errno

import pytest

from tests.attack import writers


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    made = writers.prepare(tmp_path_factory.mktemp("disk"))
    if made.victim is None:
        pytest.skip("needs Linux and a C compiler")
    yield made
    made.victim.stdin.close()
    made.victim.wait(60)


@pytest.mark.parametrize(
    ("name", "how", "step"),
    [
        ("ShardWriter", writers.ONCE, 1),
        ("ShardWriter", writers.KILL_BEFORE, 1),
        ("ShardWriter, going on after an error", writers.ONCE, 3),
        ("xmcjax train", writers.KILL_AFTER, 4),
        ("xmcjax train", writers.FROM_THEN_ON, 12),
    ],
)
def test_a_model_is_resumed_to_the_same_bytes_wherever_its_writing_ends(context, name, how, step):
    """What was saved stays, what is incomplete is said, and nothing is left over."""
    target = next(target for target in context.targets if target.name == name)
    assert target.calls > 70
    for call in range(1, target.calls + 1, step):
        number = (errno.ENOSPC, errno.EIO)[call % 2]
        said = writers.broken(context, target, call, how, number, killed=call // 2 if step == 1 else 0)
        assert bool(said["signal"]) == (how in (writers.KILL_BEFORE, writers.KILL_AFTER))


@pytest.mark.parametrize("name", [name for name, target in writers.TARGETS.items() if target.file])
def test_a_file_is_the_old_one_or_the_new_one(context, name):
    target = next(target for target in context.targets if target.name == name)
    for how in (writers.FROM_THEN_ON, writers.SHORT, writers.KILL_AFTER):
        writers.broken(context, target, max(1, target.calls // 2), how, errno.ENOSPC)
