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

from xmcjax.data import atomic_write

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
def interrupted(path):
    with contextlib.suppress(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"half"); file.flush()
        raise KeyboardInterrupt
def refused(path, kind, number=None, content=b"new"):
    try:
        write(path, content)
    except kind as error:
        assert error.filename == path and number in (None, error.errno), error
    else:
        raise AssertionError
def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)
def only(*names):
    assert sorted(os.listdir(here)) == sorted(names), os.listdir(here)
"""
BOTH = ("root", "ordinary")


@pytest.fixture
def folder():
    """A folder that any user may write to; that of ``tmp_path`` is this user's alone."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def run(folder):
    """Runs code after the prelude, as a user, to a good end."""

    def run(code: str, user: str = "ordinary", stdout=subprocess.PIPE) -> subprocess.CompletedProcess:
        if user == "root" and os.getuid() != 0:
            pytest.skip("needs root")
        command = [sys.executable, "-c", PRELUDE + code, str(folder), user]
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return done

    return run


# What holds: who writes, and the code that looks.
PROMISES = {
    "links stay and lead to the new content": (
        BOTH,
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
refused("round", OSError, errno.ELOOP)
only("far", "link", "link2", "dangling", "nowhere", "round")
""",
    ),
    "an interrupted write through a link changes nothing": (
        BOTH,
        """
Path("real").write_bytes(b"old"); os.symlink("real", "link")
interrupted("link")
assert Path("real").read_bytes() == b"old"
only("real", "link")
""",
    ),
    "the mode of the old file stays, and that of a new one follows the umask": (
        BOTH,
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
    ),
    "a file that may only be read is refused": (
        BOTH[1:],
        """
Path("read").write_bytes(b"old"); os.chmod("read", 0o444)
refused("read", PermissionError)
assert Path("read").read_bytes() == b"old"
only("read")
""",
    ),
    "a folder may be one that may not be listed": (
        BOTH[1:],
        """
os.mkdir("blind"); os.chmod("blind", 0o300)
write("blind/file")
os.chmod("blind", 0o700)
assert os.listdir("blind") == ["file"]
""",
    ),
    "a name may be as long as names can be": (
        BOTH[1:],
        "write('a' * 255); write('a' * 255)\nonly('a' * 255)",
    ),
    "a directory is no output": (
        BOTH,
        """
os.mkdir("folder"); os.symlink("folder", "link")
refused("folder", IsADirectoryError); refused("link", IsADirectoryError)
only("folder", "link")
""",
    ),
    "a FIFO stays, and its reader gets everything": (
        BOTH,
        """
os.mkfifo("fifo"); os.symlink("fifo", "link")
content = os.urandom(300_000)
got = []
for name in ("fifo", "link"):
    for send in (lambda: write(name, content), lambda: save_npz(name, X, X)):
        reader = threading.Thread(target=lambda: got.append(Path("fifo").read_bytes()))
        reader.start(); send(); reader.join(50)
    assert got[-2] == content and stat.S_ISFIFO(os.stat("fifo").st_mode)
    Path("copy.npz").write_bytes(got[-1])
    assert (load_npz("copy.npz")[0] != X).nnz == 0
only("fifo", "link", "copy.npz")
""",
    ),
    "a FIFO whose reader goes is an error with its name": (
        BOTH[1:],
        """
os.mkfifo("fifo")
def read_a_little():
    with open("fifo", "rb") as file:
        file.read(1)
reader = threading.Thread(target=read_a_little)
reader.start()
refused("fifo", BrokenPipeError, content=bytes(10_000_000))
reader.join(50)
""",
    ),
    "a terminal and a full device stay, and are written to as they are": (
        BOTH[1:],
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
        refused(name, OSError, errno.ENOSPC, bytes(size))
assert os.path.samestat(os.stat("/dev/full"), before)
only("link")
""",
    ),
    "a descriptor that is not open is refused": (
        BOTH[1:],
        "refused('/dev/fd/99', OSError, errno.EBADF)",
    ),
    # The system refuses to replace such a file: its answer is put in its mouth.
    "a file that is mounted by itself is written over": (
        BOTH[1:],
        """
Path("real").write_bytes(b"old and longer"); os.chmod("real", 0o640); os.symlink("real", "link")
before = os.stat("real").st_ino
def busy(source, target):
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(source), None, str(target))
os.replace = busy
write("link")
assert Path("real").read_bytes() == b"new" and mode("real") == 0o640
assert os.stat("real").st_ino == before
interrupted("real")
assert Path("real").read_bytes() == b"new"
refused("other", OSError, errno.EBUSY)
only("real", "link")
""",
    ),
}


@pytest.mark.parametrize(
    ("promise", "user"), [(promise, user) for promise, (users, _) in PROMISES.items() for user in users]
)
def test_outputs(run, promise, user):
    done = run(PROMISES[promise][1], user)
    assert done.stdout == b""


def test_root_keeps_the_owner(run, folder):
    (folder / "theirs").write_bytes(b"old")
    if os.getuid() == 0:
        os.chown(folder / "theirs", 12345, 23456)
    (folder / "theirs").chmod(0o660)
    run("write('theirs')", "root")
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
    run("write('open'); refused('closed', PermissionError)")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"open": b"new", "closed": b"old"}
    assert stat.S_IMODE((folder / "open").stat().st_mode) == 0o666


@pytest.mark.parametrize("user", BOTH)
def test_a_folder_that_hands_down_its_group(run, folder, user):
    inner = folder / "shared"
    inner.mkdir()
    if os.getuid() == 0:
        os.chown(inner, -1, 23456)
    inner.chmod(0o2777)
    run("write('shared/new')\nwrite('shared/new')", user)
    assert (inner / "new").stat().st_gid == inner.stat().st_gid


STDOUT = ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "/proc/thread-self/fd/1"]


@pytest.mark.parametrize("name", [name for name in STDOUT if os.path.exists(name)])
def test_stdout_by_its_names(run, folder, name):
    """In a pipe, in a file from where it stands, and in a file that has no name any more."""
    code = f"os.write(1, b'before ')\nwrite({name!r})\nos.write(1, b' after')"
    assert run(code).stdout == b"before new after"
    for unlinked in (False, True):
        with open(folder / "out", "w+b") as file:
            if unlinked:
                (folder / "out").unlink()
            run(code, stdout=file)
            file.seek(0)
            assert file.read() == b"before new after"


def test_the_error_of_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic_write(tmp_path / "out"):
        (tmp_path / "in").read_bytes()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "in"))
    assert not list(tmp_path.iterdir())


def test_the_command_writes_data_to_stdout_and_nothing_else(run):
    code = """
from xmcjax.cli.main import main
save_xmc("data.txt", X, X)
os.chmod("data.txt", 0o644)
with contextlib.redirect_stdout(sys.stderr):
    main(["convert", "--data", "data.txt", "--out", "copy.txt"])  # imports what the command needs
become_ordinary()
sys.exit(main(["convert", "--data", "data.txt", "--out", "/dev/stdout"]))
"""
    done = run(code, "ordinary later")
    assert done.stdout == b"3 3 3\n0 0:1\n1 1:1\n2 2:1\n"
    assert b"written     /dev/stdout (" in done.stderr
