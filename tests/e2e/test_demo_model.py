"""The real model: the same tokens with and without speculation, alone, together and squeezed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outpace import LLM, SamplingParams
from outpace.request import RequestOutput

TEXT = (
    "The library opens at nine on weekdays and at ten on Saturdays. Members may borrow six "
    "books for three weeks. A reserved book is kept at the desk for four days."
)
CONVERSATIONS = {
    "chat": "What should I pack for a walk in the hills in autumn?",
    "code": "Write a Python function that returns the n-th Fibonacci number.",
    "repeat": f"Repeat this text word for word:\n{TEXT}",
    "edit": f"Rewrite this text and change 'books' to 'films' everywhere:\n{TEXT}",
    "extract": f"List the opening times in this text as JSON:\n{TEXT}",
    "list": "Count from 1 to 30, separated by commas.",
    "translate": "Translate into French: The cat sleeps on the warm roof.",
    "math": "A train goes 60 km in 45 minutes. How far does it go in two hours?",
}


def prompts(llm: LLM) -> list[list[int]]:
    return [
        llm.tokenizer.encode_chat([{"role": "user", "content": text}])
        for text in CONVERSATIONS.values()
    ]


def mixed_params(max_tokens: int = 24) -> list[SamplingParams]:
    return [
        SamplingParams(max_tokens=max_tokens),
        SamplingParams(temperature=0.8, seed=7, max_tokens=max_tokens),
        SamplingParams(temperature=0.8, seed=7, top_p=0.9, max_tokens=max_tokens),
        SamplingParams(temperature=1.2, seed=8, top_k=20, max_tokens=max_tokens),
        SamplingParams(repetition_penalty=1.2, max_tokens=max_tokens, logprobs=2),
        SamplingParams(temperature=0.6, seed=9, frequency_penalty=0.5, max_tokens=max_tokens),
        SamplingParams(temperature=0.9, seed=1, min_p=0.1, n=2, max_tokens=max_tokens),
        SamplingParams(temperature=0.7, seed=2, logit_bias={28: -100}, max_tokens=max_tokens),
    ]


def ids(results: list[RequestOutput]) -> list[list[tuple[int, ...]]]:
    return [[output.token_ids for output in result.outputs] for result in results]


@pytest.fixture(scope="session")
def plain(demo_llm: LLM) -> list[RequestOutput]:
    """Each request alone, without a draft."""
    pairs = zip(prompts(demo_llm), mixed_params(), strict=True)
    return [demo_llm.generate([p], [s], drafter="none")[0] for p, s in pairs]


def test_it_is_bit_exact_here(demo_llm: LLM) -> None:
    assert demo_llm.guarantee == "bit-exact"


@pytest.mark.parametrize("drafter", ["ngram", "auto"])
def test_alone_with_a_drafter(demo_llm: LLM, plain: list[RequestOutput], drafter: str) -> None:
    pairs = zip(prompts(demo_llm), mixed_params(), strict=True)
    found = [demo_llm.generate([p], [s], drafter=drafter)[0] for p, s in pairs]
    assert ids(found) == ids(plain)
    assert sum(o.speculative.accepted for r in found for o in r.outputs) > 0


def test_eight_mixed_requests_at_once(demo_llm: LLM, plain: list[RequestOutput]) -> None:
    drafters = ["ngram", "none", "prediction", None, "ngram", "ngram", None, "prediction"]
    expected = [TEXT if drafter == "prediction" else None for drafter in drafters]
    found = demo_llm.generate(
        prompts(demo_llm), mixed_params(), drafter=drafters, prediction=expected
    )
    assert ids(found) == ids(plain)


def test_logprobs_are_those_of_plain_decoding(demo_llm: LLM, plain: list[RequestOutput]) -> None:
    """Field report: with speculation on, others return 0.0 or none at all."""
    index = 4
    [found] = demo_llm.generate([prompts(demo_llm)[index]], mixed_params()[index])
    assert found.logprobs == plain[index].logprobs
    assert found.logprobs is not None
    assert len(found.logprobs) == len(found.token_ids) == found.usage.completion_tokens
    assert all(logprob.logprob < 0 for logprob in found.logprobs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_preemption_forced(demo_folder: Path, dtype: str) -> None:
    llm = LLM(str(demo_folder), "ngram", num_speculative_tokens=5, dtype=dtype, kv_cache_tokens=256)
    params = mixed_params()
    expected = [
        llm.generate([p], [s], drafter="none")[0] for p, s in zip(prompts(llm), params, strict=True)
    ]
    before = llm.engine.scheduler.num_preemptions
    assert ids(llm.generate(prompts(llm), params)) == ids(expected)
    assert llm.engine.scheduler.num_preemptions > before


def test_copying_takes_at_most_half_the_steps(demo_folder: Path) -> None:
    llm = LLM(
        str(demo_folder), "auto", num_speculative_tokens=8, dtype="float32"
    )  # automatic k looks at times, and not every precision copies
    for name in ("repeat", "edit"):
        messages = [{"role": "user", "content": CONVERSATIONS[name]}]
        params = SamplingParams(max_tokens=96)
        [off] = llm.chat(messages, params, drafter="none")
        for drafter, prediction in (("ngram", None), ("prediction", TEXT)):
            [on] = llm.chat(messages, params, drafter=drafter, prediction=prediction)
            assert on.token_ids == off.token_ids
            assert 2 * on.speculative.target_steps <= off.speculative.target_steps


def test_greedy_equals_transformers(demo_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    llm = LLM(str(demo_folder), "auto", dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(demo_folder, dtype=torch.float32)
    for prompt in prompts(llm)[:6]:
        [found] = llm.generate([prompt], SamplingParams(max_tokens=32))
        with torch.inference_mode():
            whole = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=32,
            )
        assert list(found.token_ids) == whole[0, len(prompt) :].tolist()
