"""Outputs go where they are sent: through links, into pipes and devices, with the mode of the old file.

Each test runs in a process of its own, as root where the tests run as root and as an ordinary user always.
Devices are for the ordinary user alone: root could replace them.
"""

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# Imported before the rights are given up: an ordinary user may not read where Python is installed.
PRELUDE = """
import contextlib, errno, gzip, os, stat, sys, threading, encodings.cp437, lzma, zipfile
from pathlib import Path
import numpy as np, scipy.sparse as sp
from xmcjax.data import atomic_write, load_npz, save_npz, save_xmc
X = sp.csr_matrix(np.eye(3, dtype=np.float32))
here = Path(sys.argv[1])
def become_ordinary():
    if os.getuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
if sys.argv[2] == "ordinary":
    become_ordinary()
os.chdir(here)
def write(path, content=b"new"):
    with atomic_write(path) as file:
        file.write(content)
def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)
def only(*names):
    assert sorted(os.listdir(here)) == sorted(names), os.listdir(here)
"""
USERS = ["root", "ordinary"]


@pytest.fixture
def folder():
    """A folder that any user may write to; that of ``tmp_path`` is this user's alone."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def run(folder):
    """Runs code after the prelude, as a user."""

    def run(code: str, user: str = "ordinary", **options) -> subprocess.CompletedProcess:
        if user == "root" and os.getuid() != 0:
            pytest.skip("needs root")
        command = [sys.executable, "-c", PRELUDE + code, str(folder), user]
        return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)

    return run


def check(done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("user", USERS)
def test_links_stay_and_lead_to_the_new_content(run, user):
    check(
        run(
            """
os.mkdir("far"); Path("far/real").write_bytes(b"old"); os.chmod("far/real", 0o640)
os.symlink("far/real", "link"); os.symlink("link", "link2")
before = os.stat("far/real").st_ino
write("link2")
assert os.readlink("link2") == "link" and os.readlink("link") == "far/real"
assert Path("far/real").read_bytes() == b"new" and os.listdir("far") == ["real"]
assert os.stat("far/real").st_ino != before  # a whole new file, not one that was written over
assert mode("far/real") == 0o640
os.symlink("far/later", "dangling")
write("dangling")
assert os.readlink("dangling") == "far/later" and Path("far/later").read_bytes() == b"new"
os.symlink("gone/file", "nowhere")
try:
    write("nowhere")
except FileNotFoundError as error:
    assert "gone: expected a folder for file, found none" in str(error), error
else:
    raise AssertionError
os.symlink("round", "round")
try:
    write("round")
except OSError as error:
    assert (error.errno, error.filename) == (errno.ELOOP, "round")
else:
    raise AssertionError
only("far", "link", "link2", "dangling", "nowhere", "round")
""",
            user,
        )
    )


@pytest.mark.parametrize("user", USERS)
def test_an_interrupted_write_through_a_link_changes_nothing(run, user):
    check(
        run(
            """
Path("real").write_bytes(b"old"); os.symlink("real", "link")
with contextlib.suppress(KeyboardInterrupt), atomic_write("link") as file:
    file.write(b"half"); file.flush()
    raise KeyboardInterrupt
assert Path("real").read_bytes() == b"old"
only("real", "link")
""",
            user,
        )
    )


@pytest.mark.parametrize("user", USERS)
def test_the_mode_of_the_old_file_stays_and_a_new_one_follows_the_umask(run, user):
    check(
        run(
            """
for bits in (0o600, 0o640, 0o755, 0o666):
    Path("old").write_bytes(b"old"); os.chmod("old", bits)
    with atomic_write("old") as file:
        scratch = [name for name in os.listdir(here) if name.endswith(".tmp")]
        assert len(scratch) == 1 and mode(scratch[0]) == 0o600  # private until it is known whose it is
        file.write(b"new")
    assert mode("old") == bits and Path("old").read_bytes() == b"new"
for mask, bits in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
    os.umask(mask); write(f"new{mask}")
    assert mode(f"new{mask}") == bits
