"""The attacks on files leave out nothing that reads or writes one: the code is walked."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import xmcjax
from tests.attack import _victim, commands, readers
from xmcjax import data, models
from xmcjax.cli.main import COMMANDS

PACKAGE = Path(xmcjax.__file__).parent
# Writers that are attacked where pyarrow is installed.
WITHOUT = set() if importlib.util.find_spec("pyarrow") is not None else {"save_parquet", "save_arrow"}
# Names of calls that read what a user gives, and of those that write.
READING = {"read_bytes", "read_text", "ZipFile", "safe_open", "fromfile", "memmap"}
WRITING = {"atomic_write", "write_bytes", "write_text", "savez", "savez_compressed", "replace"}
_SYSTEM, _OWN = "files of the system", "files of the package"
# What attacks each module that reads, and each that writes.
READERS = {
    "_memory": _SYSTEM,
    "_topology": _SYSTEM,
    "cli._cache": _SYSTEM,
    "native._ids": _OWN,
    "native._library": _OWN,
    "native._schema": _OWN,
    "data._demo": _OWN,
    "datasets._arrays": "tests/datasets/test_arrays.py, with damaged files",
    "datasets._download": "what it has fetched, and sums: tests/datasets/test_repository.py",
    "datasets._mat": "tests/datasets/test_arrays.py, with damaged files",
    "datasets._readers": "files whose hashes were compared, and archives: tests/datasets/test_repository.py",
    "data._files": "readers",
    "data._archive": "readers",
    "data._arrow": "readers",
    "data._npy": "readers",
    "data._pairs": "readers",
    "models._dismec": "readers",
    "models._liblinear": "readers",
    "models._prediction_lines": "readers",
    "cli._config": "readers",
    "cli._runs": "readers",
    "estimators._fit_file": "tests/estimators/test_fit_file.py, with files of something else",
    "lanes._step_file": "tests/lanes/test_step_file.py, with files of something else",
    "cli.inspect": "readers",
    "cli.export": "what it has written just before",
    "solvers.multinomial._checkpoint": "readers",
    "models._manifest": "models",
    "models._index": "models",
    "models._shard": "models",
    "cluster._mesh": "what a process of the same run has written",
    "cluster._member": "what a process of the same run has written",
    "solvers.multiclass_dual._board": "files of the system, and memory of a process of the same run",
    "cluster._spool": "arrays that a worker of the same run has written",
    "cli._streams": "a copy of a stream as it is, for the readers of data",
    "estimators._checkpoint": "JSON that tests/cli/test_cli_resume.py damages; readers of npz and npy",
    "cli._training": "the manifest of a model that Pretrained.check has read before",
}
# Writers of some of a format's text, behind those of the format; and those of workers, whose disks are full
# in tests/cluster.
BEHIND = {"data._matrix_text", "data._xmc", "data._svmlight"}
# Sums beside what was fetched, see tests/datasets.
FETCHED = {"datasets._download"}
WORKERS = {"cluster._member", "cluster._mesh", "cluster._source", "cluster._spool", "models._outside"}
WRITERS = {
    "data._atomic": "atomic_write",
    "data._text_writer": "save_xmc",
    "data._npz": "save_npz",
    "models._index": "write_index",
    "data._arrow_writer": "save_parquet",
    "data._npy": "save_npy",
    "data._scipy_npz": "save_scipy_npz",
    "models._dismec": "xmcjax export",
    "models._liblinear": "xmcjax export",
    "models._onnx": "xmcjax export",
    "models._prediction_lines": "prediction_file",
    "models._calibration": "write_calibration",
    "models._kernel": "write_kernel_model",
    "models._writer": "ShardWriter",
    "cli._runs": "xmcjax train",
    "cli.report": "xmcjax report",
    "solvers.multinomial._checkpoint": "state of a solver",
    "estimators._checkpoint": "atomic_write",
    "estimators._fit_file": "atomic_write",
    "lanes._step_file": "atomic_write",
}


def calls_of(names: set[str], modes: str) -> set[str]:
    """Modules that call one of these names, or open() with a mode that has one of these letters."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            mode = next((a.value for a in node.args[1:2] if isinstance(a, ast.Constant)), "")
            opens = isinstance(node.func, ast.Name) and name == "open" and set(str(mode)) & set(modes)
            # str.replace and dataclasses.replace write nothing
            if name == "replace" and ast.unparse(node.func) != "os.replace":
                continue
            if name in names or opens:
                found.add(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
    return found


def test_every_module_that_reads_files_is_attacked():
    assert calls_of(READING, "r") == set(READERS)


def test_every_module_that_writes_files_is_attacked():
    assert calls_of(WRITING, "wxa") - BEHIND - WORKERS - FETCHED == set(WRITERS)
    assert set(WRITERS.values()) - WITHOUT <= set(_victim.TARGETS)


def test_every_public_reader_and_writer_is_attacked():
    attacked = {getattr(read, "__name__", "") for read, _ in readers._CALLS.values()}
    public = {name for part in (data, models) for name in dir(part)}
    reading = {name for name in public if name.startswith(("load", "read"))}
    # load calls those of FORMATS
    # those of models are read by the attacks on models and kernel models
    # load_features and load_feature_pieces call those of READERS
    others = {"load_features", "load_feature_pieces"}
    assert reading - attacked == {"load", "load_demo", "load_pieces", "read_kernel_model"} | others
    assert {form.load.__name__ for form in data.FORMATS.values()} <= attacked
    assert {name for name, form in data.FORMATS.items() if form.pieces} == {
        f for f, _ in readers._PIECES.values()
    }
    targets = {name.partition(" ")[0] for name in _victim.TARGETS}
    writing = {name for name in public if name.startswith(("save", "write")) or name.endswith("Writer")}
    # save calls those of FORMATS; write_predictions is a prediction_file of one piece; WORKERS write outside
    assert writing - targets - WITHOUT == {"save", "write_outside", "write_predictions"}
    assert {form.save.__name__ for form in data.FORMATS.values()} - WITHOUT <= targets


def test_every_command_is_given_wrong_flags():
    # the demo trains for a minute, with the flags of train; info has none, and completion the name of a shell
    assert set(COMMANDS) - set(commands.LINES) == {"completion", "demo", "info"}


def test_every_command_that_writes_is_attacked():
    targets = {name.removeprefix("xmcjax ") for name in _victim.TARGETS if name.startswith("xmcjax ")}
    # the demo trains and predicts as the commands do; import is a ShardWriter; the others print
    assert set(COMMANDS) - targets == {"completion", "demo", "evaluate", "import", "info", "inspect", "plan"}
