"""Promise 2 through the whole engine: rejection with a draft model keeps the distribution."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from outpace.config import NgramConfig
from outpace.control.controller import FixedController
from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner
from outpace.request import Request, SamplingParams
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.drafter import Ask, Drafter
from outpace.spec.drafters.best_of import BestOfDrafter
from outpace.spec.drafters.early_exit import EarlyExitDrafter
from outpace.spec.drafters.in_other_words import Vocabularies
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.universal import UniversalDrafter
from outpace.spec.tree import DraftTree
from outpace.text.tokenizer import Tokenizer

import tiny
from engines import VOCAB, make_engine, make_runner, run
from tiny_heads import eagle_drafter, medusa_drafter, medusa_tensors, write_eagle, write_head

PROMPT = (5, 17, 40)
WIDTH = 4  # top_k: the tokens after the prompt take WIDTH ** 3 ways
SAMPLES = 4096
# A right engine fails once in a million runs; a shift of 9 % in total variation is found with a
# probability above 99 % (noncentral chi-square, as in the tests of the verifiers).
FALSE_ALARM = 1e-6
PARAMS = SamplingParams(temperature=1.0, top_k=WIDTH, top_p=0.95, max_tokens=3, ignore_eos=True)


def next_probs(runner: ModelRunner, context: tuple[int, ...]) -> torch.Tensor:
    """The distribution ``[VOCAB]`` after a context, computed on its own."""
    batch = Batch()
    batch.append_run(np.array(context), 0, 16 + np.arange(len(context)))
    batch.logits_rows.append(len(context) - 1)
    logits, _ = runner.run(batch)
    return TokenSampler(PARAMS, 0, frozenset()).probs(logits[0], TokenHistory(PROMPT))


@torch.inference_mode()
def expected_counts(runner: ModelRunner) -> dict[tuple[int, ...], float]:
    """How often each continuation of three tokens should occur."""
    expected: dict[tuple[int, ...], float] = {(): float(SAMPLES)}
    for _ in range(3):
        longer = {}
        for path, weight in expected.items():
            probs = next_probs(runner, PROMPT + path)
            for token in probs.nonzero().flatten().tolist():
                longer[(*path, token)] = weight * float(probs[token])
        expected = longer
    return expected


def p_value(make: Callable[[ModelRunner], Drafter]) -> float:
    target = make_runner(num_slots=20_000)
    drafter = make(target)
    expected = expected_counts(target)
    engine = make_engine(
        target,
        {drafter.name: drafter},
        FixedController(3),
        cache_tokens=16_384,
        max_num_seqs=128,
        verification="rejection",
    )
    observed = dict.fromkeys(expected, 0)
    for i in range(SAMPLES // 128):
        params = SamplingParams(**{**fields(PARAMS), "n": 128, "seed": i})
        [group] = run(engine, [Request(f"r{i}", PROMPT, params)])
        for sequence in group:
            path = tuple(sequence.output.token_ids)
            if path not in observed:
                return 0.0  # what the filters exclude
            observed[path] += 1
    seen, wanted = np.array(list(observed.values())), np.array(list(expected.values()))
    rare = wanted < 5
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        wanted = np.append(wanted[~rare], wanted[rare].sum())
    return float(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)


def fields(params: SamplingParams) -> dict[str, object]:
    names = ("temperature", "top_k", "top_p", "max_tokens", "ignore_eos")
    return {name: getattr(params, name) for name in names}


def draft(target: ModelRunner) -> ModelDrafter:
    return ModelDrafter(make_runner(num_slots=20_000, noise=0.02), 16, VOCAB)


def exits(target: ModelRunner) -> EarlyExitDrafter:
    return EarlyExitDrafter(ModelRunner(target.decoder, target.pool, (0, 1)), 16)


def universal(target: ModelRunner) -> UniversalDrafter:
    mine, other = (Tokenizer(tiny.letters(*one)) for one in ((), (1, (("h", "e"),))))
    runner = make_runner(num_slots=20_000, noise=0.02)
    return UniversalDrafter(runner, 16, Vocabularies(mine, other, VOCAB, VOCAB))


def best(target: ModelRunner) -> BestOfDrafter:
    ngram = NgramDrafter(NgramConfig(min_ngram=1))
    return BestOfDrafter([ngram, exits(target), draft(target)])


@pytest.mark.parametrize("make", [draft, exits, universal, best])
def test_a_drafter_with_probabilities_under_rejection(
    make: Callable[[ModelRunner], Drafter],
) -> None:
    assert p_value(make) > FALSE_ALARM


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_an_eagle_head_under_rejection(tmp_path: Path, shape: str) -> None:
    """Drawn with its distributions as a chain, and as a tree of point masses."""
    folder = write_eagle(tmp_path, draft_vocab_size=96, scale=0.1)
    assert p_value(lambda target: eagle_drafter(folder, target, shape=shape)) > FALSE_ALARM


def test_medusa_heads_under_rejection(tmp_path: Path) -> None:
    folder = write_head(tmp_path, {"medusa_num_heads": 3}, medusa_tensors())
    assert p_value(lambda target: medusa_drafter(folder, target)) > FALSE_ALARM


class LyingDrafter(ModelDrafter):
    """Wrong on purpose: hands over a flat q for the tokens that it drew from another."""

    def propose(self, asks: list[Ask]) -> list[DraftTree]:  # type: ignore[override]
        return [
            DraftTree(t.tokens, t.parents, torch.full_like(t.probs, 1 / VOCAB), t.source)
            for t in super().propose(asks)
            if t.probs is not None
        ]


def test_a_lying_drafter_is_caught() -> None:
    runner = make_runner(num_slots=20_000, noise=0.02)
    assert p_value(lambda target: LyingDrafter(runner, 16, VOCAB)) < FALSE_ALARM


def test_power() -> None:
    freedom = len(list(product(range(WIDTH), repeat=3))) - 1
    critical = stats.chi2.isf(FALSE_ALARM, freedom)
    assert stats.ncx2.sf(critical, freedom, SAMPLES * (2 * 0.09) ** 2) > 0.99
