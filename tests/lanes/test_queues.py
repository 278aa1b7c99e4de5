"""Which label is next."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.internals import queues
from tests.support.lanes import small
from xmcjax.lanes import OneVsAll, make_trainer
from xmcjax.losses import MARGIN_LOSSES

#      root
#     /    \
#    3      0
#   / \      \
#  1   4      5
#  |
#  2
PARENTS = np.array([-1, 3, 1, -1, 3, 0])


def labels_of(taken):
    return [label for label, _ in taken]


def test_labels_of_a_shard_go_by_their_positives():
    positives = np.arange(20) % 7
    labels = np.array([3, 4, 5, 6, 7, 8, 16, 17])
    assert queues.by_positives(positives, labels, 8).tolist() == [6, 5, 4, 3, 7, 8, 17, 16]
    assert queues.by_positives(positives, labels, 20).tolist() == [6, 5, 4, 3, 17, 16, 8, 7]


@pytest.mark.parametrize("threads", [1, 3])
def test_labels_come_once_and_in_order(threads):
    queue, seen = queues.LabelQueue(np.arange(100, 300)[::-1], threads), []
    while not queue.finished:
        taken = queue.take(4)
        assert len(taken) >= min(4, 200 - len(seen)) and len(taken) <= queues.LabelQueue.LONGEST
        assert all(parent is None for _, parent in taken)
        seen += labels_of(taken)
    assert seen == list(range(299, 99, -1))
    assert queue.take(4) == []


def test_towards_the_end_the_threads_share():
    sizes, queue = [], queues.LabelQueue(np.arange(400), 2)
    while taken := queue.take(2):
        sizes.append(len(taken))
    assert sizes[0] > 2 and sizes[-1] <= 2 and sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("labels", "threads"), [(30, 2), (33, 4), (3, 4)])
def test_few_labels_are_for_all_threads(labels, threads):
    """Also where the lanes of one would hold them all."""
    queue = queues.LabelQueue(np.arange(labels), threads)
    sizes = [len(queue.take(32)) for _ in range(threads)]
    assert queue.finished and sum(sizes) == labels and max(sizes) == -(-labels // threads)


def test_a_child_waits_for_its_parent_and_starts_from_it():
    queue = queues.TreeQueue(PARENTS, np.arange(6))
    assert sorted(labels_of(queue.take(10))) == [0, 3]
    assert queue.take(10) == [] and not queue.finished
    queue.done(3, np.full(2, 3.0), 0.3)
    taken = queue.take(10)
    assert sorted(labels_of(taken)) == [1, 4]
    for _, start in taken:
        assert start is not None and start[0].tolist() == [3, 3] and start[1] == 0.3
    queue.done(1, np.full(2, 1.0), 0.1)
    queue.done(4, np.full(2, 4.0), 0.4)
    ((label, start),) = queue.take(10)
    assert start is not None and (label, start[0].tolist(), start[1]) == (2, [1, 1], 0.1)
    queue.done(2, np.zeros(2), 0.0)
    assert not queue.finished  # label 0 is in a lane
    queue.done(0, np.zeros(2), 0.0)
    assert labels_of(queue.take(10)) == [5]
    queue.done(5, np.zeros(2), 0.0)
    assert queue.finished and queue.take(1) == []


def test_depth_first():
    queue, order = queues.TreeQueue(PARENTS, np.arange(6)), []
    while not queue.finished:
        (label,) = labels_of(queue.take(1))
        order.append(label)
        queue.done(label, np.zeros(1), 0.0)
    # a subtree is done before the next is begun
    assert order in ([0, 5, 3, 1, 2, 4], [0, 5, 3, 4, 1, 2], [3, 1, 2, 4, 0, 5], [3, 4, 1, 2, 0, 5])


def test_only_what_leads_to_the_wanted_labels():
    queue, order = queues.TreeQueue(PARENTS, np.array([2])), []
    while not queue.finished:
        for label in labels_of(queue.take(4)):
            order.append(label)
            queue.done(label, np.zeros(1), 0.0)
    assert order == [3, 1, 2]


def test_nothing_to_do():
    assert queues.LabelQueue(np.zeros(0, int)).finished
    assert queues.TreeQueue(PARENTS, np.zeros(0, int)).finished


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_a_label_that_a_queue_gives_twice_is_handed_out_twice(loss):
    """A cluster gives a task again where a worker was silent; the worker may still be at it."""
    X, Y = small()
    options, results = OneVsAll(loss=MARGIN_LOSSES[loss], block_size=3), []
    trainer = make_trainer(X, Y, None, None, options, results.append, None)
    trainer.run(queues.LabelQueue(np.array([3, 3, 1, 3, 1, 2])))
    assert sorted(result.label for result in results) == [1, 1, 2, 3, 3, 3]
    for label in (1, 3):
        one, *others = [result for result in results if result.label == label]
        for other in others:
            np.testing.assert_array_equal(other.values, one.values)
