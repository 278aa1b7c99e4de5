"""``xmcjax import``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import tyro

from xmcjax._words import counted
from xmcjax.cli import _report
from xmcjax.cli._options import Directory, File, check_uncompressed, one_of, parse_size
from xmcjax.cli._streams import seekable
from xmcjax.models import IMPORTS, import_model

if TYPE_CHECKING:
    ImportName = str
else:
    ImportName = one_of(IMPORTS)


@dataclasses.dataclass(frozen=True)
class Options:
    """Store a linear model of another program as a model of this one, with which all commands work.

    Attributes:
        source: the file: text that LIBLINEAR's train wrote, the JSON of dismecpp, or weights [d, L] in the
            form of scipy.
        model: new or empty directory for the model.
        format: of the file.
        bias: of dismec and npz: value of the last feature, where that stands for the bias; none if not given.
        max_memory: that reading a file may take, such as 500MB or 4GB; 20 times its size on disk and 64 MB if
            not given.
    """

    source: File
    model: Directory
    format: ImportName
    bias: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    max_memory: Annotated[str | None, tyro.conf.arg(metavar="SIZE")] = None


def run(options: Options) -> None:
    """Reads, stores, and shows the size."""
    check_uncompressed(options.source, "models of other programs", "--source")
    memory = parse_size(options.max_memory)
    with seekable(options.source, memory) as source:
        if source != options.source and options.format == "dismec":
            raise ValueError(f"--source: expected a file with its weights beside it, got {options.source}")
        try:
            model = import_model(source, options.model, options.format, bias=options.bias, max_memory=memory)
        except ValueError as error:
            if not str(error).startswith("bias: "):
                raise
            raise ValueError(f"--{error}") from error
    found = f"{counted(model.n_features, 'feature')}, {counted(model.n_labels, 'label')}, {model.dtype}"
    dtype = model.dtype.name
    _report.print_field("problem", found, features=model.n_features, labels=model.n_labels, dtype=dtype)
    density = model.density()
    _report.print_model(options.model, f", {density:.2%} of the weights non-zero", density=density)
