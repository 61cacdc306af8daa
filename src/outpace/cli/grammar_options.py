"""Options for the form of an answer, and the grammar that they become."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from outpace.errors import InvalidValueError
from outpace.grammar import Grammar

_PANEL = "Form of the answer"


@dataclass(frozen=True, slots=True)
class GrammarOptions:
    """What the answer must look like; one of them at most."""

    json_object: Annotated[
        bool, Option("--json-object", help="Any JSON object.", rich_help_panel=_PANEL)
    ] = False
    json_schema: Annotated[
        str | None,
        Option(
            metavar="FILE|TEXT",
            help="JSON that this schema accepts: a file, or the schema itself.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    regex: Annotated[
        str | None,
        Option(help="A text that this expression matches.", rich_help_panel=_PANEL),
    ] = None
    lark: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="A text of the Lark grammar in this file.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def grammar(self) -> Grammar | None:
        """Return the grammar, None where the answer is free.

        Raises:
            InvalidValueError: two of the options, a file that cannot be read, or a schema that
                is not JSON.
        """
        given = [
            name for name in ("json_object", "json_schema", "regex", "lark") if getattr(self, name)
        ]
        if len(given) > 1:
            first, second = (f"--{name.replace('_', '-')}" for name in given[:2])
            raise InvalidValueError(second, getattr(self, given[1]), f"cannot go with {first}")
        if self.json_object:
            return Grammar.json_object()
        if self.json_schema is not None:
            text = self.json_schema
            inline = text.lstrip().startswith("{")
            return Grammar.json_schema(text if inline else _read("json_schema", text))
        if self.regex is not None:
            return Grammar.regex(self.regex)
        return None if self.lark is None else Grammar.lark(_read("lark", self.lark))


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or "it is not UTF-8 or not a file's name")
        raise InvalidValueError(name, path, f"the file cannot be read: {reason}") from error
