"""Every malformed input gives its documented value or an error that names file, line and column."""

import bz2
import gzip
import lzma
import pickle
from pathlib import Path

import numpy as np
import pytest

from xmcjax.data import DataFormatError, load_svmlight, load_xmc

# (name, file, line, column, a part of what was expected, what was found)
XMC_ERRORS = [
    ("empty file", b"", 1, 1, "a header 'n d L'", "an empty file"),
    ("blank header", b"\n0 1:1\n", 1, 1, "header 'n d L'", "an empty line"),
    ("header of two", b"2 3\n", 1, 4, "number of labels L", "the end of the line"),
    ("header of four", b"1 3 2 9\n0 1:1\n", 1, 7, "three numbers", "'9'"),
    ("header of letters", b"1 three 2\n", 1, 3, "number of features d", "'three'"),
    ("header with a sign", b"1 -3 2\n", 1, 3, "number of features d", "'-3'"),
    ("header with a point", b"1 3.0 2\n", 1, 3, "number of features d", "'3.0'"),
    ("header with a comma", b"1,3,2\n", 1, 1, "number of rows n", "'1,3,2'"),
    ("header above int32", b"1 2147483648 2\n", 1, 3, "from 0 to 2147483647", "'2147483648'"),
    ("header above int64", b"9223372036854775808 3 2\n", 1, 1, "number of rows n", "'9223372036854775808'"),
    ("header of many digits", b"1 3 " + b"9" * 50 + b"\n", 1, 5, "labels L", "'" + "9" * 40 + "'…"),
    ("no header", b"0,1 1:1 2:1\n", 1, 1, "number of rows n", "'0,1'"),
    ("byte order mark", b"\xef\xbb\xbf1 3 2\n0 1:1\n", 1, 1, "number of rows n", r"'\ufeff1'"),
    ("nan", b"1 3 2\n0 1:nan\n", 2, 5, "a finite float32 number", "'nan'"),
    ("inf", b"1 3 2\n0 1:inf 2:1\n", 2, 5, "a finite float32 number", "'inf'"),
    ("minus infinity", b"1 3 2\n0 1:-Infinity\n", 2, 5, "a finite float32 number", "'-Infinity'"),
    ("value above float32", b"1 3 2\n0 1:3.5e38\n", 2, 5, "a finite float32 number", "'3.5e38'"),
    ("value above double", b"1 3 2\n0 1:-1e999\n", 2, 5, "a finite float32 number", "'-1e999'"),
    ("long value above double", b"1 3 2\n0 1:" + b"9" * 400 + b"\n", 2, 5, "a finite", "'" + "9" * 40 + "'…"),
    ("index out of range", b"1 3 2\n0 3:1\n", 2, 3, "a feature index from 0 to 2", "'3'"),
    ("index above int32", b"1 3 2\n0 1:1 2147483648:1\n", 2, 7, "index from 0 to 2", "'2147483648'"),
    ("index above int64", b"1 3 2\n0 9223372036854775808:1\n", 2, 3, "from 0 to 2", "'9223372036854775808'"),
    ("index 2^64", b"1 3 2\n0 18446744073709551616:1\n", 2, 3, "from 0 to 2", "'18446744073709551616'"),
    ("index of 5000 digits", b"1 3 2\n0 " + b"1" * 5000 + b":1\n", 2, 3, "to 2", "'" + "1" * 40 + "'…"),
    ("negative index", b"1 3 2\n0 -1:1\n", 2, 3, "a feature index from 0 to 2", "'-1'"),
    ("index with plus", b"1 3 2\n0 +1:1\n", 2, 3, "a feature index from 0 to 2", "'+1'"),
    ("fractional index", b"1 3 2\n0 1.0:1\n", 2, 3, "a feature index from 0 to 2", "'1.0'"),
    ("hexadecimal index", b"1 3 2\n0 0x1:1\n", 2, 3, "a feature index from 0 to 2", "'0x1'"),
    ("letters for index", b"1 3 2\n0 a:1\n", 2, 3, "a feature index from 0 to 2", "'a'"),
    ("qid", b"1 3 2\n0 qid:1 1:1\n", 2, 3, "a feature index from 0 to 2", "'qid'"),
    ("no index", b"1 3 2\n0 :1\n", 2, 3, "a feature index from 0 to 2", "':'"),
    ("no features allowed", b"1 0 2\n0 0:1\n", 2, 3, "where there are any (their number is 0)", "'0'"),
    ("no value", b"1 3 2\n0 1: 2:1\n", 2, 5, "a finite float32 number", "' '"),
    ("no value at the end", b"1 3 2\n0 1:\n", 2, 5, "a finite float32 number", "the end of the line"),
    ("no value, CRLF", b"1 3 2\r\n0 1:\r\n", 2, 5, "a finite float32 number", "the end of the line"),
    ("no colon", b"1 3 2\n0 1:1 2\n", 2, 7, "index:value", "'2'"),
    ("letters", b"1 3 2\n0 abc\n", 2, 3, "index:value", "'abc'"),
    ("letters for a value", b"1 3 2\n0 1:one\n", 2, 5, "a finite float32 number", "'one'"),
    ("two colons", b"1 3 2\n0 1:2:3\n", 2, 5, "a finite float32 number", "'2:3'"),
    ("two points", b"1 3 2\n0 1:1.2.3\n", 2, 5, "a finite float32 number", "'1.2.3'"),
    ("a point alone", b"1 3 2\n0 1:.\n", 2, 5, "a finite float32 number", "'.'"),
    ("a sign alone", b"1 3 2\n0 1:-\n", 2, 5, "a finite float32 number", "'-'"),
    ("two signs", b"1 3 2\n0 1:--1\n", 2, 5, "a finite float32 number", "'--1'"),
    ("an empty exponent", b"1 3 2\n0 1:1e\n", 2, 5, "a finite float32 number", "'1e'"),
    ("an exponent alone", b"1 3 2\n0 1:e5\n", 2, 5, "a finite float32 number", "'e5'"),
    ("digits with a line", b"1 3 2\n0 1:1_000\n", 2, 5, "a finite float32 number", "'1_000'"),
    ("hexadecimal value", b"1 3 2\n0 1:0x1p3\n", 2, 5, "a finite float32 number", "'0x1p3'"),
    ("decimal comma", b"1 3 2\n0 1:1,5\n", 2, 5, "a finite float32 number", "'1,5'"),
    ("duplicate index", b"1 9 2\n0 7:1 2:1 3:1 7:2 2:5\n", 2, 15, "each feature index once", "'7'"),
    ("duplicate neighbours", b"1 9 2\n0 2:1 2:1\n", 2, 7, "each feature index once", "'2'"),
    ("duplicate of a zero", b"1 9 2\n0 2:0 02:1\n", 2, 7, "each feature index once", "'02'"),
    ("duplicate label", b"1 3 9\n5,2,1,2,5 1:1\n", 2, 7, "each label once", "'2'"),
    ("duplicate label at the end", b"1 3 9\n2,2\n", 2, 3, "each label once", "'2'"),
    ("label out of range", b"1 3 2\n0,2 1:1\n", 2, 3, "a label from 0 to 1", "'2'"),
    ("label above int64", b"1 3 2\n" + b"9" * 20 + b" 1:1\n", 2, 1, "a label from 0 to 1", f"'{'9' * 20}'"),
    ("negative label", b"1 3 2\n-1 1:1\n", 2, 1, "a label from 0 to 1", "'-1'"),
    ("fractional label", b"1 3 2\n1.5 1:1\n", 2, 1, "a label from 0 to 1", "'1.5'"),
    ("letters for a label", b"1 3 2\nred 1:1\n", 2, 1, "a label from 0 to 1", "'red'"),
    ("no labels allowed", b"1 3 0\n0 1:1\n", 2, 1, "where there are any (their number is 0)", "'0'"),
    ("space after comma", b"1 3 2\n0, 1 1:1\n", 2, 3, "a label from 0 to 1", "' '"),
    ("comma at the end", b"1 3 2\n0,\n", 2, 3, "a label from 0 to 1", "the end of the line"),
    ("comma at the start", b"1 3 2\n,0 1:1\n", 2, 1, "a label from 0 to 1", "','"),
    ("two commas", b"1 3 2\n0,,1 1:1\n", 2, 3, "a label from 0 to 1", "','"),
    ("features without blank", b"1 3 2\n1:1 2:1\n", 2, 1, "starts with a blank", "'1:1'"),
    ("comment line", b"1 3 2\n# text\n0 1:1\n", 2, 1, "a label from 0 to 1", "'#'"),
    ("comment at the end", b"1 3 2\n0 1:1 # text\n", 2, 7, "index:value", "'#'"),
    ("comment in a value", b"1 3 2\n0 1:1#text\n", 2, 5, "a finite float32 number", "'1#text'"),
    ("lone carriage return", b"1 3 2\n0 1:1\r 2:1\n", 2, 5, "a finite float32 number", r"'1\r'"),
    ("two carriage returns", b"1 3 2\n0 1:1\r\r\n", 2, 5, "a finite float32 number", r"'1\r'"),
    ("form feed", b"1 3 2\n0 1:1\x0c2:1\n", 2, 5, "a finite float32 number", r"'1\x0c2:1'"),
    ("zero bytes", b"1 3 2\n\x00\x00\x00\n", 2, 1, "a label from 0 to 1", r"'\x00\x00\x00'"),
    ("zero byte in a value", b"1 3 2\n0 1:1\x00\n", 2, 5, "a finite float32 number", r"'1\x00'"),
    ("zero byte after the last digit", b"1 3 2\n0 1:1\x00", 2, 5, "a finite float32 number", r"'1\x00'"),
    ("not ASCII", "1 3 2\n0 1:½\n".encode(), 2, 5, "a finite float32 number", "'½'"),
    ("not UTF-8", b"1 3 2\n0 1:\xff\xfe\n", 2, 5, "a finite float32 number", r"'\\xff\\xfe'"),
    ("column after tabs", b"1 3 2\n0\t\t1:1\tx\n", 2, 8, "index:value", "'x'"),
    ("later line", b"3 3 2\n0 1:1\n1 2:1\n1 7:1\n", 4, 3, "from 0 to 2", "'7'"),
    ("fewer rows", b"3 3 2\n0 1:1\n1 2:1\n", 4, 1, "3 rows as in the header", "the end of the file after 2"),
    ("no rows", b"3 3 2\n", 2, 1, "3 rows as in the header", "the end of the file after 0"),
    ("header only, no line end", b"3 3 2", 2, 1, "3 rows as in the header", "the end of the file after 0"),
    ("more rows", b"1 3 2\n0 1:1\n1 2:1\n", 3, 1, "1 rows as in the header", "one more line"),
    ("empty line at the end", b"1 3 2\n0 1:1\n\n", 3, 1, "1 rows as in the header", "one more line"),
    ("rows, none in the header", b"0 3 2\n0 1:1\n", 2, 1, "0 rows as in the header", "one more line"),
]


