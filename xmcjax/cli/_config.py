"""``--config FILE`` and ``--print-config``: options of a command in TOML, under the names of its flags."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from xmcjax._options import flag_of
from xmcjax.cli._options import check_names, list_flags, taken
from xmcjax.data import DataFormatError
from xmcjax.models import check_regular

_FLAG = "--config"
#: Shows the options that a command would use, and does nothing else.
PRINT = "--print-config"


class _Flag(NamedTuple):
    default: Any
    hint: Any  #: its type


def read_config(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options of the file that ``--config`` names, and the other arguments.

    Raises:
        ValueError: the flag twice or without a file, or a file that is no TOML.
        OSError: it cannot be read.
    """
    files, rest = taken(_FLAG, arguments)
    if not files:
        return {}, rest
    if len(files) > 1 or not files[0]:
        raise ValueError(f"{_FLAG}: expected the name of one file, got {', '.join(files) or 'none'}")
    return read_options(Path(files[0])), rest


def read_options(path: Path) -> dict[str, Any]:
    """The options that a file holds, under their names with underscores.

    Raises:
        DataFormatError: it is no TOML.
        ModelFormatError: it is no regular file.
        OSError: it cannot be read.
    """
    check_regular(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # with a byte order mark or without
    except (ValueError, RecursionError) as error:
        found = str(error).replace("\n", " ")[:200]
        raise DataFormatError(path, None, None, "options in TOML", found) from error
    options = {name.replace("-", "_"): value for name, value in content.items()}
    if len(options) < len(content):
        raise DataFormatError(path, None, None, "each option once", "one with hyphens and with underscores")
    return options


def with_config(config: dict[str, Any], options: type, given: Sequence[str]) -> list[str]:
    """The options of a file as arguments, followed by those of the command line, which take precedence.

    A command accepts only that flag of a switch which changes its default. If the file sets a switch, the
    command line may also have the opposite flag, which cancels the flag of the file. If the command line has
    both flags, the last one counts.

    Args:
        config: the values of the options by name, with underscores.
        options: the dataclass of flags.
        given: the arguments of the command line.

    Raises:
        ValueError: a name that is no option, or a value of a type that no option has.
    """
    of_file, rest = _flags_of(config, options), list(given)
    for name, field in _fields(options).items():
        if name in config and isinstance(field.default, bool):
            flag, back = flag_of(name, field.default), flag_of(name, not field.default)
            turns = [argument for argument in rest if argument in (flag, back)]
            if turns:
                out = (back,) if turns[-1] == flag else (flag, back)
                of_file = [argument for argument in of_file if argument != flag]
                rest = [argument for argument in rest if argument not in out]
    return [*of_file, *rest]


def _flags_of(config: dict[str, Any], options: type) -> list[str]:
    """The options of a file as arguments; arguments and errors as above."""
    fields = _fields(options)
    arguments: list[str] = []
    for name, value in config.items():
        field = fields.get(name)
        if field is None:
            other = name.removeprefix("no_")
            hint = f"; {other} = false turns it off" if other != name and other in fields else ""
            raise ValueError(f"{_FLAG}: expected options of the command, found {name}{hint}")
        if isinstance(value, bool):
            if not isinstance(field.default, bool):
                raise ValueError(f"{_FLAG}: {name} is no switch, expected a value, found {_toml(value)}")
            if value != field.default:
                arguments.append(flag_of(name, field.default))
            continue
        if isinstance(field.default, bool):
            raise ValueError(f"{_FLAG}: expected true or false for {name}, found {value!r}")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, (int, float, str)) and not isinstance(v, bool) for v in values):
            raise ValueError(
                f"{_FLAG}: expected a number, a text or a list of them for {name}, found {value!r}"
            )
        numbers = _numbers(field.hint)
        for v in values:
            if numbers and not isinstance(v, numbers):
                kind = "a number" if float in numbers else "a whole number"
                raise ValueError(f"{_FLAG}: expected {kind} for {name}, found {v!r}")
        if isinstance(value, list) and flag_of(name, None) not in list_flags(options):
            raise ValueError(f"{_FLAG}: expected one value for {name}, found {value!r}")
        if isinstance(value, list):
            arguments += [flag_of(name, None), *map(str, values)]
        else:
            arguments.append(f"{flag_of(name, None)}={value}")
    check_names(arguments)
    return arguments


def toml(options: Any) -> str:
    """The options of a command as ``--config`` reads them; those without a value are left out."""
    lines = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            lines.append(toml(value))
        elif value is not None and value != "":
            lines.append(f"{field.name} = {_toml(value)}")
    return "\n".join(line for line in lines if line)


def _fields(options: type) -> dict[str, _Flag]:
    """The flags of a dataclass and of those within it, by name."""
    found: dict[str, _Flag] = {}
    hints = get_type_hints(options)
    for field in dataclasses.fields(options):
        if dataclasses.is_dataclass(field.default_factory):
            found |= _fields(field.default_factory)
        else:
            found[field.name] = _Flag(field.default, hints[field.name])
    return found


def _numbers(hint: Any) -> tuple[type, ...]:
    """The types of the numbers that an option of this type takes; none where it takes texts."""
    kinds = {*get_args(hint)} - {type(None), Ellipsis} or {hint}
    if not kinds <= {int, float}:
        return ()
    return (int, float) if float in kinds else (int,)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)
