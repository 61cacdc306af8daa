"""Figures for Prometheus, under vLLM's names with a prefix of our own.

Everything here is counted and read in the event loop, so that a scrape sees each step whole or
not at all: never an accepted token that was not drafted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from outpace.engine.engine import Engine
from outpace.engine.loop import News
from outpace.request import RequestOutput, StreamChunk
from outpace.server.order import Order

PREFIX = "outpace:"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BY = ("drafter", "request_type")
_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class _FromEngine(Collector):
    """Counts that the engine keeps itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        """The engine's counts as they are now."""
        preempted = CounterMetricFamily(
            f"{PREFIX}num_preemptions", "Sequences that lost their blocks for a while."
        )
        preempted.add_metric([], self._engine.scheduler.num_preemptions)
        yield preempted


class Meter:
    """Counts what leaves the engine.

    Args:
        engine: whose state the gauges show.
    """

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self._last: dict[tuple[str, int], float] = {}  # when a sample's last piece came
        self._registry.register(_FromEngine(engine))
        self._make_gauges(engine)
        self._make_speculation()
        self._make_requests()
        self._make_latencies()

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        labels = ("request_type",)
        return Histogram(PREFIX + name, text, labels, registry=self._registry, buckets=buckets)

    def _make_gauges(self, engine: Engine) -> None:
        blocks, scheduler = engine.blocks, engine.scheduler
        usable = blocks.num_blocks - 1
        gauges = {
            "num_requests_running": ("Samples in the batch.", lambda: len(scheduler.running)),
            "num_requests_waiting": ("Samples that wait.", lambda: len(scheduler.waiting)),
            "kv_cache_usage_perc": (
                "Share of the cache in use, from 0 to 1.",
                lambda: 1 - blocks.num_free / usable,
            ),
        }
        for name, (text, value) in gauges.items():
            Gauge(PREFIX + name, text, registry=self._registry).set_function(value)

    def _make_speculation(self) -> None:
        count = self._counter
        self._drafts = count("spec_decode_num_drafts", "Steps with a draft.", _BY)
        self._drafted = count("spec_decode_num_draft_tokens", "Tokens drafted.", _BY)
        self._accepted = count("spec_decode_num_accepted_tokens", "Drafted and emitted.", _BY)
        self._per_position = count(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by their place in the draft, from 0.",
            (*_BY, "position"),
        )
        self._emitted = count("spec_decode_num_emitted_tokens", "All tokens that left.", _BY)
        self._steps = count("spec_decode_num_target_steps", "Steps that yielded a token.", _BY)
        self._outcomes = count(
            "tokens_by_outcome",
            "Tokens accepted from drafts, rejected from drafts, and the target's own.",
            (*_BY, "outcome"),
        )

    def _make_requests(self) -> None:
        count = self._counter
        self._prompt_tokens = count("prompt_tokens", "Tokens of prompts that were computed.")
        self._generated = count("generation_tokens", "Tokens that left.")
        self._ended = count(
            "request_success", "Samples that ended, by reason.", ("finished_reason",)
        )
        self._failed = count("request_failure", "Requests without a result.", ("reason",))
        self._queries = count("prefix_cache_queries", "Prompt tokens looked for in the cache.")
        self._hits = count("prefix_cache_hits", "Prompt tokens found there.")
        self._refused = count(
            "requests_refused", "Requests that were answered with an error.", ("status",)
        )

    def _make_latencies(self) -> None:
        new = self._histogram
        self._first = new("time_to_first_token_seconds", "From arrival to the first token.", _LONG)
        self._gap = new("inter_token_latency_seconds", "Between steps of a sample.", _SHORT)
        self._amortised = new(
            "time_per_output_token_seconds", "The same, shared by the tokens of a step.", _SHORT
        )
        self._whole = new("e2e_request_latency_seconds", "From arrival to the end.", _LONG)
        self._queue = new("request_queue_time_seconds", "Before the first step.", _LONG)
        self._prefill = new("request_prefill_time_seconds", "First step to first token.", _LONG)
        self._decode = new("request_decode_time_seconds", "First token to the end.", _LONG)

    def news(self, order: Order, place: int, news: News) -> None:
        """Count what a step brought to a request."""
        for chunk in news.chunks:
            self._speculation((chunk.drafter, order.typed.name), chunk)
            self._pace(order, place, chunk, news.at)
            if chunk.output is not None:
                self._result(order.typed.name, chunk.output)

    def _speculation(self, by: tuple[str, str], chunk: StreamChunk) -> None:
        emitted, accepted = len(chunk.token_ids), sum(chunk.accepted)
        self._generated.inc(emitted)
        self._emitted.labels(*by).inc(emitted)
        self._steps.labels(*by).inc(chunk.target_steps)
        self._drafts.labels(*by).inc(chunk.drafted > 0)
        self._drafted.labels(*by).inc(chunk.drafted)
        self._accepted.labels(*by).inc(accepted)
        for position in range(accepted):
            self._per_position.labels(*by, str(position)).inc()
        self._outcomes.labels(*by, "accepted").inc(accepted)
        self._outcomes.labels(*by, "rejected").inc(chunk.drafted - accepted)
        self._outcomes.labels(*by, "target").inc(emitted - accepted)

    def _pace(self, order: Order, place: int, chunk: StreamChunk, at: float) -> None:
        if not chunk.token_ids:
            return
        sample = (order.requests[place].request_id, chunk.index)
        before = self._last.get(sample)
        self._last[sample] = at
        if before is None:
            if chunk.index == 0:
                self._prompt_tokens.inc(len(order.requests[place].prompt_token_ids))
            return
        self._gap.labels(order.typed.name).observe(at - before)
        amortised = self._amortised.labels(order.typed.name)
        for _ in chunk.token_ids:
            amortised.observe((at - before) / len(chunk.token_ids))

    def _result(self, label: str, output: RequestOutput) -> None:
        timing = output.timing
        self._first.labels(label).observe(timing.first_token_seconds)
        self._whole.labels(label).observe(timing.total_seconds)
        self._queue.labels(label).observe(timing.queue_seconds)
        self._prefill.labels(label).observe(timing.first_token_seconds - timing.queue_seconds)
        self._decode.labels(label).observe(timing.total_seconds - timing.first_token_seconds)
        self._queries.inc(output.usage.prompt_tokens)
        self._hits.inc(output.usage.cached_tokens)
        for sample in output.outputs:
            self._ended.labels(sample.finish_reason.value).inc()

    def closed(self, order: Order, outputs: Sequence[RequestOutput | None], reason: str) -> None:
        """Nobody waits for an order any more; what has no result ended for a reason."""
        for request, output in zip(order.requests, outputs, strict=True):
            for index in range(request.params.n):
                self._last.pop((request.request_id, index), None)
            if output is None:
                self._failed.labels(reason).inc()

    def refused(self, status: int) -> None:
        """Count an answer that is an error."""
        self._refused.labels(str(status)).inc()

    def scrape(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self._registry)
