"""A million labels pass through the lanes of a device: its memory grows with the lanes, not the labels."""

from __future__ import annotations

import json

import pytest

from tests.support.processes import outputs, run_all, start

# Prints what a training of few labels holds at most, and one of many after it in the same process: bytes of
# arrays on the device, the peak of the process in kB, labels that came out, and that were solved.
WORK = """
import json, resource
import jax
import numpy as np
import scipy.sparse as sp
from xmcjax.lanes import OneVsAll, train_one_vs_all

N, D, SOLVED = 60, 400, 2000

def held(labels):
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(sp.random(N, D, 0.02, dtype=np.float32, random_state=rng))
    rows = np.concatenate([rng.integers(0, 30, SOLVED), rng.integers(30, 60, SOLVED)])
    some = np.tile(np.arange(SOLVED) * (labels // SOLVED), 2)
    Y = sp.csr_matrix((np.ones(2 * SOLVED), (rows, some)), shape=(N, labels))
    seen = [0, 0]

    def sink(result):
        seen[0] += 1
        seen[1] += result.newton_steps > 0

    most = 0

    def look(record):
        nonlocal most
        most = max(most, sum(a.nbytes for a in jax.live_arrays()))

    options = OneVsAll(backend="jnp", block_size=64, tol=1.0, clip=0.0)
    train_one_vs_all(X, Y, options, sink, observe=look, labels=np.arange(labels))
    return most, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, *seen

print(json.dumps([held(2000), held(1_000_000)]))
"""


@pytest.mark.slow
def test_a_million_labels_take_no_more_than_their_numbers():
    """2,000 of them are solved; the others have no positives, and are handed out all the same."""
    few, many = json.loads(outputs(run_all([start(WORK)]))[0].splitlines()[-1])
    assert few[2:] == [2000, 2000] and many[2:] == [1_000_000, 2000]
    # the lanes, and what is read out of them: the weights of a million labels would be 1.6 GB
    assert many[0] <= few[0] + 500_000 and many[0] < 5_000_000
    # bytes for each label: its number, where its column of Y begins, and copies of both
    assert 1024 * (many[1] - few[1]) / 1_000_000 < 160