def _check(error: DataFormatError, path: Path, line: int, column: int, expected: str, found: str):
    assert (error.path, error.line, error.column) == (str(path), line, column)
    assert expected in error.expected
    assert error.found == found
    assert str(error) == f"{path}:{line}:{column}: expected {error.expected}, found {found}"
    assert "\n" not in str(error)


def _ids(table):
    names = [case[0] for case in table]
    assert len(set(names)) == len(names)
    return names


@pytest.mark.parametrize("case", XMC_ERRORS, ids=_ids(XMC_ERRORS))
def test_xmc_error(parser, write, case):
    _, content, *where = case
    path = write(content)
    with pytest.raises(DataFormatError) as raised:
        load_xmc(path, parser=parser)
    _check(raised.value, path, *where)


PACK = {"gz": gzip.compress, "xz": lzma.compress}


@pytest.fixture(params=PACK)
def suffix(request):
    return request.param


def test_error_names_line_in_compressed_file(parser, write, suffix):
    path = write(PACK[suffix](b"2 3 2\n0 1:1\n1 1:x\n"), f"data.txt.{suffix}")
    with pytest.raises(DataFormatError) as raised:
        load_xmc(path, parser=parser)
    _check(raised.value, path, 3, 5, "a finite float32 number", "'x'")


