"""What holds for the package as a whole: imports, layers, and what is not to be found in it."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xmcjax
from xmcjax import native

PACKAGE = Path(xmcjax.__file__).parent
TESTS = Path(__file__).parent
SOURCES = sorted(path for path in PACKAGE.rglob("*.py"))

# A module may import what stands lower, and within its own part. Modules that need no JAX come
# first: data and metrics must not need it either. Models come before inits, one of which reads them.
LAYERS = [
    {"xmcjax._index_faults"},
    {
        *("xmcjax._cores", "xmcjax._finite", "xmcjax._exit", "xmcjax._file_kinds", "xmcjax._fork"),
        "xmcjax._file_locks",
        "xmcjax._memory",
        *(
            "xmcjax._matrix_pipes",
            "xmcjax._pyarrow",
            "xmcjax._platt",
            "xmcjax._pytrees",
            "xmcjax._range",
            "xmcjax._rising",
            "xmcjax._row_groups",
            "xmcjax._row_span",
            "xmcjax._settings",
            "xmcjax._sizes",
            "xmcjax._sparse",
            "xmcjax._state_folder",
            "xmcjax._systems",
            "xmcjax._words",
        ),
    },
    {
        "xmcjax._arguments",
        "xmcjax._array_methods",
        "xmcjax._device_memory",
        "xmcjax._hierarchy",
        "xmcjax._labels",
        "xmcjax._links",
    }
    | {"xmcjax._sample_weight"},
    {"xmcjax._feature_order", "xmcjax._options", "xmcjax._used_columns"},
    {"xmcjax._topology", "xmcjax._platform"},
    {"xmcjax.native"},
    {"xmcjax.data", "xmcjax.metrics"},
    {"xmcjax.datasets"},
    {"xmcjax.projections"},
    {"xmcjax.losses", "xmcjax.penalties"},
    {"xmcjax._own_parts", "xmcjax.linops"},
    {"xmcjax.kernels"},
    {"xmcjax.solvers"},
    {"xmcjax.models", "xmcjax._placement"},
    {"xmcjax.inits"},
    {"xmcjax.lanes"},
    {"xmcjax._node_worker"},
    {"xmcjax.plots"},
    {"xmcjax.cluster"},
    {"xmcjax.estimators"},
    {"xmcjax.cli"},
]
WITHOUT_JAX = {
    *("xmcjax._arguments", "xmcjax._file_kinds", "xmcjax._finite", "xmcjax._hierarchy", "xmcjax._labels"),
    *("xmcjax._options", "xmcjax._sparse", "xmcjax._topology", "xmcjax.data", "xmcjax.metrics"),
}
# Parts that need NumPy and SciPy alone, beside the standard library.
LIGHT = {"xmcjax.data", "xmcjax.datasets", "xmcjax.metrics"}
# Modules of a part that needs JAX which must not need it; other modules import them when they are asked for.
NO_JAX_EITHER = {
    f"xmcjax.native{module}" for module in ("", "._calls", "._ids", "._interrupts", "._library", "._schema")
}
# Imported where they are used, inside functions: importing a part of the library must not cost them.
LATE = {"sklearn", "tqdm", "safetensors", "tyro", "optax", "pandas", "matplotlib", "pyarrow", "onnx"}
LATE |= {"cloudpickle", "dask", "distributed", "pooch"}
# Extras, which a function of a light part imports when it is asked for what needs them.
EXTRAS = {"pooch", "pyarrow"}
# The façade is a scikit-learn class, and a command is imported only when it is run.
EAGER = {"xmcjax.estimators": {"sklearn"}, "xmcjax.cli": {"tyro"}}


def module_name(path: Path) -> str:
    parts = ["xmcjax", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> tuple[int, str] | None:
    """(place in LAYERS, part) of a module; None for the package itself."""
    for place, parts in enumerate(LAYERS):
        for part in parts:
            if module == part or module.startswith(part + "."):
                return place, part
    return None


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, inside a function or for type checkers only) of every import of a file."""
    return list(_imports(path))


def _imports(path: Path):
    tree = tree_of(path)
    late = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            late |= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in late
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{path}: relative import"
            for alias in node.names:
                # `from xmcjax.native import _ffi` is about the module, `from xmcjax.data import load` is not.
                submodule = f"{node.module}.{alias.name}"
                known = submodule in MODULES
                yield submodule if known else node.module, id(node) in late


MODULES = {module_name(path) for path in SOURCES}


