"""Log-probabilities of emitted tokens under the model itself."""

from __future__ import annotations

import torch
from torch import Tensor

from outpace.request import TokenLogprob


def token_logprob(logits: Tensor, token: int, num_top: int) -> TokenLogprob:
    """What the model thought of ``token``.

    Args:
        logits: ``[vocab]`` float32, before any sampling parameter.
        token: the emitted token.
        num_top: how many of the likeliest tokens to name beside it; 0 names none.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    top: dict[int, float] = {}
    if num_top:
        values, ids = logprobs.topk(min(num_top, len(logprobs)))
        top = dict(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprob(token, float(logprobs[token]), top)
