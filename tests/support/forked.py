"""Every call of the table, made in a process that is forked after JAX has computed.

``main(limit)`` prints how each call ended there: "worked", "refused" with the sentence that names the reason,
"waited" where it was not back within the limit, or the error.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import jax

from tests.support import calls

REASON = "this process was forked from process"
# calls that wait after which the others are not tried: each takes its limit
ENOUGH = 8
# of the calls that are made in this process, too: those that take longer are made by the attack
CHEAP = 5


def _ended(call: calls.Call) -> str:
    try:
        jax.block_until_ready(call.function(**call.arguments))
        return "worked"
    except RuntimeError as error:
        return "refused" if str(error).startswith(REASON) else repr(error)
    except Exception as error:
        return repr(error)


def _in_child(made: dict[str, calls.Call], limit: float) -> dict[str, str]:
    """How the calls ended in one forked process, up to the first that did not end."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        try:
            for call in made.values():
                os.write(send, f"{_ended(call)[:300]!r}\n".encode())
        finally:
            os._exit(0)
    os.close(send)
    ended = {}
    with os.fdopen(receive, "rb", buffering=0) as lines:
        for name in made:
            if not select.select([lines], [], [], limit)[0]:
                ended[name] = "waited"
                break
            ended[name] = eval(lines.readline() or "'the process ended'")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return ended


def main(limit: float) -> None:
    """Prints how each call ended in a forked process, and then how it ended in this one."""
    warnings.simplefilter("ignore")  # JAX warns of every fork
    with tempfile.TemporaryDirectory() as folder:
        made = calls.calls(Path(folder))
        ended: dict[str, str] = {}
        while len(ended) < len(made) and list(ended.values()).count("waited") < ENOUGH:
            ended |= _in_child({name: call for name, call in made.items() if name not in ended}, limit)
        # what was compiled here before would have worked there, sometimes
        cheap = {name: call for name, call in made.items() if call.cost <= CHEAP}
        here = {name: _ended(call) for name, call in cheap.items() if ended.get(name) != "waited"}
    sys.stdout.write(f"{ended, here}\n")
