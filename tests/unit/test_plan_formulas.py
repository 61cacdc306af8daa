from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from outpace.errors import CapacityError, InvalidValueError
from outpace.plan.capacity import best_replica, busy_seconds, fleet, seconds_per_token
from outpace.plan.find import find_architecture
from outpace.plan.forecast import Load, Setting, forecast
from outpace.plan.hardware import GIB, find_hardware
from outpace.plan.memory import Deployed, Memory
from outpace.plan.mix import Mix, RequestType
from outpace.plan.precision import Precision
from outpace.plan.setting import Models, roofline_setting
from outpace.plan.speedup import Pair, no_draft_model, paying
from outpace.plan.steps import Assumptions, Roofline, Shape, from_cost_table

BF16 = Precision.parse("bf16")
IDEAL = Assumptions(1, 1, 0, 0, 0, 0, 0)


def mix_of(alpha: float, coverage: float = 1.0) -> Mix:
    return Mix.of([RequestType("all", 1.0, (alpha,), coverage)]).fitted(100)


def constant(alpha: float, c: float) -> Pair:
    """Any number of rows costs 1, a draft step c: Leviathan's setting."""
    return Pair(lambda _: 1.0, lambda _: c, mix_of(alpha), 100)


# The reference table of the formula S = E / (k c + 1), to two decimals.
SPEEDUPS = {
    (0.5, 4): (1.79, 1.61, 1.38, 1.08),
    (0.6, 4): (2.13, 1.92, 1.65, 1.28),
    (0.7, 4): (2.57, 2.31, 1.98, 1.54),
    (0.7, 8): (2.76, 2.28, 1.78, 1.23),
    (0.8, 4): (3.11, 2.80, 2.40, 1.87),
    (0.8, 5): (3.35, 2.95, 2.46, 1.84),
    (0.8, 8): (3.73, 3.09, 2.40, 1.66),
    (0.9, 8): (5.28, 4.38, 3.40, 2.36),
}
COSTS = (0.02, 0.05, 0.10, 0.20)


@pytest.mark.parametrize(("alpha", "k"), SPEEDUPS)
def test_speedups_by_the_formula(alpha: float, k: int) -> None:
    found = tuple(round(constant(alpha, c).speedup(1, k), 2) for c in COSTS)
    assert found == SPEEDUPS[alpha, k]


def test_best_k_by_the_formula() -> None:
    ks = range(17)
    assert [constant(0.7, c).best_k(1, ks) for c in COSTS] == [8, 6, 4, 3]
    assert [constant(0.8, c).best_k(1, ks) for c in COSTS] == [11, 8, 6, 4]


def test_accepted_over_drafted_is_another_figure_than_alpha() -> None:
    """At alpha .8 and k = 5 only .54 of what is drafted is accepted."""
    kind = RequestType("all", 1.0, (0.8,))
    assert round((kind.expected_tokens(5) - 1) / 5, 2) == 0.54
    assert kind.expected_tokens(5) == pytest.approx((1 - 0.8**6) / (1 - 0.8), rel=1e-12)
    assert RequestType("all", 1.0, (1.0,)).expected_tokens(5) == 6
    assert RequestType("all", 1.0, (0.0,)).expected_tokens(5) == 1


def test_alpha_by_position_goes_on_with_its_last() -> None:
    kind = RequestType("all", 1.0, (0.8, 0.5))
    assert kind.expected_tokens(3) == pytest.approx(1 + 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * 0.5)


def test_a_drafter_that_is_silent_half_of_the_time() -> None:
    pair = Pair(lambda s: float(s.rows), no_draft_model, mix_of(1.0, coverage=0.5), 100)
    # Half of the steps bring 1 token in 1 second, half bring 3 in 3.
    assert pair.step_seconds(1, 2) == 2
    assert pair.mix.tokens_per_step(2) == 2
    assert pair.speedup(1, 2) == 1


