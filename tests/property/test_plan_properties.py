"""What must hold of any plan, whatever models, hardware and requests it is made for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import CapacityError
from outpace.plan.find import model_names
from outpace.plan.forecast import Load, Setting, forecast
from outpace.plan.hardware import GIB, find_hardware, hardware_names
from outpace.plan.mix import Mix, RequestType
from outpace.plan.setting import Models, roofline_setting
from outpace.plan.steps import Shape

# Sums of a few floats in another order.
ROUNDING = 1e-9

chances = st.floats(0, 1)
kinds = st.builds(
    RequestType,
    name=st.uuids().map(str),
    share=st.floats(0.01, 10),
    alpha=st.lists(chances, min_size=1, max_size=4).map(tuple),
    coverage=chances,
    prompt=st.none() | st.integers(1, 5000),
    output=st.none() | st.integers(1, 2000),
)
mixes = st.lists(kinds, min_size=1, max_size=3, unique_by=lambda one: one.name).map(Mix.of)
precisions = st.sampled_from(["bf16", "fp8", "int8", "int4:64", "w8a8"])
parts = st.builds(
    find_hardware,
    st.sampled_from(hardware_names()),
    memory=st.just(2048.0),
    devices=st.sampled_from([1, 2, 8]),
)


@st.composite
def settings_of(draw: st.DrawFn) -> Setting:
    draft = st.sampled_from([*model_names(), "ngram", "eagle"])
    models = Models.find(
        draw(st.sampled_from(model_names())),
        draw(draft),
        draw(precisions),
        draw(precisions),
        draw(st.sampled_from(["bf16", "fp8"])),
    )
    load = Load(draw(st.floats(0.01, 1000)), draw(st.none() | st.floats(1e-4, 1)))
    context = draw(st.integers(1, 2048))
    return roofline_setting(models, draw(parts), draw(mixes), context, load, max_k=4)


@given(settings_of(), st.floats(1, 100), st.integers(1, 500), st.integers(0, 16))
def test_faster_hardware_is_never_slower(
    setting: Setting, factor: float, batch: int, k: int
) -> None:
    part = setting.pair.target.hardware  # type: ignore[attr-defined]
    rates = {kind: rate * factor for kind, rate in part.compute.items()}
    for better in (
        replace(part, bandwidth=part.bandwidth * factor),
        replace(part, compute=rates),
    ):
        pair = replace(
            setting.pair,
            target=replace(setting.pair.target, hardware=better),  # type: ignore[type-var]
            draft=setting.pair.draft,
        )
        assert pair.step_seconds(batch, k) <= setting.pair.step_seconds(batch, k) * (1 + ROUNDING)


@given(settings_of(), st.integers(1, 500), st.integers(1, 50), st.integers(1, 4096))
def test_more_work_never_takes_less_time(
    setting: Setting, batch: int, rows: int, context: int
) -> None:
    step = setting.pair.target
    least = step(Shape(batch, rows, context)) * (1 - ROUNDING)
    assert step(Shape(batch + 1, rows, context)) >= least
    assert step(Shape(batch, rows + 1, context)) >= least
    assert step(Shape(batch, rows, context + 1)) >= least


@given(settings_of(), st.integers(1, 500), st.integers(1, 16))
def test_nothing_accepted_means_no_gain_and_no_draft_means_exactly_one(
    setting: Setting, batch: int, k: int
) -> None:
    useless = Mix.of([replace(one, alpha=(0.0,)) for one in setting.pair.mix.types])
    assert replace(setting.pair, mix=useless).speedup(batch, k) <= 1 + ROUNDING
    assert setting.pair.speedup(batch, 0) == 1


@given(settings_of(), st.integers(1, 500), st.integers(1, 16), st.floats(0, 1))
def test_better_guesses_and_cheaper_drafts_never_hurt(
    setting: Setting, batch: int, k: int, better: float
) -> None:
    pair = setting.pair
    types = [
        replace(one, alpha=tuple(a + (1 - a) * better for a in one.alpha), coverage=1.0)
        for one in pair.mix.types
    ]
    covered = replace(pair, mix=Mix.of([replace(one, coverage=1.0) for one in pair.mix.types]))
    improved = replace(pair, mix=Mix.of(types))
    assert improved.speedup(batch, k) >= covered.speedup(batch, k) * (1 - ROUNDING)
    free = replace(covered, draft=lambda _: 0.0)
    assert free.speedup(batch, k) >= covered.speedup(batch, k) * (1 - ROUNDING)
    assert 1 <= pair.mix.tokens_per_step(k) <= (1 + k) * (1 + ROUNDING)


@given(settings_of(), st.integers(0, 200), st.integers(0, 16), st.booleans())
def test_all_parts_together_are_the_memory(
    setting: Setting, batch: int, k: int, drafting: bool
) -> None:
    memory = setting.memory
    found = memory.parts(batch, k, drafting)
    assert found.total == pytest.approx(memory.available, rel=ROUNDING)
    largest = memory.largest_batch(k, drafting)
    if memory.fixed(drafting) <= memory.available * (1 - memory.reserve):
        # Within a byte: the room is a sum of floats of the size of the memory.
        assert memory.parts(largest, k, drafting).free >= -1
        assert memory.parts(largest + 1, k, drafting).free < 1


@given(settings_of())
def test_a_forecast_agrees_with_itself(setting: Setting) -> None:
    try:
        plan = forecast(setting)
    except CapacityError:
        assert setting.memory.largest_batch(1, True) == 0
        return
    for row in plan.at_batches:
        rates = row.tokens_per_second
        fitting = [rate for rate in rates if rate is not None]
        assert rates[row.best_k] == max(fitting)
        assert row.speedups[0] == 1
    target = setting.load.latency_target
    for replica in (plan.plain, *plan.drafted):
        if replica is not None:
            assert target is None or replica.seconds_per_token <= target * (1 + ROUNDING)
            assert 0 <= replica.prefill_share < 1
    small = plan.smaller_batch
    assert small.batch_with <= small.batch_without
    for one in (plan.plain_fleet, plan.drafted_fleet):
        if one is not None:
            served = one.replicas * one.replica.requests_per_second * setting.load.utilization
            assert served >= setting.load.rate * (1 - ROUNDING)  # type: ignore[operator]


@given(settings_of(), st.integers(1, 64))
def test_more_experts_are_touched_by_more_rows_but_never_all_and_more(
    setting: Setting, rows: int
) -> None:
    model = setting.memory.target.model
    assert model.weights_read(rows) <= model.weights_read(rows + 1) * (1 + ROUNDING)
    assert model.weights_read(rows) <= model.layer_weights * (1 + ROUNDING)
    assert model.weights_read(1) == pytest.approx(model.weights_per_row, rel=ROUNDING)


def test_the_checks_see_a_wrong_plan() -> None:
    """A negative control: a step time that falls with the batch breaks what is held above."""
    models = Models.find("llama-3.1-8b", "ngram")
    part = find_hardware("h100-sxm")
    setting = roofline_setting(models, part, Mix.of([RequestType("all", 1, (0.0,))]), 100)
    wrong = replace(setting.pair, target=lambda shape: 1 / shape.all_rows)
    assert wrong.speedup(1, 4) > 1
    assert part.bytes_of_memory == 80 * GIB
