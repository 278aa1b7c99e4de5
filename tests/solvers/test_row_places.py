"""Places of several processes and threads that solve one multi-class SVM, each with some of its rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import InPlace, canonical_csr, row_places
from tests.support.problems import needs_native, svm_problem
from xmcjax.native import Ascent, aligned_zeros, shared_panel, shared_room

pytestmark = needs_native
C = 0.7
WIDE = dict(n=40, d=5, m=19)


def checked(X):
    return canonical_csr(sp.csr_array(X))


def shares(m, cut):
    """Of three places: classes whose rows they have, and those whose weights they move."""
    c = np.arange(m)
    return [(c % 3 == p, moved) for p, moved in enumerate((c < cut, np.zeros(m, bool), c >= cut))]


def point(X, y, formulation, **options):
    return Ascent(checked(X), y.astype(np.int32), y.max() + 1, formulation, C, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("formulation", ["ww", "cs"])
def test_places_follow_all_moves_to_the_bit(dtype, formulation):
    X, y = svm_problem(n=80, d=7, m=40)
    given = checked(X.astype(dtype)), y.astype(np.int32), 40, formulation, C
    room = aligned_zeros((shared_room(7, 40, np.dtype(dtype)),), dtype)
    places = shares(40, shared_panel(np.dtype(dtype)))
    together = [Ascent(*given, seed=p, place=places[p], shared=room) for p in range(3)]
    alone = [Ascent(*given, seed=p, place=(places[p][0], np.full(40, True))) for p in range(3)]
    for one in (*together, *alone):
        one.assess(1.0)
    followed = 0
    for part in range(4):
        moves = []
        for p in range(3):
            for one in (together[p], alone[p]):
                one.row_part(part, 4, 1e-3)
            moves.append(together[p].moves())
            row, label, change = moves[p]
            for ours, theirs in zip(alone[p].moves(), moves[p], strict=True):
                np.testing.assert_array_equal(ours, theirs)
            assert (
                np.all(y[row] % 3 == p)
                and np.all(label != y[row])
                and np.all(change)
                and change.dtype == dtype
            )
            followed += len(row)
        before = together[0].weights
        for row, label, change in moves:  # each makes the changes in weights of its own
            for one in (*together, *alone):
                one.follow(row, label, change)
        assert np.any(before != together[0].weights)
        for one in (*together[1:], *alone):
            np.testing.assert_array_equal(one.weights, together[0].weights)
    assert followed > 100
    # the variables are those of the place that has the rows, and the weights those of all variables
    alpha = sum(one.alpha for one in together)
    for p, one in enumerate(together):
        assert set(y[one.alpha.tocoo().row] % 3) == {p}
    whole = Ascent(*given)
    whole.alpha = sp.csr_array(alpha)
    np.testing.assert_allclose(
        whole.weights, together[0].weights, atol=1e-5 if dtype == np.float32 else 1e-13
    )
    np.testing.assert_allclose(
        np.sum([one.assess(1e-3)[:2] for one in together], axis=0), whole.assess(1e-3)[:2], rtol=1e-5
    )


def test_a_place_does_not_read_what_is_no_move():
    """Memory that others write to: as many moves as there is room for, of rows and classes that there are."""
    X, y = svm_problem(n=80, d=7, m=40)
    for count, row in ((9, 0), (-1, 0), (1, 80), (1, -1)):
        one = point(X, y, "ww", place=shares(40, 16)[0])
        one.assess(1.0)
        shape, gate = (2, 8), aligned_zeros((16,), np.int64)
        state = np.zeros(2, np.int64)
        room = dict(row=np.zeros(shape, np.int32), label=np.ones(shape, np.int32), change=np.ones(shape))
        counts = np.array([[0, 0], [count, 0]])
        room["row"][1] = row
        InPlace(
            "meet", members=2, patience=1, gate=gate, state=np.zeros(2, np.int64), held=np.zeros((), np.int64)
        )()
        with pytest.raises(ValueError, match=r"as many moves as there is room for|rows below their number"):
            one.row_sweep(
                **room,
                own=0,
                parts=1,
                patience=1000,
                tolerance=0.1,
                caution=1.0,
                gate=gate,
                state=state,
                stage=np.zeros(4, np.int64),
                violation=np.zeros(1),
                counts=counts,
                held=np.zeros((), np.int64),
            )


def test_a_part_is_as_short_as_it_is_told():
    X, y = svm_problem(n=80, d=7, m=40)
    steps = []
    for caution in (1.0, 1e6):
        one = point(X, y, "ww")
        one.assess(1.0)
        one.row_part(0, 1, 1e-3, caution)
        steps.append(np.abs(one.moves()[2]).max())
    assert steps[1] < 1e-5 * steps[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(number=4), "the number of a part"),
        (dict(number=-1), "the number of a part"),
        (dict(caution=0.5), "a caution of 1 at least"),
        (dict(caution=np.nan), "a caution of 1 at least"),
    ],
)
def test_what_is_no_part_is_refused(change, message):
    X, y = svm_problem(**WIDE)
    with pytest.raises(ValueError, match=message):
        point(X, y, "ww").row_part(**(dict(number=0, parts=4, tolerance=0.1, caution=1.0) | change))


def test_what_are_no_moves_of_classes_is_refused():
    X, y = svm_problem(n=80, d=7, m=40)
    one = point(X, y, "ww")
    row, label, change = np.zeros(1, np.int32), np.ones(1, np.int32), np.ones(1)
    c = np.arange(40)
    for moved in (c >= 1, c < 5, c % 2 == 0):
        with pytest.raises(ValueError, match="expected whole panels of classes"):
            point(X, y, "ww", place=(c < 20, moved))
    for wrong in ((row + 80, label), (row, label + 39), (row - 1, label)):
        with pytest.raises(ValueError, match="below their number"):
            one.follow(*wrong, change)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_in_memory_that_two_objects_share(dtype):
    X, y = svm_problem(n=80, d=7, m=40)
    given = checked(X.astype(dtype)), y.astype(np.int32), 40, "ww", C
    together = aligned_zeros((shared_room(7, 40, np.dtype(dtype)),), dtype)
    for wrong in (together[1:], aligned_zeros((len(together) + 1,), dtype)[1:]):
        with pytest.raises(
            ValueError, match="room for the weights of Weston-Watkins or Crammer-Singer, in whole"
        ):
            Ascent(*given, shared=wrong)
    with pytest.raises(ValueError, match="room for the weights of Weston-Watkins"):
        Ascent(*given[:3], "llw", C, shared=together)
    all_classes, fewer = np.full(40, True), np.full(39, True)
    with pytest.raises(ValueError, match="whether it has each class"):
        Ascent(*given, place=(fewer, fewer))
    with pytest.raises(ValueError, match="one place but for Weston-Watkins"):
        Ascent(*given[:3], "llw", C, place=(all_classes, all_classes))


def test_what_no_longer_changes_is_left_out_of_parts():
    X, y = svm_problem(n=80, d=7, m=40)
    one = point(X, y, "ww")
    one.assess(1.0)  # gives every instance its first classes

    def sweep(tolerance):
        worst = 0.0
        for part in range(10):
            worst = max(worst, one.row_part(part, 10, tolerance))
            one.follow(*one.moves())
        return worst, one.settle(True)

    most = [sweep(1e-2) for _ in range(300)]
    assert most[0][0] > 0 and most[-1] == (0.0, 0.0)  # nothing is left to visit
    one.assess(1e-6)
    assert sweep(1e-6)[0] > 0


def test_moves_of_two_visits_in_a_row_of_one_instance_are_two():
    X, y = svm_problem(**WIDE)
    one, other = point(X, y, "ww"), point(X, y, "ww")
    row, label = np.zeros(3, np.int32), np.array([c for c in range(4) if c != y[0]][:3], np.int32)
    change = np.array([0.25, 0.5, 0.125])
    one.follow(row[:2], label[:2], change[:2])
    one.follow(row[:1], label[:1], change[2:])
    other.follow(row, label[[0, 1, 0]], change)  # a class that comes again begins the next visit
    np.testing.assert_array_equal(one.weights, other.weights)


def test_places_are_made_of_rows_that_have_little_in_common():
    y = np.repeat(np.arange(100), 30)  # ten parts have three rows of a class each
    assert row_places.parts_of(y, 100, 2) == row_places.parts_of(y, 100, 8) == 32
    assert row_places.parts_of(y, 100, 30) == 12  # of eight rows for each place
    assert row_places.parts_of(y, 100, 38) == 0
    assert row_places.parts_of(np.repeat(np.arange(63), 30), 63, 2) == 0  # few classes
    large = np.concatenate([np.zeros(600, int), np.arange(100), np.full(4000, 50)])
    assert row_places.parts_of(large, 100, 2) == 0
    assert row_places.parts_of(np.repeat(np.arange(100), 150), 100, 2) == 50


@pytest.mark.parametrize("places", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("unit", [1, 16])
def test_classes_are_shared_among_places(places, unit):
    for sizes in (
        np.ones(140, int),
        np.arange(1, 141),
        np.r_[np.ones(139, int), 1000],
        np.r_[1000, np.ones(139, int)],
        np.random.default_rng(0).integers(1, 100, 2000),
    ):
        y, m = np.repeat(np.arange(len(sizes)), sizes), len(sizes)
        found = row_places.places_of(y, m, places, unit)
        whole = found[np.arange(m) // unit * unit]
        assert len(found) == m and np.all(found == whole) and np.all((found >= 0) & (found < places))
        rows = np.bincount(found, sizes, places)
        if m == 2000 and unit * places < 50:
            assert rows.max() < 1.2 * rows.min() and np.count_nonzero(np.diff(found)) < 8 * places


def test_parts_of_a_sweep_take_about_as_long():
    """Rows of three entries and of sixty, in a random order."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 60)) * (rng.random((400, 60)) < np.repeat([0.05, 1], 200)[:, None])
    one = point(X, rng.permutation(np.arange(400) % 70), "ww")
    one.assess(1.0)
    parts = []
    for part in range(10):
        one.row_part(part, 10, 1e-9)
        parts.append(np.unique(one.moves()[0]))
    visited = np.concatenate(parts)
    assert len(visited) == len(np.unique(visited)) > 390
    work = [np.count_nonzero(X[rows]) for rows in parts]
    assert max(work) < 1.2 * min(work)


def test_parts_are_those_of_the_rows_that_are_left():
    """A part that is asked for by itself, after a sweep has left rows out and after they have come back."""
    X, y = svm_problem(n=80, d=7, m=40)
    one = point(X, y, "ww")
    one.assess(1.0)
    for _ in range(300):
        for part in range(4):
            one.row_part(part, 4, 1e-2)
            one.follow(*one.moves())
        if one.settle(True) == 0:
            break
    assert one.row_part(3, 4, 1e-2) == 0 and not len(one.moves()[0])
    one.assess(1e-9)
    assert one.row_part(3, 4, 1e-9) > 0
