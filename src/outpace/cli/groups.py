"""Groups of options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class Without(frozenset[str]):
    """Marks options of a group that a command does not offer; they keep their defaults.

    ``engine: Annotated[EngineOptions, Without({"drafter"})]``
    """


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses as parameters: their fields become its options.

    Typer reads a command's signature. This one shows it the fields of every parameter that is a
    dataclass, and gathers them again when the command is called.
    """
    hints = get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Any], Without]] = {}
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        group, hidden = _group(hint)
        if group is not None:
            groups[parameter.name] = group, hidden
            shown.extend(option for option in _options(group) if option.name not in hidden)
        else:
            shown.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def gathered(**values: Any) -> None:
        for name, (group, hidden) in groups.items():
            # What is hidden may be a parameter of the command's own.
            fields = {field.name for field in dataclasses.fields(group)} - hidden
            own = [field for field in fields if field in values]
            values[name] = group(**{field: values.pop(field) for field in own})
        command(**values)

    gathered.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    gathered.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return gathered


def _group(hint: Any) -> tuple[type[Any] | None, Without]:
    """The dataclass that a parameter stands for, if it is one, and which fields to hide."""
    hidden = Without()
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        hidden = next((mark for mark in marks if isinstance(mark, Without)), hidden)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint, hidden
    return None, hidden


def _options(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]
