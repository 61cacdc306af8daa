from __future__ import annotations

import pytest
import torch

from outpace.train import arithmetic
from outpace.train.arithmetic import narrow_dtype


@pytest.mark.parametrize(
    ("device", "flags", "expected"),
    [
        ("cpu", {"avx2"}, torch.float32),
        ("cpu", {"avx2", "avx512f"}, torch.float32),
        ("cpu", set(), torch.float32),
        ("cpu", {"avx512f", "avx512_bf16"}, torch.bfloat16),
        ("cpu", {"amx_bf16"}, torch.bfloat16),
        ("cpu", {"asimd", "bf16"}, torch.bfloat16),
        ("cuda", {"avx2"}, torch.bfloat16),
    ],
)
def test_training_multiplies_what_the_device_multiplies_fast(
    device: str, flags: set[str], expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arithmetic, "cpu_flags", lambda: frozenset(flags))
    assert narrow_dtype(torch.device(device)) == expected
