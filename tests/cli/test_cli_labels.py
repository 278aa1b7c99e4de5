"""--label of inspect and report names labels that a model has trained."""

import pytest

from xmcjax.cli import train as train_command

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")


def test_a_label_of_another_part_is_refused(xmcjax, train, tmp_path):
    part = train("--labels", "3:6")[0]
    assert "label 3: bias " in xmcjax("inspect", "--model", part, "--label", 3, 5).done().out
    for label in (0, 6, 30):
        said = f"--label: expected numbers from 3 to 5, those of this part, got {label}"
        xmcjax("inspect", "--model", part, "--label", 4, label).refused(said)
    pytest.importorskip("matplotlib")
    report = ("report", "--model", part, "--out", tmp_path / "page.html")
    xmcjax(*report, "--label", 2).refused("--label: expected numbers from 3 to 5, those of this part, got 2")


def test_a_label_that_was_left_when_the_time_was_over_is_refused(xmcjax, train, monkeypatch):
    # the time is over when the first shard is trained
    monkeypatch.setattr(train_command._training.ShardClock, "__call__", lambda clock, label: label < 10)
    directory, result = train("--shard-size", 10, "--timeout", 600)
    assert result.code == train_command.TIMED_OUT
    inspect = ("inspect", "--model", directory, "--label")
    shown = xmcjax(*inspect, 9).done().out
    assert "20 missing" in shown and "label 9: bias " in shown
    xmcjax(*inspect, 9, 10).refused("--label: expected labels that are trained, got 10, which is missing")
