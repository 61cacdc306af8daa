"""Sampling parameters at work on one row of logits, always in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from outpace.grammar.matcher import GrammarMatcher
from outpace.request import SamplingParams

_LIKELY = 2.0**-13
_COLDEST = 1e-6


class TokenHistory:
    """What a sequence has in its prompt and output: all that the next token depends on.

    Attributes:
        prompt, output: which tokens there are, and how often; what penalties look at.
        matcher: where the output stands in the request's grammar, None without one.
    """

    def __init__(
        self,
        prompt: Iterable[int],
        output: Iterable[int] = (),
        matcher: GrammarMatcher | None = None,
    ) -> None:
        self.prompt = frozenset(prompt)
        self.output = Counter(output)
        self.num_output = self.output.total()
        self.matcher = matcher

    def append(self, token: int) -> None:
        """Count one more output token."""
        self.output[token] += 1
        self.num_output += 1
        if self.matcher is not None:
            self.matcher.advance(token)

    @property
    def failure(self) -> str:
        """Why no token can be chosen any more; empty while all is well."""
        return "" if self.matcher is None else self.matcher.failure

    @property
    def ended(self) -> bool:
        """Whether no token can follow, because the grammar is complete or has failed."""
        return self.matcher is not None and not self.matcher.open

    def copy(self) -> TokenHistory:
        """An independent history: for a drafter, that runs ahead on guesses."""
        twin = TokenHistory((), ())
        twin.prompt = self.prompt
        twin.output = self.output.copy()
        twin.num_output = self.num_output
        twin.matcher = None if self.matcher is None else self.matcher.copy()
        return twin


class LogitsProcessor:
    """All that a request's parameters do to a row of logits, up to the temperature.

    It sees the history as it is at that row. Since tokens are taken one at a time, a row at a
    draft position is processed exactly as plain decoding would process it.

    Args:
        params: the request's parameters.
        end_token_ids: tokens that are impossible before ``min_tokens``.
    """

    def __init__(self, params: SamplingParams, end_token_ids: frozenset[int]) -> None:
        self.params = params
        self._bias_ids = torch.tensor(list(params.logit_bias.keys()), dtype=torch.long)
        self._bias = torch.tensor(list(params.logit_bias.values()), dtype=torch.float32)
        self._end_ids = torch.tensor(sorted(end_token_ids), dtype=torch.long)

    def __call__(self, logits: Tensor, history: TokenHistory) -> Tensor:
        """Process one row.

        Args:
            logits: ``[vocab]`` float32, as the model gave them; left as they are.
            history: the tokens before this row.

        Returns:
            ``[vocab]`` float32; the input itself where nothing applies.
        """
        if self.leaves_alone(history):
            return logits
        logits = logits.clone()
        matcher = history.matcher
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self.params.penalised:
            self._penalise(logits, history)
        if matcher is not None:
            self._mask(logits, matcher)
        if self._suppresses(history):
            self._suppress(logits, self._end_ids, matcher)
        return logits

    def leaves_alone(self, history: TokenHistory) -> bool:
        """Whether nothing applies, to this row and to all that follow."""
        changes = self.params.penalised or self.params.logit_bias
        return not (changes or history.matcher is not None or self._suppresses(history))

    def _suppresses(self, history: TokenHistory) -> bool:
        return history.num_output < self.params.min_tokens and len(self._end_ids) > 0

    def _mask(self, logits: Tensor, matcher: GrammarMatcher) -> None:
        """Leave what the grammar allows; its end tokens not where the request ignores them."""
        allowed = torch.from_numpy(matcher.allowed())
        logits[~allowed] = -torch.inf
        if not bool(logits.max() > -torch.inf):
            # A draft model with a part of the vocabulary knows none of the allowed tokens.
            logits[allowed] = 0.0
        if self.params.ignore_eos:
            ends = torch.tensor(sorted(matcher.end_token_ids), dtype=torch.long)
            self._suppress(logits, ends, matcher)

    @staticmethod
    def _suppress(logits: Tensor, token_ids: Tensor, matcher: GrammarMatcher | None) -> None:
        """Make tokens impossible; under a grammar not where nothing else could follow."""
        before = logits[token_ids]
        logits[token_ids] = -torch.inf
        if matcher is not None and not bool(logits.max() > -torch.inf):
            logits[token_ids] = before

    def _penalise(self, logits: Tensor, history: TokenHistory) -> None:
        params = self.params
        if params.repetition_penalty != 1:
            seen = torch.tensor(sorted(history.prompt | history.output.keys()), dtype=torch.long)
            values = logits[seen]
            penalty = params.repetition_penalty
            logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
        if history.output and (params.presence_penalty or params.frequency_penalty):
            tokens = torch.tensor(list(history.output.keys()), dtype=torch.long)
            counts = torch.tensor(list(history.output.values()), dtype=torch.float32)
            logits[tokens] -= params.frequency_penalty * counts + params.presence_penalty


def distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """The probabilities that a token is drawn from: temperature, min_p, top_k, top_p.

    Args:
        logits: ``[vocab]`` float32, processed.
        params: the request's; at temperature 0 all mass is on the likeliest token.

    Returns:
        ``[vocab]`` float32, sums to 1.
    """
    if params.greedy:
        probs = torch.zeros_like(logits)
        probs[int(logits.argmax())] = 1.0
        return probs
    # Without the maximum, and not below the floor, no quotient overflows: at the floor already
    # every token but the likeliest has a probability of 0.
    scaled = (logits - logits.max()) / max(params.temperature, _COLDEST)
    probs = torch.softmax(scaled, dim=-1)
    if not params.filtered:
        return probs
    if params.min_p > 0:
        probs = torch.where(probs < params.min_p * probs.max(), 0.0, probs)
    if 0 < params.top_k < len(probs):
        kept, ids = probs.topk(params.top_k)
        probs = torch.zeros_like(probs).scatter_(0, ids, kept)
    if params.top_p < 1:
        probs = _nucleus(probs, params.top_p)
    return probs / probs.sum()


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens whose sum first reaches ``top_p`` of the mass.

    (Holtzman et al. 2020, arXiv 1904.09751.) The mass is that of what earlier filters left.
    """
    values = probs.numpy()
    wanted = top_p * float(probs.sum())
    # The nucleus is usually among a few likely tokens: sorting the vocabulary is the exception.
    ids = np.flatnonzero(values >= _LIKELY)
    if float(values[ids].sum()) < wanted:
        ids = np.arange(len(values))
    order = ids[np.argsort(-values[ids], kind="stable")]
    kept = values[order].astype(np.float64)
    inside = order[: 1 + np.searchsorted(np.cumsum(kept), wanted)]
    nucleus = torch.zeros_like(probs)
    nucleus.numpy()[inside] = values[inside]
    return nucleus
