"""What holds of all tests: each asserts something, as it could not fail otherwise, and each wait has a limit.

``python tests/test_of_tests.py`` prints those of which it does not hold.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Of pytest, unittest and scikit-learn, whose checks assert by themselves.
LOOK = {"raises", "warns", "fail", "check", "check_returncode"}
# Calls that end when something else does: without arguments they wait for ever.
WAITS = {"communicate", "wait", "join", "acquire", "get"}
# Of subprocess, whose arguments do not limit them.
RUNS = {"run", "call", "check_call", "check_output"}


def called(function: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The last names of what is called in a function, and the calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            last = node.func
            yield last.attr if isinstance(last, ast.Attribute) else getattr(last, "id", ""), node


def looks(function: ast.AST, helpers: set[str]) -> bool:
    """Whether a function asserts, or calls what does: an assertion by its name, or one of the helpers."""
    # of a constant it says nothing
    if any(isinstance(n, ast.Assert) and not isinstance(n.test, ast.Constant) for n in ast.walk(function)):
        return True
    for name, call in called(function):
        checked = any(k.arg == "check" and getattr(k.value, "value", None) is True for k in call.keywords)
        if name in LOOK | helpers or name.startswith("assert_") or checked:
            return True
    return False


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def without_assertions(folder: Path) -> list[str]:
    """``file::test`` of the tests below a folder that assert nothing, neither here nor in a helper."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    others = [f for tree in trees.values() for f in functions(tree) if not f.name.startswith("test_")]
    helpers: set[str] = set()
    while True:
        found = {function.name for function in others if looks(function, helpers)}
        if found <= helpers:
            break
        helpers |= found
    return [
        f"{path.relative_to(folder)}::{function.name}"
        for path, tree in trees.items()
        if path.name.startswith("test_")
        for function in functions(tree)
        if function.name.startswith("test_") and not looks(function, helpers)
    ]


def waits_without_limit(folder: Path) -> list[str]:
    """``file:line`` of the calls below a folder that may wait for ever."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for name, call in called(ast.parse(path.read_text())):
            owner = getattr(call.func, "value", None)
            limited = any(keyword.arg in ("timeout", "blocking", None) for keyword in call.keywords)
            of_subprocess = name in RUNS and getattr(owner, "id", "") == "subprocess"
            alone = name in WAITS and owner is not None and not call.args
            if (of_subprocess or alone) and not limited:
                found.append(f"{path.relative_to(folder)}:{call.lineno}")
    return found


def test_every_wait_has_a_limit():
    assert waits_without_limit(FOLDER) == []


def test_waits_without_a_limit_are_found(tmp_path):
    (tmp_path / "test_x.py").write_text(
        "process.wait()\nprocess.wait(5)\nprocess.communicate(timeout=5)\n', '.join(words)\nthread.join()\n"
        "subprocess.run(['true'])\nsubprocess.run(['true'], timeout=5)\nrun(1)\n"
    )
    assert waits_without_limit(tmp_path) == ["test_x.py:1", "test_x.py:5", "test_x.py:6"]


def test_every_test_asserts_something():
    assert without_assertions(FOLDER) == []


def test_tests_without_assertions_are_found(tmp_path):
    (tmp_path / "helper.py").write_text("def holds(x):\n    same(x)\n\ndef same(x):\n    assert x\n")
    (tmp_path / "test_x.py").write_text(
        "def test_runs():\n    print(1)\n\n"
        "def test_of_a_constant():\n    assert True\n\n"
        "def test_helper():\n    holds(1)\n\n"
        "def test_raises():\n    with pytest.raises(ValueError):\n        int('')\n\n"
        "def test_of_a_process():\n    subprocess.run(['true'], check=True)\n"
    )
    assert without_assertions(tmp_path) == ["test_x.py::test_runs", "test_x.py::test_of_a_constant"]


if __name__ == "__main__":
    found = [f"{test} asserts nothing" for test in without_assertions(FOLDER)]
    found += [f"{place} waits without a limit" for place in waits_without_limit(FOLDER)]
    print("\n".join(found) or "each asserts something, and each wait has a limit")
    sys.exit(bool(found))
