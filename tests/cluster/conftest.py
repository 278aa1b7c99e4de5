"""A cluster of two processes, shared by the tests of a file."""

import pytest

from xmcjax.cluster import local_cluster


@pytest.fixture(scope="module")
def client():
    with local_cluster(2) as client:
        yield client
