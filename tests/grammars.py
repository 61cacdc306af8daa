"""Grammars over the engines' vocabulary of 96 tokens: a character each, some pairs, and an end."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import llguidance
from llguidance import TokenizerWrapper

from outpace.grammar.compiler import GrammarCompiler

END = 2
_PAIRS = [b'":', b'",', b'{"', b'"}', b"tr", b"ue", b"12", b"[]", b"{}", b"ab", b'a"', b'["']
_CHARACTERS = b' "{}[],:-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFG_+/\\<>()=*?!#%&;@$~'
TOKENS: list[bytes] = [b"<0>", b"<1>", b"<end>", *(bytes([c]) for c in _CHARACTERS), *_PAIRS]
TOKENS += [b"%dz" % i for i in range(96 - len(TOKENS))]
assert len(TOKENS) == len(set(TOKENS)) == 96


class _Greedy:
    """The longest token at each place: all that the library wants to know of a tokenizer."""

    eos_token_id = END
    bos_token_id = None
    tokens = TOKENS
    special_token_ids = (0, 1, END)

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        ids = []
        while data:
            found = max((t for t in TOKENS[3:] if data.startswith(t)), key=len, default=None)
            if found is None:
                raise ValueError(f"no token for {data[:1]!r}")
            ids.append(TOKENS.index(found))
            data = data[len(found) :]
        return ids


encode = _Greedy()


def decode(token_ids: list[int]) -> str:
    """The text of tokens; ends are nothing."""
    return b"".join(TOKENS[t] for t in token_ids if t > END).decode()


@cache
def compiler() -> GrammarCompiler:
    return GrammarCompiler(
        lambda: llguidance.LLTokenizer(TokenizerWrapper(_Greedy()), n_vocab=96, eos_token=[END]),
        96,
        frozenset([END]),
    )


def random_schema(seed: int, depth: int = 2) -> dict[str, Any]:
    """A schema of the common keywords; every text that it accepts ends before long."""
    return _schema(random.Random(seed), depth, top=True)


def _schema(rng: random.Random, depth: int, top: bool = False) -> dict[str, Any]:
    leaves = ["string", "integer", "boolean", "enum", "null", "const", "pattern", "number"]
    branches = ["object", "object", "array", "anyOf"]
    kind = rng.choice(branches if top else [*branches, *leaves] if depth else leaves)
    match kind:
        case "object":
            names = rng.sample(["a", "ab", "id", "name", "tags", "x", "y"], rng.randint(1, 4))
            return {
                "type": "object",
                "properties": {name: _schema(rng, depth - 1) for name in names},
                "required": rng.sample(names, rng.randint(0, len(names))),
                "additionalProperties": False,
            }
        case "array":
            low = rng.randint(0, 2)
            return {
                "type": "array",
                "items": _schema(rng, depth - 1),
                "minItems": low,
                "maxItems": low + rng.randint(0, 2),
            }
        case "anyOf":
            return {"anyOf": [_schema(rng, depth - 1) for _ in range(rng.randint(2, 3))]}
        case "string":
            low = rng.randint(0, 3)
            return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 5)}
        case "integer":
            low = rng.randint(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 200)}
        case "number":
            return {"type": "number", "minimum": 0, "maximum": rng.choice([1, 10])}
        case "enum":
            return {"enum": rng.sample(["red", "green", "blue", 1, 2, None, True, "ab"], 3)}
        case "const":
            return {"const": rng.choice(["fixed", 7, False])}
        case "pattern":
            patterns = ["^[a-f]{2,4}$", "^(yes|no)$", "^x+[0-9]$"]
            return {"type": "string", "pattern": rng.choice(patterns)}
        case _:
            return {"type": kind}
