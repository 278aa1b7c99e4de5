"""Wrong values of the flags of every command, in one process; see harness.py for how to run it."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
import sys
import typing
from pathlib import Path

import numpy as np

from tests.attack import _commands
from tests.attack.harness import Wrong, main
from tests.support.internals import CLI_MODULES
from xmcjax.cli.main import BAD_INPUT
from xmcjax.cli.train import TIMED_OUT
from xmcjax.inits import INITS
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.penalties import PENALTIES

PURPOSE = (
    "Flags of the commands with wrong values: status 2 and one line that says what was expected, or the "
    "command does its work; never a traceback."
)
# What each command is given besides; the demo trains for a minute, with the flags of the others.
LINES = {
    "train": ["--train", "data.txt", "--model", "new"],
    "plan": ["--train", "data.txt"],
    "predict": ["--model", "model", "--data", "data.txt", "--out", "new.txt"],
    "evaluate": ["--data", "data.txt", "--predictions", "predictions.txt"],
    "inspect": ["--model", "model"],
    "report": ["--model", "model", "--out", "new.html"],
    "merge": ["--parts", "part0", "--model", "new"],
    "index": ["--model", "model"],
    "import": ["--source", "model.txt", "--model", "new", "--format", "liblinear"],
    "export": ["--model", "model", "--out", "new.txt", "--format", "npz"],
    "convert": ["--data", "data.txt", "--out", "new.npz"],
} | {
    module: ["--train", "classes.txt", "--model", "new"]
    for module in CLI_MODULES.values()
    if module != "train"
}
SVMLIGHT = ["--format", "svmlight", "--multilabel"]
SWITCHES = ("resume", "multilabel", "zero_based", "one_based", "probabilities")
NUMBERS = (
    *("0", "1", "-1", "2", "0.5", "1e-300", "1e300", "1e-30", "1000000000000", "1180591620717411303424"),
    *("nan", "inf", "-inf", "1e", "0x10", "1_0", "١", "1,5"),
)
WORDS = ("", " ", "one", "None", "True", "--", "a\nb", "\x00", "../..", "1:2", "é" * 300, "500MB")


def prepare(folder: Path):
    """Data, a model, predictions, and the flags of each command."""
    os.chdir(folder)  # where a wrong path may be written
    _commands.make_inputs(Path())
    return [(command, *flag) for command in LINES for flag in _flags(command)]


def case(context, rng: np.random.Generator) -> str:
    """One command with one value of one flag."""
    command, flag, numeric, beside = context[rng.integers(len(context))]
    values = NUMBERS if numeric and rng.random() < 0.8 else (*NUMBERS, *WORDS)
    value = values[rng.integers(len(values))]
    given = dict(zip(LINES[command][::2], LINES[command][1::2], strict=True)) | {flag: value}
    if flag == "--shape":
        del given["--train"]
    if beside is SVMLIGHT:
        given = {name: "data.svm" if text == "data.txt" else text for name, text in given.items()}
    system = next((name for name, module in CLI_MODULES.items() if module == command), None)
    begin = [command] if system in (None, "one-vs-all") else ["train", "--system", system]
    line = [*begin, *beside, *(word for pair in given.items() for word in pair)]
    try:
        status, errors = _commands.called(*line)
    except BaseException as error:
        raise Wrong(f"xmcjax {line!r}: {type(error).__name__}: {error}") from error
    finally:
        for left in ("new", "new.txt", "new.npz"):
            shutil.rmtree(left, ignore_errors=True)
            Path(left).unlink(missing_ok=True)
    if status in (0, None, TIMED_OUT):
        return "done"
    where = f"xmcjax {line!r} ended with {status}"
    if status != BAD_INPUT or "Traceback" in errors:
        raise Wrong(f"{where}: {errors[-600:]}")
    if f"xmcjax {line[0]}: error:" in errors:
        lines = [text for text in errors.splitlines() if "error:" in text]
        if len(lines) != 1 or not errors.endswith(lines[0] + "\n"):
            raise Wrong(f"{where}, and says more than one line: {errors[-600:]}")
        return "refused in one line"
    if "For full helptext" not in errors:
        raise Wrong(f"{where}, and says: {errors[-600:]}")
    return "refused as a flag that cannot be read"


def _fields(command: str):
    """(name, whether it takes a number) of each flag."""
    todo = [importlib.import_module(f"xmcjax.cli.{command}").Options]
    while todo:
        options = todo.pop()
        hints = typing.get_type_hints(options)
        for field in dataclasses.fields(options):
            if dataclasses.is_dataclass(hints[field.name]):
                todo.append(hints[field.name])
                continue
            kinds = {hints[field.name], *typing.get_args(hints[field.name])}
            yield field.name, bool(kinds & {int, float})


def _flags(command: str):
    """(flag, whether it takes a number, what has to stand beside it)."""
    beside = {}
    losses = {name: type(loss) for name, loss in MARGIN_LOSSES.items() if loss.smooth}
    for flag, table in (("--penalty", PENALTIES), ("--init", INITS), ("--loss", losses)):
        for name, kind in table.items():
            for field in dataclasses.fields(kind):
                beside.setdefault(field.name, [flag, name])
    if command != "train":
        beside = {}
    for name in ("n_features", "n_labels", "first_label"):
        beside[name] = SVMLIGHT
    return [
        (_flag(name), numeric, beside.get(name, []))
        for name, numeric in _fields(command)
        if name not in SWITCHES
    ]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    sys.exit(main(__spec__))
