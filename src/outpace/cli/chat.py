"""``outpace chat``: a conversation in the terminal."""

from __future__ import annotations

import contextlib
import re
import sys
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Option

from outpace.cli import loading
from outpace.cli.failures import one_line
from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions, EngineOptions, SamplingOptions
from outpace.cli.show import closing_line, note, write
from outpace.errors import InvalidValueError, OutpaceError

if TYPE_CHECKING:
    from outpace.llm import LLM
    from outpace.request import SamplingParams

HELP = "/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer"
_COMMAND = re.compile(r"/[a-z]+")


@with_groups
def chat(
    engine: EngineOptions,
    sampling: SamplingOptions,
    common: CommonOptions,
    system: Annotated[str | None, Option(help="A system message.")] = None,
) -> None:
    """Talk with the model.

    Ctrl-C stops the current answer, Ctrl-D leaves, /reset starts afresh.
    """
    del common
    config, params = engine.config(), sampling.params()
    llm = loading.load(engine, config)
    if llm.tokenizer.chat_template is None:
        raise InvalidValueError(
            "model",
            engine.model,
            "has no chat template; use outpace generate, or an instruct model",
        )
    conversation = Conversation(llm, params, system)
    interactive = sys.stdin.isatty()
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - line editing and history for input()
        note(HELP)
    if hasattr(sys.stdin, "reconfigure"):
        # Bytes that are not UTF-8 become one clear line below, not a crash of the reader.
        sys.stdin.reconfigure(errors="surrogateescape")
    while (line := _read(interactive)) is not None:
        try:
            if not _handle(conversation, line):
                return
        except OutpaceError as error:
            if not interactive:
                raise
            note(f"error: {one_line(str(error))}")


def _read(interactive: bool) -> str | None:
    """Return the next line; None at the end of the input."""
    while True:
        try:
            return input("> " if interactive else "")
        except EOFError:
            if interactive:
                note("")
            return None
        except KeyboardInterrupt:
            if not interactive:
                raise
            note("\n(Ctrl-D leaves)")


def _handle(conversation: Conversation, line: str) -> bool:
    """Do what a line says; returns whether to go on."""
    command = line.strip()
    if not command:
        return True
    if not _COMMAND.fullmatch(command):
        conversation.ask(line)
    elif command in ("/exit", "/quit"):
        return False
    elif command == "/reset":
        conversation.reset()
        note("(a new conversation)")
    elif command == "/help":
        note(HELP)
    else:
        note(f"unknown command {command}: {HELP}")
    return True


@dataclass(slots=True)
class Conversation:
    """The messages so far, and who answers them."""

    llm: LLM
    params: SamplingParams
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages.clear()
        if self.system is not None:
            self.messages.append({"role": "system", "content": self.system})

    def ask(self, text: str) -> None:
        """Put a message and write the answer while it is made.

        What was written before a Ctrl-C stays part of the conversation. After an error the
        conversation is as it was before.
        """
        self.messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        result = None
        try:
            with closing(cast(Any, self.llm.stream(self.messages, self.params))) as chunks:
                for chunk in chunks:
                    pieces.append(chunk.text)
                    write(chunk.text)
                    result = chunk.output
            write("\n")
        except KeyboardInterrupt:
            write("\n")
            note("(stopped)")
        except OutpaceError as error:
            self.messages.pop()
            if isinstance(error, InvalidValueError) and error.field == "prompt":
                raise InvalidValueError(
                    "message",
                    error.value,
                    f"the conversation {error.way_out}; /reset starts afresh",
                ) from error
            raise
        self.messages.append({"role": "assistant", "content": "".join(pieces)})
        if result is not None:
            note(closing_line(result))
