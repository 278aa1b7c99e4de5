"""``xmcjax completion``: a script that completes commands, flags and their values."""

from __future__ import annotations

import dataclasses
import importlib
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from xmcjax._options import flag_of
from xmcjax._systems import FIRST_SYSTEM, SYSTEMS
from xmcjax.cli import _report
from xmcjax.cli._options import DIRECTORIES, FILES, list_flags
from xmcjax.cli._systems import MODULES
from xmcjax.data import TRANSFORMS

# Marks for the value of a flag that is no choice among names.
_FILE, _DIRECTORY, _OTHER = "<file>", "<directory>", "<other>"
# The flags whose value is a list of names with commas, and these names.
_LISTS = {"--transform": tuple(TRANSFORMS)}


@dataclasses.dataclass(frozen=True)
class Options:
    """Print a script that completes this command in a shell; the shell is to evaluate it.

    Attributes:
        shell: that is to complete.
    """

    shell: Literal["bash", "zsh"] = "bash"


class Flag(NamedTuple):
    """A flag of a command.

    Attributes:
        name: with its hyphens.
        values: what may follow the flag: names, or one of the marks above; empty for a switch.
        several: whether more than one value may follow.
    """

    name: str
    values: tuple[str, ...]
    several: bool


def run(options: Options) -> None:
    """Prints the script."""
    from xmcjax.cli.main import COMMANDS, COMMON

    text = script(flags_of_commands(COMMANDS, COMMON), COMMANDS)
    if options.shell == "zsh":
        text = f"autoload -U +X compinit bashcompinit && compinit && bashcompinit\n{text}"
    _report.print_lines(text.split("\n"))
    _report.print_values("script", text)


def flags_of_commands(commands: Iterable[str], common: Iterable[str]) -> dict[str, list[Flag]]:
    """The flags by command; those of ``train`` under ``train SYSTEM`` for each system."""
    shared = [_of_text(text) for text in common]
    found = {}
    for command in commands:
        if command != "train":
            found[command] = [*_of_module(command), *shared]
            continue
        system = Flag("--system", tuple(SYSTEMS), False)
        for name, module in MODULES.items():
            found[f"train {name}"] = [system, *_of_module(module), *shared]
    return found


def _of_text(text: str) -> Flag:
    """A flag that every command takes, made from its line in the help."""
    name, _, metavar = text.partition(" ")
    return Flag(name, (_FILE,) if metavar else (), False)


def _of_module(name: str) -> list[Flag]:
    flags = _of_fields(importlib.import_module(f"xmcjax.cli.{name}").Options)
    return [*flags, Flag("--help", (), False)]


def _of_fields(options: type) -> list[Flag]:
    hints, several = typing.get_type_hints(options, include_extras=True), list_flags(options)
    flags = []
    for field in dataclasses.fields(options):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            flags += _of_fields(typing.cast(type, hint))
            continue
        flag = flag_of(field.name, field.default)
        values = () if isinstance(field.default, bool) else _values(flag, list(_parts(hint)))
        flags.append(Flag(flag, values, flag in several))
    return flags


def _parts(hint: Any) -> Iterable[Any]:
    """The types that a hint is made of, and their annotations."""
    yield typing.get_origin(hint) or hint
    for part in (*typing.get_args(hint), *getattr(hint, "__metadata__", ())):
        yield from _parts(part)


def _values(flag: str, kinds: Iterable[Any]) -> tuple[str, ...]:
    if flag in FILES:
        return (_FILE,)
    if flag in DIRECTORIES:
        return (_DIRECTORY,)
    names = tuple(kind for kind in kinds if isinstance(kind, str))
    if names:
        return names
    # a metavar such as {eurlex4k,wikipedia,…} lists names
    listed = [re.fullmatch(r"\{(.*)\}", getattr(kind, "metavar", None) or "") for kind in kinds]
    return next((tuple(found[1].split(",")) for found in listed if found), (_OTHER,))


_BEGIN = """\
# Completion of xmcjax. In ~/.bashrc: eval "$(xmcjax completion)"
#                       In ~/.zshrc: eval "$(xmcjax completion --shell zsh)"
_xmcjax() {
    local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" flag="" flags="" values="" several=""
    local at system="" word="" before=""
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=( $(compgen -W "@COMMANDS@ --help --version" -- "$current") )
        return
    fi
    # the last flag before the word, and the system; bash splits words at =
    for (( at = 2; at < COMP_CWORD; at++ )); do
        word="${COMP_WORDS[at]}"
        if [[ "$word" == --system=* ]]; then system="${word#--system=}"; fi
        if [[ "$word" == --* ]]; then flag="$word"; before=""; continue; fi
        if [[ "$word" == "=" ]]; then continue; fi
        if [[ "$flag" == --system ]]; then system="$word"; fi
        before="$word"
    done
    if [[ "$current" == "=" ]]; then current=""; fi
    if [[ "$current" == --*=* ]]; then flag="${current%%=*}"; before=""; word="$flag="; else word=""; fi
    if [[ "$command" == train ]]; then command="train ${system:-@SYSTEM@}"; fi
    case "$command" in
"""
_END = """\
    esac
    # a flag has one value, unless it takes several
    if [[ -z "$flag" || ( -n "$before" && -z "$several" ) ]]; then values=""; fi
    if [[ -z "$values" || ( "$current" == -* && -z "$word" ) ]]; then
        COMPREPLY=( $(compgen -W "$flags" -- "$current") )
        return
    fi
    current="${current#"$word"}"
    case "$values" in
        "<file>") ;; # the shell's own names of files
        "<directory>")
            local IFS=$'\n'
            COMPREPLY=( $(compgen -P "$word" -d -- "$current") )
            type compopt >/dev/null 2>&1 && compopt +o default -o filenames
            ;;
        "<other>") type compopt >/dev/null 2>&1 && compopt +o default ;;
        ",")
            before=""
            if [[ "$current" == *,* ]]; then before="${current%,*},"; fi
            COMPREPLY=( $(compgen -P "$word$before" -W "@TRANSFORMS@" -- "${current##*,}") )
            type compopt >/dev/null 2>&1 && compopt +o default -o nospace
            ;;
        *)
            COMPREPLY=( $(compgen -P "$word" -W "$values" -- "$current") )
            type compopt >/dev/null 2>&1 && compopt +o default
            ;;
    esac
}
complete -o default -F _xmcjax xmcjax
"""


def script(flags: Mapping[str, Iterable[Flag]], commands: Iterable[str]) -> str:
    """The script with the function that bash calls for a completion, and that zsh calls in the same way.

    Args:
        flags: by command, for ``train`` with the system.
        commands: the names of all commands.
    """
    lines = []
    for command, found in flags.items():
        found = list(found)
        lines.append(f'        "{command}")')
        lines.append(f'            flags="{" ".join(flag.name for flag in found)}"')
        lines.append('            case "$flag" in')
        by_value: dict[tuple[str, bool], list[str]] = {}
        for flag in found:
            values = "," if flag.name in _LISTS else " ".join(flag.values)
            if values:
                by_value.setdefault((values, flag.several), []).append(flag.name)
        for (values, several), names in by_value.items():
            more = " several=1" if several else ""
            lines.append(f'                {"|".join(names)}) values="{values}"{more} ;;')
        lines += ["            esac", "            ;;"]
    begin = _BEGIN.replace("@COMMANDS@", " ".join(commands)).replace("@SYSTEM@", FIRST_SYSTEM)
    return begin + "\n".join(lines) + "\n" + _END.replace("@TRANSFORMS@", " ".join(_LISTS["--transform"]))