def test_error_in_a_later_chunk(parser, tmp_path, monkeypatch):
    """Line numbers go on over chunks, whatever their size."""
    path = tmp_path / "data.txt"
    path.write_bytes(b"100 9 9\n" + b"1,2 3:4 5:6\n" * 70 + b"1 5:6 3:oops\n" + b"1 1:1\n" * 29)
    monkeypatch.setattr("xmcjax.data._files.CHUNK", 50)
    with pytest.raises(DataFormatError) as raised:
        load_xmc(path, parser=parser)
    _check(raised.value, path, 72, 9, "a finite", "'oops'")


# (name, file, options, line, column, a part of what was expected, what was found)
SVMLIGHT_ERRORS = [
    ("empty file", b"", {}, 1, 1, "at least one row", "none"),
    ("comments only", b"# a\n# b\n", {}, 1, 1, "at least one row", "none"),
    ("index 0", b"1 0:1\n", {}, 1, 3, "from 1 to 2147483647 (zero_based", "'0'"),
    ("empty line", b"1 1:1\n\n2 1:1\n", {}, 2, 1, "one class, an integer", "the end of the line"),
    ("empty line at the end", b"1 1:1\n\n", {}, 2, 1, "one class, an integer", "the end of the line"),
    ("blank line", b"1 1:1\n  \n", {}, 2, 3, "one class, an integer", "the end of the line"),
    ("comment without class", b" # text\n", {}, 1, 2, "one class, an integer", "'#'"),
    ("no class", b"1:1 2:1\n", {}, 1, 1, "one class, an integer", "'1:1'"),
    ("class 1.5", b"1.5 1:1\n", {}, 1, 1, "one class, an integer", "'1.5'"),
    ("class nan", b"nan 1:1\n", {}, 1, 1, "one class, an integer", "'nan'"),
    ("class inf", b"-inf 1:1\n", {}, 1, 1, "one class, an integer", "'-inf'"),
    ("class of letters", b"spam 1:1\n", {}, 1, 1, "one class, an integer", "'spam'"),
    ("class of a sign", b"- 1:1\n", {}, 1, 1, "one class, an integer", "'-'"),
    ("class above int64", b"9223372036854775808\n", {}, 1, 1, "one class", "'9223372036854775808'"),
    ("class not exact", b"1e17 1:1\n", {}, 1, 1, "one class, an integer", "'1e17'"),
    ("list of labels", b"1,2 1:1\n", {}, 1, 1, "read with multilabel", "'1,2'"),
    ("query id of letters", b"1 qid:a 1:1\n", {}, 1, 3, "a feature index", "'qid'"),
    ("query id without a number", b"1 qid: 1:1\n", {}, 1, 3, "a feature index", "'qid'"),
    ("query id behind a feature", b"1 1:1 qid:7\n", {}, 1, 7, "a feature index", "'qid'"),
    ("two query ids", b"1 qid:7 qid:8 1:1\n", {}, 1, 9, "a feature index", "'qid'"),
    ("query id without a label", b"qid:7 1:1\n", {}, 1, 1, "one class, an integer", "'qid:7'"),
    ("duplicate behind a query id", b"1 qid:7 3:1 3:0\n", {}, 1, 13, "each feature index once", "'3'"),
    ("index above n_features", b"1 4:1\n", {"n_features": 3}, 1, 3, "from 1 to 3", "'4'"),
    ("index above int32", b"1 2147483648:1\n", {}, 1, 3, "from 1 to 2147483647", "'2147483648'"),
    ("index above, from 0", b"1 3:1\n", {"n_features": 3, "zero_based": True}, 1, 3, "from 0 to 2", "'3'"),
    ("nan", b"1 1:nan\n", {}, 1, 5, "a finite float32", "'nan'"),
    ("duplicate", b"1 3:1 3:0\n", {}, 1, 7, "each feature index once", "'3'"),
    ("value cut by a comment", b"1 3:#1\n", {}, 1, 5, "a finite float32", "'#1'"),
    ("label above n_labels", b"3 1:1\n", {"multilabel": True, "n_labels": 3}, 1, 1, "from 0 to 2", "'3'"),
    ("label below first", b"2,0 1:1\n", {"multilabel": True, "first_label": 1}, 1, 3, "label from 1", "'0'"),
    ("fractional label", b"1.0 1:1\n", {"multilabel": True}, 1, 1, "a label from 0", "'1.0'"),
    ("no blank", b"1:1 2:1\n", {"multilabel": True}, 1, 1, "starts with a blank", "'1:1'"),
    ("duplicate label", b"1,1 1:1 # 1\n", {"multilabel": True}, 1, 3, "each label once", "'1'"),
    ("value above float64", b"1 1:1e309\n", {"dtype": np.float64}, 1, 5, "a finite float64", "'1e309'"),
]


