"""Promise 1: the same tokens, bit for bit, whatever is drafted and whatever shares the batch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.config import DatastoreConfig, NgramConfig, PredictionConfig, SuffixConfig
from outpace.control.automatic import AutomaticController
from outpace.control.controller import FixedController
from outpace.control.cost import CostTable
from outpace.grammar import Grammar
from outpace.model.runner import ModelRunner
from outpace.request import Request, SamplingParams
from outpace.spec.drafters.best_of import BestOfDrafter
from outpace.spec.drafters.datastore import DatastoreDrafter
from outpace.spec.drafters.early_exit import EarlyExitDrafter
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.in_other_words import Vocabularies
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.prediction import PredictionDrafter
from outpace.spec.drafters.suffix import SuffixDrafter
from outpace.spec.drafters.universal import UniversalDrafter
from outpace.spec.index.build import Document, build_index
from outpace.spec.index.file import Index
from outpace.spec.index.layout import Header
from outpace.text.tokenizer import Tokenizer

import tiny
from engines import CONTEXT, VOCAB, PeekDrafter, make_engine, make_runner, run, tokens_of
from grammars import random_schema
from tiny_heads import eagle_drafter, medusa_drafter, medusa_tensors, write_eagle, write_head

# What computes, and in what precision: the compiled kernels where there are any, or PyTorch.
BACKENDS: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": torch.float32},
    "bf16": {"dtype": torch.bfloat16},
    "int8": {"dtype": torch.bfloat16, "quantization": "int8"},
    "int4": {"dtype": torch.bfloat16, "quantization": "int4"},
    "fp32-torch": {"dtype": torch.float32, "native": False},
    "bf16-torch": {"dtype": torch.bfloat16, "native": False},
}
GRAMMARS = [
    Grammar.json_object(),
    Grammar.json_schema(random_schema(3), compact=True),
    Grammar.regex("(ab|c)*x?"),
]
EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


@cache
def runner(backend: str, seed: int = 0) -> ModelRunner:
    return make_runner(seed=seed, **BACKENDS[backend])


def sampling() -> st.SearchStrategy[SamplingParams]:
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
        top_k=st.sampled_from([0, 1, 5, 40]),
        top_p=st.sampled_from([1.0, 0.9, 0.3]),
        min_p=st.sampled_from([0.0, 0.05, 0.5]),
        presence_penalty=st.sampled_from([0.0, 0.7, -1.0]),
        frequency_penalty=st.sampled_from([0.0, 0.4]),
        repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
        logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=3),
        seed=st.integers(0, 2**64 - 1),
        stop_token_ids=st.lists(st.integers(0, VOCAB - 1), max_size=3),
        ignore_eos=st.booleans(),
        min_tokens=st.integers(0, 4),
        max_tokens=st.integers(4, 14),
        logprobs=st.sampled_from([None, 0, 3]),
        n=st.sampled_from([1, 1, 1, 3]),
        grammar=st.sampled_from([None, None, None, *GRAMMARS]),
    )


prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=60).map(tuple)
batches = st.lists(st.tuples(prompts, sampling()), min_size=1, max_size=3)


def as_requests(batch: list[tuple[tuple[int, ...], SamplingParams]]) -> list[Request]:
    # A number in front keeps the prompts of a batch apart, so that each has one answer to peek.
    return [
        Request(f"r{i}", (i % VOCAB, *prompt), params) for i, (prompt, params) in enumerate(batch)
    ]


def early_exit(backend: str, layers: tuple[int, ...]) -> EarlyExitDrafter:
    target = runner(backend)
    return EarlyExitDrafter(ModelRunner(target.decoder, target.pool, layers), 16)


def universal(backend: str) -> UniversalDrafter:
    merges = (("h", "e"), ("a", "b"))
    mine, other = (Tokenizer(tiny.letters(*one)) for one in ((), (1, merges)))
    draft = make_runner(seed=1, **BACKENDS[backend])
    return UniversalDrafter(draft, 16, Vocabularies(mine, other, VOCAB, VOCAB))


def plain_answers(backend: str, requests: list[Request]) -> list[list[list[int]]]:
    """Each request alone, without a draft, with the whole cache for itself."""
    return [
        tokens_of(run(make_engine(runner(backend), prefix_caching=False), [request]))[0]
        for request in requests
    ]


@EACH_BACKEND
@settings(max_examples=20)
@given(
    batch=batches,
    seed=st.integers(0, 2**32),
    block_size=st.sampled_from([1, 4, 16]),
    pieces=st.sampled_from([1, 3, 64]),
    caching=st.booleans(),
)
def test_random_trees_in_mixed_batches_change_nothing(
    backend: str,
    batch: list[tuple[tuple[int, ...], SamplingParams]],
    seed: int,
    block_size: int,
    pieces: int,
    caching: bool,
) -> None:
    requests = as_requests(batch)
    expected = plain_answers(backend, requests)
    answers = {r.prompt_token_ids: e[0] for r, e in zip(requests, expected, strict=True)}
    engine = make_engine(
        runner(backend),
        {"peek": PeekDrafter(answers, seed)},
        FixedController(10),
        block_size=block_size,
        max_num_batched_tokens=pieces,
        max_num_seqs=4,
        prefix_caching=caching,
    )
    assert tokens_of(run(engine, requests)) == expected


@EACH_BACKEND
@settings(max_examples=20)
@given(batch=batches, seed=st.integers(0, 2**32), block_size=st.sampled_from([2, 8]))
def test_preemption_changes_nothing(
    backend: str,
    batch: list[tuple[tuple[int, ...], SamplingParams]],
    seed: int,
    block_size: int,
) -> None:
    requests = as_requests(batch)
    expected = plain_answers(backend, requests)
    answers = {r.prompt_token_ids: e[0] for r, e in zip(requests, expected, strict=True)}
    engine = make_engine(
        runner(backend),
        {"peek": PeekDrafter(answers, seed)},
        cache_tokens=96,  # holds the longest alone, and nothing beside it
        block_size=block_size,
    )
    assert tokens_of(run(engine, requests)) == expected


def test_the_preemption_test_really_preempts() -> None:
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    engine = make_engine(runner("fp32"), cache_tokens=96, block_size=8)
    requests = [Request(f"r{i}", (i, *range(30)), params) for i in range(4)]
    run(engine, requests)
    assert engine.scheduler.num_preemptions > 0


def datastore(
    tmp_path_factory: pytest.TempPathFactory, answers: list[list[list[int]]]
) -> DatastoreDrafter:
    """An index of the right answers, among tokens that are in none."""
    documents = [Document(tokens, 1) for answer in answers for tokens in answer]
    documents.append(Document(list(range(VOCAB)), 1))
    file = str(tmp_path_factory.mktemp("index") / "x")
    build_index(documents, file, Header(0, 0, 0, VOCAB, "", "", 50))
    config = DatastoreConfig(file, min_match=1, min_probability=0.0)
    return DatastoreDrafter(config, Index.open(file))


@EACH_BACKEND
@settings(max_examples=24)
@given(batch=batches, cache_tokens=st.sampled_from([96, 2048]), data=st.data())
def test_every_drafter_in_one_batch(
    tmp_path_factory: pytest.TempPathFactory,
    backend: str,
    batch: list[tuple[tuple[int, ...], SamplingParams]],
    cache_tokens: int,  # the fewer hold one sequence, so that others are preempted
    data: st.DataObject,
) -> None:
    requests = as_requests(batch)
    expected = plain_answers(backend, requests)
    draft = ModelDrafter(make_runner(seed=0, **BACKENDS[backend]), 16, VOCAB)
    other = ModelDrafter(make_runner(seed=1, **BACKENDS[backend]), 16, VOCAB)
    ngram = NgramDrafter(NgramConfig(min_ngram=1))
    drafters = {
        "ngram": ngram,
        "model": draft,
        "other": other,
        "prediction": PredictionDrafter(PredictionConfig()),
        "early_exit": early_exit(backend, (0, 1)),
        "skipping": early_exit(backend, (0, 2)),
        "universal": universal(backend),
        "first_of": FirstOfDrafter([ngram, draft]),
        "best_of": BestOfDrafter([ngram, other, early_exit(backend, (0, 1))]),
        "suffix": SuffixDrafter(SuffixConfig(min_match=1, min_probability=0.0)),
        "datastore": datastore(tmp_path_factory, expected),
    }
    engine = make_engine(
        runner(backend), drafters, AutomaticController(CostTable({1: 1.0})), cache_tokens
    )
    choose = st.sampled_from([*drafters, "none"])
    mixed = [
        replace(request, drafter=data.draw(choose), prediction=tuple(answer[0][1:]))
        for request, answer in zip(requests, expected, strict=True)
    ]
    assert tokens_of(run(engine, mixed)) == expected


@EACH_BACKEND
@settings(max_examples=10)
@given(batch=batches, k=st.integers(1, 12))
def test_drafts_from_earlier_outputs_change_nothing(
    backend: str, batch: list[tuple[tuple[int, ...], SamplingParams]], k: int
) -> None:
    requests = as_requests(batch)
    expected = plain_answers(backend, requests)
    drafter = SuffixDrafter(SuffixConfig(max_tokens=200, min_match=1, min_probability=0.0))
    engine = make_engine(
        runner(backend), {"suffix": drafter}, FixedController(k), cache_tokens=96, block_size=8
    )
    for tenant in ("one", "one", "two"):
        again = [replace(request, tenant=tenant) for request in requests]
        assert tokens_of(run(engine, again)) == expected


def test_a_second_pass_is_drafted_from_the_first() -> None:
    """Otherwise the test above could pass with nothing remembered; and tenants are kept apart."""
    engine = make_engine(
        runner("fp32"), {"suffix": SuffixDrafter(SuffixConfig())}, FixedController(6)
    )
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=40, ignore_eos=True)
    request = Request("r", (5, 6, 7), params, tenant="one")
    accepted = {}
    for name, tenant in (("first", "one"), ("other", "two"), ("second", "one")):
        [[sequence]] = run(engine, [replace(request, tenant=tenant)])
        accepted[name] = sequence.counts.accepted
    assert accepted["first"] == accepted["other"] <= 3
    assert accepted["second"] >= 30


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    write_eagle(folder / "eagle", scale=0.4)
    write_head(folder / "medusa", {"medusa_num_heads": 3}, medusa_tensors(scale=0.4))
    return folder


@EACH_BACKEND
@settings(max_examples=16)
@given(
    batch=batches,
    data=st.data(),
    block_size=st.sampled_from([2, 8]),
    cache_tokens=st.sampled_from([96, 2048]),  # the small one preempts
    pieces=st.sampled_from([5, 64]),
)
def test_heads_change_nothing(
    backend: str,
    heads: Path,
    batch: list[tuple[tuple[int, ...], SamplingParams]],
    data: st.DataObject,
    block_size: int,
    cache_tokens: int,
    pieces: int,
) -> None:
    """In one batch, with preemption, and again on what the cache has kept."""
    requests = as_requests(batch)
    expected = plain_answers(backend, requests)
    target = runner(backend)
    quantization = BACKENDS[backend].get("quantization", "none")
    tree, chain = (
        eagle_drafter(heads / "eagle", target, quantization, block_size=block_size, shape=shape)
        for shape in ("tree", "chain")
    )
    medusa = medusa_drafter(heads / "medusa", target)
    drafters = {"tree": tree, "chain": chain, "medusa": medusa}
    drafters["first_of"] = FirstOfDrafter([NgramDrafter(NgramConfig(min_ngram=1)), tree])
    engine = make_engine(
        target,
        drafters,
        cache_tokens=cache_tokens,
        block_size=block_size,
        max_num_batched_tokens=pieces,
    )
    choose = st.sampled_from([*drafters, "none"])
    for again in ("", "again "):
        mixed = [
            replace(one, request_id=again + one.request_id, drafter=data.draw(choose))
            for one in requests
        ]
        assert tokens_of(run(engine, mixed)) == expected


def test_a_draft_equal_to_the_target_is_always_right() -> None:
    """Otherwise the tests above could pass with drafts that are never accepted."""
    drafter = ModelDrafter(make_runner(torch.float32, seed=0), 16, VOCAB)
    engine = make_engine(runner("fp32"), {"model": drafter}, FixedController(4))
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=26, ignore_eos=True)
    [[sequence]] = run(engine, [Request("r", (5, 6, 7), params)])
    counts = sequence.counts
    assert counts.rejections == 0
    assert counts.accepted == counts.drafted == 20
    assert counts.target_steps == 6  # one for the prompt, then five tokens each


@EACH_BACKEND
@pytest.mark.parametrize("length", [505, 511, 512, 513, 600])
def test_drafts_across_the_key_padding_border(backend: str, length: int) -> None:
    """Attention pads keys to 512: drafts that straddle the border must not show."""
    prompt = tuple(i * 7 % VOCAB for i in range(length))
    params = SamplingParams(temperature=0.9, seed=1, max_tokens=30, ignore_eos=True)
    request = Request("r", prompt, params)
    [expected] = plain_answers(backend, [request])
    engine = make_engine(runner(backend), {"peek": PeekDrafter({prompt: expected[0]}, 4)})
    assert tokens_of(run(engine, [request])) == [expected]
    assert len(expected[0]) == 30


@pytest.mark.parametrize("drafter", ["none", "peek", "ngram", "model"])
def test_the_end_of_the_context_is_met_exactly(drafter: str) -> None:
    """A context end inside a draft (field report: proposals past the last position)."""
    prompt = tuple(i * 5 % VOCAB for i in range(CONTEXT - 5))
    request = Request("r", prompt, SamplingParams(max_tokens=None, ignore_eos=True))
    [expected] = plain_answers("fp32", [request])
    drafters = {
        "peek": PeekDrafter({prompt: expected[0]}, 1),
        "ngram": NgramDrafter(NgramConfig()),
        "model": ModelDrafter(make_runner(), 16, VOCAB),
    }
    engine = make_engine(runner("fp32"), drafters, FixedController(8))
    [[sequence]] = run(engine, [replace(request, drafter=drafter)])
    assert sequence.output.token_ids == expected[0]
    assert len(sequence.tokens) == CONTEXT
    assert sequence.output.finish_reason == "length"


def test_masked_tree_attention_agrees_up_to_near_ties() -> None:
    """Where the mask serves a whole tree only the last bits may differ; fp32 hides them here."""
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    requests = [Request(f"r{i}", (i, 9, 8, 7), params) for i in range(3)]
    expected = plain_answers("fp32", requests)
    answers = {r.prompt_token_ids: e[0] for r, e in zip(requests, expected, strict=True)}
    peek = PeekDrafter(answers, 2)
    engine = make_engine(runner("fp32"), {"peek": peek}, tree_attention="mask")
    assert tokens_of(run(engine, requests)) == expected


def test_observed_tokens_are_the_sequence() -> None:
    """A drafter that only listens knows every token that is in the cache."""
    peek = PeekDrafter({}, 0)
    engine = make_engine(runner("fp32"), {"peek": peek}, max_num_batched_tokens=7)
    [sequence] = engine.add(Request("r", tuple(range(30)), SamplingParams(max_tokens=9)))
    while engine.has_work:
        engine.step()
        if engine.has_work:
            known = sequence.tokens.array[: sequence.num_computed].tolist()
            assert peek.seen[sequence.seq_id] == known
