"""Fixtures of tests of operators."""

from __future__ import annotations

import pytest

from tests.support import gpu_targets
from tests.support.internals import platforms


@pytest.fixture
def a_gpu(monkeypatch):
    """The default device is said to be a GPU, so that what is made is made for one."""
    gpu_targets.sharding("h200")
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