@pytest.mark.parametrize("case", SVMLIGHT_ERRORS, ids=_ids(SVMLIGHT_ERRORS))
def test_svmlight_error(parser, write, case):
    _, content, options, *where = case
    path = write(content)
    with pytest.raises(DataFormatError) as raised:
        load_svmlight(path, parser=parser, **options)
    _check(raised.value, path, *where)


def test_truncated_and_damaged_archives(parser, write, suffix):
    text, name = b"2 3 2\n0 1:1\n1 1:1\n", f"data.txt.{suffix}"
    content = PACK[suffix](text)
    assert load_xmc(write(content, name), parser=parser)[0].nnz == 2
    for stop in range(1, len(content)):
        with pytest.raises(
            DataFormatError, match=f"{name}:[0-9]+:1: expected a complete (gzip|xz) file, found "
        ):
            load_xmc(write(content[:stop], name), parser=parser)
    for flip in range(10, len(content)):
        broken = bytearray(content)
        broken[flip] ^= 0x10
        with pytest.raises(DataFormatError):
            load_xmc(write(bytes(broken), name), parser=parser)
    with pytest.raises(DataFormatError, match="found a damaged one"):
        load_xmc(write(text, name), parser=parser)


def test_what_the_system_refuses_is_an_oserror(parser, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.txt"):
        load_xmc(tmp_path / "nothing.txt", parser=parser)
    for name in ("folder", "folder.gz", "folder.xz"):
        (tmp_path / name).mkdir()
        with pytest.raises(IsADirectoryError, match=name):
            load_xmc(tmp_path / name, parser=parser)


def test_error_survives_pickling():
    error = DataFormatError("a.txt", 3, 7, "a label", "'x'")
    # What multiprocessing does to bring an error home.
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.line) == (DataFormatError, str(error), 3)
    without_place = DataFormatError(Path("a.npz"), None, None, "an npz", "a zip")
    assert str(without_place) == "a.npz: expected an npz, found a zip"


