"""A test that asserts nothing cannot fail: every function test_… has to look at something.

python tests/test_assertions.py     prints those that do not
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Of pytest, unittest and scikit-learn, whose checks assert by themselves.
LOOK = {"raises", "warns", "fail", "check", "check_returncode"}


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
    found = without_assertions(FOLDER)
    print("\n".join(found) or "every test asserts something")
    sys.exit(bool(found))
