"""Entry of the command ``xmcjax``: finds the command, reads its flags, turns errors into one line."""

from __future__ import annotations

import contextlib
import errno
import importlib
import inspect
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence

from xmcjax._exit import end_now, has_left, keep_clients
from xmcjax.cli._outputs import keep_numbers_of_outputs
from xmcjax.cli._signals import Ended, end_at_signals, ending_the_command

# The commands, which are modules of this package, in the order in which users need them; the texts are for
# ``xmcjax --help``.
COMMANDS = {
    "demo": "train, save, load and evaluate a model on data that ship with the package",
    "plan": "say what memory, disk and time training would take",
    "train": "train a model",
    "predict": "write the best labels of each row",
    "evaluate": "compare predictions with the truth",
    "inspect": "show how a model was trained, its size and the largest weights of its labels",
    "report": "write a page with pictures: how a model was trained, ended and predicts",
    "merge": "join parts of a model that were trained with --labels",
    "index": "store the weights of a model by feature, for the prediction of single rows",
    "import": "store a model of LIBLINEAR, dismecpp or others",
    "export": "write a model for LIBLINEAR, dismecpp, onnxruntime or others",
    "convert": "turn a text file into npz, which is read several times faster",
    "info": "versions, devices, and what this installation can do",
    "completion": "print a script that completes this command in bash or zsh",
}

JSON = "--json"
#: What every command takes.
COMMON = {
    JSON: "print the summary as one JSON object",
    "--config FILE": "take options from a TOML file, under the names of the flags",
    "--print-config": "show the options as such a file, and do nothing else",
}

BAD_INPUT = 2
#: Where a signal ended the command, the exit status is this plus the number of the signal.
SIGNALLED = 128

# By default the threads of OpenBLAS, which comes with NumPy and SciPy, spin for up to a tenth of a second
# before they sleep, when it is loaded and after each product. This setting lets them spin for 2**18 cycles,
# 0.1 ms, with which consecutive products are as fast.
_BLAS_WAITS = ("OPENBLAS_THREAD_TIMEOUT", "18")