def test_long_line_without_end_is_an_error(parser, tmp_path, monkeypatch):
    path = tmp_path / "zeros.txt"
    path.write_bytes(bytes(3000))
    monkeypatch.setattr("xmcjax.data._files.MAX_LINE", 1000)
    monkeypatch.setattr("xmcjax.data._files.CHUNK", 100)
    with pytest.raises(DataFormatError, match="found a line of more than 256 MiB"):
        load_xmc(path, parser=parser)


def _parts(suffix, header=b"4 3 2\n", padding=b""):
    """An archive of two parts, and where the second one begins."""
    first = PACK[suffix](header + b"0 1:1\n" * 2) + padding
    return first + PACK[suffix](b"1 2:1\n" * 2), len(first)


@pytest.mark.parametrize("format", ["xmc", "svmlight"])
def test_no_bit_of_a_second_part_can_lose_rows(parser, write, suffix, format):
    """Python's reader of .xz stops without a word where the second stream does not begin as one."""
    # in svmlight no header says how many rows there are
    content, begin = _parts(suffix, b"4 3 2\n" if format == "xmc" else b"")
    load = load_xmc if format == "xmc" else load_svmlight
    name = f"data.txt.{suffix}"
    whole = load(write(content, name), parser=parser)
    for bit in range(8 * begin, 8 * len(content)):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        try:
            X, y = load(write(bytes(broken), name), parser=parser)
        except DataFormatError:
            continue
        # bits of gzip that say nothing about the content: time, system, the padding of its last byte
        assert suffix == "gz"
        assert (whole[0] != X).nnz == 0 and (y != whole[1]).sum() == 0


