"""The decoder on the compiled kernels, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from outpace.cache.pools import KVPool
from outpace.kernels.native import KernelLinear, kernels
from outpace.kernels.packing import Format, pack, quantize
from outpace.model.batch import Batch
from outpace.model.native_decoder import NativeDecoder
from outpace.model.precision import Precision
from outpace.model.weights import WeightSource

from engines import CONFIG, VOCAB, make_runner

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not kernels().name, reason="no compiled kernels here")


def logits(**options: object) -> torch.Tensor:
    runner = make_runner(**options)  # type: ignore[arg-type]
    batch = Batch()
    tokens = np.random.default_rng(2).integers(0, VOCAB, 40)
    batch.append_run(tokens, 0, np.arange(8, 48))
    batch.logits_rows.extend(range(40))
    with torch.inference_mode():
        return runner.run(batch)[0]


@pytest.mark.parametrize(
    ("quantization", "tolerance"), [("none", 0.02), ("int8", 0.04), ("int4", 0.04)]
)
def test_logits_are_those_of_pytorch_up_to_rounding(quantization: str, tolerance: float) -> None:
    """With the same integers: the kernels round inputs to bf16 or int8, PyTorch to bf16."""
    options = {"dtype": torch.bfloat16, "quantization": quantization}
    ours, theirs = logits(**options), logits(**options, native=False)
    error = (ours - theirs).norm() / theirs.norm()
    assert error < tolerance


def test_float32_logits_are_those_of_pytorch() -> None:
    torch.testing.assert_close(logits(), logits(native=False), atol=1e-4, rtol=1e-4)


def test_a_head_for_some_tokens_gives_them_the_same_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = CONFIG.weight_shapes()
    weights = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    source = WeightSource(weights, shapes)
    precision = Precision(torch.bfloat16, "int8")
    whole = NativeDecoder(CONFIG, source, precision)
    some = NativeDecoder(CONFIG, source, precision, head_tokens={*range(20), 70})
    hidden = torch.randn(3, CONFIG.hidden_size, generator=generator)
    expected, found = whole.logits(hidden), some.logits(hidden)
    covered = torch.tensor([*range(32), *range(64, 96)])  # whole panels
    assert torch.equal(found[:, covered], expected[:, covered])
    assert (found[:, 32:64] == -torch.inf).all()
    assert some.weight_bytes < whole.weight_bytes


KINDS = (
    "model.embed_tokens.weight",
    "model.norm.weight",
    "lm_head.weight",
    "model.layers.1.input_layernorm.weight",
    "model.layers.1.self_attn.q_proj.weight",
    "model.layers.1.self_attn.k_proj.weight",
    "model.layers.1.self_attn.v_proj.weight",
    "model.layers.1.self_attn.o_proj.weight",
    "model.layers.1.mlp.gate_proj.weight",
    "model.layers.1.mlp.up_proj.weight",
    "model.layers.1.mlp.down_proj.weight",
)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_nan_in_any_weight_shows_in_the_logits(name: str, dtype: torch.dtype) -> None:
    """Damaged weights must not turn into ordinary numbers on the way."""
    generator = torch.Generator().manual_seed(0)
    shapes = CONFIG.weight_shapes()
    weights = {n: torch.randn(shape, generator=generator) * 0.1 for n, shape in shapes.items()}
    weights[name].view(-1)[: weights[name].shape[-1]] = torch.nan  # one row, or all of a vector
    decoder = NativeDecoder(CONFIG, WeightSource(weights, shapes), Precision(dtype))
    pool = KVPool(CONFIG.num_layers, 64, CONFIG.num_kv_heads, CONFIG.head_dim, dtype, CPU)
    batch = Batch()
    batch.append_run(np.arange(4), 0, np.arange(8, 12))
    with torch.inference_mode():
        found = decoder.logits(decoder.forward(batch, pool).last)
    assert found.isnan().any()


def test_a_nan_in_the_inputs_of_an_integer_layer_shows() -> None:
    packed = pack(quantize(torch.randn(32, 64), Format.INT4_OFFSET, 32), Format.INT4_OFFSET)
    x, out = torch.randn(2, 64), torch.zeros(2, 32)
    x[1, 3] = torch.nan
    KernelLinear(packed)(x, out)
    assert out[0].isfinite().all()
    assert out[1].isnan().all()
