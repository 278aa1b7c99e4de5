"""Joint systems that are interrupted or killed: the state is on disk, and another run goes on from it."""

import json
import shutil
import signal

import numpy as np
import pytest
import scipy.sparse as sp

import xmcjax as library
from tests.support.internals import SYSTEMS, manifest
from tests.support.processes import python
from xmcjax.data import save, save_xmc

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL")

# The state is written whenever it is offered, and after some times a signal comes.
INTERRUPTED = """
import os, signal, sys
from xmcjax.cli.main import main
from tests.support.internals import joint_checkpoint, joint_multinomial, multinomial_checkpoint

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
wanted, most = signal.Signals[sys.argv[1]], int(sys.argv[2])
joint_checkpoint.EVERY, joint_checkpoint.SHARE, joint_multinomial.EVERY = 0, 1e9, 0
seen = []
def counting(write):
    def written(*given):
        write(*given)
        seen.append(1)
        if len(seen) == most:
            os.kill(os.getpid(), wanted)
    return written
joint_checkpoint.Checkpoint.offer = counting(joint_checkpoint.Checkpoint.offer)
multinomial_checkpoint.Store.save = counting(multinomial_checkpoint.Store.save)
sys.exit(main(sys.argv[3:]))
"""
OPTIONS = {
    "multiclass": ("--tol", "1e-8", "--C", "10", "--dtype", "float64"),
    "multinomial": ("--tol", "1e-8", "--C", "10", "--solver", "lbfgs", "--dtype", "float64"),
    "top-k": ("--tol", "1e-6", "--C", "10", "--dtype", "float64"),
    "kernel": ("--tol", "1e-6", "--v", "1000", "--dtype", "float64"),
}
STATUS = {"SIGINT": 130, "SIGTERM": 143, "SIGKILL": -9}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sparse rows of six classes, for which training takes some passes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 400)
    X = rng.normal(size=(400, 260)) + 0.5 * rng.normal(size=(6, 260))[y]
    path = tmp_path_factory.mktemp("resume") / "train.txt"
    save_xmc(path, sp.csr_matrix(np.where(X > 1, X, 0)), sp.csr_matrix(np.eye(6)[y]))
    return path


@pytest.mark.parametrize(
    ("system", "name"),
    [
        *((system, "SIGKILL") for system in OPTIONS),
        ("multiclass", "SIGINT"),
        ("kernel", "SIGTERM"),
    ],
)
def test_a_run_goes_on_from_its_state(xmcjax, data, tmp_path, system, name):
    train = ["train", "--system", system, "--train", data, *OPTIONS[system]]
    model, state = tmp_path / "m", tmp_path / "m.state"
    many = (
        6 if system == "multiclass" else 2
    )  # after coordinate ascent, which begins anew, in Newton's method
    done = python(INTERRUPTED, name, many, *train, "--model", model, timeout=240)
    assert done.returncode == STATUS[name], done.stderr
    assert not (model / "manifest.json").exists() and (state / "run.json").exists()
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert len(before) >= 2
    # what is there is lost neither by a run that begins anew nor by one of other options
    xmcjax(*train, "--model", model).refused(f"{state}: expected no state of a run", "--resume goes on")
    another = "multinomial" if system != "multinomial" else "multiclass"
    other = ["train", "--system", another, "--train", data, "--model", model, "--resume", "--C", "3"]
    xmcjax(*other).refused("cannot resume", f"--system = {system}", f"this run has {another}")
    other = [*train, "--model", model, "--resume", "--tol", "1e-3"]
    xmcjax(*other).refused("cannot resume", "--tol = 1e-0", "this run has 0.001")
    other = [*train, "--model", model, "--resume", "--dtype", "float32"]
    xmcjax(*other).refused("cannot resume", "--dtype = float64", "this run has float32")
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before
    if name != "SIGKILL":  # states of earlier versions have no dtype
        mark = json.loads((state / "run.json").read_text())
        assert mark.pop("--dtype") == "float64"
        (state / "run.json").write_text(json.dumps(mark))
    told = json.loads(xmcjax(*train, "--model", model, "--resume", "--json").done().out)
    assert told["resumed"]["directory"] == str(state) and not state.exists()
    whole = json.loads(xmcjax(*train, "--model", tmp_path / "whole", "--json").done().out)
    assert "resumed" not in whole and told["method"] == whole["method"]
    objectives = [run["training"].get("objective") for run in (told, whole)]
    if None not in objectives:
        np.testing.assert_allclose(*objectives, rtol=1e-5)
    kind = getattr(library, SYSTEMS[system])
    a, b = (kind.load(directory) for directory in (model, tmp_path / "whole"))
    if hasattr(a, "dual_gap_"):
        assert a.dual_gap_ <= float(OPTIONS[system][1])
    place = "dual_coef_" if system == "kernel" else "coef_"
    np.testing.assert_allclose(getattr(a, place), getattr(b, place), atol=2e-2)
    if system in ("multiclass", "kernel"):  # what was done is not done again
        assert a.n_iter_ < b.n_iter_