def test_kinds_that_gain_little_are_met_in_more_steps() -> None:
    """600 tokens at 1 a step and 600 at 3 a step are 1200 tokens in 800 steps."""
    kinds = [
        RequestType("slow", 1.0, (0.0,), output=600),
        RequestType("fast", 1.0, (1.0,), output=600),
    ]
    mix = Mix.of(kinds).fitted(100)
    assert mix.tokens_per_step(2) == pytest.approx(1.5, rel=1e-12)


def test_lengths_left_open_fill_the_context() -> None:
    [one] = Mix.of([RequestType("all", 2.0, (0.5,))]).fitted(1000).types
    assert (one.share, one.lengths) == (1.0, (872, 256))
    [short] = Mix.of([RequestType("all", 1.0, (0.5,))]).fitted(1).types
    assert short.lengths == (1, 1)


def test_a_decode_step_by_hand() -> None:
    """Llama 3.1 8B on an H100, batch 1: bytes of layers, head and cache over the bandwidth."""
    model = find_architecture("llama-3.1-8b")
    step = Roofline(model, BF16, find_hardware("h100-sxm"), IDEAL)
    layer = 4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336
    head, cache = 128256 * 4096, 32 * 2 * 8 * 128 * 2048
    expected = 2 * (32 * layer + head + cache) / 3350e9
    assert step(Shape(1, 1, 2048)) == pytest.approx(expected, rel=1e-12)


def test_many_rows_are_bound_by_operations() -> None:
    """From the ridge on (989e12 / 3350e9 = 295 rows in bf16) time grows with the rows."""
    model = find_architecture("llama-3.1-8b")
    step = Roofline(model, BF16, find_hardware("h100-sxm"), IDEAL)
    assert step.linears(Shape(1, 1, 0)) == step.linears(Shape(295, 1, 0))
    assert step.linears(Shape(590, 1, 0)) > 1.99 * step.linears(Shape(295, 1, 0))
    rows = 2 * model.layer_weights * 1000 / 989e12
    assert step.linears(Shape(1000, 1, 0)) == pytest.approx(rows, rel=1e-12)


def test_the_cache_is_read_once_for_all_rows_of_a_sequence() -> None:
    model = find_architecture("llama-3.1-8b")
    step = Roofline(model, BF16, find_hardware("h100-sxm"), IDEAL)
    assert step.attention(Shape(2, 5, 1000)) == step.attention(Shape(2, 1, 1000))
    assert step.attention(Shape(2, 1, 1000)) == 2 * step.attention(Shape(1, 1, 1000))


def test_overheads_are_added_once_a_layer_and_once_a_step() -> None:
    model, part = find_architecture("llama-3.1-8b"), find_hardware("h100-sxm", devices=2)
    assumed = Assumptions(1, 1, 1e-3, 1e-4, 2e-5, 1e-6, 1e-7)
    hosted = Roofline(model, BF16, part, assumed)
    assert hosted.overhead == pytest.approx(1e-3 + 2e-5 + 32 * (1e-6 + 2e-7), rel=1e-12)
    shape = Shape(3, 2, 10)
    bare = Roofline(model, BF16, part, IDEAL)
    found = hosted(shape) - bare(shape)
    assert found == pytest.approx(hosted.overhead + 6 * 1e-4, rel=1e-6)
    drafting = replace(hosted, hosted=False)
    assert drafting(shape) - bare(shape) == pytest.approx(hosted.overhead - 1e-3, rel=1e-6)


def test_a_table_of_rows_and_context_adds_up_contexts_over_sequences() -> None:
    step = from_cost_table(lambda rows, context: 10.0 * rows + context * (1 + rows))
    assert step(Shape(3, 2, 100)) == 10 * 6 + 3 * 100 * (1 + 2)


def memory_of(available: float, draft: bool = True) -> Memory:
    target = Deployed(find_architecture("llama-3.1-8b"), BF16)
    small = Deployed(find_architecture("llama-3.2-1b"), BF16) if draft else None
    return Memory(available, target, small, 2048)


