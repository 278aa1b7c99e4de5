"""What can be wrong with a stored model."""

from __future__ import annotations

import os

# The most characters of foreign text that a message quotes.
_QUOTED = 300


def _quoted(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…"


class ModelError(ValueError):
    """A model cannot be read, continued or used as asked. What the operating system refuses (no
    such file, no permission, a full disk) stays an ``OSError``.

    Example:
        >>> import pathlib, tempfile
        >>> from xmcjax.models import LinearModel
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> length = (folder / "manifest.json").write_text("{}")
        >>> try:
        ...     LinearModel.load(folder)
        ... except ModelError as error:
        ...     print(type(error).__name__)
        ModelFormatError
    """


class ModelFormatError(ModelError):
    """A file of a model is damaged or is no such file.

    Attributes:
        path: the file.
        expected: what the format asks for.
        found: what is there instead, at most 300 characters of it.

    Example:
        >>> str(ModelFormatError("my-model", "a manifest", "none"))
        'my-model: expected a manifest, found none'
    """

    def __init__(self, path: str | os.PathLike[str], expected: str, found: str):
        found = _quoted(found)  # some libraries quote all that they cannot read, even thousands of bytes
        # All arguments go to the base class, so that the error survives a pickle between processes.
        super().__init__(os.fspath(path), expected, found)
        self.path = os.fspath(path)
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}"


class ModelMismatchError(ModelError):
    """A run cannot resume a model that was started with other options or data.

    Attributes:
        path: the directory of the model.
        key: the first thing that differs.
        found: what it is in the model.
        wanted: what the run has.

    Example:
        >>> str(ModelMismatchError("my-model", "C", "1.0", "10.0"))
        'my-model: cannot resume, the model was started with C = 1.0, this run has 10.0'
    """

    def __init__(self, path: str | os.PathLike[str], key: str, found: str, wanted: str):
        found, wanted = _quoted(found), _quoted(wanted)
        super().__init__(os.fspath(path), key, found, wanted)
        self.path, self.key, self.found, self.wanted = os.fspath(path), key, found, wanted

    def __str__(self) -> str:
        return (
            f"{self.path}: cannot resume, the model was started with {self.key} = {self.found}, "
            f"this run has {self.wanted}"
        )


class IncompleteModelError(ModelError):
    """Labels of a model are not trained yet.

    Example:
        >>> str(IncompleteModelError("my-model: 3 labels are missing"))
        'my-model: 3 labels are missing'
    """
