"""What chat and completion requests have in common, field by field.

Every field either takes effect or is refused. The few that are accepted without an effect cannot
change an answer: they are about billing, storage or routing elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict


def _unicode(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("holds half a character (a lone surrogate); send valid Unicode") from None
    return text


Text = Annotated[str, Strict(), AfterValidator(_unicode)]
Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Flag = Annotated[bool, Strict()]


class Fields(BaseModel):
    """A part of a request; unknown fields are refused by name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class StreamOptions(Fields):
    """What a stream tells beside the text."""

    include_usage: Flag | None = Field(default=None, description="A last event with the usage.")
    continuous_usage_stats: Flag | None = Field(
        default=None, description="The usage so far with every event."
    )
    include_obfuscation: Literal[False] | None = None


class TextPart(Fields):
    """A piece of a content."""

    type: Literal["text"]
    text: Text


Content = Text | list[TextPart]


def joined(content: str | list[TextPart] | None) -> str:
    """A content as one text."""
    if content is None:
        return ""
    return content if isinstance(content, str) else "".join(part.text for part in content)


class Prediction(Fields):
    """What the client expects as the answer."""

    type: Literal["content"]
    content: Content


class Speculative(Fields):
    """How this request is drafted for; it cannot change the tokens of a seeded request."""

    enabled: Flag = Field(default=True, description="False decodes plainly.")
    drafter: Text | None = Field(default=None, description="One of the loaded drafters.")
    num_speculative_tokens: Annotated[int, Strict(), Field(ge=0, le=64)] | None = Field(
        default=None, description="Draft tokens a step; null: as the server decides."
    )


class JsonSchema(Fields):
    """A schema that the answer must fit."""

    name: Text | None = None
    description: Text | None = None
    json_schema: dict[str, object] | bool | None = Field(default=None, alias="schema")
    strict: Flag | None = None


class ResponseFormat(Fields):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class SharedFields(Fields):
    """Fields of both kinds of requests."""

    model: Text | None = Field(default=None, description="Null: the served one.")
    n: Annotated[int, Strict(), Field(ge=1, le=128)] | None = None
    seed: Annotated[int, Strict(), Field(ge=-(2**63), lt=2**64)] | None = Field(
        default=None, description="Makes a sampled answer repeatable."
    )
    temperature: Number | None = Field(default=None, description="0 is greedy; null is 1.")
    top_p: Number | None = None
    stop: Text | list[Text] | None = None
    max_tokens: Annotated[int, Strict(), Field(ge=1)] | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    logit_bias: dict[str, Number] | None = None
    stream: Flag | None = None
    stream_options: StreamOptions | None = None

    top_k: Annotated[int, Strict(), Field(ge=-1)] | None = Field(
        default=None, description="0, -1 or null keep all tokens."
    )
    min_p: Number | None = None
    repetition_penalty: Number | None = None
    min_tokens: Annotated[int, Strict(), Field(ge=0)] | None = None
    ignore_eos: Flag | None = None
    stop_token_ids: list[Integer] | None = None
    skip_special_tokens: Flag | None = None

    prediction: Prediction | None = None
    speculative: Speculative | None = None
    response_format: ResponseFormat | None = None
    guided_regex: Text | None = Field(default=None, description="For the whole answer.")
    guided_grammar: Text | None = Field(default=None, description="A Lark grammar for the answer.")

    user: Text | None = Field(default=None, description="Part of the tenant where so configured.")
    metadata: dict[str, Text] | None = Field(
        default=None,
        description="request_type labels the kind of request; no more is read.",
    )
    # Without an effect here, and none on the answer.
    store: Literal[False] | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None
    service_tier: Literal["auto", "default"] | None = None
