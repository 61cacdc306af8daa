"""Reading the JSON object of one call, a character at a time."""

from __future__ import annotations

import json
from enum import Enum, auto

_ARGUMENTS = ("arguments", "parameters")


class _At(Enum):
    OPEN = auto()
    KEY = auto()
    IN_KEY = auto()
    COLON = auto()
    VALUE = auto()
    IN_VALUE = auto()
    COMMA = auto()
    DONE = auto()


class CallScanner:
    """Follows ``{"name": …, "arguments": …}``; other members are passed over.

    Attributes:
        name: of the function, once it is known.
        broken: whether it is not the object of a call; what came since is not looked at.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.broken = False
        self._fresh = ""
        self._at = _At.OPEN
        self._key = ""
        self._value = ""
        self._depth = 0
        self._in_string = self._escaped = False

    @property
    def done(self) -> bool:
        """Whether the object is closed."""
        return self._at is _At.DONE

    @property
    def between(self) -> bool:
        """Whether a member has just ended."""
        return self._at is _At.COMMA

    def take(self) -> str:
        """The text of the arguments that is new since the last call; none before the name."""
        if self.name is None:
            return ""
        fresh, self._fresh = self._fresh, ""
        return fresh

    def push(self, character: str) -> None:
        """Take the next character."""
        match self._at:
            case _At.IN_KEY:
                self._push_key(character)
            case _At.IN_VALUE:
                self._push_value(character)
            case _ if character.isspace():
                return
            case _At.OPEN:
                self._expect(character == "{", _At.KEY)
            case _At.KEY if character == "}":
                self._close()
            case _At.KEY:
                self._expect(character == '"', _At.IN_KEY)
                self._key = ""
            case _At.COLON:
                self._expect(character == ":", _At.VALUE)
            case _At.VALUE:
                self._at, self._value, self._depth = _At.IN_VALUE, "", 0
                self._push_value(character)
            case _At.COMMA if character == "}":
                self._close()
            case _:
                self._expect(character == ",", _At.KEY)

    def _expect(self, right: bool, then: _At) -> None:
        self.broken = self.broken or not right
        self._at = then

    def _close(self) -> None:
        self.broken = self.broken or self.name is None
        self._at = _At.DONE

    def _push_key(self, character: str) -> None:
        if character == '"' and not self._escaped:
            self._at = _At.COLON
        self._escaped = character == "\\" and not self._escaped
        self._key += character if self._at is _At.IN_KEY else ""

    def _push_value(self, character: str) -> None:
        """One character of a member's value; a scalar ends where the next member begins."""
        scalar = self._depth == 0 and not self._in_string and self._value[:1] not in ("", '"')
        if scalar and character in ",}":
            self._end_value()
            self.push(character)
            return
        if self._depth == 0 and not self._value and character in ",}]:":
            self.broken = True
            return
        self._value += character
        if self._in_string:
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        if self._key in _ARGUMENTS and self._value[0] == "{":
            self._fresh += character
        if not self._in_string and self._depth == 0 and character in '"}]':
            self._end_value()

    def _end_value(self) -> None:
        self._at = _At.COMMA
        if self._key == "name":
            self.name = _text(self._value)
            self.broken = self.broken or not self.name
        elif self._key in _ARGUMENTS and self._value[0] != "{":
            # Some models write the arguments as a text that holds JSON.
            self._fresh += _text(self._value) or ""


def _text(value: str) -> str | None:
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, str) else None