def test_what_needs_the_model_of_a_run_that_has_not_ended_names_its_state(xmcjax, data, tmp_path):
    model = tmp_path / "model"
    predict = ["predict", "--model", model, "--data", data, "--out", tmp_path / "p"]
    assert ".state" not in xmcjax(*predict).refused("expected a model, found no manifest.json")
    (tmp_path / "model.state").mkdir()
    for command in (predict, ["inspect", "--model", model]):
        xmcjax(*command).refused(
            f"{model}: expected a model", f"has not ended in {model}.state", "by --resume"
        )


def test_resume_without_a_state_begins(xmcjax, data, tmp_path):
    train = ["train", "--system", "multiclass", "--train", data, "--model", tmp_path / "m"]
    assert "resumed" not in json.loads(xmcjax(*train, "--resume", "--json").done().out)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    xmcjax(*train).refused("expected a new or empty directory, found a model")


@pytest.mark.parametrize("system", OPTIONS)
def test_of_a_complete_model_nothing_is_left_to_do(xmcjax, data, tmp_path, system):
    model = tmp_path / "m"
    train = ["train", "--system", system, "--train", data, "--model", model, "--transform", "unit"]
    first = json.loads(xmcjax(*train, "--test", data, "--json").done().out)

    def stored():
        return {p.name: p.read_bytes() for p in model.iterdir() if p.name != "run.json"}

    before = stored()
    told = json.loads(xmcjax(*train, "--resume", "--test", data, "--json").done().out)
    assert told["training"]["seconds"] == 0 and told["test"] == first["test"]
    assert "nothing left to train" in xmcjax(*train, "--resume").done().out
    xmcjax(*train, "--resume", "--tol", "0.5").refused("cannot resume", "--tol = ", "this run has 0.5")
    xmcjax(*train[:-1], "log", "--resume").refused("cannot resume", "--transform = ")
    double = [*train, "--resume", "--dtype", "float64"]
    xmcjax(*double).refused("cannot resume", "--dtype = float32", "this run has float64")
    other = tmp_path / "other.txt"
    text = data.read_text().splitlines()
    other.write_text("\n".join([text[0], *text[2:], text[1]]) + "\n")
    xmcjax(*train, "--resume", "--train", other).refused("cannot resume", "data = ")
    assert stored() == before and [p.name for p in tmp_path.iterdir() if p != other] == ["m"]
    another = "top-k" if system == "multiclass" else "multiclass"
    xmcjax("train", "--system", another, *train[3:], "--resume").refused("found one of")


def test_another_dtype_of_the_data_of_a_complete_kernel_model_is_named(xmcjax, data, tmp_path):
    """The model may be in float64 where the data are not, so that its own dtype does not tell."""
    model = tmp_path / "m"
    train = ["train", "--system", "kernel", "--train", data, "--model", model]
    xmcjax(*train, "--dtype", "float64").done()
    xmcjax(*train, "--resume").refused("cannot resume", "--dtype = float64", "this run has float32")
    xmcjax(*train, "--resume", "--dtype", "float64").done()
    content, _ = manifest.unsealed(model / "manifest.json")
    content.pop("manifest_sha256")

    def told(**more):
        content["meta"] = {key: v for key, v in content["meta"].items() if key != "data_dtype"} | more
        (model / "manifest.json").write_bytes(manifest.sealed(content))

    told(data_dtype="float32")  # of features that training has widened
    double = [*train, "--resume", "--dtype", "float64"]
    xmcjax(*double).refused("cannot resume", "--dtype = float32", "this run has float64")
    told()  # of an earlier version
    xmcjax(*double).done()
    xmcjax(*train, "--resume").refused("cannot resume", "data = ")


