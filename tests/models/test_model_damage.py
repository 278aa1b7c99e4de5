"""Every flipped bit and every cut is found; files that lie are refused."""

import hashlib
import json
import os
import shutil
import socket

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file

from tests.support.models import META, contents, killed_at_once, write
from xmcjax.models import LinearModel, ModelFormatError, ShardWriter, check_vacant, write_kernel_model


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory):
    arrays = {"a.w": np.arange(50.0)}
    return write(tmp_path_factory.mktemp("model") / "m", shard_size=8, transforms_arrays=arrays)


@pytest.fixture
def copy(model_directory, tmp_path):
    return shutil.copytree(model_directory, tmp_path / "copy")


def test_100_random_flips_over_every_file_are_found(copy):
    rng = np.random.default_rng(0)
    files = sorted(copy.iterdir())
    assert len(files) == 5
    LinearModel.load(copy, verify="full")
    for path in files:
        whole = path.read_bytes()
        for _ in range(100):
            place, bit = rng.integers(len(whole)), rng.integers(8)
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(ModelFormatError, match=path.name):
                LinearModel.load(copy, verify="full")
        path.write_bytes(whole)
    LinearModel.load(copy, verify="full")


@pytest.mark.parametrize("verify", ["full", "lazy", "size"])
def test_every_truncation_is_found(copy, verify):
    rng = np.random.default_rng(1)
    for path in sorted(copy.iterdir()):
        whole = path.read_bytes()
        cuts = [0, 1, len(whole) - 1, *rng.integers(len(whole), size=20)]
        for content in [*(whole[:cut] for cut in cuts), whole + b"\0"]:
            path.write_bytes(content)
            with pytest.raises(ModelFormatError, match=path.name):
                LinearModel.load(copy, verify=verify)
        path.write_bytes(whole)


def flip(path):
    """The last byte of a file."""
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)


def test_hashes_are_compared_when_a_file_is_read(copy):
    flip(copy / "transforms.safetensors")
    with pytest.raises(ModelFormatError, match="transforms"):
        LinearModel.load(copy, verify="none").transforms_arrays()
    flip(copy / "transforms.safetensors")
    flip(copy / "shard-000001.safetensors")
    model = LinearModel.load(copy, verify="lazy")
    model.weights(0, 8)
    with pytest.raises(ModelFormatError, match=r"shard-000001.*expected SHA-256"):
        model.weights(7, 9)
    with pytest.raises(ModelFormatError, match="SHA-256"):
        LinearModel.load(copy)  # by default this small model is checked in full


@pytest.mark.parametrize("verify", ["full", "lazy"])
def test_another_model_that_takes_the_place_of_an_open_one_is_found(tmp_path, verify):
    # as many labels and weights: only the hashes tell the two apart
    for name, weight in (("m", 1), ("next", 2)):
        with ShardWriter(tmp_path / name, META | {"n_labels": 6}, shard_size=2) as writer:
            for label in range(6):
                writer.add(label, [label], np.float32([weight]))
    models = [LinearModel.load(tmp_path / "m", verify) for _ in range(2)]
    seen = models[0].weights(0, 2).toarray()
    (tmp_path / "m").rename(tmp_path / "old")
    (tmp_path / "next").rename(tmp_path / "m")
    for model in models:
        with pytest.raises(ModelFormatError, match=r"shard-000002.*expected SHA-256"):
            model.weights(4, 6)
    np.testing.assert_array_equal(models[0].weights(0, 2).toarray(), seen)  # which it still holds
    with pytest.raises(ModelFormatError, match="expected SHA-256"):
        models[0].intercept()
    (tmp_path / "m").rename(tmp_path / "next")
    shutil.copytree(tmp_path / "old", tmp_path / "m")  # other files of the same content are the model
    assert models[1].coef().sum() == 6


def test_a_missing_shard_is_named(copy):
    (copy / "shard-000002.safetensors").unlink()
    with pytest.raises(ModelFormatError, match=r"shard-000002.*a file that the manifest names, found none"):
        LinearModel.load(copy, verify="size")
    with pytest.raises(FileNotFoundError):
        LinearModel.load(copy, verify="none").weights(16, 17)


