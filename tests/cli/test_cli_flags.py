"""Flags that the parser refuses: one sentence, with what may be meant, in place of a box of lines."""

import pytest

from tests.support.internals import refusals

TRAIN = ("train", "--train", "x", "--model", "y")
LONG = "a_loss_whose_name_is_longer_than_a_line_of_the_parser_which_is_broken_after_eighty_columns"
REFUSED = {
    "no number": ((*TRAIN, "--C", "abc"), "--C: expected a number, found 'abc'"),
    "no whole number": ((*TRAIN, "--n-jobs", "1.5"), "--n-jobs: expected a whole number, found '1.5'"),
    "no number where there may be none": (
        (*TRAIN, "--timeout", "abc"),
        "--timeout: expected a number, found 'abc'",
    ),
    "no whole number where there may be none": (
        (*TRAIN, "--local-cluster", "1.5"),
        "--local-cluster: expected a whole number, found '1.5'",
    ),
    "no whole numbers": (
        ("evaluate", "--data", "x", "--predictions", "y", "--k", "3", "a"),
        "--k: expected whole numbers, found '3', 'a'",
    ),
    "no value": ((*TRAIN, "--C"), "--C: expected a value, found none"),
    "another choice": (
        (*TRAIN, "--loss", LONG),
        f"--loss: expected one of 'squared_hinge', 'logistic', 'huber_hinge', 'hinge', found '{LONG}'",
    ),
    "nothing that is needed": (("train",), "expected --train FILE, --model DIR, found none"),
    "something else than is needed": (
        ("convert", "--folds", "a"),
        "expected --data FILE, --out FILE, found --folds a, which are none of its options",
    ),
    "an unknown flag": (
        (*TRAIN, "--blocksize", "3"),
        "expected options of the command, found --blocksize 3: perhaps --block-size is meant",
    ),
    "a flag that looks like one that is needed": (
        ("train", "--trainn", "x", "--model", "y"),
        "expected --train FILE, found --trainn x, which are none of its options: perhaps --train is meant",
    ),
    "a flag that says what holds": (
        (*TRAIN, "--fit-intercept"),
        "expected options of the command, found --fit-intercept, which holds without --no-fit-intercept",
    ),
    "a flag behind what ends them": (
        (*TRAIN, "--", "--C"),
        "expected options of the command, found --C behind --",
    ),
    "an unknown word": ((*TRAIN, "z"), "expected options of the command, found z"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_flags_that_the_parser_refuses_are_one_sentence(xmcjax, case):
    arguments, said = REFUSED[case]
    assert xmcjax(*arguments).refused() == f"xmcjax {arguments[0]}: error: {said}"


def test_another_name_of_a_data_set_is_refused_in_the_same_words(xmcjax):
    xmcjax(*TRAIN, "--propensities", "nowhere").refused(
        "--propensities: expected one of default, ", ", found 'nowhere'"
    )


def test_help_is_that_of_the_parser(xmcjax):
    result = xmcjax("convert", "--help")
    assert result.code == 0 and not result.err and "usage: xmcjax convert" in result.out


BOX = """╭─ New ────────╮
│ \x1b[31mSomething\x1b[0m    │
│ else.        │
│ ──────────── │
│ More.        │
╰──────────────╯
"""
PLAIN = """ New          \n ------------ \n  Something   \n  else.       \n  ----------- \n  More.       \n"""


def test_a_box_of_another_kind_is_its_text():
    assert refusals.sentence(BOX, []) == refusals.sentence(PLAIN, []) == "Something else."
    assert refusals.sentence("no box", []) == "no box"
