"""Readers take at most 20 times the file on disk and 64 MB, unless they are told otherwise."""

import gzip
import importlib.util
import lzma
import os
import threading
import zlib

import numpy as np
import pytest

from tests.support.processes import python
from xmcjax.data import DataFormatError, load, load_pieces, load_svmlight, load_xmc
from xmcjax.models import ShardWriter, read_predictions

# Prints the bytes that reading added to the peak of a process, and what came of it.
MEASURE = """
import ast, resource, sys
import concurrent.futures, gzip, lzma, pathlib, tempfile, zipfile, scipy.sparse
from xmcjax.data import DataFormatError, load_labels, load_matrix, load_npy, load_npz, load_parquet
from xmcjax.data import load_scipy_npz, load_svmlight, load_xmc
from xmcjax.native import load_library
from xmcjax.models import import_model, read_predictions
def load_liblinear(path, **options):
    import_model(path, pathlib.Path(tempfile.mkdtemp(), "m"), "liblinear", **options)
load_library()
reader, path, options = globals()[sys.argv[1]], sys.argv[2], ast.literal_eval(sys.argv[3])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    reader(path, **options)
    found = "read"
except DataFormatError as error:
    found = str(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, found)
"""
EMPTY_ROWS = b"20000000 3 3\n" + b"\n" * 20_000_000
PACK = {"gz": gzip.compress, "xz": lzma.compress}
MEMBERS = {
    "format": np.array("xmcjax-data-1"),
    "X_data": np.ones(10_000_000, np.float32),
    "X_indices": np.tile(np.arange(1000, dtype=np.int32), 10_000),
    "X_indptr": np.arange(0, 10_000_001, 1000),
    "X_shape": np.array([10_000, 1000]),
    "y": np.zeros(10_000, np.int64),
}


def measure(reader: str, path, **options) -> tuple[int, str]:
    """(bytes, what was said) of reading a file in a process of its own."""
    done = python(MEASURE, reader, path, repr(options), timeout=120, check=True)
    used, said = done.stdout.split(" ", 1)
    return int(used), said.strip()


def refused(reader: str, path, what: str, **options) -> None:
    used, said = measure(reader, path, **options)
    size = os.path.getsize(path)
    assert used <= 20 * size + 64e6, said
    assert f"memory (20 times the file and 64 MB; --max-memory allows more), found about {what}" in said
    assert said.count("\n") == 0 and said.startswith(str(path))


@pytest.mark.parametrize("suffix", PACK)
def test_empty_rows_in_an_archive(write, suffix):
    path = write(PACK[suffix](EMPTY_ROWS), f"data.txt.{suffix}")
    refused("load_xmc", path, "", parser="native")
    _, said = measure("load_xmc", path, parser="native", max_memory=2_000_000_000)
    assert said == "read"


@pytest.mark.parametrize("suffix", PACK)
def test_both_parsers_stop_at_the_same_place(parser, write, suffix):
    rows = b"2000000 3 3\n" + b"0,1 1:2\n" * 2_000_000
    path = write(PACK[suffix](rows), f"data.txt.{suffix}")
    with pytest.raises(DataFormatError, match=r"judged by the first \d+") as caught:
        load_xmc(path, parser=parser, max_memory=30_000_000)
    assert "at most 30 MB of memory (max_memory; --max-memory allows more)" in str(caught.value)
    assert caught.value.found.endswith("for the rows (judged by the first 393,215 lines)"), caught.value.found


def test_a_line_of_an_archive(parser, write):
    path = write(gzip.compress(b"1 3 3\n" + b" " * 100_000_000), "data.txt.gz")
    refused("load_xmc", path, "", parser=parser)


def test_a_long_line_of_a_plain_file(parser, write):
    """Unsorted, so that it is sorted; the Python parser took a hundred times its length."""
    path = write(b"1 300000 3\n0 " + b" ".join(b"%d:1" % i for i in range(299_999, -1, -1)) + b"\n")
    used, said = measure("load_xmc", path, parser=parser)
    assert said == "read" and used <= 20 * os.path.getsize(path) + 64e6


def test_an_archive_with_a_large_dictionary_is_read(write):
    """`xz -9` asks for 65 MB whatever the file's size; only as much as is unpacked is touched."""
    path = write(lzma.compress(b"1 1:1\n" * 1000, preset=9), "data.svm.xz")
    assert load_svmlight(path)[0].shape == (1000, 1)
    quick = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 26}]  # with the dictionary of -9
    lines = (b"#" * 99 + b"\n") * 1_000_000 + b"1 1:1\n"
    comments = write(lzma.compress(lines, filters=quick), "comments.svm.xz")
    refused("load_svmlight", comments, "")


