"""The options of ``outpace serve`` beside those of the engine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from outpace.config import EngineConfig

if TYPE_CHECKING:
    from outpace.server.settings import ServerSettings

_SERVER, _RECORD, _LIMITS = "Server", "Record", "Limits"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where the server listens, who may ask, and how much."""

    host: Annotated[
        str, Option(help="Address to listen on; 0.0.0.0 is all of them.", rich_help_panel=_SERVER)
    ] = "127.0.0.1"
    port: Annotated[
        int, Option(help="Port to listen on; 0 takes a free one.", rich_help_panel=_SERVER)
    ] = 8000
    served_model_name: Annotated[
        str | None,
        Option(
            help="How clients call the model.",
            rich_help_panel=_SERVER,
            show_default="as --model",
        ),
    ] = None
    api_key_file: Annotated[
        str | None,
        Option(
            help="Keys that may ask, a line each: KEY or NAME KEY. $OUTPACE_API_KEYS adds more.",
            rich_help_panel=_SERVER,
            show_default="anybody may",
        ),
    ] = None
    admin_key_file: Annotated[
        str | None,
        Option(
            help="The key for /admin: replacing heads and drafts. Or $OUTPACE_ADMIN_KEY.",
            rich_help_panel=_SERVER,
            show_default="/admin is off",
        ),
    ] = None
    tenant_by: Annotated[
        str,
        Option(
            help="What separates cached text and learned guesses: key, or user (with the key).",
            rich_help_panel=_SERVER,
        ),
    ] = "key"
    log: Annotated[
        str,
        Option(
            help="none, requests (a line each, without text), or prompts (with text).",
            rich_help_panel=_SERVER,
        ),
    ] = "none"
    inspection: Annotated[
        bool,
        Option("--inspection", help="Answer at /debug/engine.", rich_help_panel=_SERVER),
    ] = False
    record: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Keep a row for each request here; outpace report makes a page of it.",
            rich_help_panel=_RECORD,
        ),
    ] = None
    record_text: Annotated[
        bool,
        Option(
            "--record-text", help="Keep prompts and answers there too.", rich_help_panel=_RECORD
        ),
    ] = False
    capture: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Keep token ids of prompts and answers here, to train and judge drafters by.",
            rich_help_panel=_RECORD,
        ),
    ] = None
    max_num_seqs: Annotated[int, Option(help="Samples in the batch.", rich_help_panel=_LIMITS)] = 16
    max_queue: Annotated[
        int, Option(help="Samples that may wait for a seat there.", rich_help_panel=_LIMITS)
    ] = 128
    max_requests_per_key: Annotated[
        int, Option(help="Unfinished requests of a key.", rich_help_panel=_LIMITS)
    ] = 64
    max_body_bytes: Annotated[int, Option(help="Size of a request.", rich_help_panel=_LIMITS)] = (
        4 * 2**20
    )
    max_prompt_tokens: Annotated[
        int | None,
        Option(
            help="Length of a prompt.",
            rich_help_panel=_LIMITS,
            show_default="by the context",
        ),
    ] = None
    max_samples: Annotated[
        int, Option(help="n, times the number of prompts.", rich_help_panel=_LIMITS)
    ] = 16
    max_logprobs: Annotated[
        int, Option(help="Likeliest tokens beside each token.", rich_help_panel=_LIMITS)
    ] = 20
    max_stop_strings: Annotated[
        int, Option(help="Stop texts of a request.", rich_help_panel=_LIMITS)
    ] = 16
    max_grammar_bytes: Annotated[
        int, Option(help="Size of a schema or grammar.", rich_help_panel=_LIMITS)
    ] = 64 * 2**10
    request_timeout: Annotated[
        float, Option(help="Seconds that a request may take.", rich_help_panel=_LIMITS)
    ] = 600.0
    drain_timeout: Annotated[
        float,
        Option(help="Seconds that unfinished requests get at the end.", rich_help_panel=_LIMITS),
    ] = 30.0

    def settings(self, model: str) -> ServerSettings:
        """Return the server's settings.

        Raises:
            InvalidValueError: an option that cannot be honoured.
        """
        from outpace.server.settings import ServerSettings

        name = self.served_model_name
        if name is None:
            path = Path(model)
            name = path.resolve().name if path.exists() else model
        return ServerSettings(
            host=self.host,
            port=self.port,
            model_name=name,
            tenant_by=self.tenant_by,  # type: ignore[arg-type]  # checked there
            max_queue=self.max_queue,
            max_requests_per_key=self.max_requests_per_key,
            max_body_bytes=self.max_body_bytes,
            max_prompt_tokens=self.max_prompt_tokens,
            max_samples=self.max_samples,
            max_logprobs=self.max_logprobs,
            max_stop_strings=self.max_stop_strings,
            max_grammar_bytes=self.max_grammar_bytes,
            request_seconds=self.request_timeout,
            drain_seconds=self.drain_timeout,
            log=self.log,  # type: ignore[arg-type]  # checked there
            inspection=self.inspection,
        )

    def seated(self, config: EngineConfig) -> EngineConfig:
        """Return the engine's configuration with its number of seats."""
        return dataclasses.replace(config, max_num_seqs=self.max_num_seqs)
