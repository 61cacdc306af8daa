"""Structured answers: always valid, and the same tokens whoever drafts."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.config import NgramConfig, PredictionConfig
from outpace.control.controller import FixedController
from outpace.engine.sequence import Sequence
from outpace.grammar import Grammar
from outpace.model.runner import ModelRunner
from outpace.request import Request, SamplingParams
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.grammar import GrammarDrafter
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.prediction import PredictionDrafter

from engines import VOCAB, PeekDrafter, make_engine, make_runner, run, tokens_of
from grammars import compiler, decode, random_schema

NUM_SCHEMAS = 200
BATCH = 20


@cache
def target() -> ModelRunner:
    return make_runner(torch.float32, seed=0)


@cache
def small() -> ModelRunner:
    return make_runner(torch.float32, seed=0, noise=0.02)


def drafters() -> dict[str, Drafter]:
    model = ModelDrafter(small(), 16, VOCAB)
    ngram = NgramDrafter(NgramConfig(min_ngram=1))
    return {
        "ngram": ngram,
        "model": model,
        "grammar": GrammarDrafter(),
        "grammar+model": FirstOfDrafter([GrammarDrafter(), model]),
        "prediction": PredictionDrafter(PredictionConfig()),
    }


def schema_request(seed: int) -> Request:
    params = SamplingParams(
        temperature=1.0,
        seed=seed,
        max_tokens=500,
        grammar=Grammar.json_schema(random_schema(seed), compact=True),
    )
    return Request(f"r{seed}", (3 + seed % 90, 5, 3 + seed // 90), params)


@cache
def plain(first: int) -> list[list[list[int]]]:
    requests = [schema_request(seed) for seed in range(first, first + BATCH)]
    return tokens_of(run(make_engine(target(), cache_tokens=20_000), requests))


def valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


@pytest.mark.parametrize("first", range(0, NUM_SCHEMAS, BATCH))
def test_replies_to_200_random_schemas_validate_and_equal_plain(first: int) -> None:
    requests = [schema_request(seed) for seed in range(first, first + BATCH)]
    names = list(drafters())
    mixed = [replace(r, drafter=names[i % len(names)]) for i, r in enumerate(requests)]
    engine = make_engine(target(), drafters(), FixedController(5), cache_tokens=20_000)
    groups = run(engine, mixed)
    assert tokens_of(groups) == plain(first)
    for seed, [sequence] in zip(range(first, first + BATCH), groups, strict=True):
        assert sequence.output.finish_reason == "stop"
        text = decode(sequence.output.token_ids)
        assert valid(text, random_schema(seed)), (text, random_schema(seed))


def test_without_the_mask_replies_do_not_validate() -> None:
    """The negative control: the model is random, the grammar alone makes valid JSON of it."""
    num_valid = 0
    for seed in range(BATCH):
        request = schema_request(seed)
        free = replace(request, params=replace(request.params, grammar=None, max_tokens=60))
        [[sequence]] = run(make_engine(target()), [free])
        num_valid += valid(decode(sequence.output.token_ids), random_schema(seed))
    assert num_valid == 0


def constrained() -> st.SearchStrategy[SamplingParams]:
    grammar = st.one_of(
        st.integers(0, 10_000).map(lambda s: Grammar.json_schema(random_schema(s))),
        st.integers(0, 10_000).map(lambda s: Grammar.json_schema(random_schema(s), compact=True)),
        st.sampled_from(
            [
                Grammar.json_object(),
                Grammar.regex("[a-d]{0,9}"),
                Grammar.regex("(abc)+x"),
                Grammar.regex("yes"),
                Grammar.lark('start: "(" start? ")" | "[" /[a-c]+/ "]"'),
                None,
            ]
        ),
    )
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
        top_k=st.sampled_from([0, 1, 5]),
        top_p=st.sampled_from([1.0, 0.9, 0.3]),
        min_p=st.sampled_from([0.0, 0.05]),
        presence_penalty=st.sampled_from([0.0, 0.7]),
        frequency_penalty=st.sampled_from([0.0, 0.4]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
        logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=3),
        seed=st.integers(0, 2**64 - 1),
        stop_token_ids=st.lists(st.integers(0, VOCAB - 1), max_size=2),
        ignore_eos=st.booleans(),
        min_tokens=st.integers(0, 12),
        max_tokens=st.integers(12, 40),
        logprobs=st.sampled_from([None, 2]),
        n=st.sampled_from([1, 1, 3]),
        grammar=grammar,
    )


def trace(sequence: Sequence) -> tuple[object, ...]:
    """All that a user can see of an answer, but the figures of speculation."""
    output = sequence.output
    return output.token_ids, output.finish_reason, output.stop_reason, output.logprobs


@settings(max_examples=60)
@given(
    batch=st.lists(constrained(), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    cache_tokens=st.sampled_from([2048, 176]),
    data=st.data(),
)
def test_any_parameters_any_drafter_any_preemption(
    batch: list[SamplingParams], seed: int, cache_tokens: int, data: st.DataObject
) -> None:
    requests = [Request(f"r{i}", (3 + i, 7, 9, 7), params) for i, params in enumerate(batch)]
    alone = [run(make_engine(target(), prefix_caching=False), [r])[0] for r in requests]
    answers = {
        r.prompt_token_ids: group[0].output.token_ids
        for r, group in zip(requests, alone, strict=True)
    }
    named = {**drafters(), "peek": PeekDrafter(answers, seed)}
    engine = make_engine(
        target(), named, FixedController(7), cache_tokens=cache_tokens, block_size=8
    )
    mixed = [
        replace(
            request,
            drafter=data.draw(st.sampled_from(list(named))),
            prediction=tuple(answers[request.prompt_token_ids][1:]),
        )
        for request in requests
    ]
    together = run(engine, mixed)
    assert [[trace(s) for s in group] for group in together] == [
        [trace(s) for s in group] for group in alone
    ]
    for group in together:
        for sequence in group:
            assert_within_grammar(sequence)


def assert_within_grammar(sequence: Sequence) -> None:
    """Every token was allowed where it stands; a stop by the grammar alone is a whole text."""
    grammar = sequence.request.params.grammar
    if grammar is None:
        return
    matcher = compiler().compile(grammar)
    for token in sequence.output.token_ids:
        assert matcher.open
        assert matcher.allowed()[token]
        matcher.advance(token)
    if sequence.output.finish_reason == "stop" and sequence.output.stop_reason is None:
        assert matcher.complete


@pytest.mark.parametrize("verification", ["coupled", "rejection"])
def test_a_model_drafts_within_the_grammar(verification: str) -> None:
    """Its drafts are masked as the target is: an equal model is always right."""
    twin = ModelDrafter(target(), 16, VOCAB)
    engine = make_engine(target(), {"model": twin}, FixedController(4), verification=verification)
    groups = run(engine, [schema_request(seed) for seed in range(8)])
    assert sum(sequence.counts.drafted for [sequence] in groups) > 50
    for seed, [sequence] in enumerate(groups):
        assert sequence.counts.rejections == 0
        assert sequence.counts.accepted == sequence.counts.drafted
        assert valid(decode(sequence.output.token_ids), random_schema(seed))