def sign(directory, body: bytes):
    """Writes a manifest of this JSON object, without its closing brace, with the right hash."""
    head = body + b',\n "manifest_sha256": "'
    (directory / "manifest.json").write_bytes(head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n')


def body_of(content) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()[:-2]


def rewrite_manifest(directory, change):
    """Applies a change to the manifest's content and signs it again, as someone who lies would."""
    content = json.loads((directory / "manifest.json").read_bytes())
    del content["manifest_sha256"]
    sign(directory, body_of(change(content) or content))


def test_the_signature_of_the_tests_is_that_of_the_writer(copy):
    before = contents(copy)
    rewrite_manifest(copy, lambda content: None)
    assert contents(copy) == before


def set_in(*path):
    *keys, last, value = path

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


def swap_shards(content):
    content["shards"][0], content["shards"][1] = content["shards"][1], content["shards"][0]


def repeat_shard(content):
    content["shards"].insert(0, content["shards"][0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_in("format", "other"), "format 'xmcjax-linear-model', found 'other'"),
        (set_in("schema_version", 4), "found 4: install a newer version of xmcjax"),
        (set_in("schema_version", "1"), "schema_version as an integer"),
        (set_in("meta", 3), "meta as a JSON object"),
        (set_in("meta", "n_features", -1), "n_features as an integer"),
        (set_in("meta", "n_labels", 2**31), "n_labels as an integer"),
        (set_in("meta", "dtype", "object"), "dtype float32 or float64"),
        (set_in("label_range", [0, 24]), "label_range within 0 to 23"),
        (set_in("label_range", [0]), "label_range within"),
        (set_in("label_range", [3, 3]), "label_range within"),
        (set_in("shard_size", 0), "shard_size as a positive integer"),
        (set_in("shards", {}), "a list of shards"),
        (set_in("shards", 0, 7), "a file record"),
        (set_in("shards", 0, "bytes", -1), "a file size"),
        (set_in("shards", 0, "sha256", "AB"), "a SHA-256"),
        (set_in("shards", 0, "nonzeros", None), "nonzeros as a count"),
        (set_in("shards", 0, "file", "../../etc/passwd"), r"the file name shard-000000\.safetensors"),
        (set_in("shards", 1, "first_label", 7), "the file name shard-000000"),
        (set_in("shards", 1, "first_label", 9), "labels 8 to 15 in shard-000001"),
        (set_in("shards", 2, "n_labels", 8), "labels 16 to 22 in shard-000002"),
        (set_in("shards", 2, "first_label", 10**6), "the file name shard-125000"),
        (swap_shards, "labels in order, from 16"),
        (repeat_shard, "labels in order, from 8"),
        (set_in("transforms", "file", "/etc/passwd"), "the file name transforms.safetensors"),
        (set_in("transforms", []), "a file record"),
        (lambda content: [1, 2], "undamaged manifest|JSON"),
    ],
)
def test_a_manifest_that_lies_is_refused(copy, change, words):
    rewrite_manifest(copy, change)
    with pytest.raises(ModelFormatError, match=words):
        LinearModel.load(copy, verify="none")


STRANGE = ([1], "text", None, {"xmcjax_version": ["x"]}, {"xmcjax_version": "9" * 5000})
NEWER = "found 99: install a newer version of xmcjax$"


@pytest.mark.parametrize(
    ("meta", "words"), [(META | {"xmcjax_version": "3.1"}, r"3\.1 or later"), *((m, NEWER) for m in STRANGE)]
)
def test_a_newer_schema_names_the_version_it_needs(copy, meta, words):
    rewrite_manifest(copy, lambda content: content.update(schema_version=99, meta=meta))
    with pytest.raises(ModelFormatError, match=words):
        LinearModel.load(copy)


