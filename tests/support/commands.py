"""Commands that are run in this process, or in one of their own, and how they end."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import python
from xmcjax.cli.main import main

ROOT = Path(__file__).parents[2]


class Result(NamedTuple):
    """How a command ended."""

    code: int | str | None
    out: str
    err: str

    def done(self) -> Result:
        """Itself, where the command did its work."""
        assert self.code == 0, self
        return self

    def refused(self, *parts) -> str:
        """The one line of a refusal, which has these parts in it."""
        assert self.code == 2, self
        lines = self.err.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("xmcjax ") and ": error: " in lines[0]
        for part in parts:
            assert str(part) in lines[0], lines[0]
        return lines[0]


def documented_fields() -> set[tuple[str, str]]:
    """(command, field) of the table of docs/reference/cli.md about ``--json``."""
    section = (ROOT / "docs" / "reference" / "cli.md").read_text().partition("## The fields of --json")[2]
    found, fields = set(), []
    for line in section.partition("\n## ")[0].splitlines():
        if line.startswith("|"):
            names, commands = (cell.strip() for cell in line.split("|")[1:3])
            fields = re.findall(r"`(\w+)`", names) or fields
            found |= {(command.strip(), field) for command in commands.split(",") for field in fields}
    return found


def run(capsys, *arguments) -> Result:
    """``xmcjax`` with these arguments, in this process; what ``--json`` prints must be documented."""
    capsys.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as leave:
        code = leave.code
    result = Result(code, *capsys.readouterr())
    if "--json" in arguments and code == 0:
        told = json.loads(result.out or result.err)
        command = told.pop("command")
        told.pop("warnings", None)
        assert {(command, field) for field in told} <= documented_fields()
    return result


_APART = """
import json, sys
from xmcjax.cli.main import main

for line in json.loads(sys.argv[1]):
    try:
        code = main(line)
    except SystemExit as leave:
        code = leave.code
    for stream in (sys.stdout, sys.stderr):
        stream.write(f"\\x1e{code or 0}\\x1f")
"""


def run_apart(*lines, **environment) -> list[Result]:
    """Commands one after the other in one process that has these variables."""
    done = python(_APART, json.dumps([[str(word) for word in line] for line in lines]), **environment)
    assert done.returncode == 0, done.stderr
    ends = [[end.split("\x1e") for end in said.split("\x1f")[:-1]] for said in (done.stdout, done.stderr)]
    return [Result(int(code), out, err) for (out, code), (err, _) in zip(*ends, strict=True)]


class Terminal(io.StringIO):
    """A stream that passes for a terminal."""

    def isatty(self):
        return True