def test_memory_by_hand() -> None:
    memory = memory_of(80 * GIB)
    parts = memory.parts(10, 4, drafting=True)
    assert parts.target_weights == 2 * find_architecture("llama-3.1-8b").weights
    assert parts.target_cache == 10 * 2048 * 32 * 2 * 8 * 128 * 2
    assert parts.draft_cache == 10 * 2048 * 16 * 2 * 8 * 64 * 2
    assert parts.logits == 10 * (5 + 4) * 128256 * 4
    assert parts.reserve == 8 * GIB
    assert parts.total == 80 * GIB
    plain = memory.parts(10, 0, drafting=False)
    assert (plain.draft_weights, plain.draft_cache) == (0, 0)
    assert plain.logits == 10 * 128256 * 4


@pytest.mark.parametrize(("k", "drafting"), [(0, False), (1, True), (8, True)])
def test_the_largest_batch_fits_and_one_more_does_not(k: int, drafting: bool) -> None:
    memory = memory_of(80 * GIB)
    batch = memory.largest_batch(k, drafting)
    assert memory.parts(batch, k, drafting).free >= 0
    assert memory.parts(batch + 1, k, drafting).free < 0


def test_models_that_do_not_fit_are_refused_with_what_they_need() -> None:
    with pytest.raises(
        CapacityError, match=r"weights and one sequence .* need 15\.2 GiB, 9\.0 GiB"
    ):
        memory_of(10 * GIB).need_batch(0, False)
    with pytest.raises(CapacityError, match=r"llama-3\.1-8b with llama-3\.2-1b: "):
        memory_of(18 * GIB).need_batch(4, True)
    assert memory_of(18 * GIB).largest_batch(4, True) == 0


def test_where_something_pays() -> None:
    grid = [1, 2, 4, 8, 16, 32]
    found = paying(lambda b: 2 - b / 10, grid, refine=True)
    assert (found.runs, found.crossing) == (((1, 9),), 10)
    found = paying(lambda b: 2 - b / 10, grid, refine=False)
    assert (found.runs, found.crossing) == (((1, 8),), 16)
    assert paying(lambda _: 1.5, grid, refine=True).crossing is None
    assert paying(lambda _: 1.0, grid, refine=True) == paying(lambda _: 0.5, grid, refine=True)
    assert paying(lambda _: 1.0, grid, refine=True).crossing == 1
    found = paying(lambda b: 1.1 if 6 <= b <= 20 else 0.9, grid, refine=True)
    assert (found.runs, found.crossing) == (((6, 20),), 21)
    assert paying(lambda b: float(b), grid, refine=True).runs == ((2, 32),)


def test_a_replica_follows_littles_law() -> None:
    """What is inside at once is what arrives a second times how long it stays."""
    pair = Pair(lambda s: 0.01 + s.all_rows * 1e-4, lambda _: 1e-3, mix_of(0.7), 100)
    for k in (0, 3):
        replica = best_replica(pair, k, range(1, 65), None)
        assert replica is not None
        assert replica.batch == 64
        stay = replica.seconds_per_token * pair.mix.mean_output
        assert replica.requests_per_second * stay == pytest.approx(64, rel=1e-12)
        assert replica.tokens_per_second == pytest.approx(
            replica.requests_per_second * pair.mix.mean_output, rel=1e-12
        )


def test_a_latency_target_bounds_the_batch() -> None:
    pair = Pair(lambda s: 0.01 + s.all_rows * 1e-4, no_draft_model, mix_of(0.7), 100)
    target = seconds_per_token(pair, 20, 0)
    found = best_replica(pair, 0, range(1, 65), target)
    assert found is not None
    assert found.batch == 20
    assert best_replica(pair, 0, range(1, 65), seconds_per_token(pair, 1, 0) * 0.99) is None
    assert best_replica(pair, 0, range(1, 1), None) is None


def test_replicas_for_a_rate() -> None:
    pair = Pair(lambda _: 0.01, no_draft_model, mix_of(0.5), 100)
    replica = best_replica(pair, 0, [8], None)
    assert replica is not None
    assert replica.requests_per_second == 1 / busy_seconds(pair, 8, 0)
    needed = fleet(replica, 10 * replica.requests_per_second, 0.8)
    assert (needed.replicas, needed.exact) == (13, pytest.approx(12.5))
    assert fleet(replica, 8 * replica.requests_per_second, 0.8).replicas == 10
    assert fleet(replica, 1e-6, 0.8).replicas == 1


