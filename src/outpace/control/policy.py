"""What an operator decides about drafters by type of request, whatever the numbers say."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outpace.config.toml_file import read_toml
from outpace.control.rules import NAME, NAME_IN_WORDS
from outpace.errors import InvalidValueError

_KEYS = ("pin", "forbid", "order")
_JOINTS = re.compile(r"[+|]")


@dataclass(frozen=True, slots=True)
class TypePolicy:
    """For one type.

    Attributes:
        pin: this drafter and no other, as long as it can be had.
        forbid: never these, nor a drafter that asks one of them.
        order: who comes first when nobody's gain is known to be larger, and the fallback chain
            where the chosen one cannot be had.
    """

    pin: str | None = None
    forbid: frozenset[str] = frozenset()
    order: tuple[str, ...] = ()

    def forbids(self, drafter: str) -> bool:
        """Whether a drafter is forbidden, or one that it is made of."""
        if not self.forbid:
            return False
        return not self.forbid.isdisjoint({drafter, *_JOINTS.split(drafter)})


@dataclass(frozen=True, slots=True)
class DrafterPolicy:
    """What holds for all types, and for single ones instead."""

    default: TypePolicy = TypePolicy()
    types: Mapping[str, TypePolicy] = field(default_factory=dict)

    def of(self, request_type: str) -> TypePolicy:
        """The policy of a type; keys that it leaves out are those of the default."""
        return self.types.get(request_type, self.default)


def read_policy(path: str | Path, drafters: Collection[str] | None = None) -> DrafterPolicy:
    """Read a policy from a TOML file.

    A table ``[default]`` and a table ``[types.NAME]`` for each type that differs, all with the
    keys ``pin = "NAME"``, ``forbid = ["NAME", ...]`` and ``order = ["NAME", ...]``.

    Args:
        path: of the file.
        drafters: that are loaded, to refuse others; None checks no names.

    Raises:
        InvalidValueError: the file cannot be read, or says what it cannot.
    """
    content = read_toml("policy", path)
    unknown = sorted(set(content) - {"default", "types"})
    if unknown:
        raise InvalidValueError("policy", unknown[0], "write [default] and [types.NAME] alone")
    default = _type_policy("default", content.get("default", {}), TypePolicy(), drafters)
    tables = content.get("types", {})
    if not isinstance(tables, dict):
        raise InvalidValueError("policy types", tables, "write a table [types.NAME] for each")
    types = {}
    for name, table in tables.items():
        if not NAME.fullmatch(name):
            raise InvalidValueError("policy type", name, NAME_IN_WORDS)
        types[name] = _type_policy(f"types.{name}", table, default, drafters)
    return DrafterPolicy(default, types)


def _type_policy(
    where: str, table: Any, default: TypePolicy, drafters: Collection[str] | None
) -> TypePolicy:
    if not isinstance(table, dict):
        raise InvalidValueError(f"policy {where}", table, f"write a table [{where}]")
    for key in table:
        if key not in _KEYS:
            raise InvalidValueError(f"policy {where}", key, f"has the keys {', '.join(_KEYS)}")
    pin = table.get("pin", default.pin)
    forbid = _names(where, "forbid", table.get("forbid", sorted(default.forbid)))
    order = _names(where, "order", table.get("order", list(default.order)))
    if pin is not None and (not isinstance(pin, str) or not pin):
        raise InvalidValueError(f"policy {where}: pin", pin, "give the name of one drafter")
    for name in order:
        if order.count(name) > 1:
            raise InvalidValueError(f"policy {where}: order", name, "is named twice; name it once")
    if "none" in forbid:
        raise InvalidValueError(
            f"policy {where}: forbid", "none", "plain decoding is where every chain ends"
        )
    if pin in forbid:
        raise InvalidValueError(f"policy {where}: pin", pin, "is also forbidden; do one of both")
    for name in (*([pin] if pin else []), *forbid, *order):
        if drafters is not None and name not in drafters:
            loaded = ", ".join(sorted(drafters))
            raise InvalidValueError(f"policy {where}", name, f"is no drafter here: {loaded}")
    return TypePolicy(pin, frozenset(forbid), tuple(order))


def _names(where: str, key: str, value: Any) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise InvalidValueError(f"policy {where}: {key}", value, "give a list of drafters' names")
    return value