os.umask(0o022)
save_npz("a.npz", X, X); os.chmod("a.npz", 0o600); save_npz("a.npz", X, X)
assert mode("a.npz") == 0o600
""",
            user,
        )
    )


def test_root_keeps_the_owner(run, folder):
    (folder / "theirs").write_bytes(b"old")
    if os.getuid() == 0:
        os.chown(folder / "theirs", 12345, 23456)
    (folder / "theirs").chmod(0o660)
    check(run("write('theirs')", "root"))
    found = (folder / "theirs").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 23456, 0o660)
    assert (folder / "theirs").read_bytes() == b"new"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_another_users_file(run, folder):
    """One that may be written is replaced and keeps its mode; one that may not is left."""
    for name, bits in (("open", 0o666), ("closed", 0o644)):
        (folder / name).write_bytes(b"old")
        os.chown(folder / name, 12345, 23456)
        (folder / name).chmod(bits)
    check(
        run(
            """
write("open")
assert Path("open").read_bytes() == b"new" and mode("open") == 0o666
try:
    write("closed")
except PermissionError as error:
    assert error.filename == "closed"
else:
    raise AssertionError
assert Path("closed").read_bytes() == b"old"
only("open", "closed")
"""
        )
    )


def test_a_file_that_may_only_be_read_is_refused(run):
    check(
        run(
            """
Path("read").write_bytes(b"old"); os.chmod("read", 0o444)
try:
    write("read")
except PermissionError as error:
    assert error.filename == "read"
else:
    raise AssertionError
assert Path("read").read_bytes() == b"old"
only("read")
"""
        )
    )


@pytest.mark.parametrize("user", USERS)
def test_a_folder_that_hands_down_its_group(run, folder, user):
    inner = folder / "shared"
    inner.mkdir()
    if os.getuid() == 0:
        os.chown(inner, -1, 23456)
    inner.chmod(0o2777)
    check(run("write('shared/new')\nwrite('shared/new')", user))
    assert (inner / "new").stat().st_gid == inner.stat().st_gid


def test_a_folder_that_may_not_be_listed(run):
    check(
        run(
            """
os.mkdir("blind"); os.chmod("blind", 0o300)
write("blind/file")
os.chmod("blind", 0o700)
assert os.listdir("blind") == ["file"]
"""
        )
    )


def test_a_name_as_long_as_names_can_be(run):
    check(run("write('a' * 255); write('a' * 255)\nonly('a' * 255)"))


@pytest.mark.parametrize("user", USERS)
def test_a_directory_is_no_output(run, user):
    check(
        run(
            """
os.mkdir("folder"); os.symlink("folder", "link")
for name in ("folder", "link"):
    try:
        write(name)
    except IsADirectoryError as error:
        assert error.filename == name
    else:
        raise AssertionError
only("folder", "link")
""",
            user,
        )
    )


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("link", [False, True])
def test_a_fifo_stays_and_its_reader_gets_everything(run, user, link):
    check(
        run(
            f"""
os.mkfifo("fifo"); os.symlink("fifo", "link")
name = "link" if {link} else "fifo"
content = os.urandom(300_000)
got = []
reader = threading.Thread(target=lambda: got.append(Path("fifo").read_bytes()))
reader.start(); write(name, content); reader.join()
assert got == [content] and stat.S_ISFIFO(os.stat("fifo").st_mode)
reader = threading.Thread(target=lambda: got.append(Path("fifo").read_bytes()))
reader.start(); save_npz(name, X, X); reader.join()
Path("copy.npz").write_bytes(got[1])
assert (load_npz("copy.npz")[0] != X).nnz == 0
only("fifo", "link", "copy.npz")
""",
            user,
        )
    )


def test_a_fifo_whose_reader_goes_is_an_error_with_its_name(run):
    check(
        run(
            """
os.mkfifo("fifo")
def read_a_little():
    with open("fifo", "rb") as file:
        file.read(1)
reader = threading.Thread(target=read_a_little)
reader.start()
try:
    write("fifo", bytes(10_000_000))
