"""Options from a file, options as a file, and summaries as JSON."""

import json
import tomllib

import pytest

from tests.support.internals import SYSTEMS


@pytest.fixture
def config(tmp_path):
    """Writes a file of options and returns its path."""

    def write(text: str):
        path = tmp_path / "options.toml"
        path.write_text(text)
        return path

    return write


def printed(result) -> dict:
    return tomllib.loads(result.done().out)


def test_options_of_a_file_are_those_of_the_flags(xmcjax, files, tmp_path, config):
    text = f'train = "{files / "train.txt"}"\nloss = "logistic"\nfit-intercept = false\nC = 2\n'
    path = config(text + 'labels = "0:9"\n')
    shown = printed(xmcjax("train", "--config", path, "--model", tmp_path / "m", "--print-config"))
    found = [shown[name] for name in ("loss", "fit_intercept", "C", "labels")]
    assert found == ["logistic", False, 2.0, "0:9"]
    assert shown["max_iter"] == 100 and shown["format"] == "auto" and "test" not in shown
    assert not (tmp_path / "m").exists()


def test_the_command_line_counts_more_than_the_file(xmcjax, files, tmp_path, config):
    path = config(f'train = "{files / "train.txt"}"\nC = 2\nmax-iter = 7\n')
    given = ("train", f"--config={path}", "--model", tmp_path / "m", "--C", 3, "--print-config")
    shown = printed(xmcjax(*given))
    assert (shown["C"], shown["max_iter"]) == (3.0, 7)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("of_file", [True, False])
def test_the_command_line_turns_switches_of_the_file_both_ways(
    xmcjax, files, tmp_path, config, given, of_file
):
    both = f"fit-intercept = {str(of_file).lower()}\nresume = {str(of_file).lower()}\n"
    path = config(f'train = "{files / "train.txt"}"\n{both}')
    flags = ["--fit-intercept", "--resume"] if given else ["--no-fit-intercept", "--no-resume"]
    shown = printed(xmcjax("train", "--config", path, "--model", tmp_path / "m", "--print-config", *flags))
    assert (shown["fit_intercept"], shown["resume"]) == (given, given)
    other = ["--no-fit-intercept", "--no-resume"] if given else ["--fit-intercept", "--resume"]
    last = ("train", "--config", path, "--model", tmp_path / "m", "--print-config", *other, *flags)
    shown = printed(xmcjax(*last))
    assert (shown["fit_intercept"], shown["resume"]) == (given, given)


def test_the_system_may_stand_in_the_file(xmcjax, files, tmp_path, config):
    path = config(f'system = "top-k"\ntrain = "{files / "train.txt"}"\nk = 3\nvariant = "beta"\n')
    shown = printed(xmcjax("train", "--config", path, "--model", tmp_path / "m", "--print-config"))
    assert (shown["k"], shown["variant"]) == (3, "beta")


def test_what_is_printed_is_read_again(xmcjax, files, tmp_path, config):
    given = ("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--transform", "log,unit")
    shown = xmcjax(*given, "--no-fit-intercept", "--C", 0.3, "--n-jobs", 1, "--print-config").done().out
    assert xmcjax("train", "--config", config(shown), "--print-config").done().out == shown
    direct = xmcjax(*given, "--no-fit-intercept", "--C", 0.3, "--n-jobs", 1).done()
    assert "model " in direct.out


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_printed_for_a_system_is_read_again(xmcjax, files, tmp_path, config, system):
    given = ("train", "--system", system, "--train", files / "train.txt", "--model", tmp_path / "m")
    shown = xmcjax(*given, "--print-config").done().out
    assert shown.startswith(f'system = "{system}"\n')
    assert xmcjax("train", "--config", config(shown), "--print-config").done().out == shown


def test_lists_are_lists(xmcjax, files, tmp_path, config):
    path = config("k = [1, 2]\n")
    given = ("evaluate", "--data", files / "test.txt", "--predictions", tmp_path / "p", "--config", path)
    assert printed(xmcjax(*given, "--print-config"))["k"] == [1, 2]
    assert printed(xmcjax(*given, "--k", 3, 4, "--print-config"))["k"] == [3, 4]


def test_a_file_may_begin_with_a_byte_order_mark(xmcjax, tmp_path):
    path = tmp_path / "options.toml"
    path.write_text("top-k = 3\n", encoding="utf-8-sig")
    given = ("predict", "--model", tmp_path / "m", "--data", "d", "--out", "p", "--config", path)
    assert printed(xmcjax(*given, "--print-config"))["top_k"] == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("C = ", "expected options in TOML"),
        ("c = 1\n", "expected options of the command, found c"),
        ("resume = 1\n", "expected true or false for resume, found 1"),
        ('max_iter = "many"\n', "expected a whole number for max_iter, found 'many'"),
        ("max_iter = 1.5\n", "expected a whole number for max_iter, found 1.5"),
        ('C = "1"\n', "expected a number for C, found '1'"),
        ("timeout = []\n", "expected one value for timeout, found []"),
        ('timeout = "1h"\n', "expected a number for timeout, found '1h'"),
        ("C = true\n", "C is no switch, expected a value, found true"),
        ("no_fit_intercept = true\n", "found no_fit_intercept; fit_intercept = false turns it off"),
        ('transform = ["log"]\n', "expected one value for transform, found ['log']"),
        ("max-iter = 3\nmax_iter = 4\n", "expected each option once"),
        ('system = ["kernel"]\n', "--system: expected one of one-vs-all"),
        ("[data]\nC = 1\n", "expected options of the command, found data"),
        ("C = 1979-05-27\n", "expected a number, a text or a list"),
        ('system = "svm"\n', "--system: expected one of one-vs-all"),
        ("max-iter = -1\n", "--max-iter: expected at least 0, got -1"),
    ],
)
def test_a_file_with_mistakes_is_refused(xmcjax, files, tmp_path, config, text, said):
    given = ("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--config", config(text))
    xmcjax(*given).refused(said)
    assert not (tmp_path / "m").exists()


def test_a_file_that_is_not_there(xmcjax, tmp_path):
    xmcjax("info", "--config", tmp_path / "none").refused(f"{tmp_path / 'none'}: expected a file, found none")
    xmcjax("info", "--config").refused("--config: expected the name of one file, got none")
    xmcjax("info", "--config=a", "--config", "b").refused("expected the name of one file, got a, b")


def test_summaries_as_json(xmcjax, train, files, tmp_path):
    model, result = train("--json", "--test", files / "test.txt")
    told = json.loads(result.done().out)
    assert told["command"] == "train" and told["data"] == {"rows": 300, "features": 80, "labels": 30}
    assert told["labels"]["trained"] == 30 and told["labels"]["no_positives"] == 1
    assert told["model"]["directory"] == str(model) and 0 < told["model"]["density"] <= 1
    assert told["test"] == {"rows": 60} and 0 < told["metrics"]["P"]["1"] <= 100
    assert told["warnings"] == ["1 of 30 labels have no positive row: they are never predicted"]
    assert result.err.splitlines() == [f"xmcjax: warning: {told['warnings'][0]}"]
    told = json.loads(xmcjax("index", "--model", model, "--json").done().out)
    assert told["written"]["bytes"] > 0
    out = tmp_path / "test.npz"
    told = json.loads(xmcjax("convert", "--data", files / "test.txt", "--out", out, "--json").done().out)
    assert told["data"]["rows"] == 60 and told["written"]["file"] == str(out)
    told = json.loads(xmcjax("info", "--json").done().out)
    assert told["versions"]["jax"] and "XMCJAX_NATIVE" in told["environment"]
