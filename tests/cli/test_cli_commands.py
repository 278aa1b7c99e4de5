"""The other commands: demo, info, help, and how the program is started."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.internals import SYSTEMS, manifest
from tests.support.processes import python
from xmcjax import __version__
from xmcjax.cli import demo as demo_command
from xmcjax.cli.main import COMMANDS
from xmcjax.data import READERS, TRANSFORMS, Dataset, load_demo
from xmcjax.inits import INITS
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.metrics import PROPENSITY_PRESETS
from xmcjax.models import EXCHANGES, IMPORTS, PREDICTION_FORMATS, LinearModel
from xmcjax.penalties import PENALTIES

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


@pytest.fixture
def small_demo(monkeypatch, tmp_path):
    """The demo on a part of its rows, in an empty folder."""
    whole = load_demo()
    parts = ("X_train", "Y_train", "X_test", "Y_test")
    part = whole._replace(**{name: getattr(whole, name)[::8] for name in parts})
    monkeypatch.setattr(demo_command, "load_demo", lambda: part)
    monkeypatch.chdir(tmp_path)
    return part


def test_demo_twice(xmcjax, small_demo, tmp_path):
    first = xmcjax("demo").done()
    lines = first.out.splitlines()
    precision = next(line.split()[1:] for line in lines if line.startswith("P "))
    accuracy = next(line.split()[1:] for line in lines if line.startswith("top "))
    # one class per row: P@k is the top-k accuracy divided by k
    for k, p, a in zip((1, 3, 5), map(float, precision), map(float, accuracy), strict=True):
        assert abs(p - a / k) < 0.011
    assert float(accuracy[0]) > 25 and float(accuracy[2]) > float(accuracy[0])
    assert lines[-1] == f"The model is in {tmp_path / 'xmcjax-demo'}"
    model = LinearModel.load(tmp_path / "xmcjax-demo")
    assert model.meta["transforms"] == ["log", "idf", "unit"]
    assert model.meta["data"] == Dataset(small_demo.X_train, small_demo.Y_train).fingerprint()
    second = xmcjax("demo", "--n-jobs", 1)
    assert second.out.splitlines()[-1] == f"The model is in {tmp_path / 'xmcjax-demo-2'}"
    same = (tmp_path / "xmcjax-demo-2" / "manifest.json").read_bytes()
    assert (tmp_path / "xmcjax-demo" / "manifest.json").read_bytes() == same


def test_demo_leaves_a_directory_that_was_named_alone(xmcjax, small_demo, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    result = xmcjax("demo", "--model", "mine")
    result.refused("mine: expected a new or empty directory, found file")
    assert result.out == ""
    (tmp_path / "mine" / "file").rename(tmp_path / "mine" / "manifest.json")
    xmcjax("demo", "--model", "mine").refused("found manifest.json (nothing was changed)")
    sealed = manifest.sealed({"format": manifest.FORMAT})
    (tmp_path / "mine" / "manifest.json").write_bytes(sealed)
    xmcjax("demo", "--model", "mine").refused("found a model (nothing was changed)")
    (tmp_path / "mine" / "manifest.json").write_bytes(sealed[:-3])
    xmcjax("demo", "--model", "mine").refused(
        "found a model whose manifest.json is damaged: restore that file"
    )


def test_info(xmcjax, monkeypatch):
    monkeypatch.setenv("XMCJAX_ISA", "avx2")
    result = xmcjax("info")
    assert result.code == 0 and result.err == ""
    for part in (f"xmcjax {__version__}", "jax ", "scipy ", "cpu: ", " usable of ", "XMCJAX_ISA=avx2 ("):
        assert part in result.out
    for name in (*INITS, *MARGIN_LOSSES, *TRANSFORMS, *READERS):
        assert name in result.out


def test_info_tells_of_every_variable_that_is_read(xmcjax):
    package = Path(__file__).resolve().parents[2] / "xmcjax"
    sources = {*package.rglob("*.py"), *package.rglob("*.cc")} - {package / "cli" / "_environment.py"}
    read = {name for path in sources for name in re.findall(r'"(XMCJAX_[A-Z_]+)"', path.read_text())}
    assert set(json.loads(xmcjax("info", "--json").done().out)["environment"]) == read > {"XMCJAX_DATA"}


@pytest.mark.parametrize(
    ("environment", "texts"),
    [
        (
            {"XMCJAX_NATIVE": "0"},
            ("native      no, switched off by XMCJAX_NATIVE=0", "training    one device of cpu: plain JAX"),
        ),
        (
            {"XMCJAX_NATIVE": "0", "XLA_FLAGS": "--xla_force_host_platform_device_count=3"},
            ("training    3 devices of cpu: plain JAX",),
        ),
        ({"JAX_PLATFORMS": "nonexistent"}, ("training    none: ", "devices     none: ")),
    ],
)
def test_info_says_what_is_not_there(environment, texts):
    done = start("info", **environment)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in texts), done.stdout


def start(*arguments, **environment):
    command, variables = [sys.executable, "-m", "xmcjax", *arguments], os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_the_program(xmcjax, flag):
    result = xmcjax(flag)
    assert result.code == 0
    for name, text in COMMANDS.items():
        assert f"  {name}" in result.out and text in result.out


CHOICES = {
    "train": [MARGIN_LOSSES, INITS, PENALTIES, TRANSFORMS, READERS, SYSTEMS],
    "plan": [MARGIN_LOSSES, TRANSFORMS, READERS],
    "predict": [READERS, PREDICTION_FORMATS],
    "evaluate": [READERS, PREDICTION_FORMATS, PROPENSITY_PRESETS],
    "import": [IMPORTS],
    "export": [EXCHANGES],
    "convert": [READERS],
    "inspect": [],
    "report": [READERS],
    "merge": [],
    "index": [],
    "demo": [],
    "info": [],
    "completion": [("bash", "zsh")],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_lists_the_choices_of_the_tables(xmcjax, name):
    result = xmcjax(name, "--help")
    assert result.code == 0 and f"usage: xmcjax {name}" in result.out
    for table in CHOICES[name]:
        for choice in table:
            assert choice in result.out
    for flag in ("--json", "--config FILE", "--print-config"):
        assert flag in result.out
    assert "xmcjax." not in result.out and ":class:" not in result.out and "{None}" not in result.out


def test_the_program_and_the_module_are_the_same():
    assert start("--version").stdout == f"xmcjax {__version__}\n"
    done = start("predict", "--model", "none", "--data", "none", "--out", "p")
    assert done.returncode == 2
    assert done.stderr == "xmcjax predict: error: none: expected a model, found no manifest.json\n"


@pytest.mark.parametrize(
    ("before", "waits"),
    [
        ("os.environ.pop(name, None)", "18"),
        ("os.environ[name] = '9'", "9"),
        ("os.environ.pop(name, None); import numpy", None),
    ],
)
def test_threads_of_blas_sleep_soon_in_a_process_of_the_command(before, waits):
    program = f"""
