"""The bodies of chat and completion requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from outpace.server.fields import Content, Fields, Flag, Integer, SharedFields, Text


class FunctionCall(Fields):
    """The function of a call and its arguments, as JSON in a text."""

    name: Text
    arguments: Text


class ToolCall(Fields):
    """A call that the assistant made earlier in the conversation."""

    id: Text
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Fields):
    """One turn of the conversation."""

    role: Text
    content: Content | None = None
    name: Text | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Text | None = None
    refusal: None = None


class Function(Fields):
    """What a tool is called and takes."""

    name: Annotated[str, Strict(), Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: Flag | None = None


class Tool(Fields):
    """A function that the answer may call."""

    type: Literal["function"]
    function: Function


class ChosenFunction(Fields):
    """The name of a function."""

    name: Text


class ToolChoice(Fields):
    """The one tool that must be called."""

    type: Literal["function"]
    function: ChosenFunction


class ChatRequest(SharedFields):
    """The body of ``/v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Strict(), Field(ge=1)] | None = Field(
        default=None, description="At most so many tokens; null: until the context ends."
    )
    logprobs: Flag | None = None
    top_logprobs: Annotated[int, Strict(), Field(ge=0)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: Flag | None = None
    modalities: list[Literal["text"]] | None = None


class CompletionRequest(SharedFields):
    """The body of ``/v1/completions``."""

    prompt: Text | list[Text] | list[Integer] | list[list[Integer]]
    echo: Flag | None = Field(default=None, description="Begin the answer with the prompt.")
    logprobs: Annotated[int, Strict(), Field(ge=0)] | None = None
    best_of: Integer | None = Field(default=None, description="Only as n, or null.")
    suffix: None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts as a list, also of a single one."""
        many: list[Any] = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt)
        return [many] if many and isinstance(many[0], int) else many
