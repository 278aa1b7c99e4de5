"""The package pyarrow, an extra, where it is needed."""

from __future__ import annotations

from typing import Any


def pyarrow() -> Any:
    """The package, with its readers of files.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import pyarrow.ipc  # pyright: ignore[reportMissingImports] – an extra
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        message = "Parquet and Arrow files need pyarrow: pip install 'xmcjax[arrow]'"
        raise ImportError(message) from None
    return pyarrow
