"""The doctor: what it predicts from invented costs, and what it prints of a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpace.cli import run
from outpace.control.choice import Costs
from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost
from outpace.control.line import OnlineLine
from outpace.control.speedup import Outlook

LENGTHS = range(9)


def outlook(target: dict[int, float], draft: dict[int, float] | None = None) -> Outlook:
    cost = DraftCost(CostTable(draft) if draft else None)
    return Outlook(Costs(CostTable(target), OnlineLine(), {"d": cost}), "d")


def test_the_prediction_is_the_papers_formula() -> None:
    """Leviathan et al. 2023, theorem 3.8: (1 - a^(k+1)) / ((1 - a)(k c + 1)), rows being free."""
    free = outlook({1: 1.0, 16: 1.0}, {1: 0.1, 16: 0.1})
    for alpha in (0.5, 0.7, 0.9):
        for k in LENGTHS:
            expected = (1 - alpha ** (k + 1)) / ((1 - alpha) * (1 + 0.1 * k))
            assert free.speedup(k, alpha) == pytest.approx(expected)
    assert free.speedup(0, 0.9) == 1.0


def test_the_work_beside_the_model_counts() -> None:
    costs = Costs(CostTable({1: 1.0, 2: 1.0}), OnlineLine(), {"d": DraftCost()})
    costs.host.add(1, 1.0)
    costs.host.add(2, 2.0)
    assert Outlook(costs, "d").speedup(1, 1.0) == pytest.approx(2 * 2.0 / 3.0)


def test_the_break_even() -> None:
    """With one guess at a fifth of a step, more than every fifth must be right."""
    assert outlook({1: 1.0, 2: 1.2, 16: 16.0}).break_even(LENGTHS) == pytest.approx(0.205)
    assert outlook({1: 1.0, 2: 2.0, 16: 16.0}).break_even(LENGTHS) is None


def test_the_best_length_stops_at_the_edge_of_a_stair() -> None:
    k, gain = outlook({1: 1.0, 4: 1.05, 5: 2.0, 8: 2.0, 9: 3.0}).best(0.8, LENGTHS)
    assert k == 3
    assert gain == pytest.approx((1 + 0.8 + 0.64 + 0.512) / 1.05)


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["doctor", *arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))


def test_the_page_fits_a_screen_and_has_it_all(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = doctor(capsys, str(tiny_folder), "--drafter", f"model:{tiny_folder}")
    for word in ("processor", "memory", "kernels", "plan", "one row", "alpha", "k=8", "0.9"):
        assert word in page
    assert page.count("\n") <= 45
    assert page.rstrip().splitlines()[-1].startswith("Speculation")


def test_the_json_holds_what_the_page_says(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = json.loads(doctor(capsys, "--model", str(tiny_folder), "--json"))
    assert found["target"]["model"] == str(tiny_folder)
    choices = ["none", "ngram", "suffix"]
    assert found["drafter"] == {"name": "auto", "choices": choices, "cost": None}
    assert list(found["predicted"]) == choices[1:]
    for one in found["predicted"].values():
        assert one["four_tokens_seconds"] >= 0
        assert set(one["speedup_by_alpha_and_k"]) == {"0.5", "0.6", "0.7", "0.8", "0.9"}
        assert all(gains["0"] == 1.0 for gains in one["speedup_by_alpha_and_k"].values())
    target = found["target"]
    seconds = {int(rows): s for rows, s in target["cost"]["seconds_by_rows"].items()}
    assert seconds[1] > 0
    assert sorted(seconds.values()) == [seconds[rows] for rows in sorted(seconds)]
    assert found["plan"]["total"] > 0
    assert found["verdict"]
    kept = json.loads(doctor(capsys, "--model", str(tiny_folder), "--json"))
    assert "kept" in kept["target"]["cost"]["origin"] or "hold" in kept["target"]["cost"]["origin"]


def test_the_default_is_shown_as_a_choice_and_a_fixed_k_as_what_it_runs(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = doctor(capsys, str(tiny_folder))
    assert "drafter auto (chooses among none, ngram, suffix;" in page
    assert "prediction+grammar+ngram" not in page
    assert page.count("\n") <= 45
    assert "predicted times faster than plain, drafter prediction+grammar+ngram" in doctor(
        capsys, str(tiny_folder), "-k", "2"
    )


def test_of_joined_drafters_each_is_tried(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = f"ngram+model:{tiny_folder}"
    found = json.loads(doctor(capsys, str(tiny_folder), "--drafter", joined, "--json"))
    assert found["drafter"]["choices"] == ["none", "ngram", "model", "ngram+model"]
    assert list(found["predicted"]) == ["ngram", "model"]
    assert found["drafter"]["cost"] is not None


def test_without_a_drafter_there_is_nothing_to_predict(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = doctor(capsys, str(tiny_folder), "--drafter", "none")
    assert "no speculation" in page
    assert "alpha" not in page


def test_a_missing_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "./no/such/folder"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "./no/such/folder" in captured.err
