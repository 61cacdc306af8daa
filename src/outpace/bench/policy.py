"""What is compared: who drafts and how much, as written on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outpace.config import (
    MAX_SPECULATIVE_TOKENS,
    DrafterConfig,
    check_integer,
    parse_drafter,
)
from outpace.errors import InvalidValueError

PLAIN = "off"
_K = re.compile(r"^(.*):k=([^:=]*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to decode.

    Attributes:
        name: as it was written; ``off`` is plain decoding.
        drafter: the engine's configuration of it.
        k: draft tokens a step, or ``auto``.
    """

    name: str
    drafter: DrafterConfig
    k: int | Literal["auto"]

    @property
    def plain(self) -> bool:
        """Whether this is what the others are compared with."""
        return self.name == PLAIN


def parse_policy(text: str) -> Policy:
    """Read ``off``, or a drafter's spelling with ``:k=N`` or ``:k=auto`` behind it.

    Without a k it is ``auto``: as many draft tokens as pay off.

    Raises:
        InvalidValueError: naming what cannot be read and what can.
    """
    if text == PLAIN:
        return Policy(PLAIN, parse_drafter("none"), 0)
    found = _K.match(text)
    spelling, amount = found.groups() if found else (text, "auto")
    if spelling in ("", PLAIN, "none"):
        raise InvalidValueError("policy", text, "write off for plain decoding, alone")
    k: int | Literal["auto"] = "auto"
    if amount != "auto":
        try:
            k = int(amount)
        except ValueError:
            way_out = "write a number or auto behind k=, for example ngram:k=4"
            raise InvalidValueError("policy", text, way_out) from None
        check_integer("policy k", k, 0, MAX_SPECULATIVE_TOKENS)
    return Policy(f"{spelling}:k={k}", parse_drafter(spelling), k)


def parse_policies(texts: Sequence[str]) -> tuple[Policy, ...]:
    """Read all policies; plain decoding is added in front if it is not among them.

    Raises:
        InvalidValueError: one that cannot be read, or one twice.
    """
    policies = [parse_policy(text) for text in texts]
    if not any(policy.plain for policy in policies):
        policies.insert(0, parse_policy(PLAIN))
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise InvalidValueError("policy", name, "is there twice; name each once")
    return tuple(policies)
