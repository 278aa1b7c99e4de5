"""Data that each host of a cluster reads for itself, from an object store or a shared path."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from xmcjax.data import Transforms, load


@dataclasses.dataclass(frozen=True)
class FromUrl:
    """A ``source`` of :func:`train_on_cluster`: a file that fsspec opens, ``s3://…``, ``gs://…``, ``file://…``.

    A host copies the file while it reads it. In this process ``X, Y = source.matrices()`` gives the same
    data.

    Attributes:
        url: of the file.
        format, options: of :func:`xmcjax.data.load`.
        transforms: of the features, already fitted; None for none.
        storage: options of ``fsspec.open`` that say how the store is reached.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from xmcjax.data import make_power_law, save_npz
        >>> file = Path(tempfile.mkdtemp(), "train.npz")
        >>> save_npz(file, *make_power_law(50, 200, 10))
        >>> X, Y = FromUrl(file.as_uri()).matrices()
        >>> X.shape, Y.shape
        ((50, 200), (50, 10))
    """

    url: str
    format: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    transforms: Transforms | None = None
    storage: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def matrices(self) -> tuple[Any, Any]:
        """Features and labels.

        Raises:
            ImportError: there is no fsspec, which comes with the extra cluster.
            DataFormatError, OSError: as :func:`xmcjax.data.load`.
        """
        import fsspec

        with tempfile.TemporaryDirectory(prefix="xmcjax-") as folder:
            copy = Path(folder, PurePosixPath(self.url).name)
            with fsspec.open(self.url, "rb", **self.storage) as file, open(copy, "wb") as target:
                shutil.copyfileobj(file, target, 1 << 24)  # type: ignore[arg-type] – a file of bytes
            X, Y = load(copy, self.format, **self.options)
        return (X if self.transforms is None else self.transforms.apply(X)), Y

    def __call__(self) -> dict[str, Any]:
        X, Y = self.matrices()
        return {"X": X, "Y": Y}
