from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from outpace.request import SamplingParams
from outpace.sampling.choice import LIKELY, choose, draw
from outpace.sampling.logprobs import token_logprob
from outpace.sampling.noise import Stream, gumbel, sample_seed, uniform
from outpace.sampling.processors import LogitsProcessor, TokenHistory, distribution


def logits(seed: int, size: int = 200, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale


# ---- noise ----


def test_uniform_noise_is_uniform_over_positions_seeds_and_streams() -> None:
    by_position = [uniform(7, position, Stream.ACCEPT) for position in range(20_000)]
    by_seed = [uniform(seed, 3, Stream.DRAFT) for seed in range(20_000)]
    by_index = [uniform(7, 3, Stream.ACCEPT, index) for index in range(20_000)]
    for numbers in (by_position, by_seed, by_index):
        assert stats.kstest(numbers, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


def test_streams_and_seeds_are_unrelated() -> None:
    one = [uniform(7, position, Stream.ACCEPT) for position in range(20_000)]
    for other in (
        [uniform(7, position, Stream.RESIDUAL) for position in range(20_000)],
        [uniform(8, position, Stream.ACCEPT) for position in range(20_000)],
        [uniform(sample_seed(7, 1), position, Stream.ACCEPT) for position in range(20_000)],
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


def test_gumbel_noise_is_gumbel_and_belongs_to_its_token() -> None:
    tokens = np.arange(20_000)
    noise = gumbel(5, 9, tokens)
    assert stats.kstest(noise, "gumbel_r").pvalue > 1e-4
    assert np.array_equal(gumbel(5, 9, tokens[::-7]), noise[::-7])
    assert abs(np.corrcoef(noise, gumbel(5, 10, tokens))[0, 1]) < 0.03


# ---- choice ----


@pytest.mark.parametrize("size", [5, 100, 600])
def test_choices_have_the_distribution(size: int) -> None:
    """Chi-square over 20 000 positions."""
    probs = torch.softmax(logits(1, size, scale=0.4), 0)
    drawn = [choose(probs, 11, position) for position in range(20_000)]
    observed = np.bincount(drawn, minlength=size)
    expected = probs.double().numpy()
    expected = expected / expected.sum() * len(drawn)
    assert expected.min() > 5
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_choices_among_unlikely_tokens_have_the_distribution() -> None:
    """Half of the mass is spread over 20 000 tokens, none of which is likely."""
    probs = torch.cat([torch.full((4,), 0.125), torch.full((20_000,), 0.5 / 20_000)])
    assert float(probs[-1]) < LIKELY
    drawn = np.array([choose(probs, 11, position) for position in range(4000)])
    bins = np.bincount(np.where(drawn < 4, drawn, 4 + (drawn - 4) // 5000), minlength=8)
    assert stats.chisquare(bins).pvalue > 1e-4
    flat = torch.full((20_000,), 1 / 20_000)
    drawn = np.array([choose(flat, 12, position) for position in range(4000)])
    assert stats.kstest(drawn / 20_000, "uniform").pvalue > 1e-4


def test_the_test_above_has_power() -> None:
    """Negative control: the same draws against a slightly warmer distribution must fail."""
    probs = torch.softmax(logits(1, 600, scale=0.4), 0)
    warmer = torch.softmax(logits(1, 600, scale=0.4) / 1.5, 0).double().numpy()
    drawn = [choose(probs, 11, position) for position in range(20_000)]
    observed = np.bincount(drawn, minlength=600)
    assert stats.chisquare(observed, warmer / warmer.sum() * len(drawn)).pvalue < 1e-6


def test_tokens_without_probability_are_never_chosen() -> None:
    probs = torch.zeros(1000)
    probs[[3, 500, 999]] = torch.tensor([0.2, 0.3, 0.5])
    assert {choose(probs, 1, position) for position in range(500)} == {3, 500, 999}
    assert {draw(probs, u) for u in (1e-12, 0.1, 0.3, 0.9, 1 - 1e-12)} == {3, 500, 999}


def test_shared_noise_couples_a_drafter_to_the_target() -> None:
    """At least the bound (1 - TV) / (1 + TV) of Daliri et al. 2025, less four standard errors.

    Less the tail's mass, too: there the two share a number, but not one for each token.
    """
    target = torch.softmax(logits(1, 5000, scale=3.0), 0)
    draft = torch.softmax(logits(1, 5000, scale=3.0) + logits(2, 5000, scale=0.3), 0)
    distance = float((target - draft).abs().sum()) / 2
    tail = float(target[target < LIKELY].sum())
    same = np.mean([choose(target, 1, i) == choose(draft, 1, i) for i in range(4000)])
    assert same > (1 - distance) / (1 + distance) - tail - 4 * 0.5 / 4000**0.5
    assert tail < 0.2
    assert same > 0.6


@pytest.mark.parametrize("temperature", [1e-5, 1e-30, 1e-40, 5e-324])
def test_temperatures_near_zero_are_greedy(temperature: float) -> None:
    row = logits(1)
    probs = distribution(row, SamplingParams(temperature=temperature))
    assert choose(probs, 1, 1) == int(row.argmax())


# ---- processors, against the library that everybody compares with ----


@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.3, 1.0, 1.8]),
    top_k=st.sampled_from([0, 1, 7, 150]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.05]),
)
def test_filters_agree_with_transformers(
    seed: int, temperature: float, top_k: int, top_p: float
) -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    row = logits(seed)
    expected = TemperatureLogitsWarper(temperature)(None, row[None])
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    torch.testing.assert_close(distribution(row, params), torch.softmax(expected, -1)[0])


@given(seed=st.integers(0, 1000), min_p=st.sampled_from([0.01, 0.2, 1.0]))
def test_min_p_agrees_with_transformers(seed: int, min_p: float) -> None:
    from transformers import MinPLogitsWarper

    row = logits(seed)
    expected = torch.softmax(MinPLogitsWarper(min_p)(None, row[None]), -1)[0]
    found = distribution(row, SamplingParams(temperature=1.0, min_p=min_p))
    torch.testing.assert_close(found, expected)


def test_a_nucleus_wider_than_the_first_look() -> None:
    flat = torch.zeros(1000)
    kept = distribution(flat, SamplingParams(temperature=1.0, top_p=0.4995))
    assert int((kept > 0).sum()) == 500


@given(penalty=st.sampled_from([0.7, 1.3]), tokens=st.lists(st.integers(0, 199), max_size=20))
def test_repetition_penalty_agrees_with_transformers(penalty: float, tokens: list[int]) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    row = logits(1)
    processor = LogitsProcessor(SamplingParams(repetition_penalty=penalty), frozenset())
    found = processor(row, TokenHistory(tokens[:5], tokens[5:]))
    wanted = row
    if tokens:
        wanted = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([tokens]), row[None])[0]
    torch.testing.assert_close(found, wanted)