def rewrite_shard(directory, change):
    path = directory / "shard-000000.safetensors"
    arrays = load_file(path)
    change(arrays)
    save_file(arrays, path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.update(more=np.zeros(1)), "expected the arrays"),
        (lambda a: a.pop("status"), "expected the arrays"),
        (lambda a: a.update(status=np.zeros(9, np.int8)), r"status of shape \[8\], found \[9\]"),
        (lambda a: a.update(status=np.zeros(8, np.int32)), "status of type int8, found int32"),
        (lambda a: a.update(values=a["values"].astype(np.float64)), "values of type float32, found float64"),
        (lambda a: a.update(indptr=a["indptr"][:-1]), r"indptr of shape \[9\]"),
        (lambda a: a["indptr"].__setitem__(0, 1), "an indptr that begins with 0"),
        (lambda a: a["indptr"].__setitem__(-1, 1), "an indptr that does not fall"),
        (lambda a: a["indptr"].__setitem__(2, 10**9), "an indptr that does not fall"),
        # neighbours fall, and their differences wrap around
        (
            lambda a: a["indptr"].__setitem__(slice(1, 4), [2**63 - 1, -(2**63), -1]),
            "an indptr that does not fall",
        ),
        (lambda a: a["indices"].__setitem__(0, 50), "indices from 0 to 49, found 50 in label 0"),
        (lambda a: a["indices"].__setitem__(0, -1), "indices from 0 to 49, found -1 in label 0"),
        (lambda a: a["indices"].__setitem__(slice(0, 2), [7, 7]), "ascending features"),
        (lambda a: a["values"].__setitem__(0, np.nan), "finite values"),
        (lambda a: a["intercept"].__setitem__(0, np.inf), "finite intercept"),
        (
            lambda a: a["status"].__setitem__(2, 100),
            r"shard-000000\S*: expected status from -1 to 6, found 100",
        ),
        (lambda a: a["status"].__setitem__(2, 7), "status from -1 to 6, found 7"),
        (lambda a: a["status"].__setitem__(2, -2), "status from -1 to 6, found -2"),
        (lambda a: a["newton_steps"].__setitem__(2, -5), "newton_steps from 0 to 2147483647, found -5"),
        (lambda a: a["cg_steps"].__setitem__(2, -5), "cg_steps from 0 to 2147483647, found -5"),
    ],
)
def test_a_shard_that_lies_is_refused_even_unverified(copy, change, words):
    rewrite_shard(copy, change)
    model = LinearModel.load(copy, verify="none")
    with pytest.raises(ModelFormatError, match=words):
        model.dense_block(0, 1)


