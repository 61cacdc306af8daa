"""The head in training against the head that drafts: one function, two implementations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch
from outpace.model.heads.eagle_torch import TorchEaglePass
from outpace.model.precision import Precision
from outpace.model.runner import ModelRunner
from outpace.model.torch_decoder import TorchDecoder
from outpace.model.weights import WeightSource
from outpace.train.batches import TrainBatch
from outpace.train.eagle import EagleHead, depth_mask
from outpace.train.eagle_task import EagleOptions, EagleTask
from outpace.train.export import export_eagle
from outpace.train.start_eagle import eagle_shape, started_head
from outpace.train.store import Example, Store, StoreInfo
from outpace.train.target_parts import TargetParts
from outpace.train.vocabulary import likely_tokens

from tiny_heads import read_eagle
from train_cases import tiny_target

CPU = torch.device("cpu")
LENGTH, DEPTHS = 7, 3


def _head(target: TargetParts) -> tuple[EagleHead, torch.Tensor]:
    vocabulary = torch.arange(0, 400, 5)
    shape = eagle_shape(target.config, (0, 1, 2), len(vocabulary))
    torch.manual_seed(0)
    head = started_head(shape, target.weights, target.config, vocabulary, 2.0)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
            parameter.copy_(parameter.bfloat16().float())  # what the export keeps
    return head, vocabulary


def _target_runner(target: TargetParts) -> ModelRunner:
    config = target.config
    source = WeightSource(target.weights, config.weight_shapes())
    decoder = TorchDecoder(config, source, Precision(torch.float32), CPU)
    pool = KVPool(config.num_layers, 64, config.num_kv_heads, config.head_dim, torch.float32, CPU)
    return ModelRunner(decoder, pool)


def test_running_ahead_is_what_the_drafter_computes(tmp_path: Path) -> None:
    """Each position's guesses, with the true tokens fed, equal those of the drafting pass."""
    target = TargetParts.load(str(tiny_target(tmp_path / "target")))
    head, vocabulary = _head(target)
    export_eagle(tmp_path / "head", head, vocabulary, target, DEPTHS)
    runner = _target_runner(target)
    read = read_eagle(tmp_path / "head", runner)
    assert read.config.taps == (0, 1, 2)
    assert read.config.target_fingerprint == target.fingerprint
    assert torch.equal(read.vocabulary.targets(torch.arange(80)), vocabulary)
    source = WeightSource(read.tensors, read.config.weight_shapes())
    decoder = runner.decoder
    drafting = TorchEaglePass(
        read.config, source, Precision(torch.float32), decoder.embed, 256, CPU
    )
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, 400, (LENGTH + DEPTHS,), generator=generator)
    taps = torch.randn(LENGTH, 3 * 64, generator=generator)
    with torch.no_grad():
        embedded = target.embedding.float()[torch.nn.functional.pad(tokens, (0, 1))]
        ahead = [
            head.lm_head(head.norm(state))[0]
            for state in head.unroll(taps[None], embedded[None], DEPTHS)
        ]
    for start in range(LENGTH):
        rows = _drafted(drafting, tokens, taps, start)
        for depth in range(DEPTHS):
            # Two orders of summation in float32.
            assert torch.allclose(ahead[depth][start], rows[depth], atol=2e-4, rtol=1e-4)


def _drafted(
    drafting: TorchEaglePass, tokens: torch.Tensor, taps: torch.Tensor, start: int
) -> list[torch.Tensor]:
    """Logits by depth of one chain: all states up to a position are true, then its own."""
    layer = drafting.config.layer
    pool = KVPool(1, 600, layer.num_kv_heads, layer.head_dim, torch.float32, CPU)
    known = start + 1
    batch = Batch()
    batch.append_run(tokens[1 : known + 1].numpy(), 0, np.arange(known))
    with torch.inference_mode():
        state = drafting.forward(batch, drafting.combine(taps[:known]), pool)[known - 1 : known]
        rows = [drafting.logits(state)[0]]
        for depth in range(1, DEPTHS):
            batch = Batch()
            place = known - 1 + depth
            batch.append_run(tokens[place + 1 : place + 2].numpy(), place, np.arange(place + 1))
            state = drafting.forward(batch, state, pool)[:1]
            rows.append(drafting.logits(state)[0])
    return rows