def test_an_archive_that_asks_for_a_dictionary_of_a_gigabyte(parser, write):
    """A header of one hundred bytes asks for it; liblzma would allocate it at once."""
    content = bytearray(lzma.compress(b"1 1:1\n"))
    header = content[12 : 12 + 4 * (content[12] + 1)]  # of the block: "The .xz File Format" 3.1
    place = 12 + header.index(b"\x21\x01") + 2
    content[place] = 36  # 2^(36 / 2 + 12) bytes
    end = 12 + len(header) - 4
    content[end : end + 4] = zlib.crc32(content[12:end]).to_bytes(4, "little")
    path = write(bytes(content), "data.svm.xz")
    with pytest.raises(DataFormatError, match=r"found one that needs more than 69 MB to be unpacked \(--max"):
        load_svmlight(path, parser=parser)
    assert load_svmlight(path, parser=parser, max_memory=2 * 10**9)[0].shape == (1, 1)


def test_an_npz_that_unpacks_to_much(tmp_path):
    np.savez_compressed(tmp_path / "bomb.npz", **MEMBERS)
    refused("load_npz", tmp_path / "bomb.npz", "160 MB for members that unpack to 40,000,052 bytes")
    assert measure("load_npz", tmp_path / "bomb.npz", max_memory=10**9)[1] == "read"
    np.savez(tmp_path / "plain.npz", **MEMBERS)
    used, said = measure("load_npz", tmp_path / "plain.npz")
    assert said == "read" and used <= 4 * os.path.getsize(tmp_path / "plain.npz")


def test_predictions_padded_to_one_long_line(write):
    path = write(b" ".join(b"%d:0" % i for i in range(12_000)) + b"\n" + b"\n" * 20_000, "top.txt")
    refused(
        "read_predictions", path, "2,880 MB for 20,001 lines padded to the longest, of 12,000 predictions"
    )
    labels, _ = read_predictions(write(b"1:2 2:1\n\n", "small.txt"), max_memory=1_000)
    assert labels.tolist() == [[1, 2], [-1, -1]]
    with pytest.raises(DataFormatError, match="found about 0 MB for 2 lines padded"):
        read_predictions(path.parent / "small.txt", max_memory=10)


def test_matrices_of_scipy(tmp_path):
    """One that is stored plainly is read, in any format; one that unpacks to much is refused."""
    import scipy.sparse as sp

    indices = np.tile(np.arange(1000, dtype=np.int32), 3_000)
    ones = sp.csr_matrix((np.ones(3_000_000), indices, np.arange(0, 3_000_001, 1000)), shape=(3_000, 1000))
    for format in ("csr", "csc", "coo"):
        sp.save_npz(tmp_path / "plain.npz", ones.asformat(format), compressed=False)
        used, said = measure("load_scipy_npz", tmp_path / "plain.npz", dtype="float32")
        assert said == "read" and used <= 8 * os.path.getsize(tmp_path / "plain.npz") + 64e6
    large = sp.vstack([ones] * 10, "csr")
    sp.save_npz(tmp_path / "bomb.npz", large)
    refused("load_scipy_npz", tmp_path / "bomb.npz", "")
    assert measure("load_scipy_npz", tmp_path / "bomb.npz", max_memory=2 * 10**9)[1] == "read"


def test_text_of_a_matrix(parser, write):
    n = 2_000_000 if parser == "native" else 1_000_000  # Python takes ten seconds for these
    plain = write(b"%d 3\n" % n + b"1:2\n" * n, "X.txt")
    used, said = measure("load_matrix", plain, parser=parser)
    assert said == "read" and used <= 20 * os.path.getsize(plain) + 64e6
    rows = gzip.compress(b"2000000 3\n" + b"1:2\n" * 2_000_000)
    refused("load_matrix", write(rows, "X.txt.gz"), "", parser=parser)


def test_arrays_that_are_converted(tmp_path):
    for array in (np.zeros((4000, 2000), np.float64), np.asfortranarray(np.zeros((4000, 2000), np.float32))):
        np.save(tmp_path / "E.npy", array)
        used, said = measure("load_npy", tmp_path / "E.npy", dtype="float32")
        # the pages of the file count as the system keeps them
        assert said == "read" and used <= 2.2 * os.path.getsize(tmp_path / "E.npy") + 16e6
    np.save(tmp_path / "E.npy", np.zeros((4000, 20_000), np.int8))
    _, said = measure("load_npy", tmp_path / "E.npy", max_memory=10**8)
    assert "found about 320 MB for an array [4000, 20000] of float32" in said
    np.save(tmp_path / "Y.npy", np.eye(4000, dtype=np.int8))
    used, said = measure("load_labels", tmp_path / "Y.npy")
    assert said == "read" and used <= 2 * os.path.getsize(tmp_path / "Y.npy") + 16e6


def test_a_model_of_liblinear(tmp_path):
    """Weights of one digit take the most memory for a byte of text."""
    head = b"solver_type MCSVM_CS\nnr_class 1000\nlabel " + b" ".join(b"%d" % i for i in range(1000))
    path = tmp_path / "model"
    path.write_bytes(head + b"\nnr_feature 4000\nbias -1\nw\n" + (b"1 " * 1000 + b"\n") * 4000)
    used, said = measure("load_liblinear", path)
    assert used <= 20 * os.path.getsize(path) + 64e6 and (said == "read" or "for the weights of" in said)
    path.write_bytes(head + b"\nnr_feature 4000\nbias -1\nw\n" + (b"0.12345678 " * 1000 + b"\n") * 4000)
    used, said = measure("load_liblinear", path)
    assert said == "read" and used <= 20 * os.path.getsize(path) + 64e6


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="the extra arrow is not installed")
def test_parquet_that_unpacks_to_much(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(60_000_000, np.float32)), 1000)
    pq.write_table(pa.table({"features": values, "labels": np.zeros(60_000, int)}), tmp_path / "bomb.parquet")
    refused("load_parquet", tmp_path / "bomb.parquet", "")


