"""A token's logits have the same bits whatever is computed with it: the base of promise 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch, View
from outpace.model.config import ModelConfig
from outpace.model.decoder import Decoder
from outpace.model.native_decoder import NativeDecoder
from outpace.model.precision import Precision
from outpace.model.torch_decoder import TorchDecoder
from outpace.model.weights import WeightSource

CPU = torch.device("cpu")
TOTAL = 1030
BORDERS = (1, 511, 512, 513, 1024, 1025)
# kv_heads, heads, head_dim, inner size (also ones that are no multiple of a vector), family
SHAPES: dict[str, tuple[int, int, int, int, str]] = {
    "group3-64": (3, 9, 64, 160, "llama"),
    "group6-128": (1, 6, 128, 200, "qwen2"),
    "group7-32": (2, 14, 32, 100, "qwen3"),
    "group1-32": (4, 4, 32, 1000, "mistral"),
}


@dataclass
class Segment:
    """Some rows of one request: its tokens from ``start`` on, and the slots of all its tokens."""

    tokens: np.ndarray
    start: int
    slots: np.ndarray


class Harness:
    """A decoder with its cache, fed by segments as an engine would."""

    def __init__(self, decoder: Decoder, num_slots: int = 4096) -> None:
        config = decoder.config
        self.decoder = decoder
        self.pool = KVPool(
            config.num_layers,
            num_slots,
            config.num_kv_heads,
            config.head_dim,
            decoder.dtype,
            CPU,
        )

    def step(
        self, tokens: np.ndarray, positions: np.ndarray, mapping: np.ndarray, views: list[View]
    ) -> torch.Tensor:
        """Run one batch; logits ``[rows, vocab]``."""
        batch = Batch([tokens], [positions], [mapping], views, num_rows=len(tokens))
        hidden = self.decoder.forward(batch, self.pool)
        return self.decoder.logits(hidden.last[: len(tokens)])

    def run(self, *segments: Segment) -> list[torch.Tensor]:
        """Run segments of several requests as one batch; the logits of each."""
        views, tokens, positions, mapping, row = [], [], [], [], 0
        for segment in segments:
            end = len(segment.tokens)
            where = np.arange(segment.start, end)
            rows = np.arange(row, row + len(where))
            views.append(View(rows, where, segment.slots[:end], np.arange(end), None))
            tokens.append(segment.tokens[where])
            positions.append(where)
            mapping.append(segment.slots[where])
            row += len(where)
        logits = self.step(
            np.concatenate(tokens), np.concatenate(positions), np.concatenate(mapping), views
        )
        return list(logits.split([len(view.rows) for view in views]))


def make_decoder(shape: str, precision: Precision, native: bool) -> Decoder:
    kv_heads, heads, head_dim, inner, family = SHAPES[shape]
    raw: dict[str, Any] = {
        "model_type": family,
        "vocab_size": 301,
        "hidden_size": 72,
        "intermediate_size": inner,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 2048,
        "sliding_window": 600,
        "tie_word_embeddings": True,
    }
    config = ModelConfig.from_hf(raw)
    generator = torch.Generator().manual_seed(4)
    weights = {
        name: torch.randn(size, generator=generator) * (0.1 if len(size) > 1 else 1.0)
        for name, size in config.weight_shapes().items()
    }
    source = WeightSource(weights, config.weight_shapes())
    if not native:
        return TorchDecoder(config, source, precision, CPU)
    if not NativeDecoder.fits(config):
        pytest.skip("there are no compiled kernels here")
    return NativeDecoder(config, source, precision)


@dataclass
class Case:
    decoder: Decoder
    tokens: np.ndarray
    expected: torch.Tensor  # [TOTAL, vocab], from one pass over all tokens

    def segment(self, start: int, end: int, slots: np.ndarray) -> Segment:
        return Segment(self.tokens[:end], start, slots)


PRECISIONS = {
    "float32": Precision(torch.float32),
    "bfloat16": Precision(torch.bfloat16),
    "int8": Precision(torch.bfloat16, "int8"),
    "int4": Precision(torch.bfloat16, "int4", 32),
}


@pytest.fixture(
    scope="module",
    params=[
        (shape, name, native)
        for shape in SHAPES
        for native in (True, False)
        for name in PRECISIONS
        # PyTorch's operators compute with what the integers stand for: nothing new there.
        if native or not name.startswith("int")
    ],
    ids=lambda param: f"{param[0]}-{param[1]}-{'native' if param[2] else 'torch'}",
)
def case(request: pytest.FixtureRequest) -> Case:
    shape, precision, native = request.param
    decoder = make_decoder(shape, PRECISIONS[precision], native)
    tokens = np.random.default_rng(7).integers(0, 301, TOTAL)
    with torch.inference_mode():
        whole = Harness(decoder).run(Segment(tokens, 0, np.arange(9, 9 + TOTAL)))[0]
    assert whole.isfinite().all()
    return Case(decoder, tokens, whole)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("chunk", [1, 2, 3, 64, 500])
def test_chunks_equal_the_whole(case: Case, chunk: int) -> None:
    """Small chunks at the start and across the borders of the key blocks, large ones throughout."""
    harness = Harness(case.decoder)
    slots = np.arange(1, 1 + TOTAL)
    start = 0
    while start < TOTAL:
        small = start < 12 or 505 <= start < 516 or start >= 1018
        jump = next(border for border in (505, 1018, TOTAL) if border > start)
        end = min(start + chunk, TOTAL) if small or chunk > 3 else jump
        logits = harness.run(case.segment(start, end, slots))[0]
        assert torch.equal(logits, case.expected[start:end]), (start, end)
        start = end


def test_scattered_slots_equal_a_run(case: Case) -> None:
    harness = Harness(case.decoder)
    slots = np.random.default_rng(1).permutation(np.arange(1, 4096))[:TOTAL]
    for start in range(0, TOTAL, 206):
        logits = harness.run(case.segment(start, start + 206, slots))[0]
        assert torch.equal(logits, case.expected[start : start + 206])
    for end in BORDERS:
        logits = harness.run(case.segment(end - 1, end, slots))[0]
        assert torch.equal(logits, case.expected[end - 1 : end])


@pytest.mark.parametrize("others", [1, 2, 6, 63])
def test_other_requests_do_not_matter(case: Case, others: int) -> None:
    """The request decodes at each border beside other requests, first and last in the batch."""
    harness = Harness(case.decoder)
    slots = np.arange(1, 1 + TOTAL)
    harness.run(case.segment(0, TOTAL, slots))
    rng = np.random.default_rng(others)
    for border in BORDERS:
        company, slot = [], 1 + TOTAL
        while len(company) < others:
            length = int(rng.integers(1, 40))
            start = int(rng.integers(max(0, length - 4), length))
            where = np.arange(slot, slot + length)
            company.append(Segment(rng.integers(0, 301, length), start, where))
            slot += length
        mine = case.segment(border - 1, border, slots)
        for index in (0, others):
            batch = [*company[:index], mine, *company[index:]]
            assert torch.equal(harness.run(*batch)[index], case.expected[border - 1 : border])


def test_tree_paths_equal_plain_decoding(case: Case) -> None:
    """Two branches under a shared root, each path with its own keys in order of position."""
    rng = np.random.default_rng(3)
    for length in (5, 510, 1022):
        root, left, right = (
            rng.integers(0, 301, 1),
            rng.integers(0, 301, 3),
            rng.integers(0, 301, 2),
        )
        prefix = case.tokens[:length]
        slots = np.arange(1, 1 + length)
        harness = Harness(case.decoder)
        harness.run(Segment(prefix, 0, slots))
        own = np.arange(2000, 2006)  # root, left 1 to 3, right 1 and 2
        first = np.concatenate([slots, own[:4]])
        second = np.concatenate([slots, own[[0, 4, 5]]])
        positions = length + np.array([0, 1, 2, 3, 1, 2])
        views = [
            View(np.arange(4), positions[:4], first, np.arange(length + 4), None),
            View(np.arange(4, 6), positions[4:], second, np.arange(length + 3), None),
        ]
        tree = harness.step(np.concatenate([root, left, right]), positions, own, views)

        def plain(branch: np.ndarray, length: int = length, prefix: np.ndarray = prefix) -> Any:
            harness = Harness(case.decoder)
            tokens, where = np.concatenate([prefix, branch]), np.arange(1, 1 + TOTAL)
            harness.run(Segment(prefix, 0, where))
            return torch.cat(
                [
                    harness.run(Segment(tokens[: end + 1], end, where))[0]
                    for end in range(length, len(tokens))
                ]
            )

        assert torch.equal(tree[:4], plain(np.concatenate([root, left])))
        assert torch.equal(tree[4:], plain(np.concatenate([root, right]))[1:])


def test_logits_do_not_depend_on_the_rows_asked_for(case: Case) -> None:
    native = isinstance(case.decoder, NativeDecoder)
    hidden = torch.randn(70, 72).to(torch.float32 if native else case.decoder.dtype)
    whole = case.decoder.logits(hidden)
    assert whole.dtype == torch.float32
    for rows in (1, 2, 3, 4, 5, 9, 33):
        assert torch.equal(case.decoder.logits(hidden[:rows]), whole[:rows])
        assert torch.equal(case.decoder.logits(hidden[-rows:]), whole[-rows:])
    assert case.decoder.logits(hidden[:0]).shape == (0, 301)
