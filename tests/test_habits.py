"""What a maintainer expects of the files beside the code: extras that something uses, versions that agree."""

import io
import re
import runpy
import tarfile
import tomllib
from pathlib import Path

import pytest

import xmcjax

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

if not (ROOT / ".ci").exists():
    pytest.skip("the tests are not in a tree of sources", allow_module_level=True)


def texts(*folders):
    """Of what is written for users and maintainers."""
    suffixes = {".py", ".md", ".yml"}
    paths = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in suffixes]
    paths += [p for p in (ROOT / ".ci").iterdir() if p.is_file()]
    paths += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return "\n".join(path.read_text() for path in paths if path != Path(__file__))


@pytest.fixture(scope="module")
def written():
    return texts("xmcjax", "experiments", "docs", ".github")


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_each_extra_is_named_where_it_is_needed(written, extra):
    assert re.search(rf"\[(\w+,)*{extra}(,\w+)*\]['\"]", written)


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"cuda12", "cuda13", "lint", "coverage", "test"}))
def test_each_distribution_of_an_extra_is_used(written, extra):
    for requirement in EXTRAS[extra]:
        (name,) = re.findall(r"^[\w.-]+", requirement)
        name = name.replace("-", "[-_]")
        if name == "jupytext" and not (ROOT / "experiments" / "notebooks").exists():
            continue  # it makes the notebooks
        assert re.search(rf"\b{name}\b", written), requirement


def test_each_linter_is_run():
    run = (ROOT / ".ci" / "lint").read_text() + (ROOT / ".pre-commit-config.yaml").read_text()
    run += (ROOT / "CONTRIBUTING.md").read_text()
    for requirement in EXTRAS["lint"]:
        (name,) = re.findall(r"^[\w-]+", requirement)
        assert name in run or (name == "pre-commit-hooks" and "end-of-file-fixer" in run), requirement


def test_versions_agree():
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert PROJECT["version"] == xmcjax.__version__ == cited


def test_the_workflow_covers_what_is_promised():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (oldest,) = re.findall(r"jax>=([\d.]+)", " ".join(PROJECT["dependencies"]))
    assert f"jax=={oldest}.0 jaxlib=={oldest}.0" in workflow
    pythons = set(re.findall(r'python: "(3\.\d+)"', workflow))
    assert min(pythons, key=lambda v: int(v[2:])) == PROJECT["requires-python"].removeprefix(">=")
    assert pythons >= {"3.11", "3.12", "3.13"}


def test_the_workflow_runs_what_is_there():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    named = re.findall(r"(?<!\S)(?:\.ci|tests)/[\w/.]+", workflow)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        (None, 0, None),
        ("experiments/results.npz", 10, "is made"),
        ("docs/picture.png", 500_000, "more than"),
        ("xmcjax/native/libxmcjax_native.so", 10, "is made"),
    ],
)
def test_an_sdist_holds_what_is_needed_and_nothing_that_was_made(tmp_path, name, size, said):
    module = runpy.run_path(str(ROOT / ".ci" / "sdist.py"))
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        for path, length in [*((n, 1) for n in sorted(module["NEEDED"])), *([(name, size)] if name else [])]:
            entry = tarfile.TarInfo(f"xmcjax-1/{path}")
            entry.size = length
            archive.addfile(entry, io.BytesIO(bytes(length)))
    found = list(module["faults"](tmp_path / "x.tar.gz"))
    assert found == [] if name is None else len(found) == 1 and name in found[0] and said in found[0]


def test_an_sdist_without_the_sources_of_the_kernels_is_refused(tmp_path):
    module = runpy.run_path(str(ROOT / ".ci" / "sdist.py"))
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz"):
        pass
    assert {f"{name} is not there" for name in module["NEEDED"]} == set(
        module["faults"](tmp_path / "x.tar.gz")
    )
