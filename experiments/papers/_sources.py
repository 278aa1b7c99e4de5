"""A hash of the sources that a result depends on: the study and the parts of the library that it measures."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

_CG = ("solvers/_cg.py", "solvers/_plane_search.py")
_NEWTON = ("lanes", "losses", "inits", "solvers/newton_cg.py", "solvers/_lane_cg.py", *_CG, "native/newton")
# The modules that every search for dual variables uses, and those of the ADMM steps.
_SEARCH = ("_search", "_certified", "_admm", "_admm_blocks", "_admm_dense", "_admm_sparse", "_formulations")
_SEARCHED = (*(f"solvers/{name}.py" for name in _SEARCH), "native/dual")
_DUAL = ("solvers/multiclass_dual", "solvers/_interior.py", *_SEARCHED)
_TOP_K = ("solvers/instance_dual.py", "solvers/topk_sdca.py", "solvers/_lbfgs_weights.py", *_SEARCHED)
_SOFTMAX = (
    "solvers/multinomial",
    "solvers/newton_cg.py",
    "solvers/_lbfgs.py",
    "solvers/_backtrack.py",
    *_CG,
    "native/softmax",
    "../experiments/_multinomial.py",
)
_KERNELS = ("solvers/kernel_multinomial", "kernels", "solvers/_cg.py", "solvers/_lbfgs.py")
_PROJECTIONS = ("projections", "native/projections")
_BASELINES = ("../experiments/papers/p004/baselines",)
#: For each study, the parts of the library that it measures and its further modules: when one of them
#: changes, its results are outdated.
MEASURES = {
    "experiments.papers.p000.starts": (*_NEWTON, "../experiments/_one_vs_all.py"),
    "experiments.papers.p000.figure_2": ("losses",),
    "experiments.papers.p001.table_1": _DUAL,
    "experiments.papers.p001.table_2": (),
    "experiments.papers.p001.cost_model": _DUAL,
    "experiments.papers.p001.tables_3_5": _DUAL,
    "experiments.papers.p001.figures_2_3": _DUAL,
    "experiments.papers.p001.figure_2_dense": _DUAL,
    "experiments.papers.p002.table_1": (),
    "experiments.papers.p002.figures_1_4": _SOFTMAX,
    "experiments.papers.p002.scaling": _SOFTMAX,
    "experiments.papers.p002.piecewise": (),
    "experiments.papers.p003.figures_3_4": _KERNELS,
    "experiments.papers.p003.tables_1_2": (*_KERNELS, "../experiments/papers/p003/hierarchical_svm.py"),
    "experiments.papers.p003.cost": _KERNELS,
    "experiments.papers.p003.chains": (*_KERNELS, "estimators/_kernel_chains.py"),
    "experiments.papers.p003.extensions": _KERNELS,
    "experiments.papers.p004.table_1": (*_TOP_K, *_PROJECTIONS, *_BASELINES),
    "experiments.papers.p004.table_2": (*_TOP_K, *_PROJECTIONS, *_BASELINES),
    "experiments.papers.p004.kernels": ("solvers/instance_dual.py", "solvers/topk_sdca.py", *_PROJECTIONS),
    "experiments.papers.p004.network": ("losses", *_PROJECTIONS),
    "experiments.papers.p004.figure_2": _PROJECTIONS,
    "experiments.papers.p004.figure_3": _PROJECTIONS,
}

ROOT = Path(__file__).resolve().parent.parent.parent
_SUFFIXES = (".py", ".cc", ".h", ".def")
# The functions by which a study shows its result are no part of the hash: for them no new run is needed.
_SHOWN = re.compile(
    r"^(?:def (?:markdown|draw|main)\w*\(|if __name__)[\s\S]*?(?=^\S(?<!\))|\Z)", re.MULTILINE
)


def result_name(study: str) -> str:
    """The name of the files of a study: p002_scaling for experiments.papers.p002.scaling."""
    return study.removeprefix("experiments.").removeprefix("papers.").replace(".", "_")


def study_of(name: str) -> str | None:
    """The study of :data:`MEASURES` whose files have this name; None where there is none."""
    return next((study for study in MEASURES if result_name(study) == name), None)


@functools.cache
def sources(study: str | None) -> str | None:
    """The hash for a study of :data:`MEASURES`, without comments, docstrings and layout; None for others."""
    if study not in MEASURES:
        return None
    digest = hashlib.sha256()
    for path in _files(study):
        text = path.read_text()
        if path.suffix == ".py":
            text = _without_docstrings(text)
            own = path == ROOT.joinpath(*study.split(".")).with_suffix(".py")
            text = _python(_SHOWN.sub("", text) if own else text)
        else:
            text = _cpp(text)
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(text.encode())
    return digest.hexdigest()[:16]


def _files(study: str) -> Iterator[Path]:
    own = ROOT.joinpath(*study.split("."))
    for place in (own, *((ROOT / "xmcjax" / part).resolve() for part in MEASURES[study])):
        if place.is_dir():
            yield from sorted(path for path in place.rglob("*") if path.suffix in _SUFFIXES)
        else:
            yield place if place.suffix else place.with_suffix(".py")


def _without_docstrings(text: str) -> str:
    """Other strings stay, such as the program of a process of its own."""
    lines = text.encode().splitlines(keepends=True)  # places of nodes count bytes
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            said = node.body[0]
            assert said.end_lineno is not None
            first, end = said.lineno - 1, said.end_lineno
            rest = lines[first][: said.col_offset] + lines[end - 1][said.end_col_offset :]
            lines[first:end] = [rest, *[b""] * (end - first - 1)]
    return b"".join(lines).decode()


def _python(text: str) -> str:
    """Without comments and layout."""
    return " ".join(re.sub(r"^[ \t]*#[^\n]*|[ \t]+#[ :][^\n]*$", "", text, flags=re.MULTILINE).split())


def _cpp(text: str) -> str:
    """C++ without comments and blanks, and with sorted includes, which a formatter may reorder."""
    lines = re.sub(r"//[^\n]*|\\$", "", text, flags=re.MULTILINE).splitlines()
    included = sorted(line for line in lines if line.startswith("#include"))
    code = (line for line in lines if not line.startswith("#include"))
    return "".join("".join(line.split()) for line in (*included, *code))
