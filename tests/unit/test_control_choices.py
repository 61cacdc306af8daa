"""Gains, routing, budgets, other policies' worth and the tail: exact where it can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from outpace.control.acceptance import reach
from outpace.control.allocation import allocate
from outpace.control.choice import Contender, Costs, GrowingStep, Others, rate
from outpace.control.cost import AttentionCost, CostTable
from outpace.control.counterfactual import Logged, value
from outpace.control.draft_cost import DraftCost
from outpace.control.estimate import Estimate
from outpace.control.gain import Gain, Load, Prospect, alone, predicted
from outpace.control.line import OnlineLine
from outpace.control.policy import DrafterPolicy, TypePolicy, read_policy
from outpace.control.regime import Regime
from outpace.control.router import Options, Router
from outpace.control.tail import RequestTime, percentile, speedups, token_times
from outpace.errors import InvalidValueError

from guess_by_guess import choose

FLAT = dict.fromkeys((1, 512), 0.010)


def costs(target: dict[int, float], draft: dict[int, float] | None = None) -> Costs:
    drafts = {"model": DraftCost(CostTable(draft))} if draft else {}
    return Costs(CostTable(target), OnlineLine(), drafts)


def sure(p: float, places: int = 8) -> list[Estimate]:
    return [Estimate(p, p, p, 100.0)] * places


def test_the_gain_of_one_request_is_its_speedup() -> None:
    """Flat steps of 10 ms and a draft model of 2 ms a pass, alpha .5: E(k) / (1 + .2 k)."""
    drafted = costs(FLAT, {1: 0.002, 512: 0.002})
    gain = predicted([Prospect("model", sure(0.5), 1.0)], drafted, Load(10, 100))
    speedups_by_k = {k: (2 - 0.5**k) / (1 + 0.2 * k) for k in range(1, 9)}
    best = max(speedups_by_k, key=lambda k: speedups_by_k[k])
    assert gain.tokens == best
    assert gain.mean == pytest.approx(speedups_by_k[best])
    assert gain.low == gain.mean == gain.high


def test_under_load_others_wait_too() -> None:
    """Rows that cost are waited for by all; a draft model's pass is shared by all."""
    loaded = Load(10, 100, Others(15, 15))
    steep = costs({1: 0.010, 16: 0.010, 512: 0.320})
    drafted = costs(FLAT, {1: 0.002, 512: 0.002})
    lookup, model = Prospect("ngram", sure(0.6), 1.0), Prospect("model", sure(0.6), 1.0)
    assert predicted([lookup], steep, Load(10, 100)).mean > 2
    assert predicted([lookup], steep, loaded).mean == 1.0
    assert predicted([lookup], costs(FLAT), loaded).mean > 2  # free drafts gain in any company
    assert (
        predicted([model], drafted, Load(10, 100)).mean < predicted([model], drafted, loaded).mean
    )


def test_a_second_source_fills_what_the_first_leaves() -> None:
    free = costs(FLAT)
    first = Prospect("ngram", sure(0.9), 0.25)
    second = Prospect("suffix", sure(0.5), 1.0)
    one, other, both = (
        predicted(some, free, Load(10, 100)).mean for some in ([first], [second], [first, second])
    )
    full = predicted([Prospect("ngram", sure(0.9), 1.0)], free, Load(10, 100)).mean
    assert one == pytest.approx(0.25 * full + 0.75)
    assert both == pytest.approx(0.25 * full + 0.75 * other)
    assert predicted([], free, Load(10, 100)).mean == 1.0
    assert predicted([first], free, Load(10, 0)).mean == 1.0


def options(**gains: Gain) -> Options:
    return Options("chat", gains)


def gain(mean: float, spread: float = 0.0) -> Gain:
    return Gain(mean, mean - spread, mean + spread, 3, 50.0)


def test_the_router_takes_the_largest_gain_and_says_why() -> None:
    decision = Router().decide(options(ngram=gain(1.4), model=gain(1.2)))
    assert decision.drafter == "ngram"
    assert not decision.explored
    assert "1.40 times" in decision.reason
    assert "model 1.20" in decision.reason
    assert decision.propensities == {"ngram": 1.0}
    nothing = Router().decide(options(ngram=gain(1.0)))
    assert nothing.drafter == "ngram"  # it costs nothing to have one that can still be tried


def test_a_running_drafter_is_kept_unless_another_is_clearly_better() -> None:
    gains = {"ngram": gain(1.4), "model": gain(1.36)}
    kept = Router().decide(Options("chat", gains, current="model"))
    left = Router().decide(Options("chat", gains | {"ngram": gain(1.5)}, current="model"))
    assert (kept.drafter, left.drafter) == ("model", "ngram")


def test_exploring_stays_within_its_share_and_ends_with_certainty() -> None:
    router = Router(exploration=0.02, seed=1)
    explored = 0
    for _ in range(4000):
        decision = router.decide(
            Options("chat", {"ngram": gain(1.3), "model": gain(1.2, 0.4)}, seconds=1.0)
        )
        assert sum(decision.propensities.values()) == pytest.approx(1.0)
        explored += decision.explored
        router.spent(1.0, decision.explored)
        assert router.explored_seconds <= 0.02 * router.seconds + 1e-9
    assert 70 <= explored <= 80
    certain = [router.decide(options(ngram=gain(1.3), model=gain(1.2))) for _ in range(100)]
    assert not any(one.explored for one in certain)
    assert all(one.drafter == "ngram" for one in certain)