def test_presence_and_frequency_look_at_the_output_only() -> None:
    row = torch.zeros(10)
    processor = LogitsProcessor(
        SamplingParams(presence_penalty=0.5, frequency_penalty=0.25), frozenset()
    )
    found = processor(row, TokenHistory(prompt=[1, 1, 2], output=[2, 3, 3]))
    assert found.tolist() == [0, 0, -0.75, -1.0, 0, 0, 0, 0, 0, 0]
    assert row.tolist() == [0.0] * 10, "the model's own logits must stay as they are"


def test_bias_and_min_tokens() -> None:
    params = SamplingParams(logit_bias={4: 100, 5: -100}, min_tokens=2)
    processor = LogitsProcessor(params, frozenset({7}))
    early = processor(torch.zeros(10), TokenHistory([], [1]))
    late = processor(torch.zeros(10), TokenHistory([], [1, 1]))
    assert early[7] == -torch.inf
    assert late[7] == 0
    assert (early[4], early[5]) == (100, -100)


def test_a_copied_history_runs_ahead_alone() -> None:
    history = TokenHistory([1], [2])
    ahead = history.copy()
    ahead.append(3)
    assert history.num_output == 1
    assert ahead.num_output == 2
    assert 3 not in history.output


def test_logprobs_are_those_of_the_model() -> None:
    row = logits(3)
    found = token_logprob(row, 17, 3)
    expected = torch.log_softmax(row, 0)
    assert found.logprob == pytest.approx(float(expected[17]))
    assert list(found.top) == expected.topk(3).indices.tolist()
    assert token_logprob(row, 17, 0).top == {}
