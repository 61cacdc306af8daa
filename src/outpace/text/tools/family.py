"""How the families of models write their calls, and which family a chat template is of."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One family's way of writing calls.

    Attributes:
        family: its name.
        begin: what stands before a call, or before several.
        end: what stands after one; empty if nothing does.
        arguments: the member of a call's object that holds the arguments.
        lead, trail: what the family writes between ``begin`` and a call, and a call and ``end``.
        between: what stands between two calls, each with its own ``begin`` where there is an
            ``end``.
        listed: whether calls stand in a JSON list.
        after_name: what stands between a bare name and its arguments, where calls are written
            so; empty where they are objects.
        bare: whether an answer that begins with an object is a call also without ``begin``.
        in_template: whether the family's template shows tools; otherwise we do, in words.
        id_characters: how long the names of calls must be; 0: any length.
    """

    family: str
    begin: str
    end: str = ""
    arguments: str = "arguments"
    lead: str = ""
    trail: str = ""
    between: str = ""
    listed: bool = False
    after_name: str = ""
    bare: bool = False
    in_template: bool = True
    id_characters: int = 0


HERMES = CallFormat("hermes", "<tool_call>", "</tool_call>", lead="\n", trail="\n", between="\n")
LLAMA = CallFormat("llama", "<|python_tag|>", arguments="parameters", between="; ", bare=True)
MISTRAL = CallFormat("mistral", "[TOOL_CALLS]", listed=True, between=", ", id_characters=9)
MISTRAL_NAMED = replace(MISTRAL, after_name="[ARGS]", between="")
GENERIC = CallFormat(
    "generic",
    "<tool_call>",
    "</tool_call>",
    lead="\n",
    trail="\n",
    between="\n",
    in_template=False,
)


def detect(template: str | None) -> CallFormat:
    """The format that a chat template asks the model to use.

    A template that knows no tools, or writes calls in a way that is not known here, gets the
    generic format: the tools are then described in the system message.
    """
    if template is None or "tools" not in template:
        return GENERIC
    if "[TOOL_CALLS]" in template:
        return MISTRAL_NAMED if "[ARGS]" in template else MISTRAL
    if "<tool_call>" in template and "arguments" in template:
        return HERMES
    if "<|python_tag|>" in template or ('"parameters"' in template and "ipython" in template):
        return LLAMA
    return GENERIC