def named_by_imports(tree: ast.Module):
    """(dotted name, line) of what a file imports, and of what it takes from modules of the package."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            owner = names.get(first)
            if owner in MODULES and all(word.isidentifier() for word in rest):
                yield ".".join((owner, *rest)), node.lineno
            elif first == "xmcjax":
                yield ast.unparse(node), node.lineno


def private_of_others(name: str, tree: ast.Module):
    """What a module takes from a package that it does not stand in, although it is private there."""
    packages = {module_name(path) for path in SOURCES if path.name == "__init__.py"}
    for dotted, line in named_by_imports(tree):
        parts = dotted.split(".")
        for place, part in enumerate(parts if parts[0] == "xmcjax" else []):
            owner = ".".join(parts[:place])
            # private modules beside the packages are shared by all of them
            if part.startswith("_") and not part.endswith("__") and owner != "xmcjax":
                home = owner if owner in packages else owner.rpartition(".")[0]
                if home == "xmcjax" or not f"{name}.".startswith(home + "."):
                    yield f"line {line}: {dotted}"


def test_packages_take_nothing_private_from_each_other():
    found = {module_name(path): list(private_of_others(module_name(path), tree_of(path))) for path in SOURCES}
    assert {module: names for module, names in found.items() if names} == {}


def test_one_file_of_the_tests_imports_what_is_private():
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = isinstance(node, ast.Import | ast.ImportFrom)
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}.{alias.name}" for alias in node.names] if imported else []
            if any(re.search(r"^\.?xmcjax\..*\b_[a-z]", name) for name in names):
                found[path.relative_to(TESTS)] = found.get(path.relative_to(TESTS), 0) + 1
    assert list(found) == [Path("support/internals.py"), Path("support/process_internals.py")]
    assert sum(found.values()) <= 15


@pytest.mark.parametrize(
    "line",
    [
        "import xmcjax.lanes._nodes",
        "from xmcjax.lanes import _nodes",
        "from xmcjax.lanes._nodes import train_on_nodes",
        "from xmcjax.lanes import _Hidden",
        "from xmcjax import lanes\nlanes._nodes.train_on_nodes",
        "import xmcjax\nxmcjax.lanes._nodes",
        "from xmcjax.lanes._trainer import Trainer as T",
        "from xmcjax import _sparse\n_sparse._hidden()",
    ],
)
def test_private_names_of_other_packages_are_seen(line):
    tree = ast.parse(line)
    assert list(private_of_others("xmcjax.estimators._linear", tree))
    if "_sparse" not in line:
        assert not list(private_of_others("xmcjax.lanes._trainer", tree))


def test_modules_import_each_other_in_no_circle():
    """By what a module imports when it is imported itself."""
    imported = {module_name(path): {m for m, late in imports(path) if not late} for path in SOURCES}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join((*way, module))
        if module not in done:
            for other in sorted(imported[module] & MODULES - {module}):
                visit(other, (*way, module))
            done.add(module)

    for module in sorted(MODULES):
        visit(module, ())


def test_the_face_of_native_has_the_names_that_type_checkers_see():
    source = (PACKAGE / "native" / "__init__.py").read_text()
    seen = re.findall(r"^    from (xmcjax\.native\.\w+) import \w+ as (\w+)$", source, re.MULTILINE)
    code = "\n".join(f"import {module}; assert native.{name} is {module}.{name}" for module, name in seen)
    done = run(f"from xmcjax import native\nassert {len(seen)} > 10\nimport xmcjax.native\n{code}")
    assert done.returncode == 0, done.stderr
    assert {name for _, name in seen} == set(native._MODULES)


def wrong_imports(path: Path):
    """A sentence for each import of a file that LAYERS and the sets below them forbid."""
    name = module_name(path)
    own = layer_of(name)
    if own is None:
        if name not in ("xmcjax", "xmcjax.__main__"):
            yield f"{name} has no place in LAYERS"
        return
    place, part = own
    for module, late in imports(path):
        top = module.split(".")[0]
        if name.startswith(module + "."):
            continue  # the package it stands in
        if top == "xmcjax":
            other = layer_of(module)
            if other is None:
                yield f"{name} imports {module}, which has no place in LAYERS"
            elif other[1] != part and other[0] >= place:
                yield f"{name} imports {module}, which stands above it"
        if (part in WITHOUT_JAX or (name in NO_JAX_EITHER and not late)) and top in (
            "jax",
            "jaxlib",
            "optax",
        ):
            yield f"{name} imports {module}, and must do without JAX"
        light = {"numpy", "scipy", "xmcjax", *sys.stdlib_module_names}
        if part in LIGHT and top not in light and not (late and top in EXTRAS):
            yield f"{name} imports {module}, and must do with NumPy and SciPy"
        allowed = next((names for owner, names in EAGER.items() if name.startswith(owner)), set())
        if not late and top in LATE - allowed:
            yield f"{name} imports {module} before it is needed"


def test_every_part_stands_in_the_table_of_the_architecture():
    text = (TESTS.parent / "docs" / "develop" / "architecture.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    named = {name.removesuffix(".py") for row in rows for name in re.findall(r"`(\w+(?:\.py)?)`", row)}
    parts = {part.removeprefix("xmcjax.") for layer in LAYERS for part in layer}
    assert parts <= named, f"no row: {sorted(parts - named)}"


def test_imports_point_downwards():
    assert [fault for path in SOURCES for fault in wrong_imports(path)] == []


def test_nothing_private_of_jax_and_no_pickle():
    found = []
    for path in SOURCES:
        for module, _ in imports(path):
            if module.startswith("jax._src"):
                found.append((path, module))
            if module.split(".")[0] in ("pickle", "marshal", "shelve", "dill", "joblib"):
                found.append((path, module))
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "jax._src":
                found.append((path, "jax._src"))
            if (
                isinstance(node, ast.keyword)
                and node.arg == "allow_pickle"
                and ast.unparse(node.value) != "False"
            ):
                found.append((path, "allow_pickle"))
    assert found == []


IMPORTS = """
import importlib, json, logging, os, sys, warnings
import jax
def settings():
    return {name: repr(value) for name, value in jax.config.values.items()}
