"""Engines around a tiny random model, without text: what the exactness tests run on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from outpace.cache.blocks import BlockManager
from outpace.cache.pools import KVPool
from outpace.config import EngineConfig, Quantization
from outpace.control.controller import (
    Controller,
    FixedController,
)
from outpace.engine.admission import Admission
from outpace.engine.drafting import Drafting
from outpace.engine.engine import Engine
from outpace.engine.menu import Menu
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.model.build import make_decoder
from outpace.model.config import ModelConfig
from outpace.model.decoder import Decoder
from outpace.model.precision import Precision
from outpace.model.runner import ModelRunner
from outpace.model.torch_decoder import TorchDecoder
from outpace.model.weights import WeightSource
from outpace.request import Request
from outpace.spec.drafter import Ask, Drafter, Seen
from outpace.spec.drafters.none import NoneDrafter
from outpace.spec.tree import ROOT, DraftTree

from grammars import compiler

VOCAB = 96
CONTEXT = 640
CONFIG = ModelConfig.from_hf(
    {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
        "hidden_act": "silu",
    }
)


def random_weights(seed: int, noise: float = 0.0) -> dict[str, Tensor]:
    """The tensors of a model for `CONFIG`."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in CONFIG.weight_shapes().items():
        scale = 0.15 if len(shape) == 2 else 0.0
        weights[name] = torch.randn(shape, generator=generator) * scale + (len(shape) == 1)
    for weight in weights.values() if noise else ():
        weight += torch.randn(weight.shape, generator=generator) * noise
    return weights


def make_runner(
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    num_slots: int = 4096,
    noise: float = 0.0,
    quantization: Quantization = "none",
    native: bool = True,
    idle_layers: tuple[int, ...] = (),
    weights: dict[str, Tensor] | None = None,
) -> ModelRunner:
    """A random model, peaked enough that its choices depend on the context.

    Without ``native`` it computes on PyTorch's operators even where there are compiled kernels.
    With ``noise`` it is a relative of the model of that seed: a draft that is often right.
    Idle layers add nothing to the stream, so that leaving them out changes nothing.
    """
    weights = random_weights(seed, noise) if weights is None else weights
    for layer in idle_layers:
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"model.layers.{layer}.{name}.weight"].zero_()
    precision = Precision(dtype, quantization, group=32)
    cpu = torch.device("cpu")
    source = WeightSource(weights, CONFIG.weight_shapes())
    decoder: Decoder = TorchDecoder(CONFIG, source, precision, cpu)
    if native:
        decoder = make_decoder(CONFIG, weights, precision, cpu)
    shape = (CONFIG.num_layers, num_slots, CONFIG.num_kv_heads, CONFIG.head_dim)
    return ModelRunner(decoder, KVPool(*shape, dtype, torch.device("cpu")))


class NoText:
    """A text end for engines that are asked for token ids only."""

    stopped_by = None

    def push(self, token_id: int, *, watch: bool) -> str:
        return ""

    def flush(self) -> str:
        return ""


def make_engine(
    runner: ModelRunner,
    drafters: Mapping[str, Drafter] | None = None,
    controller: Controller | None = None,
    cache_tokens: int = 2048,
    menu: Menu | None = None,
    **options: object,
) -> Engine:
    config = EngineConfig(**options)  # type: ignore[arg-type]
    named = {"none": NoneDrafter(), **(drafters or {})}
    blocks = BlockManager(
        cache_tokens // config.block_size + 1, config.block_size, config.prefix_caching
    )
    default = next(iter(drafters)) if drafters else "none"
    context = min(CONTEXT, (blocks.num_blocks - 1) * config.block_size)
    admission = Admission(
        CONFIG, context, config.verification, named, default, lambda params: NoText(), compiler()
    )
    chosen = controller or FixedController(6)
    return Engine(runner, blocks, Drafting(named, VOCAB, menu), chosen, admission, config)


def run(engine: Engine, requests: Sequence[Request]) -> list[list[EngineSequence]]:
    """Run requests to their end, check the books, and return their sequences."""
    groups = [engine.add(request) for request in requests]
    for _ in range(10_000):
        if not engine.has_work:
            break
        engine.step()
        scheduler = engine.scheduler
        living = [*scheduler.running, *scheduler.waiting]
        engine.blocks.check_integrity(sequence.table for sequence in living)
    assert not engine.has_work, "the engine made no end"
    return groups


def tokens_of(groups: Sequence[Sequence[EngineSequence]]) -> list[list[list[int]]]:
    return [[s.output.token_ids for s in group] for group in groups]


@dataclass
class PeekDrafter:
    """Proposes random trees in which the right answer is hidden, often enough.

    Args:
        answers: the whole right answer by prompt (and for several samples, any of them).
        seed: of the trees.
    """

    answers: Mapping[tuple[int, ...], Sequence[int]]
    seed: int = 0
    chance: float = 0.75
    name: str = "peek"
    taps: tuple[int, ...] | None = None
    with_probs: bool = False
    seen: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.name,)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        return [self._tree(ask) for ask in asks]

    def _tree(self, ask: Ask) -> DraftTree:
        prompt = tuple(ask.token_ids[: ask.num_prompt].tolist())
        answer = self.answers.get(prompt, [])
        done = len(ask.token_ids) - ask.num_prompt
        right = list(answer[done:])
        tokens: list[int] = []
        parents: list[int] = []
        true_tip, taken = ROOT, 0
        for _ in range(int(self._random.integers(0, ask.budget + 1))):
            if taken < len(right) and self._random.random() < self.chance:
                token, parent = right[taken], true_tip
                true_tip, taken = len(tokens), taken + 1
            else:
                token = int(self._random.integers(0, VOCAB))
                parent = int(self._random.integers(-1, len(tokens)))
            if (token, parent) in zip(tokens, parents, strict=True):
                if true_tip == len(tokens):  # the right token stands there already
                    true_tip = list(zip(tokens, parents, strict=True)).index((token, parent))
                continue
            tokens.append(token)
            parents.append(parent)
        return DraftTree(tuple(tokens), tuple(parents), None, self.name)

    def observe(self, seen: Sequence[Seen]) -> None:
        for sight in seen:
            known = self.seen.setdefault(sight.seq_id, [])
            del known[sight.start :]
            if sight.start == len(known):
                known.extend(sight.token_ids)

    def forget(self, seq_id: int) -> None:
        self.seen.pop(seq_id, None)


def same_for_all(names: Collection[str]) -> Menu:
    """A choice that does not depend on the request."""
    return Menu({(False, False): tuple(names)})
