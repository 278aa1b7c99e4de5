"""The map of the papers: every row has what it names, and the one door makes it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import tyro

from experiments import _data
from experiments.papers import _pages as pages
from experiments.papers import _sources as of_study
from experiments.papers._sources import MEASURES
from experiments.papers.catalogue import ITEMS, items
from experiments.papers.titles import PAPERS, STATUSES

ROOT = Path(__file__).resolve().parent.parent.parent


# Minutes at most with --full, and in one piece; what takes longer keeps what it has done.
QUICK = {
    *("experiments.papers.p000.figure_2", "experiments.papers.p001.table_2"),
    *("experiments.papers.p002.table_1", "experiments.papers.p002.piecewise"),
    "experiments.papers.p003.cost",
    *("experiments.papers.p004.figure_2", "experiments.papers.p004.figure_3"),
}


def command(*arguments):
    return [sys.executable, "-m", "experiments.papers", *map(str, arguments)]


def door(*arguments):
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=600)


def module(study):
    main = "__main__" if (ROOT / study.replace(".", "/")).is_dir() else ""
    return importlib.import_module(f"{study}.{main}".rstrip("."))


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.paper}-{item.name}")
def test_a_row_names_what_there_is(item):
    assert item.paper in PAPERS and item.status in STATUSES and item.shows
    assert items((item.paper,), item.name) == [item]  # no two have a name
    assert item.remark or item.status == "done"
    assert (item.study is None) == (not item.output)
    for name in item.code.split(", ") if item.code else ():
        importlib.import_module(f"xmcjax.{name}")
    if item.study is None:
        assert item.code or item.status in ("missing", "not here")
        return
    for size in ("--small", "--full"):
        tyro.cli(module(item.study).Options, args=[size, "--out", "somewhere"])


def test_the_pages_are_those_of_the_list_and_the_results():
    folder = ROOT / "docs" / "papers"
    expected = pages.pages()
    assert {path.name for path in folder.glob("*.md")} == expected.keys()
    for name, text in expected.items():
        assert (folder / name).read_text() == text, f"{name}: run python -m experiments.papers --pages"
    assert sum(path.stat().st_size for path in pages.RESULTS.glob("*")) < 2_000_000


@pytest.mark.parametrize("study", [study for study in MEASURES if pages.result_of(study).exists()])
def test_a_result_is_of_the_code_that_it_measures(study):
    for one in json.loads(pages.result_of(study).read_text())["made"]:
        assert one["sources"] == of_study.sources(study), (
            f"{study} has changed, or the parts of xmcjax that it measures: run it again by "
            "python -m experiments.papers PAPER --item ITEM --keep"
        )
        assert one["command"].startswith(f"python -m {study}") and one["commit"] != "unknown"


@pytest.mark.parametrize("paper", PAPERS)
def test_remarks_were_read_against_the_results(paper):
    assert pages.remarks_read()[paper] == pages.numbers_of(paper), (
        f"results of paper {paper} have changed: read its remarks in titles.py and catalogue.py against "
        f"them, mend them, and say so by python -m experiments.papers {paper} --read"
    )


def test_other_numbers_are_to_be_read_again(tmp_path, monkeypatch):
    study = "experiments.papers.p003.cost"
    result = json.loads(pages.result_of(study).read_text())
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    path = pages.result_of(study)

    def numbers(result):
        path.write_text(json.dumps(result))
        return pages.numbers_of("003")

    first = numbers(result)
    assert numbers(result | {"made": []}) == first
    assert numbers(result | {"more": 1}) != first


def test_each_study_says_what_it_measures():
    assert {item.study for item in ITEMS if item.study is not None} == MEASURES.keys()
    for study, parts in MEASURES.items():
        assert all((ROOT / "xmcjax" / part).exists() for part in parts), study


def test_a_result_is_older_once_what_it_measures_changes(tmp_path, monkeypatch):
    study = "experiments.papers.p000.figure_2"
    kept = tmp_path / "xmcjax" / "losses"
    (tmp_path / "experiments" / "papers" / "p000").mkdir(parents=True)
    (tmp_path / "experiments" / "papers" / "p000" / "figure_2.py").write_text("x = 1\n")
    kept.mkdir(parents=True)

    def after(name, text):
        (kept / name).write_text(text)
        of_study.sources.cache_clear()
        return of_study.sources(study)

    monkeypatch.setattr(of_study, "ROOT", tmp_path)
    try:
        first = after("a.py", "def f(x):\n    return x\n")
        assert after("a.py", 'def f(x):\n    """Words."""\n    # words\n    return x\n') == first
        assert after("a.py", "def f(x):\n    return -x\n") != first
        program = 'PROGRAM = """\nprint(1)\n"""\nN = 1\n\n\ndef f(x):\n    """Words."""\n    return x\n'
        third = after("a.py", program)
        assert after("a.py", program.replace("Words", "Other words")) == third
        assert after("a.py", program.replace("N = 1", "N = 2")) != third
        assert after("a.py", program.replace("print(1)", "print(2)")) != third
        second = after("b.cc", "int f() { return 1; }  // words\n")
        assert after("b.cc", "int f() {\n  return 1;\n}\n") == second
        assert after("b.cc", "int f() { return 2; }\n") != second
    finally:
        of_study.sources.cache_clear()
    assert of_study.sources("experiments.calibration") is None
    assert of_study.study_of("p001_table_1") == "experiments.papers.p001.table_1"
    assert of_study.study_of("p003_figures_3_4") == "experiments.papers.p003.figures_3_4"
    assert of_study.study_of("calibration") is None


def test_how_a_result_is_shown_is_not_what_it_measures(tmp_path, monkeypatch):
    study = "experiments.papers.p000.figure_2"
    (tmp_path / "experiments" / "papers" / "p000").mkdir(parents=True)
    (tmp_path / "xmcjax" / "losses").mkdir(parents=True)

    def after(shown, ran):
        text = f"def run(x):\n    return {ran}\n\n\ndef markdown(result):\n    return {shown}\n\n\nN = 1\n"
        (tmp_path / "experiments" / "papers" / "p000" / "figure_2.py").write_text(text)
        of_study.sources.cache_clear()
        return of_study.sources(study)

    monkeypatch.setattr(of_study, "ROOT", tmp_path)
    try:
        first = after(1, 1)
        assert after(2, 1) == first != after(1, 2)
    finally:
        of_study.sources.cache_clear()


def test_one_figure_by_the_door(tmp_path):
    done = door("000", "--item", "figure-2", "--small", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p000_figure_2.png").read_bytes()[:4] == b"\x89PNG"
    found = json.loads((tmp_path / "papers.json").read_text())
    assert [item["name"] for item in found["items"]] == ["figure-2"]
    assert found["studies"]["experiments.papers.p000.figure_2"]["status"] == 0
    assert "| 000 | figure-2 | done | p000_figure_2.png |" in (tmp_path / "papers.md").read_text()


def test_a_study_whose_data_are_not_here_has_not_failed(tmp_path, monkeypatch, capsys):
    papers = module("experiments.papers")
    monkeypatch.delenv("XMCJAX_DATA", raising=False)
    monkeypatch.setattr(_data, "ROOT", tmp_path / "checkout")
    command = ["papers", "003", "--item", "cost", "--small", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(papers, "subprocess", types.SimpleNamespace(run=study_of_cost))
    papers.main()
    said = f"p003_cost: {tmp_path / 'shared' / 'data'}: expected a folder of data sets; set XMCJAX_DATA\n"
    assert capsys.readouterr().err == said
    assert "| 003 | cost | done | its data are not here |" in (tmp_path / "papers.md").read_text()
    # which somebody has named
    sentences = {"absent": "absent: expected a folder of data sets; set XMCJAX_DATA"}
    sentences["."] = f"{tmp_path / 'satimage' / 'train.libsvm.xz'}: expected a file, found none"
    for name, sentence in sentences.items():
        monkeypatch.setenv("XMCJAX_DATA", str(tmp_path / name))
        with pytest.raises(SystemExit) as ended:
            papers.main()
        assert ended.value.code == 1
        studies = json.loads((tmp_path / "papers.json").read_text())["studies"]
        assert studies["experiments.papers.p003.cost"]["status"] == 4  # 2 is of wrong options
        said = capsys.readouterr().err
        assert said.startswith("p003_cost: ") and said.splitlines()[0].endswith(sentence)


def study_of_cost(command, **_):
    """In this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", command[2:])
        module("experiments.papers.p003.cost").main()
    return types.SimpleNamespace(returncode=ended.value.code)


