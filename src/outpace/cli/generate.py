"""``outpace generate``: one prompt, one answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from outpace.cli import loading
from outpace.cli.grammar_options import GrammarOptions
from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions, EngineOptions, SamplingOptions
from outpace.cli.prompts import as_messages, generate_whole, read_prompt, wants_chat
from outpace.cli.show import closing_line, logprob_lines, note, write, write_json
from outpace.errors import OutpaceError

if TYPE_CHECKING:
    from outpace.llm import LLM
    from outpace.request import RequestOutput, SamplingParams

_PromptArgument = Annotated[
    str, Argument(metavar="PROMPT", help="The prompt; - reads it from stdin.", show_default=False)
]
_ChatOption = Annotated[
    bool | None,
    Option(
        "--chat/--raw",
        help="Ask through the model's chat template, or let the model go on with the bare text.",
        show_default="chat, if there is a template",
    ),
]
_SystemOption = Annotated[str | None, Option(help="A system message for the chat.")]
_SamplesOption = Annotated[int, Option("-n", help="How many answers to the same prompt.")]
_LogprobsOption = Annotated[
    int | None,
    Option(help="Report each token's log-probability, with so many of the likeliest beside it."),
]
_JsonOption = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]


@with_groups
def generate(
    prompt: _PromptArgument,
    engine: EngineOptions,
    sampling: SamplingOptions,
    form: GrammarOptions,
    common: CommonOptions,
    chat: _ChatOption = None,
    system: _SystemOption = None,
    n: _SamplesOption = 1,
    logprobs: _LogprobsOption = None,
    as_json: _JsonOption = False,
) -> None:
    """Answer one prompt.

    The text goes to stdout as it becomes certain, a closing line with the figures to stderr.
    """
    del common  # read from the command line, before this could fail
    config = engine.config()
    params = sampling.params(n=n, logprobs=logprobs, grammar=form.grammar())
    text = read_prompt(prompt)
    llm = loading.load(engine, config)
    whole: str | list[dict[str, str]] = text
    if wants_chat(llm, chat, system):
        whole = as_messages(text, system)
    if as_json:
        result = generate_whole(llm, whole, params)
        write_json(result.as_dict())
        _check(result)
        return
    result = _several(llm, whole, params) if n > 1 else _streamed(llm, whole, params)
    for line in logprob_lines(result, llm.tokenizer):
        note(line)
    note(closing_line(result))
    _check(result)


def _check(result: RequestOutput) -> None:
    """Let the command fail where the answer did; what there is of it has been written."""
    for output in result.outputs:
        if output.finish_reason == "error":
            raise OutpaceError(f"the answer broke off: {output.stop_reason}")


def _streamed(
    llm: LLM, prompt: str | Sequence[dict[str, str]], params: SamplingParams
) -> RequestOutput:
    """Write the answer while it is made."""
    result, begun = None, False
    try:
        # Closing the stream frees what the request holds, also when Ctrl-C cuts it short.
        with closing(cast(Any, llm.stream(prompt, params))) as chunks:
            for chunk in chunks:
                begun = True
                write(chunk.text)
                result = chunk.output
    finally:
        if begun:
            write("\n")
    assert result is not None, "a stream ends with its result"
    return cast("RequestOutput", result)


def _several(
    llm: LLM, prompt: str | Sequence[dict[str, str]], params: SamplingParams
) -> RequestOutput:
    """Write some answers one after the other."""
    result = generate_whole(llm, prompt, params)
    for output in result.outputs:
        write(f"--- {output.index + 1} of {len(result.outputs)} ---\n{output.text}\n")
    return result
