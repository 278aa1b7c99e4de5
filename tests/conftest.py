"""Every test runs in float64 with strict promotion unless it says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def strict_numbers():
    """x64 on, no silent promotion of dtypes."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="module")
def quick_compilation():
    """For tests whose time is nearly all compilation: without most of the compiler's optimisations."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets: ``XMCJAX_DATA``, or shared/data beside the checkout."""
    folder = Path(os.environ.get("XMCJAX_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder; set XMCJAX_DATA")
    return folder