def setting_of(target: str, draft: str, alpha: float = 0.7, **options: object) -> Setting:
    models = Models.find(target, draft)
    return roofline_setting(
        models,
        find_hardware("h100-sxm"),
        mix_of(alpha),
        2048,
        **options,  # type: ignore[arg-type]
    )


def test_the_forecast_hangs_together() -> None:
    setting = setting_of("llama-3.1-8b", "llama-3.2-1b", load=Load(rate=20, latency_target=0.03))
    plan = forecast(setting)
    assert all(row.speedups[0] == 1 for row in plan.at_batches)
    assert plan.at_batches[-1].batch == plan.largest_without
    assert plan.largest_with[1] < plan.largest_without
    assert list(plan.largest_with[1:]) == sorted(plan.largest_with[1:], reverse=True)
    small = plan.smaller_batch
    assert small.plain_with < small.plain_without
    assert small.batch_with == plan.largest_with[small.k]
    best = plan.best_drafted
    assert best is not None
    assert plan.plain is not None
    assert plan.cost_ratio == plan.plain.requests_per_second / best.requests_per_second
    for replica in (plan.plain, best):
        assert replica.seconds_per_token <= 0.03
    assert plan.plain_fleet is not None
    assert plan.plain_fleet.replicas == math.ceil(20 / (plan.plain.requests_per_second * 0.8))


def test_a_useless_draft_never_pays() -> None:
    plan = forecast(setting_of("llama-3.1-8b", "llama-3.2-1b", alpha=0.0))
    assert [one.runs for one in plan.paying_by_k] == [()] * 9
    assert [row.best_k for row in plan.at_batches] == [0] * len(plan.at_batches)
    assert plan.paying_by_k[0].crossing == 1


def test_a_drafter_without_a_model_takes_no_memory_but_for_its_logits() -> None:
    plan = forecast(setting_of("llama-3.1-8b", "ngram"))
    assert plan.memory_with.draft_weights == plan.memory_with.draft_cache == 0
    assert plan.draft_ratio == 0
    assert plan.largest_with[8] < plan.largest_without


def test_a_mixture_of_experts_gains_less_at_batch_1_than_a_dense_model() -> None:
    dense = forecast(setting_of("qwen3-8b", "eagle"))
    mixture = forecast(setting_of("qwen3-30b-a3b", "eagle"))
    for few, many in pairwise(range(1, 9)):
        del few
        assert mixture.at_batches[0].speedups[many] < dense.at_batches[0].speedups[many]  # type: ignore[operator]


def test_contexts_and_vocabularies_that_do_not_go_together() -> None:
    target = Deployed(find_architecture("llama-3.1-8b"), BF16)
    short = replace(find_architecture("llama-3.2-1b"), context=1024)
    memory = Memory(80 * GIB, target, Deployed(short, BF16), 2048)
    setting = replace(setting_of("llama-3.1-8b", "ngram"), memory=memory)
    with pytest.raises(InvalidValueError, match=r"context = 2048: the draft .* 1024 tokens"):
        forecast(setting)
    notes = forecast(setting_of("llama-3.1-8b", "tinyllama-1.1b")).notes
    assert notes[0].startswith("The vocabularies differ (128256 and 32000 tokens)")
    assert forecast(setting_of("llama-3.1-8b", "llama-3.2-1b")).notes == ()


def test_measured_batches_are_the_only_ones_asked_for() -> None:
    asked = set()

    def step(shape: Shape) -> float:
        asked.add(shape.sequences)
        return 0.01 * (1 + shape.all_rows / 8)

    base = setting_of("llama-3.1-8b", "ngram")
    pair = replace(base.pair, target=step)
    plan = forecast(replace(base, pair=pair, measured_batches=(1, 2, 4, 8)))
    assert asked == {1, 2, 4, 8}
    assert [row.batch for row in plan.at_batches] == [1, 2, 4, 8]
