"""States on disk that are damaged, and disks that are full."""

from __future__ import annotations

import errno
import os
import resource
import signal

import numpy as np
import pytest

from tests.support import multinomial as helpers
from xmcjax.solvers import multinomial

HP = multinomial.HParams(1e-6, 4)


@pytest.fixture
def run(tmp_path):
    X, y = helpers.sparse_set()
    problem = helpers.problem(X, y)
    return lambda hp=HP: multinomial.run(problem, "lbfgs", hp, checkpoint=tmp_path / "state")


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _without_a_member(path):
    with np.load(path) as arrays:
        np.savez(path, **{name: array for name, array in arrays.items() if name != "header"})


def _header_of_another_kind(path):
    with np.load(path) as arrays:
        np.savez(path, **dict(arrays) | {"header": np.frombuffer(b"[1]", np.uint8)})


def _a_member_before_the_file(path):
    content = bytearray(path.read_bytes())
    content[-6] ^= 4  # of the offset of the list of members, by which zipfile moves those of members
    path.write_bytes(content)


def _members_of_gigabytes(path):
    content = bytearray(path.read_bytes())
    place = content.find(b"PK\1\2")
    while place >= 0:  # of each entry of the list of members
        content[place + 20 : place + 28] = 2 * (0xF0000000).to_bytes(4, "little")
        place = content.find(b"PK\1\2", place + 1)
    path.write_bytes(content)


def _an_array(path):
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))


def _fifo(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE = {
    "flipped": _flipped,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:900]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello\n"),
    "an array": _an_array,
    "no header": _without_a_member,
    "a header of another kind": _header_of_another_kind,
    "a member before the file": _a_member_before_the_file,
    "a FIFO": _fifo,
    "members of gigabytes": _members_of_gigabytes,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_one_sentence_and_the_one_before_goes_on(damage, run, tmp_path):
    whole = run()
    path = tmp_path / "state" / "state-0-0.npz"
    DAMAGE[damage](path)
    with pytest.raises(ValueError, match="expected the state of a run, found a damaged file") as refused:
        run()
    assert str(refused.value).startswith(str(path))
    assert damage != "members of gigabytes" or "a member of 4026531840 bytes" in str(refused.value)
    path.unlink()
    again = run()
    assert again.history[0].steps == 3
    assert again.value == whole.value


def test_a_state_of_other_shapes_is_refused(run, tmp_path):
    run()
    path = tmp_path / "state" / "state-0-0.npz"
    with np.load(path) as arrays:
        longer = {name: np.repeat(a, 2, axis=0) for name, a in arrays.items() if a.ndim == 2}
        np.savez(path, **dict(arrays) | longer)
    with pytest.raises(ValueError, match="arrays of other shapes"):
        run()


def test_a_full_disk_is_named_and_leaves_the_states_that_are_there(run, tmp_path):
    run(HP._replace(max_steps=2))
    before = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    limits, old = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, limits[1]))
    try:
        with pytest.raises(OSError, match="state-0-0") as failed:
            run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert failed.value.errno == errno.EFBIG
    assert failed.value.filename == str(tmp_path / "state" / "state-0-0.npz")
    assert {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()} == before


def test_a_run_that_has_converged_is_at_its_end(tmp_path):
    """By the certificate, where the rule of the method needs more than the state keeps."""
    X, y = helpers.sparse_set()
    problem = helpers.problem(X, y)

    def run(tol, **more):
        hp = multinomial.HParams(tol, **more)
        return multinomial.run(problem, "block_newton", hp, checkpoint=tmp_path / "state")

    first = run(1e-3)
    for _ in range(2):
        again = run(1e-3)
        np.testing.assert_array_equal(again.W, first.W)
        assert len(again.history) == 1 and again.history[0].steps == first.history[-1].steps
        assert again.gap <= 1e-3
    further = run(1e-8)
    assert further.gap <= 1e-8 and further.history[-1].steps > first.history[-1].steps
    norms = [record.gradient_norm for record in first.history]
    small = run(0.0, gradient_tolerance=1e-3 * norms[-1] / norms[0])
    assert small.history[-1].gradient_norm < norms[-1]
