"""Our Muon against PyTorch's."""

from __future__ import annotations

import pytest
import torch

from outpace.train import muon
from outpace.train.muon import Muon, orthogonal

SHAPES = [(48, 48), (24, 80), (80, 24)]


def moved(kind: type[torch.optim.Optimizer], **more: object) -> list[torch.Tensor]:
    """Matrices after five steps with the same gradients."""
    random = torch.Generator().manual_seed(0)
    matrices = [torch.nn.Parameter(torch.randn(shape, generator=random)) for shape in SHAPES]
    optimizer = kind(matrices, lr=0.02, **more)  # type: ignore[arg-type]
    for _ in range(5):
        for matrix in matrices:
            matrix.grad = torch.randn(matrix.shape, generator=random)
        optimizer.step()
    return [matrix.detach() for matrix in matrices]


def test_in_bfloat16_it_is_that_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "narrow_dtype", lambda device: torch.bfloat16)
    expected = moved(torch.optim.Muon, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for own, theirs in zip(moved(Muon), expected, strict=True):
        torch.testing.assert_close(own, theirs, rtol=0, atol=0)


def test_in_float32_it_goes_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "narrow_dtype", lambda device: torch.float32)
    expected = moved(torch.optim.Muon, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    start = moved(torch.optim.SGD, momentum=0.0)  # other steps: what "alike" is held against
    for own, theirs, other in zip(moved(Muon), expected, start, strict=True):
        assert (own - theirs).norm() < 0.02 * (theirs - other).norm()


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(matrix, torch.float32))
    assert 0.6 < values.min() <= values.max() < 1.3
    assert torch.linalg.svdvals(matrix).max() > 5  # where they were


def test_what_has_no_gradient_stays() -> None:
    matrix = torch.nn.Parameter(torch.ones(4, 4))
    Muon([matrix], lr=1.0).step()
    assert torch.equal(matrix, torch.ones(4, 4))
