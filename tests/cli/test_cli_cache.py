"""Programs that were compiled are kept for the next command, where nobody else may write."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.support.internals import cli_cache

CACHE = "jax_compilation_cache_dir"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XMCJAX_CACHE", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    found = cli_cache.cache_folder()
    assert found is not None and found.is_relative_to(tmp_path / "xmcjax")
    return found


def test_the_next_command_compiles_nothing(files, folder, tmp_path):
    said = []
    for name in ("one", "two"):
        command = [sys.executable, "-m", "xmcjax", "train", "--train", files / "train.txt"]
        command += ["--penalty", "l1"]  # whose search, unlike that of l2, is no native call
        done = subprocess.run(
            [*command, "--model", tmp_path / name, "--n-jobs", "1"],
            capture_output=True,
            text=True,
            timeout=240,
            env=os.environ | {"JAX_LOG_COMPILES": "1"},
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
    compiled = [text.count("Finished XLA compilation") for text in said]
    hits = [text.count("Persistent compilation cache hit") for text in said]
    assert compiled[0] == compiled[1] == hits[1] > hits[0]
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_of_others_is_not_used(folder, mode):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    before = getattr(jax.config, CACHE)
    with cli_cache.compilation_cache():
        assert getattr(jax.config, CACHE) == before


def test_a_folder_below_that_of_others_is_not_used(folder, tmp_path):
    before = getattr(jax.config, CACHE)
    tmp_path.chmod(0o777)
    with cli_cache.compilation_cache():
        assert getattr(jax.config, CACHE) == before
    tmp_path.chmod(0o1777)  # as /tmp is
    with cli_cache.compilation_cache():
        assert getattr(jax.config, CACHE) == str(folder)


def test_a_user_without_a_home_keeps_nothing(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    for name in ("XMCJAX_CACHE", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert cli_cache.cache_folder() is None


def test_jax_is_as_it_was_afterwards(folder):
    names = ("dir", "min_compile_time_secs", "min_entry_size_bytes")
    settings = [f"jax_{'compilation' if name == 'dir' else 'persistent'}_cache_{name}" for name in names]
    before = [getattr(jax.config, name) for name in settings]
    with pytest.raises(KeyboardInterrupt), cli_cache.compilation_cache():
        assert [getattr(jax.config, name) for name in settings] == [str(folder), 0, -1]
        raise KeyboardInterrupt
    assert [getattr(jax.config, name) for name in settings] == before


@pytest.mark.parametrize(
    ("name", "value"), [("XMCJAX_CACHE", "0"), ("JAX_COMPILATION_CACHE_DIR", "/nowhere")]
)
def test_nothing_is_kept_where_the_user_says_so(folder, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert cli_cache.cache_folder() is None
    before = getattr(jax.config, CACHE)
    with cli_cache.compilation_cache():
        assert getattr(jax.config, CACHE) == before


def test_a_home_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XMCJAX_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    before = getattr(jax.config, CACHE)
    with cli_cache.compilation_cache():
        assert getattr(jax.config, CACHE) == before != str(cli_cache.cache_folder())


def test_info_names_the_folder(xmcjax, folder, monkeypatch):
    assert str(folder) in xmcjax("info").out
    monkeypatch.setenv("XMCJAX_CACHE", "0")
    assert "cache       none (" in xmcjax("info").out
    monkeypatch.delenv("XMCJAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert str(cli_cache.cache_folder()).startswith("/elsewhere/xmcjax/jaxlib-")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert str(cli_cache.cache_folder()).startswith(f"{Path.home()}/.cache/xmcjax/")
