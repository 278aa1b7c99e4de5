"""Turns what the parser of flags says when it refuses them into one sentence.

The parser writes a box of several lines, wrapped to 80 columns, in sections between rules: what is wrong,
similar flags that may be meant, if there are any, or the text of ``--help`` about the flag.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BORDER = "│"
_RULE = re.compile(r"[─-]{3,}")
_NO_VALUE = r"Missing value for argument '(?:\(')?([^\s',]+)(?:',\))?'\. Expected "
_NONE_OR = r"Error parsing (\S+): no type matching \{None\}\|"
# Messages of the parser, as patterns, and our sentences in place of them.
_WORDS = (
    (r"Error parsing (\S+): could not convert string to float: (.*)", r"\1: expected a number, found \2"),
    (
        r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)",
        r"\1: expected a whole number, found \2",
    ),
    (
        _NONE_OR + r"FLOAT could be instantiated from \[(.*)\]\. Got errors: .*",
        r"\1: expected a number, found \2",
    ),
    (
        _NONE_OR + r"INT could be instantiated from \[(.*)\]\. Got errors: .*",
        r"\1: expected a whole number, found \2",
    ),
    (  # all flags of several values that are converted take whole numbers
        r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*)\]",
        r"\1: expected whole numbers, found \2",
    ),
    (r"Error parsing (\S+): (.*)", r"\1: \2"),
    (
        r"invalid choice (.*) for argument '(\S+)'\. Expected one of \((.*?),?\)\.",
        r"\2: expected one of \3, found \1",
    ),
    (_NO_VALUE + r"1 values?\.", r"\1: expected a value, found none"),
    (_NO_VALUE + r"(.*)\.", r"\1: expected \2, found fewer"),
)


@contextlib.contextmanager
def in_one_sentence(arguments: Sequence[str]) -> Iterator[None]:
    """A context in which refused flags raise ValueError, where the parser prints a box and raises SystemExit.

    Args:
        arguments: the arguments that are parsed.
    """
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            yield
    except SystemExit as leave:
        if leave.code in (None, 0) or not written.getvalue():
            sys.stderr.write(written.getvalue())
            raise
        raise ValueError(sentence(written.getvalue(), arguments)) from None
    sys.stderr.write(written.getvalue())


def sentence(box: str, arguments: Sequence[str]) -> str:
    """The message of a box of the parser as one sentence."""
    sections = _sections(box)
    missing, unknown, meant = (_named(sections, name) for name in ("Missing from", "Unrecognized", "Perhaps"))
    # the lines below a flag, which describe it, are dropped
    missing, meant = ([line for line in lines if line.startswith("-")] for lines in (missing, meant))
    if missing:
        found = f"{' '.join(unknown)}, which are none of its options" if unknown else "none"
        return f"expected {', '.join(missing)}, found {found}{_hint(_alike(unknown, missing))}"
    if unknown:
        names = [line.split()[0] for line in meant]
        found, opposite = " ".join(unknown), _opposite(unknown[0])
        if opposite in names:
            found, names = f"{unknown[0]}, which holds without {opposite}", []
        elif unknown[0] in names:  # a known flag is unknown only where it stands behind --
            found, names = f"{found} behind --", []
        return f"expected options of the command, found {found}{_hint(names)}"
    said = " ".join(line.strip() for line in sections[0]) if sections else box.strip()
    for argument in arguments:  # the box breaks long words at the ends of lines: join them again
        if len(argument) > 20:
            said = re.sub(r"\s*".join(map(re.escape, argument)), lambda _, word=argument: word, said)
    for theirs, ours in _WORDS:
        if re.fullmatch(theirs, said):
            return re.sub(theirs, ours, said)
    return said


def _hint(names: Iterable[str]) -> str:
    """The end of a sentence that says which flags may be meant; "" where there are none."""
    names = " or ".join(dict.fromkeys(names))
    return f": perhaps {names} is meant" if names else ""


def _alike(unknown: Iterable[str], missing: Iterable[str]) -> Iterator[str]:
    """Those missing flags that look like one of the unknown flags."""
    wanted = [line.split()[0].lstrip("-") for line in missing]
    for word in unknown:
        if word.startswith("--"):
            given = word.lstrip("-").partition("=")[0]
            yield from (f"--{name}" for name in difflib.get_close_matches(given, wanted, 1))


def _opposite(flag: str) -> str:
    """The opposite of a flag of yes or no."""
    name = flag.removeprefix("--")
    return f"--{name.removeprefix('no-')}" if name.startswith("no-") else f"--no-{name}"


def _sections(box: str) -> list[list[str]]:
    """The lines between the rules of a box, with their indentation."""
    lines = [line.rstrip() for line in _COLOURS.sub("", box).splitlines()]
    if any(line.startswith(_BORDER) for line in lines):
        lines = [line.strip(_BORDER).rstrip() for line in lines if line.startswith(_BORDER)]
    else:  # an output without box characters: no borders, and the title stands above the first rule
        lines = [line.removeprefix(" ") for line in lines]
        lines = lines[next((i + 1 for i, line in enumerate(lines) if _RULE.fullmatch(line)), 0) :]
    sections: list[list[str]] = [[]]
    for line in filter(None, lines):
        if _RULE.fullmatch(line.strip()):
            sections.append([])
        else:
            sections[-1].append(line.removeprefix(" "))
    return [section for section in sections if section]


def _named(sections: list[list[str]], title: str) -> list[str]:
    """The items of the section that begins with a title: the lines below it, without their explanations."""
    for first, *lines in sections:
        if first.startswith(title):
            listed = [line.strip() for line in lines if re.match(r" {4}\S", line)]
            return listed or " ".join([first, *lines]).partition(": ")[2].split(", ")
    return []
