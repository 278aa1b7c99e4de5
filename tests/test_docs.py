"""What the documents say is run or looked up: examples, flags, links, and docstrings of public names."""

import contextlib
import dataclasses
import doctest
import importlib
import inspect
import io
import re
import shlex
import types
from pathlib import Path

import jax
import pytest
import tyro

import xmcjax
from tests.support.internals import SYSTEMS
from xmcjax.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE = Path(xmcjax.__file__).parent


def modules_with(text: str) -> list[str]:
    paths = [path for path in PACKAGE.rglob("*.py") if text in path.read_text()]
    return sorted(".".join(["xmcjax", *path.relative_to(PACKAGE).with_suffix("").parts]) for path in paths)


@pytest.mark.parametrize("name", modules_with(">>> "))
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert result.attempted > 0 and result.failed == 0


def test_python_in_the_readme(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    found = re.fullmatch(r"the class is among the five best in (\d+)% of the rows\n", capsys.readouterr().out)
    assert found and int(found[1]) > 80


WITH_PYTHON = [
    page for page in PAGES if page.parent.parent.name == "docs" and "```python" in page.read_text()
]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda path: path.name)
def test_python_in_the_pages(page, capsys):
    """The blocks of a page run one after another; the page shows what they print, but for the digits."""
    names: dict = {}
    shown = re.sub(r"\d", "#", page.read_text())
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):  # as a user has them
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            exec(compile(block, page.name, "exec"), names)
    for line in capsys.readouterr().out.splitlines():
        assert re.sub(r"\d", "#", line) in shown, f"{page.name} does not show the line {line}"


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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_the_pages(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


PACKAGES = [path.parent.relative_to(PACKAGE).parts for path in PACKAGE.rglob("__init__.py")]
PUBLIC = sorted(".".join(["xmcjax", *parts]) for parts in PACKAGES)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    for public in names:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name}.{public} has no docstring"


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
