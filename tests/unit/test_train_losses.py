"""Losses and their gradients in closed form, against autograd."""

from __future__ import annotations

import pytest
import torch

from outpace.train.losses import LOSSES, compare


def _case() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    p = torch.randn(6, 40, generator=generator, dtype=torch.float64).mul(2).softmax(-1)
    logits = torch.randn(6, 40, generator=generator, dtype=torch.float64).mul(2)
    return p, logits


def _by_autograd(name: str, p: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    log_q = logits.log_softmax(-1)
    kl = (p * (p.log() - log_q)).sum(-1)
    overlap = torch.minimum(p, log_q.exp()).sum(-1)
    return {
        "kl": kl,
        "tv": 1 - overlap,
        "acceptance": -overlap.log(),
        "mix": 0.5 * (kl - overlap.log()),
    }[name]


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_the_definition(name: str) -> None:
    p, logits = _case()
    leaf = logits.clone().requires_grad_()
    loss = _by_autograd(name, p, leaf)
    [gradient] = torch.autograd.grad(loss.sum(), leaf)
    found = compare(p, logits.clone(), name)  # type: ignore[arg-type]
    # Float64, sums of 40 terms in another order.
    assert torch.allclose(found.loss, loss.detach(), atol=1e-12, rtol=0)
    assert torch.allclose(found.gradient, gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_perfect_guess_costs_nothing(name: str) -> None:
    p, _ = _case()
    found = compare(p, p.log(), name)  # type: ignore[arg-type]
    assert found.loss.abs().max() < 1e-12
    assert (found.overlap - 1).abs().max() < 1e-12


@pytest.mark.parametrize("name", LOSSES)
def test_descending_raises_the_overlap(name: str) -> None:
    p, logits = _case()
    before = compare(p, logits.clone(), name).overlap.mean()  # type: ignore[arg-type]
    for _ in range(200):
        logits -= 0.5 * compare(p, logits.clone(), name).gradient  # type: ignore[arg-type]
    after = compare(p, logits.clone(), name).overlap.mean()  # type: ignore[arg-type]
    # Those of the total variation come late where little overlaps yet.
    gain = {"kl": 0.4, "mix": 0.4, "acceptance": 0.2, "tv": 0.02}[name]
    assert after > before + gain


def test_what_does_not_overlap_at_all_still_learns() -> None:
    p = torch.tensor([[1.0, 0.0]])
    found = compare(p, torch.tensor([[-40.0, 40.0]]), "acceptance")
    assert torch.isfinite(found.loss).all()
    assert torch.isfinite(found.gradient).all()
