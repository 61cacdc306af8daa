"""The door: requests are checked here, whole, before anything is taken in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from outpace.config import MAX_SPECULATIVE_TOKENS, Verification, check_integer
from outpace.engine.output import SequenceOutput, TextSink
from outpace.engine.sequence import Sequence, TokenBuffer
from outpace.errors import InvalidValueError
from outpace.grammar.compiler import GrammarCompiler
from outpace.grammar.matcher import GrammarMatcher
from outpace.model.config import ModelConfig
from outpace.request import Request, SamplingParams
from outpace.sampling.noise import fresh_seed, sample_seed
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.verifier import MatchVerifier, RejectionVerifier, Verifier


class Admission:
    """Turns requests into sequences.

    Args:
        model: the target's configuration.
        max_model_len: longest context in tokens.
        verification: the engine's rule.
        drafters: the names that a request may choose from.
        default_drafter: for requests that choose none.
        open_text: makes the text end of a sequence.
        grammars: compiles what requests ask of the form of their answers; None: nothing can.
    """

    def __init__(
        self,
        model: ModelConfig,
        max_model_len: int,
        verification: Verification,
        drafters: Collection[str],
        default_drafter: str,
        open_text: Callable[[SamplingParams], TextSink],
        grammars: GrammarCompiler | None = None,
    ) -> None:
        self.max_model_len = max_model_len
        self._vocab_size = model.vocab_size
        # One beyond the vocabulary can never be emitted.
        self._eos_token_ids = frozenset(t for t in model.eos_token_ids if t < model.vocab_size)
        self._verification = verification
        self._drafters = frozenset(drafters)  # the names alone: what is behind them may change
        self._default_drafter = default_drafter
        self._open_text = open_text
        self._grammars = grammars
        self._num_sequences = 0

    def open(self, request: Request) -> list[Sequence]:
        """The n sequences of a request.

        Raises:
            InvalidValueError: the request cannot be honoured.
        """
        self.check(request)
        seed = request.params.seed if request.params.seed is not None else fresh_seed()
        sequences: list[Sequence] = []
        for index in range(request.params.n):
            leader = sequences[0] if sequences else None
            sequences.append(self._open(request, index, sample_seed(seed, index), leader))
        return sequences

    def _open(self, request: Request, index: int, seed: int, leader: Sequence | None) -> Sequence:
        params, prompt = request.params, request.prompt_token_ids
        limit = self.max_model_len - len(prompt)
        if params.max_tokens is not None:
            limit = min(limit, params.max_tokens)
        self._num_sequences += 1
        matcher = self._matcher(params)
        return Sequence(
            seq_id=self._num_sequences,
            request=request,
            index=index,
            tokens=TokenBuffer(prompt),
            sampler=TokenSampler(params, seed, self._ends(params)),
            history=TokenHistory(prompt, matcher=matcher),
            output=SequenceOutput(
                params, self._eos_token_ids, limit, self._open_text(params), matcher
            ),
            verifier=self._choose_verifier(params),
            drafter=request.drafter or self._default_drafter,
            leader=leader,
        )

    def _matcher(self, params: SamplingParams) -> GrammarMatcher | None:
        """The state of a new sequence in its grammar."""
        if params.grammar is None:
            return None
        if self._grammars is None:
            kind = params.grammar.kind
            raise InvalidValueError("grammar", kind, "this engine has no tokenizer for it")
        return self._grammars.compile(params.grammar)

    def _ends(self, params: SamplingParams) -> frozenset[int]:
        """The tokens that end a sequence."""
        stops = frozenset(params.stop_token_ids)
        return stops if params.ignore_eos else stops | self._eos_token_ids

    def _choose_verifier(self, params: SamplingParams) -> Verifier:
        """Coupled where the user can tell the difference, rejection where it accepts more."""
        rule = self._verification
        if rule == "auto":
            rule = "coupled" if params.greedy or params.seed is not None else "rejection"
        return RejectionVerifier() if rule == "rejection" else MatchVerifier()

    def check(self, request: Request) -> None:
        """Refuse a request that cannot be honoured.

        A grammar is compiled here, which can take a while; `open` then finds it compiled. This
        may be called in another thread than the engine's.

        Raises:
            InvalidValueError: naming the field, its value and the way out.
        """
        prompt = request.prompt_token_ids
        if not prompt:
            raise InvalidValueError("prompt", "", "must have at least one token")
        if len(prompt) >= self.max_model_len:
            raise InvalidValueError(
                "prompt",
                f"{len(prompt)} tokens",
                f"must be shorter than the context of {self.max_model_len} tokens",
            )
        if request.drafter is not None and request.drafter not in self._drafters:
            loaded = ", ".join(sorted(self._drafters))
            raise InvalidValueError("drafter", request.drafter, f"choose a loaded one: {loaded}")
        if request.num_speculative_tokens is not None:
            check_integer(
                "num_speculative_tokens",
                request.num_speculative_tokens,
                0,
                MAX_SPECULATIVE_TOKENS,
            )
        ends = self._ends(request.params)
        if request.params.min_tokens > 0 and len(ends) >= self._vocab_size:
            raise InvalidValueError(
                "stop_token_ids", f"{len(ends)} tokens", "leave one that can go before min_tokens"
            )
        self._check_token_ids("prompt", prompt)
        self._check_token_ids("prediction", request.prediction)
        self._check_token_ids("logit_bias", request.params.logit_bias)
        self._check_token_ids("stop_token_ids", request.params.stop_token_ids)
        self._matcher(request.params)

    def _check_token_ids(self, name: str, token_ids: Iterable[int]) -> None:
        for token in token_ids:
            if not 0 <= token < self._vocab_size:
                raise InvalidValueError(
                    f"{name} (token id)", token, f"the vocabulary has 0 to {self._vocab_size - 1}"
                )