@pytest.mark.parametrize("system", OPTIONS)
def test_a_run_that_is_out_of_time_goes_on(xmcjax, data, tmp_path, system):
    model, state = tmp_path / "m", tmp_path / "m.state"
    train = ["train", "--system", system, "--train", data, *OPTIONS[system], "--model", model]
    result = xmcjax(*train, "--timeout", "0.001")
    assert result.code == 75 and "the same command with --resume goes on" in result.err
    assert not model.exists() and (state / "run.json").exists() and len(list(state.rglob("*"))) >= 2
    of_first = ["train", "--train", data, "--model", model]  # of the system that is the default
    named = f"{state}: cannot resume, the model was started with --system = {system}, this run has one-vs-all"
    xmcjax(*of_first, "--resume").refused(named)
    xmcjax(*of_first).refused(f"{state}: expected no state of a run that was interrupted, found one")
    assert not model.exists()
    told = json.loads(xmcjax(*train, "--timeout", "600", "--resume", "--json").done().out)
    assert told["resumed"]["directory"] == str(state) and not state.exists() and model.exists()
    xmcjax(*train, "--timeout", "0").refused("--timeout: expected seconds above 0, got 0")


@pytest.mark.parametrize("system", ["multiclass", "top-k"])
def test_the_folds_of_a_calibration_end_with_the_time(xmcjax, data, tmp_path, system, monkeypatch):
    from tests.support.internals import joint_checkpoint

    model = tmp_path / "m"
    train = ["train", "--system", system, "--train", data, "--model", model, "--calibration", "temperature"]
    monkeypatch.setattr(joint_checkpoint.Checkpoint, "_over", lambda self: False)
    made = joint_checkpoint.Checkpoint.of_a_fold
    monkeypatch.setattr(joint_checkpoint.Checkpoint, "of_a_fold", lambda self: joint_checkpoint.Fold(0.0))
    assert xmcjax(*train, "--timeout", "600").code == 75
    assert not model.exists()
    monkeypatch.setattr(joint_checkpoint.Checkpoint, "of_a_fold", made)
    xmcjax(*train, "--timeout", "600", "--resume").done()


def test_other_data_and_damaged_states_are_refused(xmcjax, data, tmp_path):
    train = ["train", "--system", "multiclass", "--model", tmp_path / "m", *OPTIONS["multiclass"]]
    python(INTERRUPTED, "SIGKILL", 2, *train, "--train", data, timeout=240)
    state = tmp_path / "m.state"
    text = data.read_text().splitlines()
    (tmp_path / "other.txt").write_text("\n".join([text[0], *text[2:], text[1]]) + "\n")
    other = xmcjax(*train, "--train", tmp_path / "other.txt", "--resume").refused("cannot resume", "data = ")
    assert "m.state" in other
    whole = (state / "dual.npz").read_bytes()
    (state / "dual.npz").write_bytes(whole[:-30])
    said = xmcjax(*train, "--train", data, "--resume").refused("dual.npz: expected a complete npz file")
    assert said.endswith("without it the run begins anew") and said.count("train.txt") == 0
    (state / "dual.npz").write_bytes(whole)
    (state / "run.json").write_text("{")
    xmcjax(*train, "--train", data, "--resume").refused("run.json", "found a damaged file")
    (state / "run.json").unlink()
    xmcjax(*train, "--train", data, "--resume").refused("run.json", "found no such file")
    assert (state / "dual.npz").read_bytes() == whole


def test_states_of_another_shape_or_size_are_refused_by_name(xmcjax, data, tmp_path):
    train = ["train", "--system", "multiclass", "--model", tmp_path / "m", *OPTIONS["multiclass"]]
    train += ["--train", data, "--resume"]
    python(INTERRUPTED, "SIGKILL", 2, *train, timeout=240)
    state = tmp_path / "m.state"
    for wrong, expected in (
        (np.ones((7, 3)), "dual variables [400, 6], found an array [7, 3]"),
        (np.full((400, 6), np.nan), "finite float64 numbers"),
    ):
        sp.save_npz(state / "dual.npz", sp.csr_matrix(wrong))
        said = xmcjax(*train).refused("dual.npz", expected, "without it the run begins anew")
        assert said.count("train.txt") == 0
    with open(state / "run.json", "r+b") as file:
        file.truncate(2 << 20)
    xmcjax(*train).refused("run.json", "in 1,048,576 bytes at most, found 2,097,152 bytes")
    shutil.rmtree(state)
    state.write_text("mine")
    xmcjax(*train).refused("m.state", "expected a folder for the state of a run")
    assert state.read_text() == "mine"


