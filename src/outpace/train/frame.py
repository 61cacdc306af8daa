"""What a chat template puts around turns, as token ids: for conversations that grow by turns."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.errors import InvalidValueError
from outpace.text.tokenizer import Tokenizer

_SYSTEM, _USER, _ANSWER, _NEXT = "\ue000", "\ue001", "\ue002", "\ue003"


@dataclass(frozen=True, slots=True)
class Frame:
    """Token ids around what is said.

    Attributes:
        tokenizer: of the target.
        opening: up to where the user begins to speak, with the template's own system's text.
        around_system: before and after a system's text; the user begins to speak after it. None
            where the template knows no system.
        answering: from the end of a user's turn to where the target begins to speak.
        asking: from the end of an answer, after its end token, to where the user speaks again.
    """

    tokenizer: Tokenizer
    opening: tuple[int, ...]
    around_system: tuple[tuple[int, ...], tuple[int, ...]] | None
    answering: tuple[int, ...]
    asking: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, ends: tuple[int, ...]) -> Frame:
        """Find out by rendering a conversation of marks.

        Args:
            tokenizer: with a chat template.
            ends: ids of the target's end tokens.

        Raises:
            InvalidValueError: there is no template, or it does not show what is said.
        """

        def rendered(*turns: tuple[str, str], answering: bool) -> str:
            messages = [{"role": role, "content": text} for role, text in turns]
            ids = tokenizer.encode_chat(messages, add_generation_prompt=answering)
            return tokenizer.decode(ids, skip_special_tokens=False)

        def ids(text: str) -> tuple[int, ...]:
            return tuple(tokenizer.encode(text))

        user = ("user", _USER)
        opening, answering = _split(rendered(user, answering=True), _USER)
        talk = rendered(user, ("assistant", _ANSWER), ("user", _NEXT), answering=False)
        between = ids(_split(_split(talk, _ANSWER)[1], _NEXT)[0])
        asking = between[1:] if between[:1] and between[0] in ends else between
        try:
            system = rendered(("system", _SYSTEM), user, answering=True)
            before, rest = _split(system, _SYSTEM)
            around = ids(before), ids(_split(rest, _USER)[0])
        except InvalidValueError:
            around = None
        return cls(tokenizer, ids(opening), around, ids(answering), asking)

    def begin(self, system: str | None, user: str) -> list[int]:
        """A conversation up to the end of what the user said so far."""
        said = self.tokenizer.encode(user) if user else []
        if system is None or self.around_system is None:
            return [*self.opening, *said]
        before, after = self.around_system
        return [*before, *self.tokenizer.encode(system), *after, *said]


def _split(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise InvalidValueError("model", "chat template", "does not show what is said")
    return before, after
