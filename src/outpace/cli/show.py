"""Writing results: text for people, JSON for programs, notes beside both."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from outpace.request import RequestOutput

# C0 and C1 controls but tab and line feed: a model must not move the cursor or set the title.
_CONTROLS = dict.fromkeys(
    {*range(32), *range(127, 160)} - {ord("\t"), ord("\n")}, "\N{REPLACEMENT CHARACTER}"
)


def write(text: str) -> None:
    """Write a piece of an answer to stdout at once; a terminal gets no control characters."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def printable(text: str) -> str:
    """Return the text without control characters other than tab and line feed."""
    return text.translate(_CONTROLS)


def note(text: str) -> None:
    """Write a line about the answer to stderr."""
    sys.stdout.flush()
    dim, plain = ("\x1b[2m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
    print(f"{dim}{text}{plain}", file=sys.stderr, flush=True)


def write_json(value: Any) -> None:
    """Write one JSON object and a line feed to stdout: valid UTF-8, whatever the text is.

    Halves of surrogate pairs have no UTF-8 form; their backslash form happens to be the escape
    that JSON has for them.
    """
    text = json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False)
    data = f"{text}\n".encode("utf-8", "backslashreplace")
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(data.decode())
    else:
        sys.stdout.flush()
        binary.write(data)
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    """Return a copy in which numbers that JSON cannot write are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def closing_line(result: RequestOutput) -> str:
    """Sum up: tokens, target steps, acceptance length, rate, and under which rules."""
    records = [output.speculative for output in result.outputs]
    tokens = result.usage.completion_tokens
    steps = sum(record.target_steps for record in records)
    first = records[0]
    parts = [
        f"{tokens} tokens in {steps} target steps",
        f"acceptance length {tokens / steps if steps else 0:.2f}",
        *([f"alpha {first.alpha:.2f}"] if first.alpha is not None else []),
        f"{result.timing.tokens_per_second:.1f} tokens/s",
        f"drafter {first.drafter}",
        f"{first.verification}, {first.guarantee}",
        f"finished by {result.finish_reason.value}",
    ]
    line = " · ".join(parts)
    if first.drafter != "none" and not any(record.drafted for record in records):
        line += f" · nothing drafted: {first.off_reason or 'no step to draft for'}"
    return line


def logprob_lines(result: RequestOutput, tokenizer: Any) -> list[str]:
    """Return a line for each token of the first sample: its log-probability and its rivals."""
    lines = []
    for entry in result.logprobs or ():
        rivals = "  ".join(
            f"{_token_text(token, tokenizer)} {value:.3f}" for token, value in entry.top.items()
        )
        own = f"{_token_text(entry.token_id, tokenizer)} {entry.logprob:.3f}"
        lines.append(f"{own}   | {rivals}" if rivals else own)
    return lines


def _token_text(token: int, tokenizer: Any) -> str:
    return repr(tokenizer.decode([token], skip_special_tokens=False))