def test_a_damaged_state_of_a_solver_is_no_fault_of_the_data(xmcjax, data, tmp_path):
    train = ["train", "--system", "multinomial", "--model", tmp_path / "m", *OPTIONS["multinomial"]]
    train += ["--train", data, "--resume"]
    python(INTERRUPTED, "SIGKILL", 2, *train, timeout=240)
    states = tmp_path / "m.state" / "states"
    path = states / "state-0-1.npz"
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"other bytes")
    said = xmcjax(*train).refused(
        "found a damaged file", "without it the run goes on from the iteration before"
    )
    assert (
        said.startswith(f"xmcjax train: error: {path}: expected the state of a run")
        and "train.txt" not in said
    )
    path.unlink()
    for other in states.iterdir():  # of another number of devices
        with np.load(other) as arrays:
            head = json.loads(arrays["header"].tobytes()) | {"mark": "of another run"}
            header = np.frombuffer(json.dumps(head).encode(), np.uint8)
            np.savez(other, **dict(arrays) | {"header": header})
    said = xmcjax(*train).refused("found the state of another run")
    assert said.startswith(f"xmcjax train: error: {states}: expected the state of this run")


def test_a_run_that_fails_before_there_is_a_state_leaves_none(xmcjax, data, tmp_path):
    train = ["train", "--system", "top-k", "--train", data, "--model", tmp_path / "m", "--k", 6]
    xmcjax(*train).refused("--k: expected at most 5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_folder_of_another_kind_is_refused_and_stays(xmcjax, data, tmp_path, resume):
    train = ["train", "--system", "multiclass", "--train", data, "--model", tmp_path / "m", *resume]
    state = tmp_path / "m.state"
    xmcjax("train", "--train", data, "--model", state).done()  # a model, which happens to have this name
    for written in (None, '{"mine": 1}', "[]", "{"):
        if written is not None:
            shutil.rmtree(state, ignore_errors=True)
            state.mkdir()
            (state / "run.json").write_text(written)
        before = {path.name: path.read_bytes() for path in state.iterdir()}
        stats = tmp_path / "stats.jsonl"
        xmcjax(*train, "--stats", stats).refused(
            f"{state}: expected a folder for the state of a run, found one that holds"
        )
        assert {path.name: path.read_bytes() for path in state.iterdir()} == before
        assert {path.name for path in tmp_path.iterdir()} <= {"m.state", data.name}


@pytest.mark.parametrize("system", ["multiclass", "top-k"])
def test_what_a_run_that_was_killed_before_its_first_state_left_is_in_no_ones_way(
    xmcjax, data, tmp_path, system
):
    state = tmp_path / "m.state"
    state.mkdir()
    (state / "run.json").write_text('{"--system": "top-k", "--k": 3}')
    (state / ".run.json.0123456789abcdef.tmp").write_text('{"--sys')
    xmcjax("train", "--system", system, "--train", data, "--model", tmp_path / "m").done()
    assert not state.exists()


@pytest.mark.parametrize("system", ["one-vs-all", "multiclass"])
def test_what_an_estimator_saved_is_no_run_and_no_part(xmcjax, tmp_path, system):
    X, y = np.eye(6, 3, dtype=np.float32), np.arange(6) % 3
    save(tmp_path / "d.npz", X, y)
    estimator = getattr(library, SYSTEMS[system])
    for name in ("m", "other"):
        estimator().fit(X, y).save(tmp_path / name)
    train = ("train", "--system", system, "--train", tmp_path / "d.npz", "--model")
    said = "m: expected a model of xmcjax train, found one that an estimator saved, which is no run to resume"
    xmcjax(*train, tmp_path / "m", "--resume").refused(f"error: {tmp_path / said}")
    merge = ("merge", "--parts", tmp_path / "m", tmp_path / "other", "--model", tmp_path / "whole")
    said = "m: expected a part of a one-vs-all training, found a model that an estimator saved, which is no "
    xmcjax(*merge).refused(f"error: {tmp_path / said}part to merge")


def test_a_part_that_was_loaded_and_saved_is_no_part(xmcjax, train, tmp_path):
    train("--labels", "0:15", name="a")
    train("--labels", "15:30", name="b")
    library.OneVsAllClassifier.load(tmp_path / "b").save(tmp_path / "c")
    merge = ("merge", "--parts", tmp_path / "a", tmp_path / "c", "--model", tmp_path / "whole")
    xmcjax(*merge).refused(f"{tmp_path / 'c'}: expected a part of a one-vs-all training, found a model that")
