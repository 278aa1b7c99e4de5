"""Types of flags, made from the tables of losses, starts and the like, and checks of flags alone."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import tyro

from xmcjax._file_kinds import NEVER_WRITTEN
from xmcjax._options import CLASS_WEIGHTS, SHARED, Names, Option, Real, flag_of
from xmcjax.data import TRANSFORMS
from xmcjax.metrics import PROPENSITY_PRESETS, propensity_preset

File = Annotated[Path, tyro.conf.arg(metavar="FILE")]
Directory = Annotated[Path, tyro.conf.arg(metavar="DIR")]
TransformNames = Annotated[
    str,
    tyro.conf.arg(
        metavar="T,T,..",
        help=f"of the features, in this order, some of {', '.join(TRANSFORMS)}; fitted on the training data "
        "and stored in the model",
    ),
]


#: Flags that take the name of a file, and of a directory.
FILES = (
    *("--data", "--filter-labels", "--labels-file", "--more-features", "--out", "--out-labels"),
    *(
        "--held-out",
        "--held-out-predictions",
        "--held-out-labels-file",
        "--predictions",
        "--source",
        "--test",
        "--test-labels-file",
        "--test-more-features",
        "--train",
        "--train-labels-file",
        "--vocabulary",
    ),
)
DIRECTORIES = ("--model", "--parts", "--pretrained")
# The flag of the statistics file, which is written during a run, and which a resumed run extends.
_STATISTICS = "--stats"
_THREADS = {"--threads": "--n-jobs"}
#: For each command, the flags of earlier versions, and the flag that replaces each.
RENAMED = {
    "demo": _THREADS,
    "predict": _THREADS,
    "train": {
        "--eps": "--tol",
        "--sparsify": "--sparsify-rise",
        "--bias": "--no-fit-intercept in place of none, and --no-regularise-intercept in place of free",
        "--seed": "--random-state",
        **_THREADS,
    },
}


def check_folds(calibration: str, cv: int) -> None:
    """Checks that a number of folds comes with a calibration.

    Raises:
        ValueError: there is no calibration.
    """
    if calibration == "none" and cv != SHARED["cv"].of_flag:
        raise ValueError(f"--cv {cv} needs --calibration, got none")


def refuse_old(command: str, arguments: Iterable[str]) -> None:
    """Checks that no flag has a name of an earlier version.

    Raises:
        ValueError: one has; the message gives the new name.
    """
    new = RENAMED.get(command, {})
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in new:
            raise ValueError(f"the flag {name} is now {new[name]}")


def list_flags(options: type) -> list[str]:
    """The flags of a dataclass, and of the dataclasses within it, that take several values."""
    found: list[str] = []
    for name, hint in get_type_hints(options).items():
        if dataclasses.is_dataclass(hint):
            found += list_flags(hint)  # type: ignore[arg-type]  # a class
        elif get_origin(hint) is tuple:
            found.append(flag_of(name, None))
    return found


def refuse_repeated(options: type, arguments: Sequence[str]) -> None:
    """Checks that no flag of several values is given twice, because the parser would ignore the first one.

    Raises:
        ValueError: a flag is given twice.
    """
    names = [argument.partition("=")[0].replace("_", "-") for argument in arguments]
    for flag in list_flags(options):
        if names.count(flag) > 1:
            times = f"got it {names.count(flag)} times"
            raise ValueError(f"{flag}: expected it once, with all of its values behind it, {times}")


def taken(flag: str, arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """The value of each occurrence of a flag ("" where nothing follows it), and the other arguments."""
    values: list[str] = []
    rest: list[str] = []
    following = iter(arguments)
    for argument in following:
        name, equals, value = argument.partition("=")
        if name == flag:
            values.append(value if equals else next(following, ""))
        else:
            rest.append(argument)
    return values, rest


def check_names(arguments: Iterable[str]) -> None:
    """Checks that the flags that name files and directories have such names.

    This cannot be seen in the paths that they are parsed to: there an empty name is the current directory,
    and a slash at the end of a name is dropped.

    Raises:
        ValueError: an empty name, a directory in place of a file, or a stream where none is possible.
    """
    arguments = list(arguments)
    for argument, following in itertools.zip_longest(arguments, arguments[1:]):
        flag, equals, value = argument.partition("=")
        value = value if equals else following
        if flag not in (*FILES, *DIRECTORIES, _STATISTICS) or value is None:
            continue
        expected = "a directory" if flag in DIRECTORIES else "a file"
        if not value:
            raise ValueError(f"{flag}: expected the name of {expected}, got an empty one")
        if flag not in DIRECTORIES and os.path.basename(value) in ("", ".", ".."):
            raise ValueError(f"{flag}: expected the name of a file, got that of a directory: {value}")
        if flag not in FILES and value == "-":
            raise ValueError(f"{flag}: expected {expected}, which no stream is, got - (./- has that name)")


def described(options: Mapping[str, Option]):
    """Decorates a dataclass of flags: a flag that is an option gets the text of the option in ``--help``.

    Args:
        options: by name; the field with the name of an option is its flag, and has its default.
    """

    def decorate(cls: type) -> type:
        hints = get_type_hints(cls, include_extras=True)
        for name in hints.keys() & options.keys():
            text = tyro.conf.arg(help=options[name].for_flag().removesuffix("."))
            cls.__annotations__[name] = Annotated[hints[name], text]
        return cls

    return decorate


def with_flags(options: Mapping[str, Option]):
    """Decorates a class that has only a docstring: it becomes a dataclass of flags with all the options."""

    def decorate(cls: type) -> type:
        cls.__annotations__ = {name: _type_of(option) for name, option in options.items()}
        for name, option in options.items():
            setattr(cls, name, option.of_flag)
        return described(options)(dataclasses.dataclass(frozen=True)(cls))

    return decorate


def _type_of(option: Option) -> Any:
    """The type of the flag of an option."""
    if isinstance(option.values, Names):
        return one_of((("none",) if option.optional else ()) + option.values.names)
    if option.of_flag is None:
        kind, metavar = (float, "FLOAT") if isinstance(option.values, Real) else (int, "N")
        return Annotated[kind | None, tyro.conf.arg(metavar=metavar)]
    return type(option.of_flag)


def check_out(out: Path, *inputs: Path, model: Path | None = None, flag: str = "--out") -> None:
    """Checks that an output may be written: it replaces a file of its name, but no input of the command.

    Args:
        out: the file to be written.
        inputs: files that are read.
        model: a model directory that is read; nothing is written into it.
        flag: the flag that named the output.

    Raises:
        ValueError: it may not be written.
        OSError: symbolic links lead in a circle.
    """
    place = _place(out)
    if place in [_place(path) for path in inputs] and not _two_ways(place):
        raise ValueError(f"{flag}: expected another file than the data, got {out}")
    if model is not None and _place(model) in (place, *place.parents):
        raise ValueError(f"{flag}: expected a file outside the model {model}, got {out}")


def check_stats(stats: Path, model: Path, resume: bool) -> None:
    """Checks that statistics of a training may be written: to a new file, or to that of a resumed run.

    Raises:
        FileExistsError: the file exists, and the run has no --resume.
        ValueError: the file is in the model.
        OSError: symbolic links lead in a circle.
    """
    check_out(stats, model=model, flag="--stats")
    if stats.is_file() and not resume:
        raise FileExistsError(f"{stats}: expected a new file for --stats, found one (nothing was changed)")


def check_uncompressed(path: Path, what: str, flag: str = "--out") -> None:
    """Checks that the name of a file that is never compressed does not promise compression.

    Args:
        path: the file, to be written or read.
        what: the content of the file, in a few words.
        flag: the flag that named the file.

    Raises:
        ValueError: the name ends in .gz, .xz or the suffix of another compression.
    """
    if path.suffix.lower() in (".gz", ".xz", *NEVER_WRITTEN):
        raise ValueError(f"{flag}: {what} are not compressed, expected no {path.suffix}: {path}")


def check_compression(path: Path, flag: str) -> None:
    """Checks that a file of data can be written as its name says.

    Raises:
        ValueError: the name ends in the suffix of a compression other than .gz and .xz.
    """
    if path.suffix.lower() in NEVER_WRITTEN:
        raise ValueError(f"{flag}: expected no compression but .gz or .xz, got {path.suffix}: {path}")


def _two_ways(path: Path) -> bool:
    """Whether reading from a path does not give what was written to it: a terminal, /dev/null, a socket."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def _place(path: Path) -> Path:
    """The path with all links resolved; it need not exist."""
    with contextlib.suppress(
        FileNotFoundError, NotADirectoryError
    ):  # these errors are left to reading and writing, which say more
        os.stat(path)  # raises the error of the system, where Path.resolve raises one of Python
    return Path(os.path.realpath(path))


