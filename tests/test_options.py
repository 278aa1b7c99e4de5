"""Each option is described once: estimator, flags and docs/reference/cli.md agree; old names are refused."""

import dataclasses
import importlib
import inspect
import re
import typing
from pathlib import Path

import numpy as np
import pytest

import xmcjax
from tests.support import cli_reference
from tests.support.internals import CLI_MODULES, SYSTEMS, option_tables
from tests.support.processes import CORES
from xmcjax import estimators, kernels, lanes
from xmcjax.cli import train
from xmcjax.inits import INITS
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.penalties import PENALTIES
from xmcjax.solvers import kernel_multinomial, multiclass_dual, multinomial

KINDS = [kind for kind in vars(estimators).values() if isinstance(kind, type) and hasattr(kind, "fit")]
OPTIONS = lanes.OPTIONS
ARGUMENTS = [option for option in OPTIONS.values() if option.argument]


def entries(kind: type) -> dict[str, str]:
    """What the docstring of a class says about each argument, in one line each."""
    text = (inspect.getdoc(kind) or "").replace("\nArgs:", "\n    Args:")
    section = re.search(r"\n    Args:\n(.*?)\n\n", text, re.S)
    assert section, f"{kind.__name__} has no section Args"
    found = re.findall(r"^    ([a-z_A-Z0-9, ]+): (.*(?:\n        .*)*)", section[1], re.M)
    return {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}


def parameters(kind: type) -> dict[str, object]:
    return {name: p.default for name, p in inspect.signature(kind).parameters.items()}


def test_the_estimators_are_all_here():
    assert len(KINDS) == 6 and all(entries(kind).keys() == parameters(kind).keys() for kind in KINDS)


def test_one_vs_all_has_the_arguments_that_are_options():
    assert parameters(estimators.OneVsAllClassifier) == {o.name: o.default for o in ARGUMENTS}


@pytest.mark.parametrize("option", ARGUMENTS, ids=lambda option: option.name)
def test_the_docstring_of_one_vs_all_says_what_the_option_says(option):
    said = entries(estimators.OneVsAllClassifier)[option.name]
    begin = option.for_argument() if not option.more else option.for_argument().removesuffix(".")
    assert said.startswith(begin), f"expected {begin!r}, found {said!r}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("option", cli_reference.SHARED.values(), ids=lambda option: option.name)
def test_what_estimators_share_is_described_alike(kind, option):
    found = parameters(kind)
    if option.name not in found:
        return
    own = re.sub(r"; .* by default.*", "", option.for_argument()).removesuffix(".")
    assert entries(kind)[option.name].startswith(own)
    if option.name != "fit_intercept":  # False where a bias makes training several times slower
        assert found[option.name] == option.default


def test_train_has_a_flag_for_every_option_with_its_default_and_its_text():
    hints = typing.get_type_hints(train.Options, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(train.Options)}
    assert not {option.name for option in OPTIONS.values() if not option.command} & defaults.keys()
    for option in [option for option in OPTIONS.values() if option.command]:
        assert defaults[option.name] == option.of_flag, option.name
        texts = [found.help for found in hints[option.name].__metadata__ if getattr(found, "help", None)]
        assert texts == [option.for_flag().removesuffix(".")]


def test_every_field_of_a_loss_a_penalty_and_an_initialisation_is_an_option():
    losses = [type(loss) for loss in MARGIN_LOSSES.values()]
    for kind in (*losses, *PENALTIES.values(), *INITS.values()):
        for field in dataclasses.fields(kind):
            option = OPTIONS[field.name]
            assert field.default in (option.default, option.of_flag), f"{kind.__name__}.{field.name}"


def test_the_tables_of_the_page_are_those_of_the_flags():
    page = (Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md").read_text()
    command = "python -m tests.support.cli_reference docs/reference/cli.md"
    assert cli_reference.page(page) == page, f"{command} writes the tables anew"
    assert cli_reference.page(page.replace("| `--tol` | 0.01", "| `--tol` | 0.02")) == page
    with pytest.raises(ValueError, match="expected a section train with a table of options, found none"):
        cli_reference.page(page.replace("## train", "## other"))


def test_the_options_of_training_are_those_of_one_vs_all():
    defaults = {name: OPTIONS[name].default for name in lanes.OneVsAll.numbers()}
    assert {name: getattr(lanes.OneVsAll(), name) for name in defaults} == defaults
    assert defaults.keys() >= {"C", "tol", "max_iter", "n_jobs", "fit_intercept"}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (option.name, wrong)
        for option in OPTIONS.values()
        if option.values is not None and option.name in lanes.OneVsAll.numbers()
        for wrong in ("a word", np.nan, -3.5, None)
        if not (wrong is None and (option.optional or option.default is None))
    ],
)
def test_a_value_out_of_range_is_refused_by_every_entry_in_the_same_words(name, wrong):
    with pytest.raises((TypeError, ValueError)) as option:
        OPTIONS[name].check(wrong)
    assert str(option.value).startswith(f"{name}: expected ")
    for make in (
        lambda **given: lanes.OneVsAll(**given),
        lambda **given: estimators.OneVsAllClassifier(**given).fit([[0.0], [1.0]], [0, 1]),
    ):
        with pytest.raises(type(option.value)) as found:
            make(**{name: wrong})
        assert str(found.value) == str(option.value)


