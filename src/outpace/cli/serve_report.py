"""What ``outpace serve`` shows when it is ready."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from outpace import __version__
from outpace.cli.drafter_named import drafter_named

if TYPE_CHECKING:
    from outpace.llm import LLM
    from outpace.server.settings import ServerSettings

_HERE = ("127.0.0.1", "localhost", "::1")


def start_page(llm: LLM, settings: ServerSettings, num_keys: int, address: str) -> list[str]:
    """Model, drafter, memory, address, and a command that works."""
    config, plan = llm.engine.config, llm.plan
    k = config.num_speculative_tokens
    drafter = drafter_named(config.drafter, llm.engine.drafting.usual_choices)
    parts = {
        "model": f"{settings.model_name}: {llm.setting}, context {llm.max_model_len} tokens",
        "drafter": f"{drafter}, at most {k} tokens a step"
        if k != "auto"
        else f"{drafter}, as many tokens as pay off",
        "guarantee": llm.guarantee,
        "memory": f"{_gib(plan.weights)} weights, {_gib(plan.cache)} cache of "
        f"{plan.cache_tokens} tokens, {_gib(plan.logits)} for the largest step",
        "batch": f"{config.max_num_seqs} samples, {settings.max_queue} more may wait",
        "keys": f"{num_keys} accepted" if num_keys else _without_keys(settings.host),
        "page": f"{address}/, how speculation does: {address}/dashboard",
        **_kept(llm),
    }
    lines = [f"outpace {__version__} answers at {address}/v1", ""]
    lines += [f"  {name:<10} {text}" for name, text in parts.items()]
    return [*lines, "", f"  {_curl(llm, address, bool(num_keys))}", ""]


def _kept(llm: LLM) -> dict[str, str]:
    parts = {}
    if llm.recorder is not None:
        texts = "with prompts and answers" if llm.recorder.keep_text else "without texts"
        parts["record"] = f"{llm.recorder.path}, {texts}"
    if llm.capture is not None:
        parts["capture"] = f"{llm.capture.path}: token ids of prompts and answers"
    return parts


def _without_keys(host: str) -> str:
    if host in _HERE:
        return "none needed on this machine"
    return f"NONE: whoever reaches {host} may ask; --api-key-file sets them"


def _curl(llm: LLM, address: str, with_key: bool) -> str:
    """A command that works as it stands, but for the key."""
    body: dict[str, object] = {"max_tokens": 40}
    if llm.tokenizer.chat_template is not None:
        path = "chat/completions"
        body["messages"] = [{"role": "user", "content": "Name three rivers in Africa."}]
    else:
        path, body["prompt"] = "completions", "Once upon a time"
    parts = ["curl", f"{address}/v1/{path}", "-H", "Content-Type: application/json"]
    key = ' -H "Authorization: Bearer $KEY"' if with_key else ""
    return f"{shlex.join(parts)}{key} -d {shlex.quote(json.dumps(body))}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