def test_a_shard_that_is_no_safetensors_file_is_refused(copy):
    (copy / "shard-000000.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelFormatError, match="a safetensors file"):
        LinearModel.load(copy, verify="none").weights(0, 1)


def test_resume_refuses_a_damaged_manifest(copy):
    path = copy / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"C": 1.0', b'"C": 1.5'))
    before = contents(copy)
    with pytest.raises(ModelFormatError, match=r"manifest\.json: expected an undamaged manifest"):
        ShardWriter(copy, META, shard_size=8, resume=True)
    assert contents(copy) == before


@pytest.mark.parametrize("left", ["half", "a byte", "nothing"])
def test_a_damaged_manifest_is_no_other_program_s(copy, left):
    path = copy / "manifest.json"
    whole = path.read_bytes()
    path.write_bytes({"half": whole[: len(whole) // 2], "a byte": b"0" + whole[1:], "nothing": b""}[left])
    before = contents(copy)
    how = r"whose manifest\.json is damaged: restore that file, or remove the model"
    for make in (check_vacant, lambda place: check_vacant(place, unfinished=True)):
        with pytest.raises(
            FileExistsError, match=rf"or empty directory, found a model {how} \(nothing was changed\)$"
        ):
            make(copy)
    for make in (check_vacant, lambda place: ShardWriter(place, META, resume=True)):
        with pytest.raises(ValueError, match=rf"outside other models, found one in {copy} {how}$"):
            make(copy / "sub")
    assert contents(copy) == before


@pytest.mark.parametrize(
    "text", ['{"name": "of a browser"}', '{"made_by": "xmcjax-linear-model exporter"}', "[]"]
)
def test_a_manifest_of_another_program_is_no_model(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    check_vacant(tmp_path / "sub")
    for unfinished in (False, True):
        with pytest.raises(FileExistsError, match=r"found manifest\.json \(nothing was changed\)$"):
            check_vacant(tmp_path, unfinished=unfinished)


FILES = ["manifest.json", "shard-000001.safetensors", "transforms.safetensors"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", ["full", "lazy", "size", "none"])
@pytest.mark.parametrize("kind", ["FIFO", "directory", "socket"])
def test_what_is_no_regular_file_is_refused_at_once(copy, name, verify, kind):
    """To open a FIFO waits for a writer without end."""
    path = copy / name
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        here = os.open(copy, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as listener:  # the name of a socket may not be long
            listener.bind(f"/proc/self/fd/{here}/{name}")
        os.close(here)
    with pytest.raises(ModelFormatError, match=rf"{name}: expected a regular file, found a {kind}"):
        read_everything(LinearModel.load(copy, verify=verify))
    with pytest.raises(ModelFormatError, match=rf"{name}: expected a regular file, found a {kind}"):
        ShardWriter(copy, META, shard_size=8, transforms_arrays={"a.w": np.arange(50.0)}, resume=True)


def read_everything(model):
    return model.coef(), model.intercept(), model.status, model.transforms_arrays()


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [500, 900, 1000, 100_000])
def test_json_that_is_deep(copy, opening, depth):
    closing = b"]" if opening == b"[" else b"}"
    deep = opening * depth + b"1" + closing * depth
    for member in (b"format", b"meta", b"label_range", b"shards"):
        sign(copy, b'{\n "%s": %s' % (member, deep))
        with pytest.raises(ModelFormatError, match="manifest") as caught:
            LinearModel.load(copy)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("digits", [20, 400, 4300, 4301, 100_000])
@pytest.mark.parametrize("key", ["n_labels", "first_label", "bytes", "nonzeros"])
def test_integers_of_many_digits(copy, digits, key):
    content = json.loads((copy / "manifest.json").read_bytes())
    del content["manifest_sha256"]
    content["shards"][1][key] = "HERE"
    sign(copy, body_of(content).replace(b'"HERE"', b"9" * digits))
    with pytest.raises(ModelFormatError, match="manifest") as caught:
        LinearModel.load(copy)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("unit", "transforms as a list of names, found 'unit'"),
        ([["unit"]], "transforms as a list of names"),
        (["unit"], "known transforms with their arrays"),
        (["nothing"], "known transforms with their arrays, found .*nothing"),
    ],
)
def test_transforms_that_do_not_fit(copy, names, words):
    rewrite_manifest(copy, set_in("meta", "transforms", names))
    with pytest.raises(ModelFormatError, match=words):
        LinearModel.load(copy).transforms()


@pytest.mark.parametrize("names", [3, None, [3], "unit"])
def test_transforms_without_names_are_found_where_a_model_is_opened(copy, names):
    rewrite_manifest(copy, set_in("meta", "transforms", names))
    with pytest.raises(ModelFormatError, match=r"manifest\.json: expected transforms as a list of names"):
        LinearModel.load(copy)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(49), "transforms of 50 features, found 49"),
        (np.full(50, np.nan), r"with their arrays, found idf\.weight: expected finite"),
    ],
)
def test_transforms_that_lie(tmp_path, weight, words):
    arrays = {"idf.weight": np.ones(50)}
    directory = write(tmp_path / "m", meta=META | {"transforms": ["idf"]}, transforms_arrays=arrays)
    file = directory / "transforms.safetensors"
    file.write_bytes(save({"idf.weight": weight}))
    found = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "bytes": file.stat().st_size}
    rewrite_manifest(directory, lambda content: content["transforms"].update(found))
    with pytest.raises(ModelFormatError, match=words):
        LinearModel.load(directory).transforms()


@pytest.mark.parametrize(
    "weight", [np.full(50, 1j), np.full(50, "a"), np.full(50, None), [[1.0], [1.0, 2.0]], np.ones(51)]
)
def test_transforms_that_cannot_be_stored(tmp_path, weight):
    with pytest.raises((TypeError, ValueError), match=r"^transforms_arrays: expected"):
        ShardWriter(tmp_path / "m", META | {"transforms": ["idf"]}, transforms_arrays={"idf.weight": weight})
    assert not (tmp_path / "m").exists()


def test_a_model_of_a_newer_version_is_not_replaced(tmp_path):
    """Nor one whose writing was killed: it is not known what it lacks."""
    killed_at_once(tmp_path)
    rewrite_manifest(tmp_path, lambda content: content.update(schema_version=99))
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match=r"found a model \(nothing was changed\)$"):
        write(tmp_path, at_once=True)
    with pytest.raises(FileExistsError, match=r"found a model \(nothing was changed\)$"):
        write_kernel_model(tmp_path, META, {"alpha": np.eye(2)})
    assert contents(tmp_path) == before
