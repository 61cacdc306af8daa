"""Capture: the target's own answers to prompts, or texts as they are, with its hidden states."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.config import NoDrafter
from outpace.engine.drafting import Drafting
from outpace.engine.engine import Engine
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.errors import InvalidValueError
from outpace.llm import LLM
from outpace.request import Request, SamplingParams
from outpace.train.entries import Entry, read_all
from outpace.train.filling import Filling
from outpace.train.recorder import Recorder
from outpace.train.store import Example, Store
from outpace.train.target_parts import TargetParts

_SHORTEST = 8  # tokens: fewer have nothing to predict


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How answers are made.

    Attributes:
        temperatures: taken in turn, entry by entry.
        max_tokens: of an answer.
        max_length: of prompt and answer together, in tokens; longer texts are cut into pieces,
            longer prompts left out.
        batch: sequences at once.
        seed: of the sampled answers.
        max_tokens_stored: stop when the store has gained so many tokens; None: when the entries
            are through.
        max_bytes: stop when the store is as large; None: no bound.
    """

    temperatures: tuple[float, ...] = (0.0, 0.7)
    max_tokens: int = 256
    max_length: int = 1024
    batch: int = 32
    seed: int = 0
    max_tokens_stored: int | None = None
    max_bytes: int | None = None


@dataclass(slots=True)
class CaptureProgress:
    """What has been done so far."""

    entries: int = 0
    tokens: int = 0
    saved_tokens: int = 0
    left_out: int = 0


def engine_settings(options: CaptureOptions, longest: int) -> dict[str, Any]:
    """An engine for many sequences at once; what it decodes is recorded, not drafted for."""
    length = min(options.max_length, longest)
    return {
        "num_speculative_tokens": 0,
        "max_num_seqs": options.batch,
        "max_model_len": length,
        "kv_cache_tokens": options.batch * (length + 16),
        "prefix_caching": False,  # states of what is cached would not be computed again
    }


def capture(
    llm: LLM,
    entries: Sequence[Entry],
    store: Store,
    options: CaptureOptions,
    on_progress: Callable[[CaptureProgress], None] = lambda _: None,
) -> CaptureProgress:
    """Answer the entries that the store does not have yet.

    Whatever ends it, Ctrl-C included, what is finished by then is saved.

    Raises:
        CapacityError: the disk is full.
        InvalidValueError: there is nothing to capture.
    """
    if not entries:
        raise InvalidValueError("entries", 0, "no prompts and no texts; give a file with some")
    done = store.keys()
    missing = [entry for entry in entries if entry.key not in done]
    recorder = Recorder(store.info.taps, store.info.states)
    llm.engine.drafting = Drafting({"none": recorder}, store.info.vocab_size)
    progress = CaptureProgress()
    run = _Run(llm, recorder, options, progress)
    filling = Filling(store, options.max_tokens_stored, options.max_bytes)
    try:
        with filling:
            for example in run.examples(missing):
                filling.add(example)
                on_progress(progress)
                if filling.is_full:
                    break
    finally:
        run.end()
        progress.saved_tokens = filling.saved_tokens
    return progress


class _Run:
    """Keeps the engine's seats taken and yields what is finished."""

    def __init__(
        self, llm: LLM, recorder: Recorder, options: CaptureOptions, progress: CaptureProgress
    ) -> None:
        self._engine: Engine = llm.engine
        self._tokenizer = llm.tokenizer
        self._recorder = recorder
        self._options = options
        self._progress = progress
        self._running: dict[str, tuple[Entry, EngineSequence]] = {}

    def examples(self, entries: Iterable[Entry]) -> Iterator[Example]:
        requests = self._requests(entries)
        pending: deque[tuple[Entry, Request]] = deque()
        while True:
            while len(self._running) < self._options.batch:
                following = next(requests, None)
                if following is None:
                    break
                pending.append(following)
                entry, request = pending.popleft()
                [sequence] = self._engine.add(request)
                self._running[request.request_id] = (entry, sequence)
            if not self._running:
                return
            self._engine.step()
            ended = [r for r, (_, s) in self._running.items() if s.output.finish_reason]
            for request_id in ended:
                yield from self._finished(*self._running.pop(request_id))

    def _finished(self, entry: Entry, sequence: EngineSequence) -> Iterator[Example]:
        tokens, taps, last = self._recorder.take(sequence.seq_id)
        num_prompt = sequence.num_prompt if entry.messages else 0
        self._progress.entries += 1
        if len(tokens) < _SHORTEST or len(tokens) <= num_prompt:
            self._progress.left_out += 1
            return
        self._progress.tokens += len(tokens)
        yield Example(entry.key, entry.kind, num_prompt, tokens, taps, last)

    def _requests(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, Request]]:
        options = self._options
        for number, entry in enumerate(entries):
            temperature = options.temperatures[number % len(options.temperatures)]
            seed = options.seed + number
            for part, ids in enumerate(self._token_ids(entry)):
                room = options.max_length - len(ids)
                if entry.messages and room < options.max_tokens // 4:
                    self._progress.left_out += 1
                    continue
                answer = min(options.max_tokens, room) if entry.messages else 1
                params = SamplingParams(temperature=temperature, seed=seed, max_tokens=answer)
                yield entry, Request(f"capture-{number}-{part}", tuple(ids), params)

    def _token_ids(self, entry: Entry) -> Iterator[list[int]]:
        if entry.messages:
            turns = [{"role": role, "content": text} for role, text in entry.messages]
            yield self._tokenizer.encode_chat(turns)
            return
        ids = self._tokenizer.encode(entry.text)
        piece = self._options.max_length - 1
        for begin in range(0, len(ids), piece):
            if len(ids) - begin >= _SHORTEST:
                yield ids[begin : begin + piece]

    def end(self) -> None:
        """Free what is unfinished."""
        for request_id in list(self._running):
            self._engine.abort(request_id)


def capture_files(
    files: Sequence[Path],
    folder: Path,
    model: str,
    choose_taps: Callable[[int], tuple[int, ...]],
    states: bool,
    options: CaptureOptions,
    on_progress: Callable[[CaptureProgress, int], None],
    **engine: Any,
) -> CaptureProgress:
    """Capture what files say into a store; the files are read before the model is.

    Args:
        files: see ``entries.read_entries``.
        folder: of the store.
        model: the target.
        choose_taps: from the target's number of layers to those to listen to.
        states: keep hidden states.
        options: how answers are made.
        on_progress: called with the progress and the number of entries.
        engine: options of `LLM`.

    Raises:
        OutpaceError: a file, the model or the store cannot be used, or the disk is full.
    """
    entries = read_all(files)
    target = TargetParts.load(model)
    taps = choose_taps(target.config.num_layers) if states else ()
    store = target.begin_store(folder, taps, states)
    settings = engine_settings(options, target.config.max_position_embeddings)
    llm = LLM(model, NoDrafter(), **settings, **engine)
    return capture(llm, entries, store, options, lambda now: on_progress(now, len(entries)))
