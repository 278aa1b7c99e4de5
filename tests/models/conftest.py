"""Shared by the tests of models."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch):
    """Nothing here depends on real syncing: a killed process loses no page of the kernel's. That the
    writer asks for it, in the right order, is counted in test_model_crash.py."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