def test_predictions_of_other_forms(tmp_path):
    line = '{"labels": [%s], "scores": [%s]}\n'
    labels, zeros = ",".join(map(str, range(12_000))), ",".join("0" * 12_000)
    (tmp_path / "long.jsonl").write_text(line % (labels, zeros) + line % ("", "") * 4_000)
    refused("read_predictions", tmp_path / "long.jsonl", "")
    (tmp_path / "plain.jsonl").write_text(line % ("3,1", "1,0") * 200_000)
    used, said = measure("read_predictions", tmp_path / "plain.jsonl")
    assert said == "read" and used <= 20 * os.path.getsize(tmp_path / "plain.jsonl") + 64e6


def test_a_pipe_is_as_large_as_what_came_through_it(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    content = b"200000 9 3\n" + b"0,1 1:2 3:4.25 7:1\n" * 200_000
    writer = threading.Thread(target=lambda: (tmp_path / "fifo").write_bytes(content))
    writer.start()
    X, _ = load_xmc(tmp_path / "fifo")
    writer.join(60)
    assert X.shape == (200_000, 9) and X.nnz == 600_000


@pytest.mark.parametrize("format", ["xmc", "svmlight"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_pieces_are_the_whole(parser, write, format, suffix, monkeypatch):
    monkeypatch.setattr("xmcjax.data._files.CHUNK", 500)
    rng = np.random.default_rng(0)
    lines = [b"%d %d:%d" % (rng.integers(3), rng.integers(1, 9), rng.integers(1, 5)) for _ in range(1000)]
    text = b"\n".join(lines)
    content = b"1000 9 3\n" + text if format == "xmc" else text
    path = write(gzip.compress(content) if suffix else content, f"data.txt{suffix}")
    options = {} if format == "xmc" else {"n_features": 9}
    X, y = load(path, format, parser=parser, **options)
    pieces = list(load_pieces(path, format, piece=5000, parser=parser, **options))
    assert len(pieces) > 3 and sum(piece.n_rows for piece in pieces) == 1000
    start = 0
    for piece in pieces:
        stop = start + piece.n_rows
        assert (X[start:stop] != piece.X).nnz == 0
        assert (piece.y != y[start:stop]).sum() == 0
        start = stop


def test_an_error_in_a_later_piece_names_its_line(parser, write, monkeypatch):
    monkeypatch.setattr("xmcjax.data._files.CHUNK", 50)
    good = b"1 3:4 5:6\n" * 70
    for content, where in (
        (b"100 9 9\n" + good + b"1 5:6 3:oops\n" + b"1 1:1\n" * 29, ":72:9: expected a finite"),
        (b"60 9 9\n" + good, ":62:1: expected 60 rows as in the header, found one more line"),
        (b"80 9 9\n" + good, ":72:1: expected 80 rows as in the header, found the end of the file after 70"),
    ):
        path = write(content)
        with pytest.raises(DataFormatError) as caught:
            list(load_pieces(path, piece=200, parser=parser))
        assert where in str(caught.value)
    with pytest.raises(ValueError, match="max_memory must be above 0 bytes, got 0"):
        load_xmc(path, max_memory=0)


PREDICT = """
import resource, sys
from xmcjax.cli.main import main
small, large, model = sys.argv[1:]
peaks = []
for data in (small, large):
    assert main(["predict", "--model", model, "--data", data, "--out", data + ".top", "--n-jobs", "1"]) == 0
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(peaks[1] - peaks[0])
"""


def test_predictions_of_a_long_file_take_no_more_memory(tmp_path):
    """Four pieces take little more than one; read as a whole, the second file takes 100 MB more."""
    line = b"0,1 " + b" ".join(b"%d:1.25" % i for i in range(100)) + b"\n"
    paths = [tmp_path / "small.txt", tmp_path / "large.txt"]
    for path, rows in zip(paths, (40_000, 160_000), strict=True):
        path.write_bytes(b"%d 100 3\n" % rows + line * rows)
    with ShardWriter(tmp_path / "m", {"n_features": 100, "n_labels": 3, "dtype": "float32"}) as writer:
        for label in range(3):
            writer.add(label, [label], np.float32([1 + label]))
    done = python(PREDICT, *paths, tmp_path / "m", timeout=200, check=True)
    more = int(done.stdout.splitlines()[-1])
    assert more < 40e6, more
    top = (tmp_path / "large.txt.top").read_bytes()
    assert top == b"2:3.75 1:2.5 0:1.25\n" * 160_000