def test_a_policy_pins_forbids_and_falls_back(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        '[default]\nforbid = ["model"]\norder = ["ngram", "suffix"]\n'
        '[types.chat]\npin = "model"\nforbid = []\n',
        "utf-8",
    )
    router = Router(read_policy(file, {"none", "ngram", "model", "suffix"}))
    gains = {"ngram": gain(1.1), "model": gain(1.9), "suffix": gain(1.1)}
    assert router.decide(Options("chat", gains)).drafter == "model"
    assert router.decide(Options("code", gains)).drafter == "ngram"
    missing = Options("chat", {"suffix": gain(1.1), "ngram": gain(1.0)}, {"model": "no memory"})
    decision = router.decide(missing)
    assert decision.drafter == "ngram"
    assert "no memory" in decision.reason
    bare = Router(DrafterPolicy(TypePolicy(pin="model"))).decide(Options("chat", {}))
    assert bare.drafter == "none"


@pytest.mark.parametrize(
    "text",
    [
        "[default",
        "[other]\na = 1",
        "default = 3",
        "types = 3",
        "[default]\nprefer = 'a'",
        "[default]\npin = 3",
        "[default]\nforbid = 'ngram'",
        "[default]\nforbid = ['none']",
        "[default]\npin = 'ngram'\nforbid = ['ngram']",
        "[default]\npin = 'unknown'",
        "[types.'A B']\npin = 'ngram'",
    ],
)
def test_a_bad_policy_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidValueError, match="policy"):
        read_policy(file, {"none", "ngram"})
    with pytest.raises(InvalidValueError, match="from 0 to 1"):
        Router(exploration=1.5)


def log(count: int) -> list[Logged]:
    """A quarter of the decisions go to b, which is worth 1.65 for code, .95 for chat; a is 1."""
    rng = np.random.default_rng(3)
    rows = []
    for i in range(count):
        kind = "code" if rng.random() < 0.5 else "chat"
        drafter = "b" if rng.random() < 0.25 else "a"
        worth = {"a": 1.0, "b": 1.65 if kind == "code" else 0.95}[drafter]
        outcome = float(worth + 0.2 * rng.standard_normal())
        rows.append(Logged(i, kind, drafter, {"a": 0.75, "b": 0.25}, outcome))
    return rows


def test_the_worth_of_another_policy_is_found_in_the_log() -> None:
    """b everywhere: (1.65 + .95)/2 = 1.3; b for code alone: (1.65 + 1)/2 = 1.325."""
    always = value(log(3000), lambda kind: "b")
    by_type = value(log(3000), lambda kind: "b" if kind == "code" else "a")
    assert always is not None
    assert by_type is not None
    assert always.low <= 1.3 <= always.high
    assert by_type.low <= 1.325 <= by_type.high
    assert always.high - always.low < 0.1
    assert value(log(100), lambda kind: "c") is None
    assert value([], lambda kind: "a") is None


def test_the_mean_of_those_that_had_it_would_mislead() -> None:
    """The control: b was mostly given to code, where it is good, so its plain mean is too high."""
    rng = np.random.default_rng(5)
    rows = []
    for i in range(3000):
        kind, share = ("code", 0.8) if rng.random() < 0.5 else ("chat", 0.1)
        drafter = "b" if rng.random() < share else "a"
        worth = {"a": 1.0, "b": 1.5 if kind == "code" else 0.8}[drafter]
        outcome = float(worth + 0.2 * rng.standard_normal())
        rows.append(Logged(i, kind, drafter, {"a": 1 - share, "b": share}, outcome))
    found = value(rows, lambda kind: "b")
    assert found is not None
    assert found.low <= 1.15 <= found.high
    naive = np.mean([one.outcome for one in rows if one.drafter == "b"])
    assert naive > found.high + 0.1


def test_speedups_one_by_one() -> None:
    times = [RequestTime(1.0, 2.0), RequestTime(2.0, 2.0), RequestTime(4.0, 3.0)]
    spread = speedups(times)
    assert spread is not None
    assert (spread.p50, spread.whole, spread.slower) == (1.0, 1.0, pytest.approx(1 / 3))
    assert spread.worst_loss == pytest.approx(1 / 3)
    assert speedups([]) is None


def test_requests_that_drafted_nothing_are_no_part_of_the_tail() -> None:
    plain = [RequestTime(4.0, 1.0, drafted=False)] * 9
    assert speedups(plain) is None
    drafted = RequestTime(1.0, 2.0)
    assert speedups([*plain, drafted]) == speedups([drafted])
    spread = speedups([*plain, RequestTime(4.0, 1.0)])
    assert spread is not None
    assert (spread.requests, spread.slower) == (1, 1.0)


