"""What the library safetensors says of a file that it cannot read, as one error of a model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from xmcjax.models._errors import ModelFormatError


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises ModelFormatError where safetensors, which works inside, finds the file unreadable.

    Of types that NumPy has not it ends in a KeyError or an AttributeError.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, KeyError, AttributeError) as error:
        what = str(error) if isinstance(error, SafetensorError) else f"a type of numbers: {error}"
        raise ModelFormatError(path, "a safetensors file", f"one that cannot be read ({what})") from error
