"""Runs an attack: many cases, each made from its number alone, in processes that may crash or hang.

An attack is a module with

    PURPOSE: str                      one line: what is attacked, and what must not happen
    prepare(folder: Path) -> context  made once per process; `folder` is the process's own and empty
    case(context, rng) -> str         one case, made from `rng` alone; returns what came of it, such as "fine"
                                      or "refused", and raises `Wrong` where the library broke a promise

and ends with ``if __name__ == "__main__": sys.exit(main(__spec__))``. Then

    python -m tests.attack.NAME --seconds 600 --seed 0      attacks for ten minutes and prints the counts
    python -m tests.attack.NAME --seed 0 --only 1234        repeats one case, in this process

A case that is wrong, a process that dies in a case, and one that needs longer than ``--patience`` are printed
with the command that repeats them, and the exit status is 1. `test_attacks.py` runs the short form.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import importlib
import json
import mmap
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
_LAST = struct.Struct("<q")


class Wrong(Exception):
    """The library broke a promise; the text says which and how."""


@dataclasses.dataclass
class Counts:
    """What came of an attack.

    Attributes:
        outcomes: cases by what came of them.
        failures: one text for each case that was wrong, crashed or hung, with the command that repeats it.
    """

    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failures: list[str] = dataclasses.field(default_factory=list)

    @property
    def cases(self) -> int:
        return sum(self.outcomes.values())

    def __str__(self) -> str:
        lines = [f"{self.cases:,} cases"]
        lines += [f"{count:>10,}  {outcome}" for outcome, count in sorted(self.outcomes.items())]
        return "\n".join(lines + self.failures)


def attack(name: str, seconds: float, seed: int = 0, *, patience: float = 60) -> Counts:
    """Attacks for about `seconds`.

    Args:
        name: of a module of this package.
        seconds: after which no case is begun.
        seed: of all cases; case i of a seed is always the same.
        patience: seconds that a case may take.
    """
    counts = Counts()
    deadline = time.monotonic() + seconds
    first = 0
    with tempfile.TemporaryDirectory(prefix=f"attack-{name}-") as scratch:
        place = Path(scratch)
        while True:
            begun = first
            left = max(deadline - time.monotonic(), 0.0)
            first = _one_process(name, seed, first, left, patience, place, counts)
            # a process that ended before its first case would do so again
            if first == begun or time.monotonic() >= deadline or len(counts.failures) >= 20:
                break
    return counts


def _one_process(name, seed, first, seconds, patience, place: Path, counts: Counts) -> int:
    """Cases from `first` on until the time is over or the process dies; the number of the next case."""
    last, log = place / "last", place / "log"
    last.write_bytes(_LAST.pack(first - 1))
    work = Path(tempfile.mkdtemp(dir=place))
    command = [sys.executable, "-m", f"tests.attack.{name}", "--seed", str(seed), "--child", str(first)]
    command += ["--seconds", str(seconds), "--folder", str(work), "--last", str(last)]
    with open(log, "wb") as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    hung = False
    seen, waited, before = first - 1, 0.0, time.monotonic()
    while child.poll() is None:
        time.sleep(0.05)
        now = time.monotonic()
        waited += min(now - before, 1.0)  # where this process was stopped, the other one was too
        before = now
        number = _LAST.unpack(last.read_bytes())[0]
        if number != seen:
            seen, waited = number, 0.0
        # before its first case a process imports JAX
        elif waited > patience + (60 if seen < first else 0):
            hung = True
            child.send_signal(signal.SIGKILL)
            child.wait(60)
    seen = _LAST.unpack(last.read_bytes())[0]
    tail = log.read_text(errors="replace")
    for line in tail.splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            counts.outcomes.update(said["outcomes"])
            counts.failures += [
                f"case {i}: {text}\n    {_repeat(name, seed, i)}" for i, text in said["failures"]
            ]
    if child.returncode != 0:
        how = f"no end within {patience:g} s" if hung else f"the process ended with {child.returncode}"
        counts.outcomes["hang" if hung else "crash"] += 1
        end = "\n    ".join(tail.splitlines()[-12:])
        counts.failures.append(f"case {seen}: {how}\n    {_repeat(name, seed, seen)}\n    {end}")
    return seen + 1


def _repeat(name: str, seed: int, number: int) -> str:
    return f"python -m tests.attack.{name} --seed {seed} --only {number}"


def _rng(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, number])


def main(spec) -> int:
    """The command line of an attack; the exit status."""
    module = sys.modules["__main__"]
    name = spec.name.rpartition(".")[2]
    parser = argparse.ArgumentParser(prog=f"python -m tests.attack.{name}", description=module.PURPOSE)
    parser.add_argument("--seconds", type=float, default=600, help="of attacking (600)")
    parser.add_argument("--seed", type=int, default=0, help="of all cases (0)")
    parser.add_argument("--patience", type=float, default=60, help="seconds that a case may take (60)")
    parser.add_argument("--only", type=int, metavar="CASE", help="repeat this case in this process")
    for hidden in ("--child", "--folder", "--last"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # under its own name: classes of the module are the same for whoever imports it
    module = importlib.import_module(f"tests.attack.{name}")
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(module.case(module.prepare(Path(folder)), _rng(options.seed, options.only)))
        return 0
    if options.child is not None:
        _child(module, options)
        return 0
    counts = attack(name, options.seconds, options.seed, patience=options.patience)
    print(module.PURPOSE, counts, sep="\n")
    return 1 if counts.failures else 0


def _child(module, options) -> None:
    deadline = time.monotonic() + options.seconds
    context = module.prepare(Path(options.folder))
    outcomes: collections.Counter[str] = collections.Counter()
    failures: list[tuple[int, str]] = []
    number = int(options.child)
    said = time.monotonic()

    def say():
        print(json.dumps({"outcomes": outcomes, "failures": failures}), flush=True)
        outcomes.clear()
        failures.clear()

    with open(options.last, "r+b") as file, mmap.mmap(file.fileno(), _LAST.size) as last:
        while True:
            last[:] = _LAST.pack(number)
            try:
                outcomes[module.case(context, _rng(options.seed, number))] += 1
            except Wrong as wrong:
                outcomes["wrong"] += 1
                failures.append((number, str(wrong)))
            number += 1
            over = time.monotonic() >= deadline or len(failures) >= 20
            # what was counted survives a crash that comes later
            if over or failures or time.monotonic() - said > 1:
                say()
                said = time.monotonic()
            if over:
                return
