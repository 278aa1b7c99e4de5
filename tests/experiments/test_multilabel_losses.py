"""The comparison of losses for rows with several labels, small."""

from __future__ import annotations

from experiments import multilabel_losses


def test_small(tmp_path):
    options = multilabel_losses.Options(small=True, out=tmp_path).chosen()
    result = multilabel_losses.run(options)
    losses = result["sets"]["naics_demo"]["losses"]
    assert set(losses) == set(multilabel_losses.TITLES)
    assert all(0.02 < row["precision"]["1"] <= 1 and row["seconds"] > 0 for row in losses.values())
    text = multilabel_losses.markdown(result)
    assert f"| {100 * losses['svm']['precision']['1']:.2f} |" in text
