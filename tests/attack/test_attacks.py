"""The short form of every attack; see harness.py for the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack import harness

# Seconds of each attack here, after its process has started; the scripts take 600.
SECONDS = 3
# Seconds that a case may take here, beside many other tests.
PATIENCE = 240
# What they attack has tests of its own, or a form of it is attacked by another.
SLOW = {"kernel_models", "models", "scales_kernel", "scales_multilabel", "scales_newton"}
ATTACKS = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if "\nPURPOSE = " in path.read_text()
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in ATTACKS]
)
def test_no_promise_is_broken(name):
    counts = harness.attack(name, SECONDS, patience=PATIENCE)
    assert not counts.failures, str(counts)
    assert counts.cases > 0
