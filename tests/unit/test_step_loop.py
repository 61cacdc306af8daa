"""The engine in a thread: requests come and go, one may fail, and nobody is left waiting."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outpace.engine.engine import Engine
from outpace.engine.loop import LoopOverError, News, StepLoop
from outpace.errors import InvalidValueError
from outpace.request import Request, SamplingParams, StreamChunk

from engines import VOCAB, make_engine, make_runner, run, tokens_of

PROMPT = tuple(range(10, 40))
ENOUGH = 60.0  # seconds after which something hangs


class Listener:
    """Collects the news of each request."""

    def __init__(self) -> None:
        self.chunks: dict[str, list[StreamChunk]] = {}
        self._ends: dict[str, queue.SimpleQueue[Exception | None]] = {}

    def tell(self, news: list[News]) -> None:
        for one in news:
            chunks = self.chunks.setdefault(one.request_id, [])
            chunks.extend(one.chunks)
            if one.error is not None or any(chunk.output for chunk in one.chunks):
                self._end(one.request_id).put(one.error)

    def _end(self, request_id: str) -> queue.SimpleQueue[Exception | None]:
        return self._ends.setdefault(request_id, queue.SimpleQueue())

    def end(self, request_id: str) -> Exception | None:
        return self._end(request_id).get(timeout=ENOUGH)

    def tokens(self, request_id: str) -> list[int]:
        return [token for chunk in self.chunks[request_id] for token in chunk.token_ids]


@contextmanager
def running(engine: Engine) -> Iterator[tuple[StepLoop, Listener]]:
    listener = Listener()
    loop = StepLoop(engine, "bit-exact", listener.tell)
    loop.start()
    try:
        yield loop, listener
    finally:
        loop.stop(ENOUGH)
        assert not loop.alive


def request(name: str, shift: int = 0, **params: object) -> Request:
    prompt = tuple((token + shift) % VOCAB for token in PROMPT)
    settings = {"max_tokens": 24, "ignore_eos": True, "temperature": 1.0, "seed": 5} | params
    return Request(name, prompt, SamplingParams(**settings))  # type: ignore[arg-type]


def is_clean(engine: Engine) -> bool:
    engine.blocks.check_integrity([])
    return engine.blocks.num_free == engine.blocks.num_blocks - 1


def test_requests_give_what_they_give_alone() -> None:
    requests = [request(f"r{i}", i, seed=i) for i in range(5)]
    alone = tokens_of(run(make_engine(make_runner()), requests))
    with running(make_engine(make_runner())) as (loop, listener):
        for one in requests:
            loop.submit(one)
        assert [listener.end(one.request_id) for one in requests] == [None] * 5
        assert loop.ask(is_clean).result(ENOUGH)
    for one, [tokens] in zip(requests, alone, strict=True):
        assert listener.tokens(one.request_id) == tokens
        assert listener.chunks[one.request_id][-1].output is not None


def test_the_pieces_of_several_samples_are_those_of_the_result() -> None:
    with running(make_engine(make_runner())) as (loop, listener):
        loop.submit(request("several", n=3, logprobs=2))
        assert listener.end("several") is None
    chunks = listener.chunks["several"]
    result = chunks[-1].output
    assert result is not None
    assert [chunk.output is None for chunk in chunks[:-1]] == [True] * (len(chunks) - 1)
    for output in result.outputs:
        own = [chunk for chunk in chunks if chunk.index == output.index]
        assert sum((chunk.token_ids for chunk in own), ()) == output.token_ids
        assert sum((chunk.logprobs for chunk in own), ()) == output.logprobs
        assert sum(chunk.target_steps for chunk in own) == output.speculative.target_steps
        assert own[-1].finish_reason == "length"
    assert 0 <= result.timing.queue_seconds <= result.timing.first_token_seconds


def test_an_aborted_request_is_silent_and_leaves_nothing() -> None:
    with running(make_engine(make_runner())) as (loop, listener):
        loop.submit(request("long", max_tokens=500))
        loop.abort("long")
        loop.abort("nobody")
        loop.submit(request("other"))
        assert listener.end("other") is None
        assert loop.ask(is_clean).result(ENOUGH)
    assert not any(chunk.output for chunk in listener.chunks.get("long", []))


def test_a_request_that_cannot_be_honoured_is_told_so() -> None:
    with running(make_engine(make_runner())) as (loop, listener):
        loop.submit(Request("bad", (VOCAB,), SamplingParams()))
        error = listener.end("bad")
        assert isinstance(error, InvalidValueError)
        loop.submit(request("good"))
        assert listener.end("good") is None


class Breaks:
    """A text end that fails at the third token."""

    stopped_by = None

    def __init__(self) -> None:
        self.left = 3

    def push(self, token_id: int, *, watch: bool) -> str:
        self.left -= 1
        if self.left == 0:
            raise ValueError("cannot be written")
        return ""

    def flush(self) -> str:
        raise ValueError("nor ended")


def test_a_failure_in_one_request_ends_that_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(make_runner())
    usual = engine.admission._open_text
    monkeypatch.setattr(
        engine.admission,
        "_open_text",
        lambda params: Breaks() if params.n == 2 else usual(params),
    )
    [[[tokens]]] = [tokens_of(run(make_engine(make_runner()), [request("sound")]))]
    with running(engine) as (loop, listener):
        loop.submit(request("sound"))
        loop.submit(request("broken", 1, n=2))
        error = listener.end("broken")
        assert isinstance(error, ValueError)
        assert listener.end("sound") is None
        assert loop.ask(is_clean).result(ENOUGH)
    assert listener.tokens("sound") == tokens


def test_a_failure_of_the_loop_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(make_runner())
    steps = iter(range(3))
    whole_step = engine.step

    def step() -> object:
        if next(steps, None) is None:
            raise RuntimeError("the device is gone")
        return whole_step()

    monkeypatch.setattr(engine, "step", step)
    with running(engine) as (loop, listener):
        loop.submit(request("one", max_tokens=400))
        loop.submit(request("two", 1, max_tokens=400))
        for name in ("one", "two"):
            error = listener.end(name)
            assert isinstance(error, LoopOverError)
            assert "the device is gone" in str(error)
        assert isinstance(loop.failure, RuntimeError)
        with pytest.raises(LoopOverError, match="restart"):
            loop.submit(request("three"))
        with pytest.raises(LoopOverError):
            loop.ask(is_clean)
        loop.abort("one")  # no error


def test_stopping_ends_what_is_left() -> None:
    engine = make_engine(make_runner())
    with running(engine) as (loop, listener):
        loop.submit(request("left", max_tokens=500))
    error = listener.end("left")
    assert isinstance(error, LoopOverError)
    assert "stopping" in str(error)
    assert is_clean(engine)