def test_what_may_follow_a_part(parser, write, suffix):
    name = f"data.txt.{suffix}"
    kind = {"gz": "gzip", "xz": "xz"}[suffix]
    for padding in (b"", bytes(4), bytes(512)):
        content, _ = _parts(suffix, padding=padding)
        for end in (b"", bytes(8)):
            assert load_xmc(write(content + end, name), parser=parser)[0].nnz == 4
    content, _ = _parts(suffix)
    for junk in (b"junk", b"4 3 2\n", b"\x1f\x8b", b"\xfd7zXZ\0", bytes(4) + b"junk"):
        with pytest.raises(DataFormatError, match=f"{name}:6:1: expected a complete {kind} file, found "):
            load_xmc(write(content + junk, name), parser=parser)
    odd = write(content + bytes(3), name)
    if suffix == "gz":
        assert load_xmc(odd, parser=parser)[0].nnz == 4
    else:
        with pytest.raises(DataFormatError, match=r"found a damaged one \(3 zero bytes behind part 2\)"):
            load_xmc(odd, parser=parser)


def test_an_archive_that_is_cut_names_the_line_reached(parser, write, suffix):
    rng = np.random.default_rng(0)
    rows = b"".join(b"1 %d:%d\n" % (rng.integers(1000), rng.integers(1, 10**6)) for _ in range(5000))
    content = PACK[suffix](b"5000 1000 2\n" + rows)
    with pytest.raises(DataFormatError, match="found a file that is cut short") as caught:
        load_xmc(write(content[: len(content) // 2], f"data.txt.{suffix}"), parser=parser)
    line = caught.value.line
    assert line is not None and 2000 < line < 3000


@pytest.mark.parametrize(
    ("name", "begin", "found"),
    [
        ("a.txt.bz2", bz2.compress(b"1 2 1\n0 1:1\n"), "a bzip2 file"),
        ("a.zst", b"\x28\xb5\x2f\xfd\x00", "a Zstandard file"),
        ("a.zip", b"PK\x03\x04\x00", "a zip file"),
        ("a.txt", gzip.compress(b"1 2 1\n0 1:1\n"), "a gzip file whose name does not end in .gz"),
        ("b.txt", lzma.compress(b"1 2 1\n0 1:1\n"), "an xz file whose name does not end in .xz"),
    ],
    ids=["bzip2", "Zstandard", "zip", "gzip", "xz"],  # gzip's bytes tell the time
)
def test_compressed_in_another_way(tmp_path, name, begin, found):
    path = tmp_path / name
    path.write_bytes(begin)
    for load in (load_xmc, load_svmlight):
        with pytest.raises(DataFormatError) as error:
            load(path)
        assert str(error.value) == f"{path}: expected plain text, or a file of .gz or .xz, found {found}"
    path.write_bytes(b"BZh8 is no number\n")
    with pytest.raises(DataFormatError, match="expected a header"):
        load_xmc(path)


def test_a_stream_that_is_compressed_has_no_name_to_end_in_gz(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"1 2 1\n0 1:1\n"))
    with open(path, "rb") as file, pytest.raises(DataFormatError) as error:
        load_xmc(f"/dev/fd/{file.fileno()}")
    assert str(error.value).partition(": ")[2] == (
        "expected plain text from a stream, whose name tells no other kind, found a gzip file: "
        "unpack it before, or give the name of the file"
    )


@pytest.mark.parametrize(
    ("index", "zero"), [("0", True), ("000", True), ("9", False), ("x", False), ("-1", False)]
)
def test_where_numbers_start_is_a_hint_about_index_0_alone(parser, write, index, zero):
    with pytest.raises(DataFormatError) as raised:
        load_svmlight(write(f"1 {index}:1\n".encode()), n_features=2, parser=parser)
    hint = " (zero_based or --zero-based reads files that count from 0)" if zero else ""
    assert raised.value.expected == f"a feature index from 1 to 2{hint}"
    with pytest.raises(DataFormatError) as raised:
        load_xmc(write(f"1 2 1\n1 {index}:1\n".encode()), one_based=True, parser=parser)
    hint = " (leave out one_based or --one-based for files that count from 0)" if zero else ""
    assert raised.value.expected == f"a feature index from 1 to 2{hint}"
