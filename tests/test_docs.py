"""What the documents say is run or looked up: examples, flags, links, and docstrings of public names."""

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tyro
from sklearn.datasets import load_iris

import xmcjax
from docs import checks, pictures
from experiments.bench import everywhere
from tests.support import commands
from tests.support.internals import SYSTEMS
from xmcjax import projections
from xmcjax.cli.main import COMMANDS, main
from xmcjax.data import load_demo, save

ROOT = Path(__file__).resolve().parent.parent
PAGES = checks.pages()


@pytest.mark.parametrize("name", checks.modules_with_examples())
def test_examples_in_docstrings(name):
    assert not checks.failing_examples(name)


def blocks_with_a_shell(page: Path) -> list[str]:
    """Commands that a page shows in indented lines of their own."""
    text = re.sub(r"\s*\\\n\s*", " ", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    return [
        line.strip() for line in re.findall(r"^    ((?:xmcjax|pip|python|pytest)\b.*)", text, re.MULTILINE)
    ]


@pytest.fixture
def with_files(tmp_path, monkeypatch):
    """A folder with the files that commands of README and of the guide name."""
    demo, few = load_demo(), np.s_[:400]
    for name, X, Y in (("train.txt", demo.X_train, demo.Y_train), ("test.txt", demo.X_test, demo.Y_test)):
        save(tmp_path / name, X[few], Y[few][:, :50], "xmc")
    save(tmp_path / "table.npz", *load_iris(return_X_y=True))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Commands of README that .ci/run gives in new environments.
INSTALLED = ("pip install . && xmcjax demo", 'pip install -e ".[test]" && pytest')


def test_commands_of_the_readme(with_files, capsys):
    found = blocks_with_a_shell(ROOT / "README.md")
    assert set(INSTALLED) <= set(found)
    script = (ROOT / ".ci" / "run").read_text()
    for command in INSTALLED:
        for part in command.split(" && "):
            assert re.search(rf"^ *{re.escape(part)}( |$)", script, re.MULTILINE), (
                f".ci/run does not run {part}"
            )
    others = [shlex.split(line) for line in found if line not in INSTALLED]
    assert [line[1] for line in others] == ["train", "predict", "evaluate"]
    for line in others:
        commands.run(capsys, *line[1:]).done()


def test_readme_is_short_and_has_a_picture():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert "docs/figures/beside_peers.png" in text


# Pages whose commands are run, in the order in which they stand; those of the others are looked up.
RUN = {"tour": 2, "million-labels": 5, "resume": 1, "my-data": 2}


@pytest.mark.parametrize("name", RUN)
def test_commands_of_a_guide(name, with_files, capsys):
    lines = [shlex.split(line) for line in blocks_with_a_shell(ROOT / "docs" / "guide" / f"{name}.md")]
    mine = [line for line in lines if line[0] == "xmcjax" and "--scheduler" not in line]
    assert len(mine) >= RUN[name]
    for line in mine:
        commands.run(capsys, *line[1:]).done()


WITH_PYTHON = [page for page in checks.pages() if "```python" in page.read_text()]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore:.* labels have no positive rows")  # of a part of the demo
def test_python_in_the_pages(page, tmp_path, monkeypatch):
    """The blocks of a page run one after another; the page shows what they print, but for the digits."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    try:
        assert checks.failing_blocks(page) == []
    finally:
        plt.close("all")


BLOCKS_WITH_PACKAGE = [
    (page, needs) for page in PAGES for needs, _ in checks.all_blocks(page.read_text()) if needs
]


@pytest.mark.parametrize(("page", "package"), BLOCKS_WITH_PACKAGE, ids=lambda of: getattr(of, "stem", of))
def test_blocks_that_need_a_package_run_where_it_is(page, package):
    """The test of the pages runs them: .ci/run all has an environment with these packages."""
    pytest.importorskip(package)
    text = page.read_text()
    mine = [block for needs, block in checks.all_blocks(text) if needs == package]
    assert mine and set(mine) <= set(checks.blocks(text))
    assert re.search(rf"^ *pip install .*\b{package}\b", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_a_page_that_shows_another_result_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('four', 2 + 2)\n```\n\nprints\n\n    four 5\n")
    assert checks.failing_blocks(page) == []  # digits may differ
    page.write_text(page.read_text().replace("    four", "    five"))
    assert checks.failing_blocks(page) == ["four 4"]


FLAG = r"--[a-zA-Z][\w-]*"


def said(*arguments: str) -> str:
    """What a command prints that ends without its work."""
    out = io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)
    with streams[0], streams[1], contextlib.suppress(SystemExit):
        main([*arguments])
    return out.getvalue()


def new_flags(flag: str) -> set[str]:
    """What the commands say that a flag of earlier versions is now; none where it is unknown to all."""
    told = re.findall(rf"the flag {flag} is now (.*)", "".join(said(name, flag, "1") for name in COMMANDS))
    return set(re.findall(FLAG, "".join(told)))


def experiments() -> dict[str, types.ModuleType]:
    """Every experiment that ``python -m`` runs, by its name there."""
    found = {}
    for path in sorted((ROOT / "experiments").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if "if __name__" in path.read_text() and "._" not in name.removesuffix(".__main__"):
            found[name.removesuffix(".__main__")] = importlib.import_module(name)
    return found


def commands_of_experiments(text: str) -> list[tuple[str, str]]:
    """Module and arguments of each ``python -m experiments…``, in a line of its own or between backticks."""
    text = re.sub(r"\s*\\\n\s*", " ", text)  # lines that go on
    indented = re.findall(r"^    .*python -m (experiments[\w.]*)([^;\n]*)", text, re.MULTILINE)
    return indented + re.findall(r"`python -m (experiments[\w.]*)([^`]*)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_experiments_are_read(page):
    known = experiments()
    for name, text in commands_of_experiments(page.read_text()):
        assert name in known, f"{page.name}: there is no {name}"
        arguments, said = shlex.split(text), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            if hasattr(known[name], "Options"):
                try:
                    tyro.cli(known[name].Options, args=arguments)
                except SystemExit:
                    pytest.fail(f"{page.name}: python -m {name}{text}\n{said.getvalue()}")
            else:  # a program of several commands
                with pytest.raises(SystemExit):
                    known[name].main([*arguments[:1], "--help"])
                flags = {word for word in arguments if word.startswith("--")}
                assert flags <= set(re.findall(r"--[\w-]+", said.getvalue())), f"{page.name}: {name}{text}"


def test_commands_are_found_in_a_page():
    block = "    run() { python -m experiments.b.c --y \\\n        3; }\n"
    page = f"Text, `python -m experiments.a --x 1\n2`:\n\n{block}"
    assert commands_of_experiments(page) == [("experiments.b.c", " --y 3"), ("experiments.a", " --x 1\n2")]
    mentioned = [module for page in PAGES for module, _ in commands_of_experiments(page.read_text())]
    assert len(mentioned) >= 30 and len(set(mentioned)) >= 15


def test_flags_in_the_pages_are_those_of_the_programs():
    flags = {command: set(re.findall(FLAG, said(command, "--help"))) for command in COMMANDS}
    for system in SYSTEMS:
        flags["train"] |= set(re.findall(FLAG, said("train", "--system", system, "--help")))
    every = set().union(*flags.values())
    options = [program.Options for program in experiments().values() if hasattr(program, "Options")]
    fields = {field.name for one in options for field in dataclasses.fields(one)}
    of_experiments = {"--" + field.replace("_", "-") for field in fields}
    assert "--full" in of_experiments
    for page in PAGES:
        if page.name in ("SECURITY.md", "CONTRIBUTING.md"):  # with flags of pytest, pip and tests.attack
            continue
        text = page.read_text()
        for command, rest in re.findall(r"xmcjax ([a-z]+) ((?:\[?--[^`\n]*))", text):
            assert set(re.findall(FLAG, rest)) <= flags[command], f"{page.name}: xmcjax {command} {rest}"
        for flag in re.findall(r"`(--[a-zA-Z][\w-]*)", text):
            if flag not in every | of_experiments | {"--version"}:
                assert page.name == "CHANGELOG.md" and new_flags(flag), f"{page.name}: {flag}"
                assert new_flags(flag) <= every
    documented = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for flag in every - {"--help"}:
        assert flag in documented, f"docs/reference/cli.md does not explain {flag}"


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_page_of_a_system_says_which_options_are_no_flags(system):
    """Behind "flags of the same names" it names those that the estimator alone has, and no others."""
    name = {"one-vs-all": "one-vs-all-classifier", "top-k": "topk", "kernel": "kernels"}.get(system, system)
    text = (ROOT / "docs" / "guide" / f"{name}.md").read_text()
    excepted = re.search(r"flags of the same\s+names\s+\(\[.*?\]\(.*?\)\), but for ([^.]*)\.", text)
    assert excepted, name
    flags = re.findall(FLAG, said("train", "--system", system, "--help"))
    of_flags = {flag[2:].replace("-", "_").removeprefix("no_") for flag in flags}
    arguments = set(inspect.signature(getattr(xmcjax, SYSTEMS[system])).parameters)
    assert set(re.findall(r"`(\w+)`", excepted[1])) == arguments - of_flags


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_the_pages(page):
    assert checks.broken_links(page) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    links = "[a](#one-two) [b](#three) [c](no.md) [d](https:/x) [e](https://x.org/y) `[f](g)`"
    page.write_text(f"# One, two\n\n{links}\n")
    assert checks.broken_links(page) == ["#three", "no.md", "https:/x"]


def test_broken_links_of_a_site_are_found(tmp_path):
    there = '<p id="here"><a href="b.html#there">'
    (tmp_path / "a.html").write_text(
        f'{there}<a href="#here"><a href="c.html"><script src="https://x.org/y.js">'
    )
    (tmp_path / "b.html").write_text('<p id="elsewhere"><a href="https://x.org/y">')
    expected = ["a.html: b.html#there", "a.html: c.html", "a.html: https://x.org/y.js"]
    assert checks.broken_in_site(tmp_path) == expected


def test_public_names_are_documented():
    assert checks.undocumented() == []


def test_names_without_a_docstring_are_found(monkeypatch):
    monkeypatch.setattr(projections.simplex, "__doc__", None)
    assert checks.undocumented() == ["xmcjax.projections.simplex"]


def test_public_names_have_an_example():
    assert checks.without_example() == []


def test_every_page_of_the_site_is_in_its_index():
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("guide/*.md"):
        assert f"\nguide/{page.stem}\n" in index, page.name


def test_the_picture_and_the_table_have_the_same_numbers():
    result = json.loads(pictures.EVERYWHERE.read_text())
    for table in everywhere.markdown(result).split("\n\n"):
        assert table.strip() in (ROOT / "docs" / "develop" / "benchmarks.md").read_text()
    drawn = pictures.by_work(result)
    assert [work for work, _, _ in drawn] == list(dict.fromkeys(row["work"] for row in result["rows"]))
    assert sum(len(ratios) for _, _, ratios in drawn) == len(result["rows"])


def test_the_costs_on_the_page_of_choices_are_those_of_the_results():
    text = (ROOT / "docs" / "guide" / "choosing.md").read_text()
    costs = text[text.index("\n## By cost\n") : text.index("\n## How exact\n")]
    rows = [line.split("|")[2:5] for line in costs.splitlines() if line.startswith("|")][2:]
    digits, found = everywhere.two_digits, {}
    for row in json.loads(pictures.EVERYWHERE.read_text())["rows"]:
        key = row["peer"], digits(row["seconds"]["avx512"]), digits(row["peer_seconds"])
        found[key] = row["data"]
    assert len(rows) == 9
    for name, ours, theirs in rows:
        seconds, peer = theirs.strip().split(", ")
        assert found[peer, ours.strip(), seconds].startswith(name.partition(":")[0].strip())


@pytest.mark.parametrize("page", pictures.SYSTEMS)
def test_the_page_of_a_system_has_its_parts(page):
    """Options, cost with the picture that is drawn from results, and references; tables of runs are notes."""
    text = (ROOT / "docs" / "guide" / f"{page}.md").read_text()
    for heading in ("Options", "Cost", "References"):
        assert f"\n## {heading}\n" in text
    assert text.index("\n## Options\n") < text.index("\n## Cost\n") < text.index("\n## References\n")
    assert f"../figures/{page}.png" in text and (pictures.FIGURES / f"{page}.png").exists()
    assert f"../notes/{page}.md" in text
    assert not re.findall(r"20\d\d-\d\d-\d\d", re.sub(r"\]\([^)]*\)", "", text)), "dated records are notes"


def test_the_picture_of_a_system_shows_the_fastest_peer():
    rows = [("a", "slow", 1.0, 9.0), ("a", "fast", 2.0, 3.0), ("b", "slow", 1.0, 5.0)]
    result = {
        "isas": ["avx2"],
        "rows": [
            {"work": "w", "data": d, "peer": p, "seconds": {"avx2": s}, "peer_seconds": t}
            for d, p, s, t in rows
        ],
    }
    assert pictures.of_a_work(result, "w") == [("a", "fast", 2.0, 3.0), ("b", "slow", 1.0, 5.0)]
    committed = json.loads(pictures.EVERYWHERE.read_text())
    assert all(pictures.of_a_work(committed, work) for work in pictures.SYSTEMS.values())


def test_no_table_stands_twice():
    """In the pages that somebody has written."""
    seen: dict[str, str] = {}
    twice = []
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
            rows = re.sub(r"[*` ]", "", table)
            if len(table.splitlines()) >= 4 and rows in seen:
                twice.append((seen[rows], name, table.splitlines()[0]))
            seen.setdefault(rows, name)
    assert not twice


@pytest.mark.slow
def test_the_site_is_built(tmp_path):
    """By the command, in a process of its own, which warnings and broken links end with 1."""
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "docs.build", "--pages-only", "--out", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "site" / "reference" / "api" / "xmcjax.html").read_text()
    assert "<math" in text and "OneVsAllClassifier" in text


def promises() -> str:
    return (ROOT / "docs" / "reference" / "promises.md").read_text()


def test_promises_name_tests_that_there_are():
    names = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", promises())
    assert names
    for file, test in names:
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"
    attacks = re.findall(r"python -m tests\.attack\.([a-z_]+)", promises())
    for name in attacks:
        assert (ROOT / "tests" / "attack" / f"{name}.py").exists(), name