def one_of(names: Iterable[str]) -> Any:
    """The type of a flag that takes one of these names; ``--help`` lists them."""
    return Literal[tuple(names)]


def make_entry(table: Mapping[str, type], flag: str, options: Any) -> Any:
    """An entry of a table, such as ``INITS``, with its own options taken from the flags.

    Args:
        table: frozen dataclasses by name.
        flag: the flag with the name of the entry, a field of ``options``; fields named like those
            of an entry are its options.
        options: a frozen dataclass of flags.

    Raises:
        ValueError: a flag is set that belongs to other entries of the table, or a value is out of range.
    """
    name = getattr(options, flag)
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    owners: dict[str, list[str]] = {}
    for entry, kind in table.items():
        for field in dataclasses.fields(kind):
            owners.setdefault(field.name, []).append(entry)
    values = {}
    for option, entries in owners.items():
        value = getattr(options, option)
        if name in entries:
            if value is not None:
                values[option] = value
        elif value != defaults[option]:
            raise ValueError(
                f"{flag_of(option, value)} is for --{flag} {' or '.join(entries)}, got --{flag} {name}"
            )
    try:
        return table[name](**values)
    except ValueError as error:
        text = str(error)
        for option in values:
            if re.search(rf"\b{option}\b", text):
                flag = flag_of(option, defaults[option])
                raise ValueError(f"{flag}: {text.removeprefix(f'{option}: ')}") from error
        raise


