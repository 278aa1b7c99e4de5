"""The notebooks: those beside the scripts are made of them, their install line moves nothing, they run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
from experiments.notebooks import _convert, _links
from tests.support.processes import python

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD = "# %% [markdown]\n# # A title\n#\n# A paragraph\n# of two lines.\n#\n# More.\n\n# %%\n"


def test_every_script_has_a_name():
    scripts = {path.stem for path in _convert.FOLDER.glob("[a-z]*.py")}
    assert scripts == set(_convert.NAMES) == {path.stem for path in _convert.FOLDER.glob("*.ipynb")}
    page = (_convert.FOLDER / "README.md").read_text()
    assert all(f"[{name}.ipynb]({name}.ipynb)" in page for name in _convert.NAMES)


@pytest.mark.parametrize("name", _convert.NAMES)
def test_the_notebook_beside_a_script_is_made_of_it(name):
    stored = (_convert.FOLDER / f"{name}.ipynb").read_text()
    assert stored == _convert.text(name), "python -m experiments.notebooks --sync"
    cells = [cell for cell in json.loads(stored)["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    assert sum(cell["metadata"].get("tags") == ["skip-execution"] for cell in cells) == 1


@pytest.mark.parametrize("name", _convert.NAMES)
def test_the_install_line_keeps_what_is_installed(name):
    shell_of = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    cells = _convert.notebook(name).cells
    source = next(cell.source for cell in cells if "skip-execution" in cell.metadata.get("tags", []))
    shell, lines = shell_of(), []
    shell.register_magic_function(lines.append, "line", "pip")
    shell.run_cell(source).raise_error()
    kept = {f"{part}=={importlib.metadata.version(part)}" for part in ("jax", "jaxlib", "numpy")}
    assert len(lines) == 1 and kept <= set(lines[0].split())


def test_title_and_first_paragraph(tmp_path):
    (tmp_path / "one.py").write_text(HEAD)
    assert _convert.introduction("one", tmp_path) == ("A title", "A paragraph of two lines.")


ADDRESS = "https://github.com/someone/xmcjax"


def test_the_readme_has_the_notebooks_with_the_links_of_the_setting():
    readme = (ROOT / "README.md").read_text()
    assert readme == _links.with_list(readme, _links.repository()), "python -m experiments.notebooks --sync"


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        ("", ""),
        ('[project.urls]\nHomepage = "https://x.org"\n', ""),
        (f'[project.urls]\nRepository = "{ADDRESS}"\n', ADDRESS),
        (f'[project.urls]\nRepository = "{ADDRESS}.git/"\n', ADDRESS),
    ],
)
def test_the_address_is_that_of_pyproject(tmp_path, urls, expected):
    file = tmp_path / "pyproject.toml"
    file.write_text(f'[project]\nname = "x"\n{urls}')
    assert _links.repository(file) == expected


def test_what_is_no_address_is_refused(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text('[project.urls]\nRepository = "someone/xmcjax"\n')
    with pytest.raises(ValueError, match=r"in Repository https://HOST/OWNER/NAME, found someone/xmcjax"):
        _links.repository(file)


def test_links_to_colab_are_made_of_the_address():
    at = "https://colab.research.google.com/github/someone/xmcjax/blob/main/experiments/notebooks/"
    assert _links.in_colab("on_a_gpu", ADDRESS) == f"{at}on_a_gpu.ipynb"
    assert (ROOT / "experiments/notebooks/on_a_gpu.ipynb").exists()
    assert _links.in_colab("on_a_gpu", "") == _links.in_colab("on_a_gpu", "https://gitlab.com/a/b") == ""
    readme = (ROOT / "README.md").read_text()
    made = _links.with_list(readme, ADDRESS)
    assert [line for line in made.splitlines() if at in line] == [
        f"- [{_links.title(name)}](experiments/notebooks/{name}.ipynb), [open in Colab]({at}{name}.ipynb)"
        for name in _convert.NAMES
    ]
    assert len(made.splitlines()) == len(readme.splitlines()) and _links.with_list(made, "") == readme
    page = _links.line_on_page("on_a_gpu", ADDRESS)
    assert page.startswith(f"[Open in Colab]({at}on_a_gpu.ipynb) · ")
    assert "olab" not in _links.line_on_page("on_a_gpu", "")
    with pytest.raises(ValueError, match="found no such lines"):
        _links.with_list("# Another page\n", "")


def run(*arguments, timeout=400):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    command = [sys.executable, "-m", "experiments.notebooks", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=timeout)


def test_unknown_names():
    done = run("--name", "extreme")
    assert done.returncode == 1 and "--name: expected notebooks of extreme_classification, " in done.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "one: .*ZeroDivisionError"),
        ("while True: pass", r"one: expected an end within 8 s, found none"),
    ],
)
def test_what_does_not_run_is_an_error(tmp_path, code, message):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    (tmp_path / "one.py").write_text(HEAD + code + "\n")
    program = (
        "from pathlib import Path; from experiments.notebooks.__main__ import Failed, execute\n"
        f"try: execute('one', 8, Path({str(tmp_path)!r}))\nexcept Failed as error: print(error)"
    )
    done = python(program, timeout=120)
    assert done.returncode == 0, done.stderr

    assert re.search(message, done.stdout, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", _convert.NAMES)
def test_it_runs_and_ends_with_a_picture(name, tmp_path):
    pytest.importorskip("matplotlib")
    if name == "topk_in_a_network":
        pytest.importorskip("flax")
        pytest.importorskip("equinox")
    done = run("--name", name, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / f"{name}.ipynb").read_text())["cells"]
    last = [cell for cell in cells if cell["cell_type"] == "code"][-1]
    assert any("image/png" in output.get("data", {}) for output in last["outputs"])
