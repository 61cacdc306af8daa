"""All that a request with tools needs, in one place."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass, replace

from outpace.errors import InvalidValueError
from outpace.request import SamplingParams
from outpace.text.tokenizer import Tokenizer
from outpace.text.tools.definition import Tool, ToolChoice, read_choice, read_tools
from outpace.text.tools.family import CallFormat, detect
from outpace.text.tools.grammar import call_grammar
from outpace.text.tools.parser import CallParser

_ID_CHARACTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolSetup:
    """The tools of a request, which of them may be called, and how this model writes calls.

    Attributes:
        form: the way of the model's family.
        shown: the tools that the chat template shows; none where none may be called.
        choice: which may or must be called.
        parallel: whether an answer may have several calls, where they are enforced.
        control: the model's control tokens with their ids.
    """

    form: CallFormat
    shown: tuple[Tool, ...]
    choice: ToolChoice
    parallel: bool
    control: tuple[tuple[str, int], ...]

    @classmethod
    def read(
        cls, tokenizer: Tokenizer, tools: object, choice: object, *, parallel: bool = True
    ) -> ToolSetup:
        """Read a request's ``tools``, ``tool_choice`` and ``parallel_tool_calls``.

        Raises:
            InvalidValueError: one of them cannot be honoured.
        """
        known = read_tools(tools)
        chosen = read_choice(choice, known)
        shown = () if chosen.kind == "none" else known
        control = tuple((text, i) for i, text in sorted(tokenizer.special_tokens().items()))
        return cls(detect(tokenizer.chat_template), shown, chosen, parallel, control)

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that an answer may call."""
        if self.choice.kind == "named":
            return tuple(tool for tool in self.shown if tool.name == self.choice.name)
        return self.shown

    def constrain(self, params: SamplingParams) -> SamplingParams:
        """The parameters of the request with what the tools ask: a grammar where calls must be.

        Raises:
            InvalidValueError: the answer is to have another form already.
        """
        if not self.shown:
            return params
        if params.grammar is not None:
            raise InvalidValueError(
                "response_format", params.grammar.kind, "cannot go with tools that may be called"
            )
        # A family's marks may be control tokens, which the parser has to see.
        marks = {self.form.begin, self.form.end, self.form.after_name}
        if marks & {text for text, _ in self.control}:
            params = replace(params, skip_special_tokens=False)
        if self.choice.kind == "auto":
            return params
        parallel = self.parallel and self.choice.kind == "required"
        grammar = call_grammar(
            self.form, self.callable, parallel=parallel, control=dict(self.control)
        )
        return replace(params, grammar=grammar)

    def parser(self) -> CallParser | None:
        """A reader of calls for one answer; None where there are no tools to call."""
        if not self.shown:
            return None
        return CallParser(self.form, [tool.name for tool in self.callable])

    def new_call_id(self) -> str:
        """A name for a call, which the client gives back with the result."""
        length = self.form.id_characters
        if length:
            return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(length))
        return f"call_{secrets.token_hex(12)}"