except BrokenPipeError as error:
    assert error.filename == "fifo"
else:
    raise AssertionError
reader.join()
"""
        )
    )


def test_a_terminal_and_a_full_device_stay(run):
    """Written to as they are, by an ordinary user."""
    check(
        run(
            """
assert os.getuid() != 0
main, side = os.openpty()
name = os.ttyname(side)
before = os.stat(name)
write(name, b"text")
assert os.read(main, 100) == b"text" and os.path.samestat(os.stat(name), before)
assert stat.S_ISCHR(os.stat(name).st_mode)
before = os.stat("/dev/full")
os.symlink("/dev/full", "link")
for name in ("/dev/full", "link"):
    for size in (1, 10_000_000):
        try:
            write(name, bytes(size))
        except OSError as error:
            assert (error.errno, error.filename) == (errno.ENOSPC, name), error
        else:
            raise AssertionError
assert os.path.samestat(os.stat("/dev/full"), before)
only("link")
"""
        )
    )


STDOUT = ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "/proc/thread-self/fd/1"]


@pytest.mark.parametrize("name", [name for name in STDOUT if os.path.exists(name)])
def test_stdout_by_its_names(run, folder, name):
    """In a pipe, in a file from where it stands, and in a file that has no name any more."""
    code = f"os.write(1, b'before ')\nwrite({name!r})\nos.write(1, b' after')"
    done = run(code)
    check(done)
    assert done.stdout == b"before new after"
    for unlinked in (False, True):
        with open(folder / "out", "w+b") as file:
            if unlinked:
                (folder / "out").unlink()
            command = [sys.executable, "-c", PRELUDE + code, str(folder), "ordinary"]
            subprocess.run(command, stdout=file, check=True, timeout=60)
            file.seek(0)
            assert file.read() == b"before new after"


def test_a_descriptor_that_is_not_open(run):
    check(
        run(
            """
try:
    write("/dev/fd/99")
except OSError as error:
    assert (error.errno, error.filename) == (errno.EBADF, "/dev/fd/99")
else:
    raise AssertionError
"""
        )
    )


def test_the_error_of_another_file_keeps_its_name(tmp_path):
    from xmcjax.data import atomic_write

    with pytest.raises(FileNotFoundError) as caught, atomic_write(tmp_path / "out"):
        (tmp_path / "in").read_bytes()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "in"))
    assert not list(tmp_path.iterdir())


def test_the_command_writes_data_to_stdout_and_nothing_else(run):
    check(
        done := run(
            """
from xmcjax.cli.main import main
save_xmc("data.txt", X, X)
os.chmod("data.txt", 0o644)
with contextlib.redirect_stdout(sys.stderr):
    main(["convert", "--data", "data.txt", "--out", "copy.txt"])  # imports what the command needs
become_ordinary()
sys.exit(main(["convert", "--data", "data.txt", "--out", "/dev/stdout"]))
""",
            "ordinary later",
        )
    )
    assert done.stdout == b"3 3 3\n0 0:1\n1 1:1\n2 2:1\n"
    assert b"written     /dev/stdout (" in done.stderr


def test_a_file_that_is_mounted_by_itself_is_written_over(run):
    # The system refuses to replace such a file: its answer is put in its mouth.
    check(
        run(
            """
Path("real").write_bytes(b"old and longer"); os.chmod("real", 0o640); os.symlink("real", "link")
before = os.stat("real").st_ino
def busy(source, target):
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(source), None, str(target))
os.replace = busy
write("link")
assert Path("real").read_bytes() == b"new" and mode("real") == 0o640
assert os.stat("real").st_ino == before
with contextlib.suppress(KeyboardInterrupt), atomic_write("real") as file:
    file.write(b"half"); file.flush()
    raise KeyboardInterrupt
assert Path("real").read_bytes() == b"new"
try:
    write("other")
except OSError as error:
    assert (error.errno, error.filename) == (errno.EBUSY, "other")
else:
    raise AssertionError
only("real", "link")
"""
        )
    )
