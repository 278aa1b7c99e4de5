"""The benchmarks run at their small size and say what they measured."""

from __future__ import annotations

import json

from experiments import _report
from experiments.bench import memory, one_vs_all


def test_one_vs_all_small(tmp_path):
    options = one_vs_all.Options(inits=("mean_separating",), sample=2, small=False)
    result, text = one_vs_all.run(options)
    _report.write(tmp_path, "one_vs_all", result, text)
    stored = json.loads((tmp_path / "one_vs_all.json").read_text())
    ours = stored["runs"]["xmcjax mean_separating"]
    assert stored["labels"] == ours["labels"] == 1055
    assert ours["statuses"] == {"CONVERGED": 1055}
    assert ours["worst_ratio_to_linear_svc"] < 1.001
    assert ours["precision"][0] > 60
    assert ours["by_step"][0]["labels"] == 1055
    assert "| xmcjax mean_separating |" in (tmp_path / "one_vs_all.md").read_text()


def test_memory_small():
    result = memory.run(memory.Options(rows=500, features=1_000, labels=(20, 200)))
    assert [run["labels"] for run in result["runs"]] == [20, 200]
    assert all(run["peak_mb"] > run["Y_mb"] for run in result["runs"])
