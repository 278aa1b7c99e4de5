"""Completion in the shells themselves: commands, flags, the names that a flag takes, files."""

import contextlib
import os
import re
import select
import shutil
import subprocess
import time

import pytest

from tests.support.internals import SYSTEMS
from xmcjax.cli import completion
from xmcjax.cli.main import COMMANDS, COMMON
from xmcjax.data import TRANSFORMS
from xmcjax.models import EXCHANGES

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")

ASKING = """
source "$1"; shift
compopt() { :; }  # it knows no completion outside of one
COMP_CWORD=$(( $# - 1 ))
COMP_WORDS=("$@")
_xmcjax
if (( ${#COMPREPLY[@]} )); then printf '%s\\n' "${COMPREPLY[@]}"; fi
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "script"
    path.write_text(completion.script(completion.flags_of_commands(COMMANDS, COMMON), COMMANDS))
    return path


@pytest.fixture
def asked(script):
    """What bash offers for the last word; what it splits at = is to be given so."""

    def ask(*words):
        command = [BASH, "--norc", "-c", ASKING, "ask", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return ask


def flags_in_the_help(xmcjax, *command) -> set[str]:
    text = xmcjax(*command, "--help").done().out
    return set(re.findall(r"^[ │]*(?:-h, )?(--[a-zA-Z][\w-]*)", text, re.MULTILINE))


@needs_bash
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "train"])
def test_every_flag_of_a_command_is_offered(xmcjax, asked, command):
    assert set(asked("xmcjax", command, "")) == flags_in_the_help(xmcjax, command) | {"--help"}


@needs_bash
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_flag_of_a_system_is_offered(xmcjax, asked, system):
    expected = flags_in_the_help(xmcjax, "train", "--system", system) | {"--help"}
    assert set(asked("xmcjax", "train", "--system", system, "--")) == expected
    assert set(asked("xmcjax", "train", "--system", "=", system, "--")) == expected


@needs_bash
def test_names_that_a_flag_takes(asked):
    assert asked("xmcjax", "") == [*COMMANDS, "--help", "--version"]
    assert asked("xmcjax", "in") == ["inspect", "index", "info"]
    assert asked("xmcjax", "train", "--system", "") == list(SYSTEMS)
    assert asked("xmcjax", "train", "--loss", "h") == ["huber_hinge", "hinge"]
    assert asked("xmcjax", "train", "--loss", "=", "h") == ["huber_hinge", "hinge"]
    assert "logistic" in asked("xmcjax", "train", "--loss", "=")
    assert asked("xmcjax", "train", "--system", "multiclass", "--formulation", "o") == ["ovr", "ovr_squared"]
    assert asked("xmcjax", "train", "--formulation", "") == asked("xmcjax", "train", "")
    assert asked("xmcjax", "export", "--format", "") == list(EXCHANGES)
    assert asked("xmcjax", "evaluate", "--propensities", "Eur") == []
    assert asked("xmcjax", "evaluate", "--propensities", "EUR") == ["EURLex-4K"]
    assert asked("xmcjax", "train", "--transform", "") == list(TRANSFORMS)
    assert asked("xmcjax", "train", "--transform", "log,u") == ["log,unit"]
    # behind a value come flags, and behind one of several another value too
    assert "--model" in asked("xmcjax", "train", "--loss", "logistic", "")
    assert asked("xmcjax", "train", "--resume", "--mod") == ["--model"]
    assert asked("xmcjax", "evaluate", "--k", "1", "3", "--da") == ["--data"]
    assert asked("xmcjax", "evaluate", "--k", "1", "") == []
    # where files stand the shell has its own names
    assert asked("xmcjax", "predict", "--data", "") == []


class Terminal:
    """A shell on a terminal, which has read the script."""

    def __init__(self, shell, folder, script: str):
        import pty

        (folder / "script").write_text(script)
        self._unread = ""
        self._terminal, end = pty.openpty()
        environment = os.environ | {"PS1": "PS> ", "TERM": "dumb", "INPUTRC": "/dev/null"}
        self._child = subprocess.Popen(
            shell, stdin=end, stdout=end, stderr=end, start_new_session=True, cwd=folder, env=environment
        )
        os.close(end)
        assert "PS> " in self._seen("PS> ")
        self._write("source ./script; echo rea''dy\n")
        assert "ready" in self._seen("ready\r\n")
        assert "PS> " in self._seen("PS> ")

    def line(self, keys: str, expected: str) -> str:
        """What the terminal shows after some keys, which are taken back; it is waited for the text."""
        self._write(keys)
        seen = self._seen(expected)
        self._write("\x15")
        self._seen("\0", 0.3)  # until it is quiet
        return seen

    def _write(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def _seen(self, text: str, seconds: float = 20) -> str:
        """Up to the text and with it, or what there is when the time is over."""
        end = time.monotonic() + seconds
        while text not in self._unread and time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.05)[0]:
                self._unread += os.read(self._terminal, 4096).decode(errors="replace")
        before, found, self._unread = self._unread.partition(text)
        return before + found

    def close(self) -> None:
        self._child.kill()
        self._child.wait(timeout=60)
        os.close(self._terminal)


@needs_bash
def test_files_and_directories_on_a_terminal(script, tmp_path):
    (tmp_path / "test data.txt").touch()
    (tmp_path / "test_model").mkdir()
    with contextlib.closing(
        Terminal([BASH, "--norc", "--noprofile", "-i"], tmp_path, script.read_text())
    ) as t:
        for keys, expected in (
            ("xmcjax predict --data test\\ \t", "--data test\\ data.txt "),
            ("xmcjax predict --data=test\\ \t", "--data=test\\ data.txt "),
            ("xmcjax predict --model te\t", "--model test_model/"),
            ("xmcjax train --loss=log\t", "--loss=logistic "),
            ("xmcjax train --C te\tEND", "--C te\aEND"),  # a number is no file
        ):
            assert expected in t.line(keys, expected)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_completes_too(xmcjax, tmp_path):
    text = xmcjax("completion", "--shell", "zsh").done().out
    text = text.replace("&& compinit &&", "&& compinit -u -D &&", 1)  # no file of its own, no question
    (tmp_path / "test_model").mkdir()
    with contextlib.closing(Terminal([shutil.which("zsh"), "-f", "-i"], tmp_path, text)) as t:
        for keys, expected in (
            ("xmcjax train --loss log\t", "istic"),
            ("xmcjax train --loss=log\t", "istic"),
            ("xmcjax train --system kernel --app\t", "roximation"),
            ("xmcjax train --transform log,un\t", "it"),
            ("xmcjax predict --model te\t", "st_model"),
        ):
            assert expected in t.line(keys, expected)


def test_the_command_prints_what_the_shell_evaluates(xmcjax, script):
    assert xmcjax("completion").done().out == script.read_text() + "\n"
    assert xmcjax("completion", "--shell", "zsh").done().out.startswith("autoload -U +X compinit")
    xmcjax("completion", "--json").done()
    assert xmcjax("completion", "--shell", "fish").code == 2