if TYPE_CHECKING:
    ClassWeightName = str
else:
    ClassWeightName = one_of(("none", *CLASS_WEIGHTS.names))
# The name of a data set, as ``xmcjax.metrics.propensity_preset`` takes it: case and hyphens do not matter.
PresetName = Annotated[str, tyro.conf.arg(metavar="{" + ",".join(PROPENSITY_PRESETS) + "}")]


def check_preset(name: str) -> None:
    """Checks that ``--propensities`` names a data set.

    Raises:
        ValueError: it does not; the message lists the names.
    """
    try:
        propensity_preset(name)
    except ValueError:
        names = ", ".join(PROPENSITY_PRESETS)
        raise ValueError(f"--propensities: expected one of {names}, found {name!r}") from None


_UNITS = {"MB": 10**6, "GB": 10**9}


def parse_size(text: str | None) -> int | None:
    """The number of bytes in a text such as "500MB" or "1.5GB"; None for None.

    Raises:
        ValueError: another form, or an empty text.
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(MB|GB)", text)
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size == 0:
        raise ValueError(f"--max-memory: expected a size such as 500MB or 4GB, got {text!r}")
    return size


def parse_range(text: str | None, n_labels: int | None = None) -> tuple[int, int] | None:
    """(A, B) for the text "A:B", labels A to B−1; None for None.

    Args:
        text: the value of the flag.
        n_labels: L; None checks only the form.

    Raises:
        ValueError: another form, or not 0 ≤ A < B ≤ L.
    """
    if text is None:
        return None
    limit = "L" if n_labels is None else n_labels
    first, colon, last = text.partition(":")
    number = str.isdecimal
    if colon and number(first) and number(last) and int(first) < int(last) <= (n_labels or int(last)):
        return int(first), int(last)
    raise ValueError(f"--labels: expected A:B with 0 <= A < B <= {limit}, got {text!r}")
