"""A tokenizer as the grammar library sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from llguidance import LLTokenizer


def grammar_vocabulary(
    tokenizer_json: str, vocab_size: int, end_token_ids: frozenset[int]
) -> LLTokenizer:
    """Read a tokenizer for grammars; takes about a second for a vocabulary of 150 000.

    Args:
        tokenizer_json: the tokenizer in Hugging Face's format.
        vocab_size: of the model's logits, which may be padded.
        end_token_ids: the model's end-of-sequence tokens.

    Raises:
        InvalidValueError: the tokenizer is of a kind that grammars cannot be applied to.
    """
    import llguidance

    if not end_token_ids:
        raise InvalidValueError(
            "grammar", "", "needs a model with an end-of-sequence token; this one has none"
        )
    try:
        return llguidance.LLTokenizer(
            tokenizer_json, n_vocab=vocab_size, eos_token=sorted(end_token_ids)
        )
    except ValueError as error:
        raise InvalidValueError(
            "grammar", "", f"cannot be applied to this model's tokenizer: {error}"
        ) from error
