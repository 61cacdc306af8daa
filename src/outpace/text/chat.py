"""Chat templates: rendered in a sandbox, with message contents that cannot forge control tokens."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from outpace.errors import CheckpointError, InvalidValueError
from outpace.text.tools.calls import checked_calls

# Templates spell control tokens from the role ("<|" + role + "|>"), so it cannot be free text.
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")


def load_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """Return the default chat template of a checkpoint folder, None when it has none.

    Raises:
        CheckpointError: a template file cannot be read.
    """
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text("utf-8")
        file = folder / "chat_template.json"
        found: Any = tokenizer_config.get("chat_template")
        if file.is_file():
            found = json.loads(file.read_text("utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{file}: cannot be read ({error}); download it again") from error
    if isinstance(found, list):  # several named ones
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copy the messages after checking roles and contents.

    Calls of an assistant come out with their arguments parsed, as templates expect them.

    Raises:
        InvalidValueError: no messages, an unknown role, a content that is not text, or calls that
            are not written as the OpenAI API does.
    """
    if not messages:
        raise InvalidValueError("messages", messages, "give at least one message")
    checked = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidValueError(f"messages[{i}]", message, 'give {"role": …, "content": …}')
        role = message.get("role")
        if role not in ROLES:
            raise InvalidValueError(f"messages[{i}].role", role, f"use one of {', '.join(ROLES)}")
        calls = checked_calls(f"messages[{i}]", message.get("tool_calls"))
        texts = {key: value for key, value in message.items() if key != "tool_calls"}
        if calls and texts.get("content") is None:
            texts["content"] = ""
        for key, value in texts.items():
            if not isinstance(value, str):
                raise InvalidValueError(f"messages[{i}].{key}", value, "give a string")
        if "content" not in texts:
            raise InvalidValueError(f"messages[{i}].content", None, "give a string")
        checked.append({**texts, "tool_calls": calls} if calls else texts)
    return checked


def render(template: str, **variables: Any) -> str:
    """Render a chat template as transformers does, sandboxed.

    Raises:
        InvalidValueError: the template refused the messages, or is itself broken.
    """
    import jinja2

    try:
        return _compiled(template).render(**variables)  # type: ignore[no-any-return]
    except jinja2.TemplateSyntaxError as error:
        raise InvalidValueError(
            "chat_template", template, f"not a valid template: {error.message}"
        ) from error
    except Exception as error:  # a template is a program: whatever it raises is its own
        roles = [m.get("role") for m in variables.get("messages", [])]
        raise InvalidValueError(
            "messages (roles)", roles, f"the model's chat template refuses them: {error}"
        ) from error


@functools.lru_cache(maxsize=8)
def _compiled(template: str) -> Any:
    # Imported here: the first plain completion should not wait for it.
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what an assistant wrote, for training; here it is nothing."""

        tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(
                ("name:endgeneration",), drop_needle=True
            )
            return body

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


def all_texts(value: Any) -> Iterator[str]:
    """All texts in a plain structure, names of members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from all_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from all_texts(inner)


class Guard:
    """Breaks every spelling of a control token in user text with a mark that is removed later.

    The mark is a character that occurs in none of the texts. Where the rendered template shows a
    control token without a mark inside, the template wrote it.
    """

    def __init__(self, specials: Sequence[str], texts: Sequence[str]) -> None:
        self._specials = sorted((s for s in specials if s), key=len, reverse=True)
        used = set().union(*map(set, texts))
        # Noncharacters first (never in honest text), then the private use areas.
        candidates = (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900), *range(0xF0000, 0x10FFFE))
        self.mark = next(chr(c) for c in candidates if chr(c) not in used)

    def protect(self, text: str) -> str:
        """Put the mark into every control token that the text spells, or could complete."""
        for special in self._specials:
            if special in text:
                text = text.replace(special, special[:1] + self.mark + special[1:])
        # The template may put text right before or after: half a token counts as well.
        # Marks go inside surrounding white space, which templates trim.
        body = text.strip()
        if not body:
            return text
        before, after = text[: text.index(body)], text[text.index(body) + len(body) :]
        for special in self._specials:
            if any(body.endswith(special[:n]) for n in range(1, len(special))):
                body += self.mark
            if any(body.startswith(special[n:]) for n in range(1, len(special))):
                body = self.mark + body
        return before + body + after

    def protect_all(self, value: Any) -> Any:
        """A copy of a plain structure with all its texts protected."""
        if isinstance(value, str):
            return self.protect(value)
        if isinstance(value, Mapping):
            return {self.protect(str(k)): self.protect_all(v) for k, v in value.items()}
        return [self.protect_all(v) for v in value] if isinstance(value, list) else value

    def clean(self, text: str) -> str:
        """Remove the marks."""
        return text.replace(self.mark, "")