# Errors of the operating system, in the style of our own messages.
_OS_ERRORS = {
    errno.ENOENT: "expected a file, found none",
    errno.EISDIR: "expected a file, found a directory",
    errno.ENOTDIR: "expected a directory, found a file",
    errno.ELOOP: "expected a file or a directory, found symbolic links that lead in a circle",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the arguments after ``xmcjax``; None takes them from the process, which ends with the status.

    Returns:
        The exit status: 0; 2 for bad input, too little memory or too few threads; 75 where ``--timeout`` left
        labels to be trained; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP. ``--help``
        leaves by SystemExit.
    """
    keep_numbers_of_outputs()
    if "numpy" not in sys.modules:
        os.environ.setdefault(*_BLAS_WAITS)
    arguments = list(sys.argv[1:] if argv is None else argv)
    with _escaping(sys.stdout):
        status = _answer(arguments)
    if argv is None:  # the process is the command's own
        end_at_signals(status)
        if has_left():
            end_now(status)
    return status


@contextlib.contextmanager
def _escaping(stream):
    """A context in which characters that the encoding of a stream lacks are escaped, as on stderr."""
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    before = stream.errors
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # its reader may be gone
            stream.reconfigure(errors=before)


def _answer(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help"):
        return _run("xmcjax", lambda: _say(_usage()))
    if arguments == ["--version"]:
        from xmcjax import __version__

        return _run("xmcjax", lambda: _say(f"xmcjax {__version__}"))
    if not arguments or arguments[0] not in COMMANDS:
        found = repr(arguments[0]) if arguments else "none"
        print(f"xmcjax: error: expected a command of {', '.join(COMMANDS)}, found {found}", file=sys.stderr)
        return BAD_INPUT
    name, *rest = arguments
    return _run(f"xmcjax {name}", lambda: _read_and_run(name, rest))


def _say(text: str) -> int:
    print(text)
    return 0


def _run(program: str, work: Callable[[], int]) -> int:
    """The exit status of `work`; errors become one line that begins with the name of the program."""
    with ending_the_command() as no_more_signals:
        try:
            status = _command(program, work)
            no_more_signals()
            return status
        except KeyboardInterrupt as stop:
            no_more_signals()
            keep_clients()
            # a terminal has written ^C into the line
            number, how = signal.SIGINT, f"\n{program}: interrupted"
            if isinstance(stop, Ended):
                number, how = stop.signal, f"{program}: ended by {stop.signal.name}"
            with contextlib.suppress(OSError):  # after SIGHUP the terminal may be gone
                print(f"{how}; what is complete stays on disk", file=sys.stderr, flush=True)
            return SIGNALLED + number


def _command(program: str, work: Callable[[], int]) -> int:
    try:
        status = work()
        sys.stdout.flush()
    except BrokenPipeError as error:
        if error.filename not in (None, "/dev/stdout"):
            print(f"{program}: error: {_one_line(error)}", file=sys.stderr)
            return BAD_INPUT
        _leave_stdout()  # the reader of our output has gone (`xmcjax info | head -1`)
        return 1
    # The errors of files, models and options are ValueError (DataFormatError, ModelError) and OSError;
    # kernels that are broken, or missing where they were required, are an ImportError.
    except (MemoryError, RuntimeError, ValueError, OSError, ImportError) as error:
        text = _sentence(error)
        if text is None or os.environ.get("XMCJAX_TRACEBACK") == "1":
            raise
        print(f"{program}: error: {text}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # its disk is full
            _leave_stdout()
        return BAD_INPUT
    return status


def _sentence(error: Exception) -> str | None:
    """The message of an error in one line; None for a bug of ours, which keeps its traceback."""
    if isinstance(error, MemoryError):
        return f"not enough memory: {_one_line(error) or 'none left'}"
    if isinstance(error, RuntimeError):
        from xmcjax._device_memory import ran_out

        no_thread = str(error) == "can't start new thread"  # Python's message if the system has no more
        lacking = "memory" if ran_out(error) else "threads" if no_thread else None
        return None if lacking is None else f"not enough {lacking}: {_one_line(error)}"
    return _one_line(error)


def _leave_stdout() -> None:
    """Keeps Python from flushing standard output once more at exit, after it refused what was written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _read_and_run(name: str, arguments: list[str]) -> int:
    import tyro

    from xmcjax.cli._config import PRINT, read_config, toml, with_config
    from xmcjax.cli._options import FILES, check_names, refuse_old, refuse_repeated
    from xmcjax.cli._refusals import in_one_sentence
    from xmcjax.cli._streams import with_streams

    config, arguments = read_config(arguments)
    module, prog, system = name, f"xmcjax {name}", ""
    if name == "train":
        from xmcjax.cli._systems import take_system

        system, module, arguments = take_system(arguments, config)
        prog += f" --system {system}"
    as_json, shown = (flag in arguments for flag in (JSON, PRINT))
    arguments = [argument for argument in arguments if argument not in (JSON, PRINT)]
    command = importlib.import_module(f"xmcjax.cli.{module}")
    refuse_old(module, arguments)
    check_names(arguments)
    refuse_repeated(command.Options, arguments)
    arguments = with_streams(with_config(config, command.Options, arguments), FILES)
    with in_one_sentence(arguments):
        options = tyro.cli(
            command.Options,
            prog=prog,
            description=_description(command.Options, name),
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
        )
    if shown:
        print(f'system = "{system}"\n{toml(options)}' if system else toml(options))
        return 0
    cluster = getattr(options, "cluster", None)
    if name in ("train", "demo") and not (cluster and cluster.flag()):  # else workers compute
        from xmcjax._platform import default_backend

        default_backend()  # a missing platform is reported before anything is read or written
    with _warnings_in_one_line(), _as_json(name) if as_json else contextlib.nullcontext():
        return command.run(options) or 0


def _description(options: type, name: str) -> str:
    """The text that ``--help`` shows above the options of a command."""
    text = inspect.cleandoc(options.__doc__ or "").partition("\n\nAttributes:")[0]
    more = COMMON
    if name == "train":
        from xmcjax._systems import SYSTEMS

        more = {
            "--system NAME": f"what is trained: {', '.join(SYSTEMS)}",
            "--system NAME --help": "the options of that system",
        } | COMMON
    return "\n".join([text, "", "Beside the options below:", *_two_columns(more)])


@contextlib.contextmanager
def _as_json(name: str):
    """A context that prints the summary of a command as one JSON object when the command ends."""
    import json

    from xmcjax.cli._report import collected

    with collected() as summary:
        yield
    print(json.dumps({"command": name, **summary.fields}, default=str), file=summary.stream)


@contextlib.contextmanager
def _warnings_in_one_line():
    """A context in which warnings of the library look like those of the commands; others stay as they are."""
    from xmcjax.cli._report import warn
    from xmcjax.native import PerformanceWarning

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None):
            if issubclass(category, PerformanceWarning):
                warn(str(message))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def _one_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, FileNotFoundError) and not os.path.isabs(error.filename or "") and _folder_is_gone():
        return "the current folder is no longer there"
    if isinstance(error, OSError) and error.errno is not None:
        reason = _OS_ERRORS.get(error.errno, os.strerror(error.errno).lower())
        text = f"{error.filename}: {reason}" if error.filename else reason
    return text.replace("\n", " ")


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _usage() -> str:
    return "\n".join(
        [
            "usage: xmcjax [--version] COMMAND [OPTIONS]",
            "",
            *_two_columns(COMMANDS),
            "",
            "xmcjax COMMAND --help lists the options of a command. Every command also takes",
            *_two_columns(COMMON),
        ]
    )


def _two_columns(texts: Mapping[str, str]) -> list[str]:
    """Lines of names and what they mean, for ``--help``."""
    width = max(map(len, texts))
    return [f"  {name:<{width}}  {text}" for name, text in texts.items()]
