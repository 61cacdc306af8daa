"""What is compared: a controller for each way to decode, as written on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outpace.config import MAX_SPECULATIVE_TOKENS, check_integer
from outpace.control.automatic import AutomaticController
from outpace.control.controller import Controller, FixedController
from outpace.control.policy import DrafterPolicy
from outpace.control.routed import RoutedController
from outpace.control.router import Router
from outpace.errors import InvalidValueError
from outpace.simulate.machine import Machine

PLAIN, ROUTED = "off", "router"
_SPELLINGS = "write off, router, or sources joined by + with :k=N or :k=auto behind"
_K = re.compile(r"(.+):k=(auto|[0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to decode.

    Attributes:
        name: as it was written.
        drafter: that requests start with.
        k: draft tokens a step; None chooses them by the cost of steps.
    """

    name: str
    drafter: str
    k: int | None


def parse_policy(text: str, sources: Sequence[str]) -> Policy:
    """Read ``off``, ``router``, or for example ``ngram:k=4``, ``model:k=auto``, ``ngram+model``.

    Raises:
        InvalidValueError: it is none of these, or names a source that guesses nothing.
    """
    if text == PLAIN:
        return Policy(PLAIN, "none", 0)
    if text == ROUTED:
        return Policy(ROUTED, "none", None)
    found = _K.fullmatch(text)
    drafter, amount = (found[1], found[2]) if found else (text, "auto")
    for name in drafter.split("+"):
        if name not in sources:
            known = ", ".join(sources) or "none"
            raise InvalidValueError("policy", text, f"{_SPELLINGS}; the workload has {known}")
    if amount == "auto":
        return Policy(f"{drafter}:k=auto", drafter, None)
    check_integer("policy k", int(amount), 0, MAX_SPECULATIVE_TOKENS)
    return Policy(f"{drafter}:k={int(amount)}", drafter, int(amount))


def sources_of(policies: Sequence[Policy], sources: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By drafter, the sources that it asks: each single one, all in a row, and those named."""
    drafters: dict[str, tuple[str, ...]] = {"none": ()}
    drafters.update({name: (name,) for name in sources})
    if len(sources) > 1:
        drafters["+".join(sources)] = tuple(sources)
    for policy in policies:
        drafters.setdefault(policy.drafter, tuple(policy.drafter.split("+")))
    return drafters


def controller(
    policy: Policy,
    machine: Machine,
    sources: Mapping[str, tuple[str, ...]],
    rules: DrafterPolicy | None = None,
    seed: int = 0,
) -> Controller:
    """A new controller, which knows the machine's tables and nothing of the requests.

    Args:
        policy: the way to decode.
        machine: whose tables it gets a copy of.
        sources: by drafter.
        rules: what a router must keep to.
        seed: of the router's choices.
    """
    if policy.k is not None:
        return FixedController(policy.k)
    automatic = AutomaticController(machine.known_target(), machine.known_drafts())
    if policy.name != ROUTED:
        return automatic
    return RoutedController(automatic, Router(rules, seed=seed), sources)
