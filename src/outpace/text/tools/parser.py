"""Reading calls out of an answer, whole or while it is being written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from outpace.text.tools.family import CallFormat
from outpace.text.tools.scanner import CallScanner

_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer that is not part of a call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; ``index`` counts the calls of an answer from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of the arguments of the call ``index``, as JSON text."""

    index: int
    text: str


Delta = TextDelta | CallStart | ArgumentsDelta


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call; ``arguments`` is JSON as the model wrote it."""

    name: str
    arguments: str


class _In(Enum):
    TEXT = auto()
    HEAD = auto()  # after the begin: a list, an object or a name comes
    NAME = auto()
    CALL = auto()
    AFTER = auto()


class CallParser:
    """Splits an answer into text and calls, a character at a time.

    So the pieces in which it comes make no difference. Text before a call is given out at once,
    but for what may be the begin of a call; white space around calls is left out. What looks
    like a call and is none, for instance of a function that does not exist, is text.

    Args:
        form: the family's format.
        names: of the tools that may be called.
    """

    def __init__(self, form: CallFormat, names: Collection[str]) -> None:
        self._form = form
        self._names = frozenset(names)
        self._in = _In.TEXT
        self._out: list[Delta] = []
        self._held = ""  # may become the begin or the end
        self._space = ""  # shown only if text follows
        self._raw = ""  # of a call that has not started yet
        self._name = ""
        self._listed = False
        self._nothing_yet = True
        self._scanner = CallScanner()
        self._started = False
        self._bare_name = False  # the call's object was never written, only its arguments
        self.num_calls = 0

    def push(self, text: str) -> list[Delta]:
        """Take a piece; returns what is certain now."""
        for character in text:
            self._push(character)
        return self._taken()

    def flush(self) -> list[Delta]:
        """End the answer: returns what was held back."""
        if self._in in (_In.HEAD, _In.NAME, _In.CALL):
            self._give_up()
        held, self._held = self._held, ""
        if self._in is _In.TEXT or not self._form.end.startswith(held):
            self._say(held)
        if self._space and not self.num_calls:
            self._out.append(TextDelta(self._space))
        self._space = ""
        return self._taken()

    def _taken(self) -> list[Delta]:
        out, self._out = self._out, []
        return list(joined(out))

    def _push(self, character: str) -> None:
        match self._in:
            case _In.TEXT:
                self._push_text(character)
            case _In.HEAD:
                self._push_head(character)
            case _In.NAME:
                self._push_name(character)
            case _In.CALL:
                self._push_call(character)
            case _In.AFTER:
                self._push_after(character)

    def _push_text(self, character: str) -> None:
        bare = self._form.bare and self._nothing_yet and not self._held
        if bare and character == "{":
            self._enter(character)
            self._start_object()
            return
        self._held += character
        begin = self._form.begin
        if self._held == begin:
            self._held = ""
            self._enter(begin)
            return
        while self._held and not begin.startswith(self._held):
            self._say(self._held[0])
            self._held = self._held[1:]

    def _enter(self, raw: str, *, listed: bool = False) -> None:
        self._in, self._raw, self._listed = _In.HEAD, raw, listed
        self._started = self._bare_name = False

    def _push_head(self, character: str) -> None:
        self._raw += character
        if character.isspace():
            return
        if character == "{":
            self._start_object()
        elif character == "[" and self._form.listed and not self._listed:
            self._listed = True
        elif self._form.listed and not self._listed:
            self._in, self._name = _In.NAME, character
        else:
            self._give_up()

    def _start_object(self) -> None:
        self._in, self._scanner = _In.CALL, CallScanner()
        self._scanner.push("{")

    def _push_name(self, character: str) -> None:
        """Newer Mistral models: the name as it is, then ``[ARGS]`` or the arguments themselves."""
        self._raw += character
        if character != "{":
            self._name += character
            if len(self._name) > _LONGEST_NAME + len("[ARGS]"):
                self._give_up()
            return
        name = self._name.removesuffix("[ARGS]").strip()
        if name not in self._names:
            self._give_up()
            return
        self._in, self._scanner, self._bare_name = _In.CALL, CallScanner(), True
        for written in f'{{"name": "{name}", "arguments": {{':
            self._scanner.push(written)
        self._report()

    def _push_call(self, character: str) -> None:
        if not self._started:
            self._raw += character
        begun = self._started
        self._scanner.push(character)
        self._report()
        if begun and self._scanner.broken:
            self._push_text(character)  # what was before it has been given out

    def _report(self) -> None:
        """Give out what the scanner has found."""
        scanner = self._scanner
        if scanner.broken or (scanner.name is not None and scanner.name not in self._names):
            self._give_up()
            return
        if scanner.name is not None and not self._started:
            self._started = True
            self._space = self._raw = ""
            self._out.append(CallStart(self.num_calls, scanner.name))
            self.num_calls += 1
        fresh = scanner.take()
        if fresh:
            self._out.append(ArgumentsDelta(self.num_calls - 1, fresh))
        if scanner.done or (self._bare_name and scanner.between):
            self._in = _In.AFTER

    def _push_after(self, character: str) -> None:
        self._nothing_yet = False
        form = self._form
        if self._held or (form.end and character == form.end[0]):
            self._held += character
            if self._held == form.end:
                self._held, self._in = "", _In.TEXT
            elif not form.end.startswith(self._held):
                self._leave()
        elif character.isspace():
            return
        elif self._listed and character == ",":
            self._enter(",", listed=True)
        elif self._listed and character == "]":
            self._in = _In.TEXT
        elif form.bare and character == ";":
            self._enter(";")
        else:
            self._held = character
            self._leave()

    def _leave(self) -> None:
        """Something follows a call that does not belong there: it is text, or another call."""
        held, self._held, self._in = self._held, "", _In.TEXT
        for character in held:
            self._push_text(character)

    def _give_up(self) -> None:
        """It is no call: what there is of it is text; its last character may begin another."""
        raw, self._raw, self._in = self._raw, "", _In.TEXT
        if raw:
            self._say(raw[:-1])
            self._push_text(raw[-1])

    def _say(self, text: str) -> None:
        for character in text:
            if character.isspace():
                self._space += character
            else:
                self._out.append(TextDelta(self._space + character))
                self._space, self._nothing_yet = "", False


def joined(deltas: Iterable[Delta]) -> Iterable[Delta]:
    """Neighbours of the same kind as one."""
    last: Delta | None = None
    for delta in deltas:
        match last, delta:
            case TextDelta(), TextDelta():
                last = TextDelta(last.text + delta.text)
            case ArgumentsDelta(), ArgumentsDelta() if last.index == delta.index:
                last = ArgumentsDelta(last.index, last.text + delta.text)
            case _:
                if last is not None:
                    yield last
                last = delta
    if last is not None:
        yield last


def gathered(deltas: Iterable[Delta]) -> tuple[str, tuple[Call, ...]]:
    """The text and the calls of a whole answer; a call without arguments has ``{}``."""
    text, calls = "", list[Call]()
    for delta in deltas:
        match delta:
            case TextDelta():
                text += delta.text
            case CallStart():
                calls.append(Call(delta.name, ""))
            case ArgumentsDelta():
                last = calls[delta.index]
                calls[delta.index] = Call(last.name, last.arguments + delta.text)
    return text, tuple(Call(call.name, call.arguments or "{}") for call in calls)
