"""Shared by the tests of models."""

import os

import pytest

from tests.support.foreign_models import random_weights


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch):
    """Nothing here depends on real syncing, which tests/attack makes fail."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def weights():
    return random_weights()
