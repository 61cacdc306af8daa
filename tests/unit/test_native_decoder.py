"""The decoder on the compiled kernels, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from outpace.kernels.native import kernels
from outpace.model.batch import Batch
from outpace.model.native_decoder import NativeDecoder
from outpace.model.precision import Precision
from outpace.model.weights import WeightSource

from engines import CONFIG, VOCAB, make_runner

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
