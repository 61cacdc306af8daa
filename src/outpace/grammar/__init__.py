"""Grammars: what a request asks for, how it is compiled, and the state that follows the tokens."""

from outpace.grammar.value import MAX_GRAMMAR_CHARACTERS, MAX_SCHEMA_CHARACTERS, Grammar

__all__ = ["MAX_GRAMMAR_CHARACTERS", "MAX_SCHEMA_CHARACTERS", "Grammar"]
