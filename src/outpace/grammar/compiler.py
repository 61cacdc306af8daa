"""From a grammar to the first state of a sequence: compiled once, within limits."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from outpace.errors import InvalidValueError
from outpace.grammar.matcher import GrammarMatcher
from outpace.grammar.value import Grammar

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_KEPT = 64  # compiled grammars
# White space between the parts of JSON: some, or a line break and an indentation. Small models get
# lost in empty lines, where these are allowed.
_FREE_SPACE: Any = {"whitespace_pattern": r"[\x20\x09]{0,4}|\x0D?\x0A[\x20\x09]{0,40}"}
# What compiling may cost, and one mask: for what these let through there is a limit of time.
_LIMITS = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 10_000,
    "max_items_in_row": 2_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 250_000,
    "verbose_errors": False,
}


class GrammarCompiler:
    """Compiles grammars for one model's vocabulary; may be used by several threads.

    The vocabulary is prepared at the first grammar, so that an engine that never meets one does
    not pay for it. Compiling can take some hundred milliseconds: a server calls `compile` in a
    thread of its own before it gives the request to the step loop, which then finds it here.

    Args:
        vocabulary: makes the library's view of the tokenizer.
        vocab_size: of the model's logits.
        end_token_ids: the model's end-of-sequence tokens.
    """

    def __init__(
        self,
        vocabulary: Callable[[], LLTokenizer],
        vocab_size: int,
        end_token_ids: frozenset[int],
    ) -> None:
        self._open_vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._end_token_ids = end_token_ids
        self._vocabulary: LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, GrammarMatcher] = OrderedDict()
        self._lock, self._vocabulary_lock = Lock(), Lock()

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        """The state before the first token.

        Raises:
            InvalidValueError: the grammar does not compile or is too large, with what the
                library says; or the library is not installed.
        """
        with self._lock:
            found = self._compiled.get(grammar)
        # Outside the lock: whoever looks for another grammar must not wait for this one.
        compiled = found or self._compile(grammar)
        with self._lock:
            kept = self._compiled.setdefault(grammar, compiled)
            self._compiled.move_to_end(grammar)
            while len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
            return kept.copy()

    def _compile(self, grammar: Grammar) -> GrammarMatcher:
        try:
            import llguidance
        except ImportError as error:
            raise InvalidValueError(
                "grammar", grammar.kind, "needs llguidance: pip install 'outpace[grammar]'"
            ) from error
        with self._vocabulary_lock:
            if self._vocabulary is None:
                self._vocabulary = self._open_vocabulary()
        limits = llguidance.LLParserLimits(**_LIMITS)  # type: ignore[arg-type]
        try:
            source = _source(grammar)
            state = llguidance.LLMatcher(self._vocabulary, source, log_level=0, limits=limits)
        except (ValueError, RecursionError) as error:
            raise _refusal(grammar, str(error)) from error
        if state.is_error():
            raise _refusal(grammar, state.get_error())
        matcher = GrammarMatcher(state, self._vocab_size, self._end_token_ids)
        matcher.allowed()  # what fails at once is refused at the door
        if matcher.failure:
            raise _refusal(grammar, matcher.failure)
        return matcher


def _source(grammar: Grammar) -> str:
    """The grammar as the library takes it."""
    from llguidance import LLMatcher

    match grammar.kind:
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "lark" | "tools":
            return LLMatcher.grammar_from_lark(grammar.text)
        case _:
            schema = grammar.value
            wishes = schema.get("x-guidance") if isinstance(schema, dict) else None
            # A schema's own wish about white space counts, which the pattern would overrule.
            free = not isinstance(wishes, dict) or "whitespace_flexible" not in wishes
            return LLMatcher.grammar_from_json_schema(
                json.dumps(schema), defaults=_FREE_SPACE if free else {}
            )


def _refusal(grammar: Grammar, said: str) -> InvalidValueError:
    """One line with what the library says, which draws arrows below its first lines."""
    reason = " ".join(line.strip() for line in said.splitlines() if set(line.strip()) - {"^"})
    return InvalidValueError(
        "grammar" if grammar.kind == "json_object" else grammar.kind,
        grammar.text,
        f"cannot be used as a grammar: {reason[:300]}",
    )