import os
from xmcjax.cli.main import main
name = "OPENBLAS_THREAD_TIMEOUT"
{before}
main(["--version"])
print(os.environ.get(name))
"""
    assert python(program, check=True).stdout == f"xmcjax {__version__}\n{waits}\n"


def into(output, argument, buffered):
    """How ``xmcjax ARGUMENT`` ends, its output going to an open file."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "xmcjax", argument]
    return subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, env=environment, text=True, timeout=120
    )


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("argument", ["info", "--help", "--version"])
def test_a_reader_that_goes_away_is_no_error(argument, buffered):
    read, write = os.pipe()
    os.close(read)
    done = into(write, argument, buffered)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full")
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("argument", ["info", "--help", "--version"])
def test_a_disk_that_is_full_is_said_in_a_line(argument, buffered):
    with open("/dev/full", "wb") as full:
        done = into(full, argument, buffered)
    program = "xmcjax info" if argument == "info" else "xmcjax"
    assert (done.returncode, done.stderr) == (2, f"{program}: error: no space left on device\n")


def test_an_index_is_written_beside_the_shards(xmcjax, model, tmp_path):
    directory = shutil.copytree(model, tmp_path / "model")
    result = xmcjax("index", "--model", directory)
    assert result.code == 0
    path = directory / "by-feature.safetensors"
    assert result.out.startswith(f"written     {path} (") and path.exists()
    xmcjax("index", "--model", tmp_path / "none").refused("none: expected a model, found no manifest.json")
