"""What `xmcjax plan` says, and what it refuses."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import SYSTEMS, usable_memory
from xmcjax.cli.plan import forecast_of_shape
from xmcjax.data import make_power_law, save_npz

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")
MB = 2**20


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "train.npz"
    save_npz(path, *make_power_law(600, 300, 120, seed=1))  # two samples at most
    return path


@pytest.fixture
def plan(xmcjax, tmp_path):
    """The fields of a plan."""

    def run(*arguments):
        result = xmcjax("plan", "--json", "--model", tmp_path, *map(str, arguments))
        assert result.code == 0, result.err
        return json.loads(result.out)

    return run


def test_a_plan_names_the_data_and_the_size_of_the_model_that_is_then_trained(plan, xmcjax, file, tmp_path):
    said = plan("--train", file, "--n-jobs", 1)
    _, Y = make_power_law(600, 300, 120, seed=1)
    assert said["data"]["labels"] == 120 and said["data"]["positives"] == Y.nnz
    assert said["tasks"] == {"count": 1}
    # all labels are in the sample of so few: their weights are those of the model
    assert said["sample"]["labels"] == 120
    result = xmcjax("train", "--json", "--train", str(file), "--model", str(tmp_path / "m"), "--n-jobs", "1")
    trained = json.loads(result.out)
    shard = tmp_path / "m" / "shard-000000.safetensors"
    assert said["disk"]["bytes"] == pytest.approx(shard.stat().st_size, rel=0.1)
    assert trained["plan"]["bytes"] == pytest.approx(said["memory"]["bytes"], rel=0.05)
    assert trained["plan"]["shards"] == 1


def test_threads_and_lanes_cost_memory_and_workers_save_time(plan, monkeypatch):
    # the samples of a shape are timed once: what else this machine does is no part of the comparison
    samples = {}

    def measured(shape, options, dtype):
        if shape not in samples:
            samples[shape] = forecast_of_shape(shape, options, dtype)
        return samples[shape]

    monkeypatch.setattr("xmcjax.cli.plan.forecast_of_shape", measured)
    shape = "100000,20000,1000000,3000"
    one, two = (plan("--shape", shape, "--n-jobs", k)["memory"]["bytes"] for k in (1, 2))
    less = plan("--shape", shape, "--n-jobs", 2, "--block-size", 8)["memory"]["bytes"]
    # lanes hold arrays of rows and of features
    assert two - one > 32 * 4 * (100_000 + 20_000)
    assert one < two and less < two
    alone = plan("--shape", "2000,300,20000,3000", "--n-jobs", 1)
    four = plan("--shape", "2000,300,20000,3000", "--n-jobs", 1, "--workers", 4)
    assert four["tasks"]["count"] > alone["tasks"]["count"] == 3
    assert four["time"]["training"] < alone["time"]["training"]
    most = plan("--shape", "2000,300,20000,3000", "--n-jobs", 1, "--workers", 2**70)
    assert 0 < most["time"]["training"] < four["time"]["training"]


def test_more_lanes_than_labels_cost_nothing(plan):
    shape = ("--shape", "2000,300,20000,3", "--n-jobs", 1)
    many, usual = (plan(*shape, *flags)["memory"]["bytes"] for flags in (("--block-size", 10**9), ()))
    assert many == usual


def test_columns_without_entries_take_no_memory(plan, xmcjax, tmp_path):
    X, Y = make_power_law(200, 100, 20, seed=1)
    X = sp.csr_array(X)
    needed = []
    for width in (100, 400_000):
        wide = sp.csr_array((X.data, X.indices * (width // 100), X.indptr), shape=(200, width))
        data, model = tmp_path / f"{width}.npz", tmp_path / f"model-{width}"
        save_npz(data, wide, Y)
        said = plan("--train", data, "--n-jobs", 1)
        assert said["data"]["features"] == width
        needed.append(said["memory"]["bytes"])
        result = xmcjax("train", "--json", "--train", str(data), "--model", str(model), "--n-jobs", "1")
        needed.append(json.loads(result.out)["plan"]["bytes"])
    assert max(needed) < 1.01 * min(needed)


def test_a_shape_too_large_to_be_made_is_worked_out_from_parts_of_it(plan):
    said = plan("--shape", "300000,5000,3000000,2000,300000", "--n-jobs", 1)
    assert said["data"] == {
        "rows": 300_000,
        "features": 5_000,
        "labels": 2_000,
        "entries": 3_000_000,
        "positives": 300_000,
    }
    assert said["memory"]["bytes"] > 6 * 3_000_000 * 8
    assert said["time"]["training"] > said["sample"]["seconds"]


def test_labels_beyond_memory_are_refused_before_they_are_counted(xmcjax, monkeypatch, tmp_path):
    monkeypatch.setattr("xmcjax.cli.plan.usable_memory", lambda: 16 << 30)
    monkeypatch.setattr("xmcjax.cli.plan.forecast", None)  # is not reached
    (tmp_path / "train.txt").write_text("2 3 999999999\n0 0:1\n1 1:1\n")
    said = xmcjax("plan", "--train", tmp_path / "train.txt").refused(
        "of memory and does not fit into 16.00 GiB"
    )
    assert len(said.splitlines()) == 1


def test_features_that_no_row_has_do_not_make_a_plan_too_large(plan, monkeypatch, tmp_path):
    monkeypatch.setattr("xmcjax.cli.plan.usable_memory", lambda: 1 << 30)
    (tmp_path / "train.txt").write_text("4 200000000 2\n0 0:1\n1 1:1\n0 0:2\n1 1:3\n")
    said = plan("--train", tmp_path / "train.txt", "--n-jobs", 1)
    assert said["data"]["features"] == 200_000_000 and said["memory"]["bytes"] < 1 << 30


@pytest.mark.parametrize(
    ("megabytes", "remedy"),
    [
        (450, "--n-jobs 2 would"),
        (305, "--n-jobs 1 --block-size"),
        (210, "--n-jobs 1 --block-size 1 would still need 254 MiB: it takes a larger machine"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(xmcjax, monkeypatch, megabytes, remedy):
    monkeypatch.setattr("xmcjax.cli.plan.usable_memory", lambda: megabytes * MB)
    result = xmcjax("plan", "--shape", "60000,10000,1000000,1000", "--n-jobs", "4")
    assert result.code == 2
    assert f"of memory and does not fit into {megabytes} MiB" in result.err and remedy in result.err
    assert len(result.err.splitlines()) == 1


def test_a_training_that_may_not_fit_is_warned_of_and_runs(xmcjax, monkeypatch, file, tmp_path):
    monkeypatch.setattr("xmcjax.cli.train.usable_memory", lambda: 100 * MB)
    result = xmcjax("train", "--train", str(file), "--model", str(tmp_path / "m"), "--n-jobs", "1")
    assert result.code == 0
    assert "of memory, and 100 MiB are there" in result.err


@pytest.mark.parametrize(
    ("system", "sizes"),
    [(system, "3 4 2000000000") for system in SYSTEMS]
    + [(system, "3 2000000000 4") for system in SYSTEMS if system != "kernel"],  # has no weights of features
)
def test_sizes_beyond_all_memory_are_refused_before_training(xmcjax, monkeypatch, tmp_path, system, sizes):
    module = "train" if system == "one-vs-all" else "_classes"
    monkeypatch.setattr(f"xmcjax.cli.{module}.usable_memory", lambda: 16 << 30)
    for name in ("train._training.train_to_directory", "_classes._fit"):  # are not reached
        monkeypatch.setattr(f"xmcjax.cli.{name}", None)
    (tmp_path / "train.txt").write_text(f"{sizes}\n0 0:1\n1 1:1\n2 2:1\n")
    data, model = ("--train", tmp_path / "train.txt"), ("--model", tmp_path / "m")
    result = xmcjax("train", "--system", system, *data, *model)
    assert result.code == 2 and len(result.err.splitlines()) == 1
    assert "expected sizes that fit into 16.00 GiB of memory: 3 rows, " in result.err
    assert not (tmp_path / "m").exists()


def test_a_model_that_the_disk_does_not_hold_is_refused(xmcjax, monkeypatch, file, tmp_path):
    monkeypatch.setattr("xmcjax.cli.plan.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    result = xmcjax("plan", "--train", str(file), "--model", str(tmp_path / "later" / "m"))
    assert result.code == 2 and f"disk of {tmp_path / 'later' / 'm'}" in result.err
    # where the model is for another machine, the rest is of use
    assert "\nmemory " in result.out and "\ntime " in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected --train or --shape, got neither"),
        (("--shape", "1,2,3"), "--shape: expected four or five whole numbers N,D,NNZ,L, got '1,2,3'"),
        (("--shape", "10,2,30,4"), "no more entries than rows times features"),
        (("--shape", "10,20,5,4"), "an entry of the features"),
        (("--shape", "10,20,50,4,41"), "no more entries than rows times features or labels"),
        (("--shape", "0,20,5,4"), "at least one row"),
        (("--shape", "10,20,30,4", "--workers", "0"), "--workers: expected at least 1, got 0"),
        (("--shape", "10,20,30,4", "--n-jobs", "0"), "--n-jobs"),
        (("--shape", "10,20,30,4", "--C", "-1"), "--C"),
        (("--shape", "10,20,30,4", "--init", "pretrained"), "--init"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(xmcjax, arguments, said):
    result = xmcjax("plan", *arguments)
    assert result.code == 2 and said in result.err
    assert len(result.err.splitlines()) == 1


def test_both_data_and_a_shape_are_refused(xmcjax, file):
    result = xmcjax("plan", "--train", str(file), "--shape", "10,20,30,4")
    assert result.code == 2 and "expected --train or --shape, got both" in result.err


def test_memory_is_the_least_of_what_is_free_and_what_the_container_may_have(monkeypatch, tmp_path):
    free, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    free.write_text("MemTotal:       100 kB\nMemAvailable:    64 kB\n")
    monkeypatch.setattr(usable_memory, "_MEMINFO", free)
    monkeypatch.setattr(usable_memory, "_LIMITS", (limit,))
    assert usable_memory.usable_memory() == 64 * 1024
    limit.write_text("max\n")
    assert usable_memory.usable_memory() == 64 * 1024
    limit.write_text("1024\n")
    assert usable_memory.usable_memory() == 1024
    free.unlink()
    limit.unlink()
    assert usable_memory.usable_memory() is None


def test_dense_data_are_planned_too(plan, tmp_path):
    X, Y = make_power_law(300, 40, 30, nonzeros_per_row=30, seed=2)
    np.save(tmp_path / "X.npy", X.toarray())
    sp.save_npz(tmp_path / "Y.npz", Y)
    said = plan("--train", tmp_path / "X.npy", "--labels-file", tmp_path / "Y.npz", "--transform", "unit")
    assert said["data"]["entries"] == 300 * 40 and said["time"]["reading"] > 0


def test_a_size_that_training_would_not_take(xmcjax, files):
    plan = ("plan", "--train", files / "train.txt", "--shard-size", 10**20)
    xmcjax(*plan).refused(f"--shard-size: expected at most 2147483647, got {10**20}")