def test_a_study_that_fails_is_said(tmp_path):
    (tmp_path / "out").write_text("a file where the folder of the results would be")
    done = door("000", "--item", "figure-2", "--small", "--out", tmp_path / "out")
    assert done.returncode == 1


@pytest.mark.parametrize("study", MEASURES)
def test_what_takes_long_keeps_what_it_has_done(study):
    assert hasattr(module(study), "Cells") == (study not in QUICK)


def test_a_run_that_was_stopped_goes_on(tmp_path):
    asked = ("001", "--item", "table-1", "--small", "--out", tmp_path)
    kept = tmp_path / "p001_table_1.cells.json"
    running = subprocess.Popen(command(*asked), cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + 300
        while not kept.exists():
            assert running.poll() is None and time.monotonic() < end
            time.sleep(0.01)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(timeout=60)
    assert not (tmp_path / "p001_table_1.json").exists()
    cells = json.loads(kept.read_text())
    for cell in cells:  # an error that no training has, to be known again
        cell["found"]["error"] = 100.5
    kept.write_text(json.dumps(cells))
    done = door(*asked)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "p001_table_1.json").read_text())["rows"]
    marked = {(row["formulation"], row["log_C"]) for row in rows if row["error"] == 100.5}
    assert marked == {(cell["asked"]["formulation"], cell["asked"]["log_C"]) for cell in cells}
    assert 0 < len(marked) < len(rows) == 6


def test_the_list_and_what_is_not_on_it():
    listed = door("001", "--list")
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == len([item for item in ITEMS if item.paper == "001"])
    for arguments, said in (
        (["005"], "expected a paper of 000, 001, 002, 003, 004, got '005'"),
        (["002", "--item", "figure-9"], "--item: expected one of table-1, figure-1"),
    ):
        refused = door(*arguments)
        assert refused.returncode == 2 and said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
