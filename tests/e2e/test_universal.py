"""A draft model with another tokenizer: the same tokens, and often right where it should be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from outpace.config import ModelDraftConfig
from outpace.llm import LLM
from outpace.request import SamplingParams
from outpace.spec.drafters.universal import UniversalDrafter
from outpace.text.tokenizer import Tokenizer

import tiny

SIZE = 96
PROMPT = "the quick brown fox"
WAYS = {
    "greedy": {"temperature": 0.0},
    "penalised": {"temperature": 0.0, "repetition_penalty": 1.02},
    "sampled": {"temperature": 1.0, "seed": 5, "top_k": 4},
}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two checkpoints of one function: the second has its vocabulary in another order.

    They write lower-case letters only, of which every text has a single encoding.
    """
    folder = tmp_path_factory.mktemp("twins")
    target = tiny.write_checkpoint(folder / "target", vocab_size=SIZE, tie_word_embeddings=False)
    draft = tiny.write_checkpoint(folder / "draft", vocab_size=SIZE, tie_word_embeddings=False)
    backends = [tiny.letters(), tiny.letters(order=1)]
    for one, backend in zip((target, draft), backends, strict=True):
        tiny.write_tokenizer(one, backend)
    mine, other = (backend.get_vocab(with_added_tokens=True) for backend in backends)
    order = torch.tensor([mine[token] for token in sorted(other, key=lambda token: other[token])])
    weights = load_file(target / "model.safetensors")
    head = weights["lm_head.weight"]
    letters = [i for token, i in mine.items() if len(token) == 1 and "a" <= token <= "z"]
    rest = torch.tensor([i for i in range(SIZE) if i not in letters])
    head[rest] = 0.0
    head *= 30  # sure of itself, so that choices depend on the text
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        weights[name] = weights[name][order].contiguous()
    save_file(weights, draft / "model.safetensors", {"format": "pt"})
    return target, draft


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("way", WAYS)
def test_the_same_function_in_another_vocabulary_is_always_right(
    twins: tuple[Path, Path], rule: str, way: str
) -> None:
    target, draft = map(str, twins)
    llm = LLM(
        target,
        ModelDraftConfig(draft, dtype="fp32", quantization="none"),
        num_speculative_tokens=4,
        dtype="fp32",
        verification=rule,
    )
    params = SamplingParams(max_tokens=41, ignore_eos=True, **WAYS[way])  # type: ignore[arg-type]
    [result] = llm.generate(PROMPT, params)
    assert result.speculative.rejections == 0
    assert result.speculative.accepted == 32
    if rule == "coupled":
        [plain] = llm.generate(PROMPT, params, drafter="none")
        assert result.token_ids == plain.token_ids


def odd_draft(folder: Path, kind: str) -> Path:
    """A random model with a tokenizer of another kind."""
    draft = tiny.write_checkpoint(folder / kind, vocab_size=400, max_position_embeddings=256)
    if kind == "sentencepiece":
        tiny.sentencepiece_bpe().save(str(draft / "tokenizer.json"))
        settings = {"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
        (draft / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        tiny.write_tokenizer(draft, tiny.byte_bpe(330))
    return draft


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
@pytest.mark.parametrize("joint", ["+", "|"])
def test_whatever_the_tokenizers_do_the_tokens_are_the_same(
    tiny_folder: Path, tmp_path: Path, kind: str, joint: str
) -> None:
    draft = odd_draft(tmp_path, kind)
    llm = LLM(
        str(tiny_folder), f"ngram{joint}model:{draft}", num_speculative_tokens=5, dtype="fp32"
    )
    prompts = [*tiny.ODD_TEXTS[1:], *tiny.CORPUS, "<|im_start|>user\nhello<|im_end|>\n"]
    drafted = 0
    for way in WAYS.values():
        params = SamplingParams(max_tokens=24, ignore_eos=True, **way)  # type: ignore[arg-type]
        results = llm.generate(prompts, params)
        plain = llm.generate(prompts, params, drafter="none")
        assert [r.token_ids for r in results] == [r.token_ids for r in plain]
        drafted += sum(r.speculative.drafted for r in results)
    assert drafted > 500


def test_a_cache_that_is_too_small_for_all_is_shared(tiny_folder: Path, tmp_path: Path) -> None:
    """Bytes are many more tokens than words: the draft's cache runs out first."""
    draft = odd_draft(tmp_path, "sentencepiece")
    llm = LLM(
        str(tiny_folder),
        f"model:{draft}",
        num_speculative_tokens=4,
        dtype="fp32",
        kv_cache_tokens=512,
        max_model_len=256,
    )
    [drafter] = [
        d for d in llm.engine.drafting.current.drafters.values() if isinstance(d, UniversalDrafter)
    ]
    prompts = [f"{i} " + "世界 こんにちは " * 8 for i in range(8)]
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    results = llm.generate(prompts, params)
    plain = llm.generate(prompts, params, drafter="none")
    assert [r.token_ids for r in results] == [r.token_ids for r in plain]
    assert any("cache is full" in r.speculative.off_reason for r in results)
    assert sum(r.speculative.drafted for r in results) > 0
    drafter._blocks.check_integrity([])  # everything was given back


def test_beyond_the_drafts_own_context_there_is_no_draft(tiny_folder: Path, tmp_path: Path) -> None:
    draft = odd_draft(tmp_path, "bytes")
    llm = LLM(str(tiny_folder), f"model:{draft}", num_speculative_tokens=4, dtype="fp32")
    prompt = Tokenizer.load(tiny_folder).encode("0123456789" * 26)
    assert len(prompt) == 260
    [result] = llm.generate([prompt], SamplingParams(max_tokens=8, ignore_eos=True))
    assert result.speculative.drafted == 0
    assert "context of 256 tokens" in result.speculative.off_reason


def test_tokens_without_a_text_do_not_stop_it(tiny_folder: Path, tmp_path: Path) -> None:
    """Prompts of token ids may be any bytes."""
    draft = odd_draft(tmp_path, "bytes")
    llm = LLM(str(tiny_folder), f"model:{draft}", num_speculative_tokens=4, dtype="fp32")
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 400, 30).tolist() for _ in range(6)]
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    results = llm.generate(prompts, params)
    plain = llm.generate(prompts, params, drafter="none")
    assert [r.token_ids for r in results] == [r.token_ids for r in plain]
