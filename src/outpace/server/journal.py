"""A line in the log for each request; text only where somebody asked for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter

from outpace.request import RequestOutput
from outpace.server.order import Order
from outpace.server.settings import Logged
from outpace.text.tokenizer import Tokenizer

_LOG = logging.getLogger("outpace.requests")


class Journal:
    """Writes what became of requests.

    Args:
        logged: what to write.
        tokenizer: shows prompts.
    """

    def __init__(self, logged: Logged, tokenizer: Tokenizer) -> None:
        self._logged = logged
        self._tokenizer = tokenizer

    def closed(
        self,
        order: Order,
        outputs: Sequence[RequestOutput | None],
        arrived: float,
        failed: str,
    ) -> None:
        """Write the line of an order that nobody waits for any more."""
        if self._logged == "none":
            return
        done = [output for output in outputs if output is not None]
        reasons = [sample.finish_reason.value for output in done for sample in output.outputs]
        _LOG.info(
            "%s type=%s prompt_tokens=%d completion_tokens=%d seconds=%.3f end=%s",
            order.order_id,
            order.typed.name,
            sum(len(request.prompt_token_ids) for request in order.requests),
            sum(output.usage.completion_tokens for output in done),
            perf_counter() - arrived,
            failed if len(done) < len(outputs) else ",".join(reasons),
        )
        if self._logged == "prompts":
            for request in order.requests:
                text = self._tokenizer.decode(request.prompt_token_ids, skip_special_tokens=False)
                _LOG.info("%s prompt=%r", request.request_id, text)
            for output in done:
                _LOG.info("%s answers=%r", output.request_id, [s.text for s in output.outputs])
