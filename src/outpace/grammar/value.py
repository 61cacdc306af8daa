"""What a request may ask of the form of its answer: a plain value, checked when it is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outpace.config import check_type
from outpace.errors import InvalidValueError

GrammarKind = Literal["json_object", "json_schema", "regex", "lark", "tools"]
MAX_SCHEMA_CHARACTERS = 128 * 1024
# Expressions and grammars can ask for far more work in fewer characters.
MAX_GRAMMAR_CHARACTERS = 8 * 1024
_KINDS = ("json_object", "json_schema", "regex", "lark", "tools")


@dataclass(frozen=True, slots=True)
class Grammar:
    """The language that an answer must belong to.

    Attributes:
        kind: ``json_object`` (any JSON object), ``json_schema``, ``regex`` (the whole answer,
            without look-around and back-references), ``lark`` (a context-free grammar in
            llguidance's dialect of Lark, which begins at the rule ``start``), or ``tools``: the
            same, put together by `outpace.text.tools` around the schemas of arguments.
        text: the schema as JSON, the expression or the grammar; empty for ``json_object``.

    Raises:
        InvalidValueError: an unknown kind, a text that is too long, or a schema that is not JSON.
            Whether it compiles is known when a request with it meets a model, before it starts.
    """

    kind: GrammarKind
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidValueError("grammar", self.kind, f"choose one of {', '.join(_KINDS)}")
        check_type(self.kind, self.text, str, "a text")
        if self.kind == "json_object":
            if self.text:
                raise InvalidValueError("json_object", self.text, "takes no text; use json_schema")
            return
        if not self.text:
            raise InvalidValueError(self.kind, "", "must have at least one character")
        schemas = self.kind in ("json_schema", "tools")
        most = MAX_SCHEMA_CHARACTERS if schemas else MAX_GRAMMAR_CHARACTERS
        if len(self.text) > most:
            raise InvalidValueError(
                self.kind, f"{len(self.text)} characters", f"give at most {most}"
            )
        if self.kind == "json_schema":
            _check_schema(self.text)

    @classmethod
    def json_object(cls) -> Grammar:
        """Any JSON object."""
        return cls("json_object")

    @classmethod
    def json_schema(
        cls, schema: str | bool | Mapping[str, Any], *, compact: bool = False
    ) -> Grammar:
        """JSON that a schema accepts.

        Args:
            schema: as JSON text or as the value that it stands for.
            compact: write the answer without white space, which leaves fewer tokens to choose
                and more that are forced. Otherwise white space is the model's own choice.
        """
        if compact:
            value = cls("json_schema", schema).value if isinstance(schema, str) else schema
            rest = value if isinstance(value, Mapping) else {}
            schema = {**rest, "x-guidance": {"whitespace_flexible": False}}
        if not isinstance(schema, str):
            schema = _as_json(schema)
        return cls("json_schema", schema)

    @classmethod
    def regex(cls, expression: str) -> Grammar:
        """A text that a regular expression matches from beginning to end."""
        return cls("regex", expression)

    @classmethod
    def lark(cls, grammar: str) -> Grammar:
        """A text of a context-free grammar."""
        return cls("lark", grammar)

    @property
    def value(self) -> Any:
        """The schema, parsed; that of any object for ``json_object``."""
        return {"type": "object"} if self.kind == "json_object" else json.loads(self.text)


def _check_schema(text: str) -> None:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError("json_schema", text, f"is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise InvalidValueError("json_schema", text, "must be a JSON object")


def _as_json(schema: object) -> str:
    wanted = "give a JSON schema as a text or a mapping"
    if not isinstance(schema, Mapping | bool):
        raise InvalidValueError("json_schema", schema, wanted)
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError("json_schema", schema, f"{wanted}: {error}") from error