before, environment = settings(), dict(os.environ)
handlers = list(logging.getLogger().handlers)
for name in sys.argv[1:]:
    importlib.import_module(name)
import xmcjax
for name in getattr(xmcjax, "__all__", ()):
    getattr(xmcjax, name)
assert settings() == before, "a setting of JAX was changed"
# scikit-learn, which xmcjax.estimators stands on, sets KMP_* for its own threads
changed = {name for name in os.environ if environment.get(name) != os.environ[name]}
assert not {name for name in changed if not name.startswith("KMP_")}, "the environment was changed"
assert logging.getLogger().handlers == handlers, "logging was changed"
try:
    jax.devices()
except RuntimeError:
    print("no device was made")
"""


def test_parts_are_attributes_of_the_package():
    parts = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert parts == list(xmcjax._PARTS) and set(parts) <= set(dir(xmcjax))
    code = f"import xmcjax\nfor name in {parts}: assert getattr(xmcjax, name).__name__ == 'xmcjax.' + name"
    done = run(code, JAX_PLATFORMS="nonexistent")
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        xmcjax.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("package", [xmcjax, xmcjax.solvers], ids=["xmcjax", "solvers"])
def test_type_checkers_know_the_same_parts(package):
    text = Path(package.__file__).read_text()
    told = re.findall(rf"^    from {package.__name__} import (\w+) as \1$", text, re.MULTILINE)
    assert told == list(package._PARTS)


def run(*arguments, **environment):
    command = [sys.executable, "-W", "error", "-c", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


def test_importing_everything_touches_no_device_and_no_setting():
    # With a platform that does not exist, the first device that anything asks for is an error.
    names = sorted(MODULES - {"xmcjax.__main__"})
    assert len(names) > 40
    done = run(IMPORTS, *names, JAX_PLATFORMS="nonexistent")
    assert (done.returncode, done.stdout) == (0, "no device was made\n"), done.stderr


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("xmcjax", ("numpy", "jax", "scipy", "sklearn", "tqdm", "tyro", "safetensors", "optax")),
        ("xmcjax.data", ("jax", "sklearn", "tqdm", "tyro", "safetensors", "optax")),
        ("xmcjax.datasets", ("jax", "sklearn", "tqdm", "tyro", "safetensors", "optax", "pooch")),
        ("xmcjax.metrics", ("jax", "sklearn", "tqdm", "tyro", "safetensors", "optax")),
        ("xmcjax.estimators", ("jax", "tqdm", "tyro", "safetensors", "optax")),
        ("xmcjax.lanes", ("sklearn", "tqdm", "tyro", "safetensors", "optax")),
        ("xmcjax.models", ("sklearn", "tqdm", "tyro", "safetensors", "optax")),
        ("xmcjax, xmcjax.cli.train", ("jax.experimental.pallas",)),
        ("xmcjax.cli.main", ("jax", "numpy", "sklearn", "tqdm", "tyro")),
    ],
)
def test_what_an_import_does_not_cost(module, unwanted):
    code = f"import sys, {module}; print(*[name for name in {unwanted!r} if name in sys.modules])"
    done = run(code)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
