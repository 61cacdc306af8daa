"""The acceptance model by type, source and position, against truths that are known.

Everything random has a fixed seed. Where a statistical claim is made its twin without the
mechanism in question is shown to fail.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from outpace.control.acceptance import Acceptance
from outpace.control.calibration import Calibration
from outpace.control.estimate import STRENGTHS, beta_estimate, likeliest_strength
from outpace.control.keeper import Keeper
from outpace.control.learned import drafts_in, restore, save
from outpace.control.sharpen import Hint, Sharpening, rising
from outpace.control.spread import Spread
from outpace.control.typed_acceptance import TypedAcceptance

CURVES = {
    "chat": (0.55, 0.5, 0.45, 0.4),
    "code": (0.8, 0.78, 0.75, 0.7),
    "tools": (0.95, 0.94, 0.9, 0.9),
}


def play(
    model: TypedAcceptance,
    rng: np.random.Generator,
    name: str,
    truth: Callable[[int], float],
    drafts: int,
    calibration: Calibration | None = None,
    k: int = 4,
) -> None:
    """One request: so many drafts of k guesses."""
    own = Acceptance(1.0)
    for _ in range(drafts):
        accepted = 0
        while accepted < k and rng.random() < truth(accepted):
            accepted += 1
        rejected = accepted < k
        if calibration is not None:
            curve = model.curve(name, "ngram", k)
            errors = [(one.high - one.low) / 3.92 for one in curve]
            means = [one.mean for one in curve]
            calibration.add(name, "ngram", means, accepted, rejected, errors)
        model.record(name, "ngram", accepted, rejected)
        own.add(accepted, rejected)
    model.ended(name, "ngram", own)


@pytest.mark.parametrize(("good", "bad"), [(0, 0), (1, 3), (9, 1), (50, 50), (700, 300)])
def test_the_interval_is_close_to_that_of_the_beta(good: int, bad: int) -> None:
    """The normal on log-odds differs from the exact quantiles by less than .035 from 2 and 2 on."""
    one = beta_estimate(good, good + bad, 0.5, 4)
    exact = stats.beta(good + 2, bad + 2)
    assert one.mean == pytest.approx(exact.mean())
    assert one.low == pytest.approx(exact.ppf(0.025), abs=0.035)
    assert one.high == pytest.approx(exact.ppf(0.975), abs=0.035)


def test_members_that_are_alike_lean_on_each_other_and_others_do_not() -> None:
    rng = np.random.default_rng(1)
    alike = [(float(rng.binomial(200, 0.6)), 200.0) for _ in range(8)]
    apart = [(float(rng.binomial(200, p)), 200.0) for p in np.linspace(0.1, 0.95, 8)]
    assert likeliest_strength(alike, 0.6) >= 64
    assert likeliest_strength(apart, 0.55) <= 4
    assert likeliest_strength([], 0.6) == 8 in STRENGTHS


def test_a_new_type_starts_with_what_others_know() -> None:
    rng = np.random.default_rng(2)
    model = TypedAcceptance(half_life=2000)
    for _ in range(60):
        for name in ("chat", "code"):
            play(model, rng, name, lambda place: (0.8, 0.6, 0.4, 0.2)[place], 20)
    means = [one.mean for one in model.curve("tools", "ngram", 4)]
    assert means == pytest.approx([0.8, 0.6, 0.4, 0.2], abs=0.06)
    assert model.curve("tools", "ngram", 1)[0].trials == 0
    assert model.curve("tools", "model", 4)[0].mean == pytest.approx(0.6)


def test_types_are_told_apart_and_places_too() -> None:
    rng = np.random.default_rng(3)
    model = TypedAcceptance(half_life=2000)
    for _ in range(60):
        for name, curve in CURVES.items():
            play(model, rng, name, curve.__getitem__, 25)
    for name, curve in CURVES.items():
        estimates = model.curve(name, "ngram", 4)
        assert [one.mean for one in estimates] == pytest.approx(curve, abs=0.06)
        inside = [one.low <= p <= one.high for one, p in zip(estimates, curve, strict=True)]
        assert sum(inside) >= 3  # 12 intervals of 95 %; all are fixed by the seed


def test_few_trials_of_a_type_hardly_move_it_and_many_do() -> None:
    rng = np.random.default_rng(4)
    model = TypedAcceptance(half_life=2000)
    for _ in range(30):
        play(model, rng, "chat", lambda _: 0.5, 30)
    before = model.curve("code", "ngram", 1)[0].mean
    play(model, rng, "code", lambda _: 1.0, 1)
    few = model.curve("code", "ngram", 1)[0].mean
    for _ in range(20):
        play(model, rng, "code", lambda _: 1.0, 30)
    assert before < few < before + 0.25
    assert model.curve("code", "ngram", 1)[0].mean > 0.95


def test_a_count_is_worth_half_after_the_half_life() -> None:
    model = TypedAcceptance(half_life=100)
    for _ in range(100):
        model.record("chat", "ngram", 0, True)
    old = model.trials("chat", "ngram")
    for _ in range(100):
        model.record("chat", "ngram", 1, False)
    assert model.trials("chat", "ngram") == pytest.approx(old * 1.5)
    # Half of what is left of the old says no, the new says yes: two thirds.
    assert model.curve("chat", "ngram", 1)[0].mean == pytest.approx(2 / 3, abs=0.08)
    with pytest.raises(ValueError, match="half_life"):
        TypedAcceptance(half_life=0)


def test_requests_that_differ_widen_the_interval() -> None:
    """1200 guesses of 12 requests, each of which is all right or all wrong, against 1200 alone."""
    rng = np.random.default_rng(5)
    apart, alone = TypedAcceptance(half_life=2000), TypedAcceptance(half_life=2000)
    for i in range(40):
        play(apart, rng, "chat", lambda _, i=i: float(i % 2), 30, k=1)
        play(alone, rng, "chat", lambda _: 0.5, 30, k=1)
    wide, narrow = (model.curve("chat", "ngram", 1)[0] for model in (apart, alone))
    assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)
    assert wide.trials < 100 < 900 < narrow.trials


def test_the_design_effect_is_that_of_the_clusters() -> None:
    """Beta-binomial requests of n tries: the effect is 1 + (n - 1)·rho, here 1 + 19/5 = 4.8."""
    rng = np.random.default_rng(6)
    clustered, chance = Spread(), Spread()
    for _ in range(600):
        p = rng.beta(2, 2)
        clustered.add([float(rng.binomial(20, p))], [20.0], [0.5])
        chance.add([float(rng.binomial(20, 0.5))], [20.0], [0.5])
    assert clustered.effect(0) == pytest.approx(4.8, abs=0.5)
    assert chance.effect(0) == pytest.approx(1.0, abs=0.15)
    assert Spread().effect(3) == 2.0


def test_found_shares_lean_on_the_other_types() -> None:
    model = TypedAcceptance(half_life=2000)
    for i in range(400):
        model.asked("chat", "ngram", i % 4 == 0)
    assert model.found_share("chat", "ngram") == pytest.approx(0.25, abs=0.02)
    assert model.found_share("code", "ngram") == pytest.approx(0.25, abs=0.02)
    assert model.found_share("code", "model") == 1.0


def calibrated(heterogeneity: float, honest: bool) -> float:
    """Share of cells within their interval over 240 requests of three types."""
    rng = np.random.default_rng(7)
    model, calibration = TypedAcceptance(half_life=2000), Calibration()
    for _ in range(80):
        for name, curve in CURVES.items():
            shift = heterogeneity * rng.standard_normal()
            odds = [np.log(p / (1 - p)) + shift for p in curve]
            truth = [1 / (1 + np.exp(-one)) for one in odds]
            play(model, rng, name, truth.__getitem__, 25, calibration)
    if not honest:
        for cell in calibration.cells.values():
            cell.predicted -= 0.15 * cell.trials
    effects = {("ngram", place): model.effect("ngram", place) for place in range(4)}
    share = calibration.share_within(effects)
    assert share is not None
    assert sum(cell.trials > 200 for cell in calibration.cells.values()) == 12
    return share


@pytest.mark.parametrize("heterogeneity", [0.0, 0.8])
def test_predictions_are_within_their_interval_in_most_cells(heterogeneity: float) -> None:
    """12 cells with 230 to 2000 trials each: 11 must be within, and all that are off by .15 out."""
    assert calibrated(heterogeneity, honest=True) >= 0.9
    assert calibrated(heterogeneity, honest=False) <= 0.35


def test_scores_of_known_forecasts() -> None:
    calibration = Calibration()
    assert (calibration.brier, calibration.log_loss, calibration.error) == (None, None, None)
    assert calibration.share_within() is None
    for i in range(10):
        calibration.add("chat", "ngram", [0.75, 0.5], *((1, True) if i % 2 else (0, True)))
    # Place 0: 5 of 10 held at .75; place 1: 0 of 5 at .5.
    assert [tuple(point) for point in calibration.curve] == [(5, 0.5, 0.0), (10, 0.75, 0.5)]
    expected = (5 * 0.25**2 + 5 * 0.75**2 + 5 * 0.25) / 15
    assert calibration.brier == pytest.approx(expected)
    assert calibration.error == pytest.approx((5 * 0.5 + 10 * 0.25) / 15)


def test_rising_pools_what_falls() -> None:
    assert rising([1, 3, 2, 4], [1, 1, 1, 1]) == [1, 2.5, 2.5, 4]
    assert rising([3, 1], [3, 1]) == [2.5, 2.5]
    assert rising([], []) == []
    assert rising([5, 4, 3, 9], [1, 1, 1, 1]) == [4, 4, 4, 9]


def test_sharpening_learns_what_a_match_is_worth() -> None:
    """Short matches hold 3 times in 10, long ones 9; the model without hints says .6 throughout."""
    rng = np.random.default_rng(8)
    sharpening, sharp, flat = Sharpening(), Calibration(), Calibration()
    assert sharpening.curve("ngram", [0.6], Hint("match", (2,))) == [pytest.approx(0.6)]
    for _ in range(1500):
        long = bool(rng.integers(2))
        hint = Hint("match", (12.0 if long else 2.0,))
        held = bool(rng.random() < (0.9 if long else 0.3))
        sharp.add("chat", "ngram", sharpening.curve("ngram", [0.6], hint), held, not held)
        flat.add("chat", "ngram", [0.6], held, not held)
        sharpening.learn("ngram", [0.6], hint, held, not held)
    assert sharpening.curve("ngram", [0.6], Hint("match", (2,)))[0] == pytest.approx(0.3, abs=0.05)
    assert sharpening.curve("ngram", [0.6], Hint("match", (12,)))[0] == pytest.approx(0.9, abs=0.03)
    assert sharp.brier is not None
    assert flat.brier is not None
    assert sharp.brier < 0.16 < 0.23 < flat.brier
    offsets = [offset for _, offset in sharpening.offsets("ngram", "match")]
    assert offsets == sorted(offsets)


def test_forced_guesses_are_sure_and_teach_nothing() -> None:
    sharpening = Sharpening()
    hint = Hint("probability", (0.5, 0.5), forced=(True, False))
    assert sharpening.curve("model", [0.4, 0.4], hint) == [1.0, pytest.approx(0.4)]
    sharpening.learn("model", [0.4], Hint("probability", (0.5,), (True,)), 1, False)
    assert sharpening.offsets("model", "probability")[4][1] == 0.0


def test_what_was_learned_survives_a_restart(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    model, sharpening = TypedAcceptance(half_life=2000), Sharpening()
    for name, curve in CURVES.items():
        for _ in range(30):
            play(model, rng, name, curve.__getitem__, 25)
    model.asked("chat", "ngram", True)
    sharpening.learn("ngram", [0.5], Hint("match", (3,)), 1, False)
    file = tmp_path / "folder" / "learned.json"
    save(file, model, sharpening, "a pair")
    kept, kept_sharpening, origin = restore(file, "a pair")
    assert origin == f"learned before, from {file}"
    assert kept.as_plain() == model.as_plain()
    assert kept_sharpening.as_plain() == sharpening.as_plain()
    for name in CURVES:  # strengths are reviewed when read, so up to that
        means = [one.mean for one in kept.curve(name, "ngram", 4)]
        assert means == pytest.approx([one.mean for one in model.curve(name, "ngram", 4)], abs=0.02)
    assert [one.name for one in file.parent.iterdir()] == ["learned.json"]


def damaged_files() -> list[tuple[str, str]]:
    good = {"format": 2, "pair": "p", "acceptance": [], "sharpening": []}
    cell = {"source": "s", "type": "t", "asked": 1, "found": 1, "drafts": 1}
    return [
        ("", "cannot be used"),
        ("{", "cannot be used"),
        ("[]", "another format"),
        ("[" * 100_000, "cannot be used"),
        (json.dumps({**good, "format": 1}), "another format"),
        (json.dumps({**good, "pair": "q"}), "other models"),
        (json.dumps({"format": 2, "pair": "p"}), "cannot be used"),
        (json.dumps({**good, "acceptance": 3}), "not a list"),
        (json.dumps({**good, "acceptance": [{}]}), "cannot be used"),
        (json.dumps({**good, "acceptance": [{**cell, "accepted": [2], "tried": [1]}]}), "cannot"),
        (json.dumps({**good, "acceptance": [{**cell, "accepted": [1], "tried": []}]}), "length"),
        (json.dumps({**good, "acceptance": [{"source": "s", "spread": 3}]}), "cannot be used"),
        (json.dumps({**good, "sharpening": [{"source": "s", "kind": "x"}]}), "no kind"),
        *((text, "cannot be used") for text in absurd_numbers()),
    ]


def absurd_numbers() -> list[str]:
    """A file that is right but for one number, which is none or cannot have been counted."""
    cell = '"source": "s", "type": "t", "accepted": [1], "tried": [<a>], "asked": <b>, "found": 1'
    spread = '"squares": [<c>], "variances": [<d>], "requests": <e>, "tries": <f>'
    offsets, precision = "0, " * 8 + "<g>", "2, " * 8 + "<h>"
    bins = f'"source": "s", "kind": "match", "offsets": [{offsets}], "precision": [{precision}]'
    text = (
        f'{{"format": 2, "pair": "p", "drafts": 9, "acceptance": [{{{cell}, "drafts": <i>}}, '
        f'{{"source": "s", "spread": {{{spread}, "tries_squared": <j>}}}}], '
        f'"sharpening": [{{{bins}}}]}}'
    )

    def filled(place: str, word: str) -> str:
        return re.sub("<(.)>", lambda found: word if found[1] == place else "3", text)

    words = ["NaN", "Infinity", "-Infinity", "1e400", "1" * 400, "1" * 5000, "1e308", '"nan"']
    made = [filled(place, word) for place in "abcdefghij" for word in words]
    tiny = [filled(place, "1e-320") for place in "abcdefhij"]
    return [*made, *tiny]


def test_the_file_around_an_absurd_number_is_right(tmp_path: Path) -> None:
    file = tmp_path / "learned.json"
    file.write_text(absurd_numbers()[0].replace("NaN", "3"), "utf-8")
    model, _, origin = restore(file, "p")
    assert origin.startswith("learned before")
    assert model.drafts == drafts_in(file, "p") == 3


@pytest.mark.parametrize(("text", "complaint"), damaged_files())
def test_a_damaged_file_is_reported_and_starts_anew(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "learned.json"
    file.write_text(text, "utf-8")
    model, sharpening, origin = restore(file, "p")
    assert complaint in origin
    assert model.as_plain() == []
    assert sharpening.as_plain() == []
    assert drafts_in(file, "p") == 0  # so that the next save replaces it
    save(file, model, sharpening, "p")
    assert "learned before" in restore(file, "p")[2]


def test_a_rejected_file_is_replaced_when_saved(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "p")
    keeper.file.write_text(absurd_numbers()[0].replace('"drafts": 9', '"drafts": 1e308'), "utf-8")
    keeper = Keeper(tmp_path, "p")
    assert "cannot be used" in keeper.origin
    keeper.acceptance.record("chat", "ngram", 2, True)
    keeper.save()
    assert restore(keeper.file, "p")[0].drafts == 1


def test_what_is_no_number_is_not_saved_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(tmp_path, "p")
    for _ in range(2):
        keeper.acceptance.record("chat", "ngram", 2, True)
        keeper.acceptance._sources["ngram"].cells["chat"].counts.asked = math.nan
        with caplog.at_level(logging.WARNING, "outpace"):
            keeper.save()
    assert caplog.text.count("cannot be kept") == 1
    assert not keeper.file.exists()


def test_what_has_all_but_faded_does_not_spoil_the_file(tmp_path: Path) -> None:
    """A deep place that a busy server no longer reaches is worth 1e-320 some day."""
    model = TypedAcceptance(half_life=1)
    model.asked("chat", "ngram", True)
    model.record("chat", "ngram", 3, True)
    model.ended("chat", "ngram", Acceptance(1.0, [3.0] * 3, [3.0] * 3))
    for _ in range(1070):
        model.record("chat", "ngram", 1, False)
        model.asked("chat", "ngram", False)
    assert 0 < model._sources["ngram"].cells["chat"].counts.tried[3] < 1e-300
    file = tmp_path / "learned.json"
    save(file, model, Sharpening(), "p")
    kept, _, origin = restore(file, "p")
    assert origin.startswith("learned before")
    assert kept.as_plain() == model.as_plain()


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    assert restore(tmp_path / "none.json", "p")[2] == "nothing was learned before"
