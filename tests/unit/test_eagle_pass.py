"""An EAGLE-3 head in the engine against one written down here from the papers' formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

from outpace.control.controller import FixedController
from outpace.model.runner import ModelRunner
from outpace.request import Request, SamplingParams
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters import eagle
from outpace.spec.drafters.eagle import EagleDrafter
from outpace.spec.tree import DraftTree

from engines import CONFIG, VOCAB, make_engine, make_runner, random_weights, run, tokens_of
from tiny_heads import LAYER, eagle_drafter, eagle_tensors, read_eagle, write_eagle

# Neither in order nor all: an order of their own shows a swap.
STATES = [2, 1]
PROMPT = tuple(i * 7 % VOCAB for i in range(23))
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "fc_norm": {"fc_norm": True},
    "norm_before_fc": {"norm_before_fc": True},
    "norm_output": {"norm_output": True},
    "whole vocabulary": {"draft_vocab_size": 96},
    "biases": {"transformer_layer_config": {"attention_bias": True}},
    "qwen3": {"transformer_layer_config": {"model_type": "qwen3"}},
}


def target_states(tokens: Sequence[int]) -> Tensor:
    """``[n, 128]``: what transformers says of the target's states, side by side."""
    config = MistralConfig(  # a Llama, but for checks that refuse six heads
        vocab_size=CONFIG.vocab_size,
        hidden_size=CONFIG.hidden_size,
        intermediate_size=CONFIG.intermediate_size,
        num_hidden_layers=CONFIG.num_layers,
        num_attention_heads=CONFIG.num_heads,
        num_key_value_heads=CONFIG.num_kv_heads,
        head_dim=CONFIG.head_dim,
        rms_norm_eps=CONFIG.rms_norm_eps,
        tie_word_embeddings=False,
        sliding_window=None,
    )
    model = MistralForCausalLM(config)
    model.load_state_dict(random_weights(0))
    with torch.inference_mode():
        states = model(torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states
    return torch.cat([states[i][0] for i in STATES], -1)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """``[n, heads, 16]`` turned by complex numbers."""
    frequencies = 10000.0 ** (-torch.arange(8) / 8)
    angles = (positions[:, None] * frequencies)[:, None]
    turns = torch.polar(torch.ones_like(angles), angles)
    turned = torch.complex(x[..., :8], x[..., 8:]) * turns
    return torch.cat([turned.real, turned.imag], -1)


@dataclass
class Reference:
    """The head over a whole text at once, without a cache.

    With ``hole`` nobody sees the row of the token at that position.
    """

    weights: dict[str, Tensor]
    embedding: Tensor
    flags: dict[str, Any]
    hole: int | None = None

    def combined(self, taps: Tensor) -> Tensor:
        w = self.weights
        if self.flags.get("norm_before_fc"):
            taps = norm(taps, w["input_norm.weight"])
        if self.flags.get("fc_norm"):
            parts = taps.chunk(len(STATES), -1)
            taps = torch.cat([norm(p, w[f"fc_norm.{i}.weight"]) for i, p in enumerate(parts)], -1)
        return taps @ w["fc.weight"].T

    def layer(self, tokens: Sequence[int], states: Tensor) -> Tensor:
        """Row r: the token r + 1 beside the state of token r."""
        w, a = self.weights, "layers.0.self_attn."
        hidden = norm(states, w["layers.0.hidden_norm.weight"])
        embedded = norm(self.embedding[list(tokens)], w["layers.0.input_layernorm.weight"])
        x = torch.cat([embedded, hidden], -1)

        def heads(name: str) -> Tensor:
            bias = w.get(f"{a}{name}_proj.bias", torch.zeros(()))
            split = (x @ w[f"{a}{name}_proj.weight"].T + bias).view(len(x), -1, 16)
            extra = w.get(f"{a}{name}_norm.weight")
            return split if extra is None else norm(split, extra)

        positions = torch.arange(len(x)).float()
        query, key = rotated(heads("q"), positions), rotated(heads("k"), positions)
        key, value = (y.repeat_interleave(2, 1) for y in (key, heads("v")))
        scores = torch.einsum("qhd,khd->hqk", query, key) / 4
        hidden_keys = torch.ones(len(x), len(x)).triu(1).bool()
        if self.hole is not None:
            hidden_keys[self.hole :, self.hole - 1] = True
        scores = scores.masked_fill(hidden_keys, -torch.inf)
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(len(x), -1)
        out = mixed @ w[f"{a}o_proj.weight"].T + w.get(f"{a}o_proj.bias", torch.zeros(()))
        stream = (hidden if self.flags.get("norm_before_residual") else states) + out
        m = norm(stream, w["layers.0.post_attention_layernorm.weight"])
        gate, up = (m @ w[f"layers.0.mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        return stream + (F.silu(gate) * up) @ w["layers.0.mlp.down_proj.weight"].T

    def chain(self, tokens: Sequence[int], taps: Tensor, length: int) -> list[int]:
        """Greedy guesses after ``tokens``, each from the head's own state of the one before."""
        states = self.combined(taps[: len(tokens) - 1])
        text, guesses = list(tokens), []
        for _ in range(length):
            result = self.layer(text[1:], states)[-1]
            normed = norm(result, self.weights["norm.weight"])
            own = int((normed @ self.weights["lm_head.weight"].T).argmax())
            guess = own + int(self.weights["d2t"][own]) if "d2t" in self.weights else own
            guesses.append(guess)
            text.append(guess)
            fed_back = normed if self.flags.get("norm_output") else result
            states = torch.cat([states, fed_back[None]])
        return guesses


@dataclass
class Recorder:
    """Passes everything on and keeps what was asked and proposed."""

    inner: EagleDrafter
    name: str = "eagle"
    sources: tuple[str, ...] = ("eagle",)
    drafts: list[tuple[tuple[int, ...], DraftTree]] = field(default_factory=list)

    @property
    def taps(self) -> tuple[int, ...] | None:
        return self.inner.taps

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        trees = self.inner.propose(asks)
        texts = [tuple(ask.token_ids.tolist()) for ask in asks]
        self.drafts += zip(texts, trees, strict=True)
        return trees

    def observe(self, seen: Sequence[Seen]) -> None:
        self.inner.observe(seen)

    def forget(self, seq_id: int) -> None:
        self.inner.forget(seq_id)


def recorded(
    folder: Path, target: ModelRunner, native: bool, prompts: Sequence[tuple[int, ...]] = (PROMPT,)
) -> list[tuple[tuple[int, ...], DraftTree]]:
    recorder = Recorder(eagle_drafter(folder, target, native=native, shape="chain"))
    engine = make_engine(target, {"eagle": recorder}, FixedController(3), max_num_batched_tokens=9)
    params = SamplingParams(max_tokens=16, ignore_eos=True)
    run(engine, [Request(f"r{i}", prompt, params) for i, prompt in enumerate(prompts)])
    # The end of a prompt that comes in pieces is drafted for before the head has seen it.
    return [(text, tree) for text, tree in recorder.drafts if len(tree)]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("most_waiting", [4, 128], ids=["prompt before", "prompt with the draft"])
def test_drafts_are_those_of_the_formulas(
    tmp_path: Path, variant: str, native: bool, most_waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eagle, "_MOST_WAITING", most_waiting)
    flags = {"eagle_aux_hidden_state_layer_ids": STATES, **VARIANTS[variant]}
    tensors = eagle_tensors(seed=3, **flags)
    folder = write_eagle(tmp_path, tensors, **flags)
    target = make_runner()
    reference = Reference(tensors, random_weights(0)["model.embed_tokens.weight"], flags)
    drafts = recorded(folder, target, native)
    assert len(drafts) >= 10
    said = {token for _, tree in drafts for token in tree.tokens}
    assert len(said) > 3  # a head that always says the same would compare nothing
    for text, tree in drafts:
        expected = reference.chain(text, target_states(text), len(tree))
        assert list(tree.tokens) == expected


@pytest.mark.parametrize("native", [True, False])
def test_sequences_in_one_batch_do_not_meet(tmp_path: Path, native: bool) -> None:
    folder = write_eagle(tmp_path, scale=0.3)
    prompts = [PROMPT, PROMPT[5:], (3,), tuple(range(60))]
    alone = {
        text: tree.tokens
        for prompt in prompts
        for text, tree in recorded(folder, make_runner(), native, [prompt])
    }
    together = recorded(folder, make_runner(), native, prompts)
    assert len(together) > 20
    assert {text: tree.tokens for text, tree in together if text in alone}.items() <= alone.items()


def test_both_layouts_are_one_head(tmp_path: Path) -> None:
    tensors = eagle_tensors(seed=1)
    target = make_runner()
    folders = [
        write_eagle(tmp_path / "speculators", tensors),
        write_eagle(tmp_path / "original", tensors, "original"),
    ]
    first, second = (read_eagle(folder, target) for folder in folders)
    assert first.config == second.config
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[name])
    assert torch.equal(first.vocabulary.ids, second.vocabulary.ids)  # type: ignore[arg-type]
    drafts = [recorded(folder, make_runner(), True) for folder in folders]
    assert [tree.tokens for _, tree in drafts[0]] == [tree.tokens for _, tree in drafts[1]]


def test_an_embedding_of_its_own_is_used(tmp_path: Path) -> None:
    own = torch.randn(96, 64, generator=torch.Generator().manual_seed(9))
    flags = {"eagle_aux_hidden_state_layer_ids": STATES}
    tensors = eagle_tensors(seed=3, **flags) | {"embed_tokens.weight": own}
    folder = write_eagle(tmp_path, tensors, **flags)
    reference = Reference(tensors, own, flags)
    for text, tree in recorded(folder, make_runner(), True):
        assert list(tree.tokens) == reference.chain(text, target_states(text), len(tree))


def test_rows_behind_the_vocabulary_are_padding(tmp_path: Path) -> None:
    """A padded head without d2t; were the padding in use, its large weights would win."""
    tensors = eagle_tensors(draft_vocab_size=128)
    tensors["lm_head.weight"][96:] *= 100
    target = make_runner()
    layer = {"vocab_size": 128}
    folder = write_eagle(tmp_path, tensors, draft_vocab_size=128, transformer_layer_config=layer)
    assert read_eagle(folder, target).config.draft_vocab_size == 96
    drafts = recorded(folder, target, True)
    assert all(token < 96 for _, tree in drafts for token in tree.tokens)
    assert all(len(tree) for _, tree in drafts)


def one_token_decides(seed: int = 0) -> dict[str, Tensor]:
    """A target whose next token depends on the last one alone: its layers add nothing.

    Embeddings are of signs, so that every part of one is closest to itself.
    """
    weights = random_weights(seed)
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"].sign()
    weights["lm_head.weight"] *= 3
    for name, weight in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.zero_()
    return weights


PERFECT: dict[str, Any] = {
    "draft_vocab_size": 96,
    "norm_before_residual": True,
    "transformer_layer_config": {"num_key_value_heads": LAYER["num_attention_heads"]},
}


def perfect_head(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """A head that looks up the token it stands for, and says what the target would.

    Queries find the key of their own token (or of an equal one, which is as good): that is the
    way of the embedding into the stream, which has nothing else in it.
    """
    tensors = eagle_tensors(**PERFECT)
    eye, nothing = torch.eye(64), torch.zeros(64, 64)
    tensors["layers.0.mlp.down_proj.weight"].zero_()
    tensors["layers.0.hidden_norm.weight"].zero_()
    attention = "layers.0.self_attn."
    tensors[f"{attention}q_proj.weight"] = torch.cat([40 * eye, nothing], 1)
    tensors[f"{attention}k_proj.weight"] = torch.cat([eye, nothing], 1)
    tensors[f"{attention}v_proj.weight"] = torch.cat([eye, nothing], 1)
    tensors[f"{attention}o_proj.weight"] = eye
    tensors["layers.0.input_layernorm.weight"] = torch.ones(64)
    tensors["norm.weight"] = weights["model.norm.weight"]
    tensors["lm_head.weight"] = weights["lm_head.weight"]
    return tensors


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_perfect_head_is_always_right(
    tmp_path: Path, shape: str, temperature: float, native: bool
) -> None:
    """Off by one anywhere, and it would hardly ever be."""
    weights = one_token_decides()
    target = make_runner(weights=weights)
    folder = write_eagle(tmp_path, perfect_head(weights), **PERFECT)
    drafter = eagle_drafter(folder, target, shape=shape, native=native)
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=42, ignore_eos=True)
    request = Request("r", PROMPT, params)
    engine = make_engine(target, {"eagle": drafter}, FixedController(4))
    [[sequence]] = run(engine, [request])
    counts = sequence.counts
    assert [[sequence.output.token_ids]] == tokens_of(run(make_engine(target), [request]))
    assert counts.rejections == 0
    if shape == "chain":
        assert counts.accepted == counts.drafted == 32
        assert counts.target_steps == 10  # one for the prompt and one at the end
    elif temperature == 0:
        assert counts.target_steps <= 20  # some nodes are spent on other branches


def test_what_the_head_says_of_a_prompt_it_did_not_see(tmp_path: Path) -> None:
    """Behind a cached beginning computed without the head it starts later, and is right there."""
    weights = one_token_decides()
    target = make_runner(weights=weights)
    folder = write_eagle(tmp_path, perfect_head(weights), **PERFECT)
    drafter = eagle_drafter(folder, target, shape="chain")
    engine = make_engine(target, {"eagle": drafter}, FixedController(4), prefix_caching=True)
    params = SamplingParams(max_tokens=22, ignore_eos=True)
    prompt = tuple(range(70))
    run(engine, [Request("plain", prompt, params, drafter="none")])
    [[sequence]] = run(engine, [Request("late", prompt, params)])
    assert sequence.num_cached == 64
    assert sequence.counts.rejections == 0
    assert sequence.counts.accepted == 16


@pytest.mark.parametrize("block_size", [4, 16])
def test_rows_in_cached_blocks_are_used_again(tmp_path: Path, block_size: int) -> None:
    """The second request drafts with all rows but one, whose state was not computed again."""
    target = make_runner()
    flags = {"eagle_aux_hidden_state_layer_ids": STATES, "norm_before_residual": True}
    tensors = eagle_tensors(seed=3, **flags)
    tensors["layers.0.self_attn.o_proj.weight"] *= 6  # let the context matter
    folder = write_eagle(tmp_path, tensors, **flags)
    recorder = Recorder(eagle_drafter(folder, target, shape="chain", block_size=block_size))
    engine = make_engine(target, {"eagle": recorder}, FixedController(3), block_size=block_size)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    prompt = tuple(i * 11 % VOCAB for i in range(64))
    for request_id in ("first", "second"):
        recorder.drafts.clear()
        [[sequence]] = run(engine, [Request(request_id, prompt, params)])
    border = 64 - block_size
    assert sequence.num_cached == border
    embedding = random_weights(0)["model.embed_tokens.weight"]
    reference = Reference(tensors, embedding, flags, hole=border)
    whole = Reference(tensors, embedding, flags)
    drafts = [(text, tree) for text, tree in recorder.drafts if len(tree)]
    assert len(drafts) > 3
    seen = []
    for text, tree in drafts:
        states = target_states(text)
        assert list(tree.tokens) == reference.chain(text, states, len(tree))
        late = whole.chain(text[border:], states[border:], len(tree))
        seen.append(late == list(tree.tokens))
    assert not all(seen)  # a head that began behind the cached part would have said other things