def test_time_between_tokens_per_step_and_amortised() -> None:
    times = token_times([(4, 0.04)] * 99 + [(0, 9.0), (1, 0.5)])
    assert times is not None
    assert times.p50_step == 0.04
    assert times.p50_amortised == 0.01
    assert times.p99_step == pytest.approx(percentile([0.04] * 99 + [0.5], 99))
    assert token_times([(0, 1.0)]) is None
    values = [5.0, 1.0, 3.0, 2.0]
    assert percentile(values, 40) == pytest.approx(float(np.percentile(values, 40)))
    with pytest.raises(ValueError, match="no percentile"):
        percentile([], 50)


@pytest.mark.parametrize("seed", range(40))
def test_the_search_in_arrays_finds_what_the_search_one_by_one_finds(seed: int) -> None:
    """The same stages, whatever the machine; with a draft model it may only find better ones."""
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.uniform(0.01, 0.1, 6))
    table = {rows: float(s) for rows, s in zip((1, 4, 8, 16, 32, 64), steps, strict=True)}
    price = costs(table, {1: 0.004, 64: 0.01})
    for rows in (1.0, 5.0, 20.0):
        price.host.add(rows, 0.0005 + 0.00001 * rows)
        price.draft("ngram").line.add(rows, 0.0001 * rows)
    source = ("ngram", "model")[seed % 2]
    contenders = [
        Contender(
            source,
            reach(rng.uniform(0.2, 0.95, int(rng.integers(0, 12))).tolist()),
            float(rng.uniform(0, 1)),
            int(rng.integers(1, 300)),
            int(rng.integers(1, 3000)),
            int(rng.integers(1, 400)),
        )
        for _ in range(1 + seed % 9)
    ]
    others = Others(int(rng.integers(0, 9)), int(rng.integers(0, 5)))
    slow = choose(contenders, price, others, margin=1.0)
    fast = allocate(contenders, price, others)
    lengths = fast.lengths if fast.ratio > 1 else [0] * len(contenders)
    if source == "ngram" or len(contenders) == 1:
        assert lengths == slow
    elif any(slow):
        assert any(lengths)


def test_a_shared_pass_is_used_by_all() -> None:
    """Eight alike and a draft of 4 ms a pass: one guess each, though one is surer of its second."""
    target = {1: 0.012, 16: 0.0122, 64: 0.0135}
    ones = [0.62, 0.52, 0.55, 0.86, 0.63, 0.63, 0.58, 0.67]
    contenders = [Contender("model", reach([p, 0.7]), 1.0, 2, 100, 100) for p in ones]
    price = costs(target, {1: 0.004, 32: 0.006})
    assert min(allocate(contenders, price).lengths) >= 1
    assert choose(contenders[:1], price, Others(7, 7)) == [0]  # alone it does not pay


def test_arrears_of_one_are_not_laid_to_all() -> None:
    target = {1: 0.012, 64: 0.0135}
    draft = {1: 0.001, 32: 0.002, 2048: 0.2}
    ready = Contender("model", reach([0.8, 0.7]), 1.0, 2, 100, 100)
    late = Contender("model", reach([0.8, 0.7]), 1.0, 500, 500, 10)
    lengths = allocate([ready, ready, ready, late], costs(target, draft)).lengths
    assert min(lengths[:3]) > 0
    assert lengths[3] == 0


def test_a_regime_changes_when_staying_has_cost_enough() -> None:
    regime = Regime()
    assert regime.decide(1.2)
    rng = np.random.default_rng(4)
    for _ in range(300):
        regime.decide(float(1 + 0.01 * rng.standard_normal()))
    assert regime.changes <= 1
    assert [Regime(drafting=True).decide(0.5), Regime(drafting=True).decide(0.9)] == [False, True]
    steady = Regime(drafting=True)
    assert [steady.decide(0.9) for _ in range(3)] == [True, True, False]
    assert not steady.decide(0.0)  # nobody has a guess: no news


def test_a_silent_batch_tries_the_more_seldom_the_dearer_it_is() -> None:
    cheap, dear = Regime(drafting=False), Regime(drafting=False)
    assert sum(cheap.tries(0.01) for _ in range(1000)) == 4  # after 48, 96, 192 and 384 steps
    assert sum(dear.tries(12.0) for _ in range(1999)) == 0
    assert dear.tries(12.0)


def test_a_guess_does_not_read_the_context_again() -> None:
    """The keys of a long context are read once a step; with them free, guesses are worth it."""
    attention = AttentionCost(base_context=100, per_key=1e-4, per_pair=0.0)
    target = CostTable({1: 0.01, 16: 0.0101}, attention)
    costs = Costs(target, OnlineLine(), {})
    one = Contender("d", (0.4, 0.1), 1.0, 1, 2000, 100)
    assert allocate([one], costs).ratio > 1.2
    assert GrowingStep([one], costs, Others()).rate() < rate(one, 1, costs, Others())
    curve = [Estimate(0.4, 0.3, 0.5, 100.0)] * 2
    assert alone(Prospect("d", curve, 1.0), costs, Load(2000, 100)).mean > 1.2
