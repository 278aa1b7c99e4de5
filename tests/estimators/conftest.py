"""Estimators are tested with JAX's settings as a user has them."""

import jax
import pytest


@pytest.fixture(autouse=True)
def default_settings(strict_numbers):
    """float32 by default and standard promotion, against the rest of the tests."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield
