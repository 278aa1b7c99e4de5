"""Commands that are run in this process, and how they end."""

from __future__ import annotations

from typing import NamedTuple

from xmcjax.cli.main import main


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


def run(capsys, *arguments) -> Result:
    """``xmcjax`` with these arguments, in this process."""
    capsys.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as leave:
        code = leave.code
    return Result(code, *capsys.readouterr())