def test_each_depth_sees_the_truth_up_to_its_start_and_its_own_guesses() -> None:
    mask = depth_mask(3, 2, CPU)
    assert mask.tolist() == [
        [True, False, False, True, False, False],
        [True, True, False, False, True, False],
        [True, True, True, False, False, True],
    ]


def test_a_new_head_has_the_last_layer_of_its_target(tmp_path: Path) -> None:
    """Where the embedding counts nothing, its layer is the target's last one, scaled down."""
    target = TargetParts.load(str(tiny_target(tmp_path / "target")))
    shape = eagle_shape(target.config, (0, 1, 2), 400)
    head = started_head(shape, target.weights, target.config, torch.arange(400), 3.0)
    output = target.weights["model.layers.3.self_attn.o_proj.weight"]
    assert torch.equal(head.layer.self_attn.o_proj.weight, output / 3.0)
    assert not head.layer.self_attn.q_proj.weight[:, :64].any()
    x = torch.randn(2, 64 * 3)
    third = x[:, 128:]
    normed = third * (third.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    # The norm's eps is the target's, 1e-6 here; the sums of float32 differ in order.
    assert torch.allclose(head.project(x), normed, atol=1e-4)


def _batch(target: TargetParts) -> TrainBatch:
    config = target.config
    torch.manual_seed(1)
    return TrainBatch(
        torch.randint(0, config.vocab_size, (2, 30)),
        torch.tensor([30, 24]),
        torch.tensor([12, 10]),
        torch.randn(2, 30, 3 * config.hidden_size).bfloat16(),
        torch.randn(2, 30, config.hidden_size).bfloat16(),
    )


def _rows_learned(target: TargetParts, options: EagleOptions, batches: int) -> list[list[int]]:
    head, vocabulary = _head(target)
    tables = target.embedding.bfloat16(), target.head.bfloat16()
    task = EagleTask(head, *tables, vocabulary, options)
    return [task.learn(_batch(target)).rows for _ in range(batches)]


def test_depths_take_turns(tmp_path: Path) -> None:
    target = TargetParts.load(str(tiny_target(tmp_path / "target")))
    whole = _rows_learned(target, EagleOptions(depths=3), 2)
    assert [len(rows) for rows in whole] == [3, 3]
    varied = _rows_learned(target, EagleOptions(depths=3, vary_depths=True), 6)
    assert sorted(len(rows) for rows in varied) == [1, 1, 2, 2, 3, 3]


def test_of_prompts_only_a_share_takes_part(tmp_path: Path) -> None:
    """Row t aims at row t + 1: 11 and 9 aim into the prompts, 18 and 14 into the answers."""
    target = TargetParts.load(str(tiny_target(tmp_path / "target")))

    def first(share: float, weight: float) -> list[int]:
        options = EagleOptions(prompt_weight=weight, prompt_share=share)
        return [rows[0] for rows in _rows_learned(target, options, 8)]

    assert set(first(1.0, 0.2)) == {52}
    assert set(first(1.0, 0.0)) == {32}
    assert set(first(0.0, 0.2)) == {32}
    some = first(0.5, 1.0)
    assert 32 < min(some) < max(some) < 52


def test_the_likeliest_tokens_are_said_or_nearly_said(tmp_path: Path) -> None:
    """One is said but unlikely, one is likely but never said; both come before all others."""
    table = torch.zeros(20, 4)
    table[7, 0] = 9.0
    info = StoreInfo("m", "f" * 32, 20, 4, (), states=True)
    store = Store.create(tmp_path / "s", info)
    state = torch.tensor([1.0, 0, 0, 0]).bfloat16().repeat(6, 1)
    store.add([Example("a", "", 2, torch.full((6,), 3, dtype=torch.int32), None, state)])
    assert likely_tokens([store], 2, table.bfloat16(), [], 100).tolist() == [3, 7]
    assert likely_tokens([store], 2, table.bfloat16(), [15], 100).tolist() == [3, 15]
    assert likely_tokens([store], 20, table.bfloat16(), [], 100).tolist() == list(range(20))