OLD = {
    "OneVsAllClassifier": dict(eps="tol", threads="n_jobs"),
    "MultinomialLogisticRegression": dict(lam="C, which is 1/lam", method="solver"),
    "TopKSVC": dict(threads="n_jobs"),
    "MulticlassSVC": dict(threads="n_jobs"),
}


@pytest.mark.parametrize(("kind", "old"), [(kind, old) for kind, names in OLD.items() for old in names])
def test_an_old_name_of_an_argument_is_refused_with_the_new_one(kind, old):
    with pytest.raises(TypeError, match=f"^{kind}: the argument {old} is now {OLD[kind][old]}"):
        getattr(xmcjax, kind)(**{old: 1})
    with pytest.raises(TypeError, match=f"^{kind}: the argument {old} is now {OLD[kind][old]}"):
        getattr(xmcjax, kind)().set_params(**{old: 1})


@pytest.mark.parametrize("old", ["eps", "sparsify", "bias", "threads"])
def test_an_old_name_of_a_field_is_refused_with_the_new_one(old):
    with pytest.raises(TypeError, match=f"^OneVsAll: the argument {old} is now [a-z]"):
        lanes.OneVsAll(**{old: 1})


def test_all_old_names_are_told_at_once():
    said = r"^OneVsAllClassifier: the argument eps is now tol, the argument threads is now n_jobs, of which"
    with pytest.raises(TypeError, match=said):
        xmcjax.OneVsAllClassifier(threads=1, eps=1)  # pyright: ignore[reportCallIssue] – old names
    with pytest.raises(TypeError, match=r"^KernelLogisticClassifier\.tune: .* progress is now verbose$"):
        xmcjax.KernelLogisticClassifier().tune(
            [[0.0], [1.0]],
            [0, 1],
            progress=True,  # pyright: ignore[reportCallIssue]
        )


def test_jobs_are_counted_as_scikit_learn_does():
    def threads(n):
        return lanes.OneVsAll(n_jobs=n).threads

    cores = max(len(CORES), 1)
    assert [threads(n) for n in (None, 1, 3, np.int64(2))] == [1, 1, 3, 2]
    assert [threads(-1), threads(-2), threads(-cores - 5)] == [cores, max(1, cores - 1), 1]
    for wrong, kind in ((0, ValueError), (1 << 20, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(kind, match=r"n_jobs: expected .* or -1 for one per core, got"):
            threads(wrong)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("tol", [np.inf, np.nan, -1.0])
def test_a_tolerance_out_of_range_is_refused_by_name(kind, tol):
    said = f"^tol: expected a finite number (above 0|of at least 0), got {tol}$"
    with pytest.raises(ValueError, match=said):
        kind(tol=tol).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("system", estimators.OPTIONS)
def test_the_flags_of_a_system_are_the_arguments_of_its_estimator(system):
    options, kind = estimators.OPTIONS[system], getattr(estimators, SYSTEMS[system])
    module = importlib.import_module(f"xmcjax.cli.{CLI_MODULES[system]}")
    hints = typing.get_type_hints(module.Options, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(module.Options)}
    for name, option in options.items():
        assert parameters(kind)[name] == option.default and defaults[name] == option.of_flag, name
        texts = [found.help for found in hints[name].__metadata__ if getattr(found, "help", None)]
        assert texts == [option.for_flag().removesuffix(".")]


PAGES = {
    "multiclass": estimators.OPTIONS["multiclass"],
    "topk": estimators.OPTIONS["top-k"],
    "multinomial": estimators.OPTIONS["multinomial"],
    "kernels": estimators.OPTIONS["kernel"],
    "one-vs-all-classifier": OPTIONS,
}


@pytest.mark.parametrize("page", PAGES)
def test_the_names_that_a_page_gives_to_an_option_are_values_of_it(page):
    text = (Path(__file__).parent.parent / "docs" / "guide" / f"{page}.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text.partition("\n## Options\n")[2], re.M)
    named = {name: re.findall(r'`"(\w+)"`', said) for name, said in rows if name in PAGES[page]}
    assert any(named.values())
    for name, said in named.items():
        values = PAGES[page][name].values
        assert not isinstance(values, option_tables.Names) or set(said) <= set(values.names), name


def test_the_names_among_the_options_are_those_of_the_solvers():
    def names(system, option):
        values = estimators.OPTIONS[system][option].values
        assert isinstance(values, option_tables.Names)
        return set(values.names)

    assert names("kernel", "likelihood") == set(kernel_multinomial.LIKELIHOODS)
    assert names("kernel", "kernel") == set(kernels.KERNELS)
    assert names("multiclass", "formulation") == set(multiclass_dual.FORMULATIONS)
    assert names("multinomial", "solver") == set(multinomial.CHOICES)
