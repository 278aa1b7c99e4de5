"""Both readers of text run the same tests; the native one is left out where it was not built."""

from pathlib import Path

import pytest

from xmcjax.native import load_library


@pytest.fixture(params=["native", "python"])
def parser(request):
    if request.param == "native" and load_library() is None:
        pytest.skip("the native library was not built")
    return request.param


@pytest.fixture
def write(tmp_path):
    """Writes bytes to a file and gives its path."""

    def write(content: bytes, name: str = "data.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write
