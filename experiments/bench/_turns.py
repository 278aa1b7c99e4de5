"""Programs that work by turns: each is a process that answers a line of JSON with one.

A process runs on one processor and one thread. Its first line says what it is; the protocol is that of
:mod:`experiments.bench._version_worker`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.bench._worker import ONE_THREAD, ROOT, pinned, usable_processors


class Program:
    """A process that does work.

    Args:
        command: the command of the process.
        environment: variables beside those of this process.

    Raises:
        RuntimeError: the process ended.
    """

    def __init__(self, command: Sequence[str], **environment: str):
        environment = os.environ | ONE_THREAD | environment
        environment.pop("PYTHONPATH", None)
        with pinned(usable_processors()[:1]):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
            )
        try:
            #: the first line that the process printed
            self.said = self._answer()
        except RuntimeError:
            self.close()
            raise

    def made(self, name: str, kind: str, folder: Path, options: dict[str, Any]) -> dict:
        """Seconds and value of a work; the first request with a name does the work once before."""
        assert self._process.stdin is not None
        asked = {"name": name, "kind": kind, "folder": str(folder), "options": options}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args}: it ended with {self._process.wait()}")
        return json.loads(line)
