"""Parts of a model are joined: the bytes are those of one run, and what does not fit is refused by name."""

import json
import re
import shutil

import numpy as np
import pytest

from xmcjax.cli.main import main
from xmcjax.data import make_power_law, save_xmc
from xmcjax.models import LinearModel, ModelError, merge_models

OPTIONS = ("--shard-size", "6", "--transform", "log,idf,unit")
RANGES = ("0:7", "7:16", "16:30")


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    """A folder with the model of all 30 labels, `whole`, and those of three ranges, 0, 1 and 2."""
    folder = tmp_path_factory.mktemp("parts")
    X, Y = make_power_law(200, 40, 30, labels_per_row=2, nonzeros_per_row=8, seed=2)
    save_xmc(folder / "train.txt", X, Y)
    train = [
        "train",
        "--train",
        str(folder / "train.txt"),
        "--shard-size",
        "6",
        "--transform",
        "log,idf,unit",
    ]
    assert main([*train, "--model", str(folder / "whole")]) == 0
    for number, labels in enumerate(RANGES):
        assert main([*train, "--model", str(folder / str(number)), "--labels", labels]) == 0
    return folder


def of(folder, *names):
    return [folder / name for name in names]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"}


def test_the_bytes_are_those_of_one_run(parts, tmp_path):
    model = merge_models(of(parts, "2", "0", "1"), tmp_path / "m")
    assert content(tmp_path / "m") == content(parts / "whole")
    assert model.n_labels == 30 and model.complete
    np.testing.assert_array_equal(model.status, LinearModel.load(parts / "whole").status)


def test_the_command(parts, tmp_path, capsys):
    arguments = [
        "merge",
        "--parts",
        *map(str, of(parts, "0", "1", "2")),
        "--model",
        str(tmp_path / "m"),
        "--json",
    ]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["labels"] == {"labels": 30} and told["model"]["directory"] == str(tmp_path / "m")
    assert content(tmp_path / "m") == content(parts / "whole")


def test_gaps_and_overlaps_name_the_range(parts, tmp_path):
    for names, gap in ((("0", "2"), "7 to 15"), (("1", "2"), "0 to 6"), (("0", "1"), "16 to 29")):
        with pytest.raises(ModelError, match=f"found labels {gap} in none"):
            merge_models(of(parts, *names), tmp_path / "m")
    with pytest.raises(ModelError, match=rf"{parts / 'whole'}.* found labels 0 to 6 in {parts / '0'} too"):
        merge_models(of(parts, "0", "1", "2", "whole"), tmp_path / "m")
    with pytest.raises(ValueError, match="at least one directory"):
        merge_models([], tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_other_data_and_other_options_are_named(parts, tmp_path):
    lines = (parts / "train.txt").read_text().splitlines(keepends=True)
    (tmp_path / "train.txt").write_text("".join([*lines[:-1], lines[-2]]))
    train = ["train", *OPTIONS, "--labels", "16:30"]
    for name, more, key in (
        ("other", ["--train", str(tmp_path / "train.txt")], "data"),
        ("options", ["--train", str(parts / "train.txt"), "--C", "2"], "C"),
        ("double", ["--train", str(parts / "train.txt"), "--dtype", "float64"], "dtype"),
    ):
        assert main([*train, *more, "--model", str(tmp_path / name)]) == 0
        said = rf"{tmp_path / name}: expected {key} = .* as in {parts / '0'}, found"
        with pytest.raises(ModelError, match=said):
            merge_models([*of(parts, "0", "1"), tmp_path / name], tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_changed_byte_names_the_shard(parts, tmp_path):
    shutil.copytree(parts / "1", tmp_path / "part")
    shard = tmp_path / "part" / "shard-000002.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(ModelError, match=r"shard-000002\.safetensors: expected SHA-256"):
        merge_models([*of(parts, "0", "2"), tmp_path / "part"], tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_nothing_is_written_into_a_part(parts, tmp_path):
    (tmp_path / "link").symlink_to(parts / "0")
    before = content(parts / "0")
    shutil.copytree(parts / "0", tmp_path / "other")  # no part of this merge
    for inside, found in (
        (parts / "0" / "sub", parts / "0"),
        (tmp_path / "link" / "sub" / "model", parts / "0"),
        (tmp_path / "other" / "sub", tmp_path / "other"),
    ):
        said = f"{inside}: expected a directory outside other models, found one in {found}"
        for resume in (True, False):
            with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
                merge_models(of(parts, "0", "1", "2"), inside, resume=resume)
    assert content(parts / "0") == before


def test_a_directory_with_anything_in_it_is_left_alone(parts, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "file").touch()
    with pytest.raises(FileExistsError, match="found file"):
        merge_models(of(parts, "0", "1", "2"), tmp_path / "m")
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["file"]
