"""The target's states on texts in token ids, into a store: answers that were given, or new ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from outpace.engine.drafting import Drafting
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.llm import LLM
from outpace.request import Request, SamplingParams
from outpace.train.filling import Filling
from outpace.train.recorder import Recorder
from outpace.train.store import Example, Store


@dataclass(frozen=True, slots=True)
class Text:
    """What the target shall read, or read and then answer.

    Attributes:
        kind: of request.
        prompt: token ids.
        answer: token ids that were said; empty: the target answers now.
        params: how it answers.
    """

    kind: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    params: SamplingParams

    @property
    def key(self) -> str:
        """Names it by its content."""
        content = repr((self.prompt, self.answer, self.params.seed, self.params.temperature))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def request(self) -> Request:
        """What the engine is asked for: one token after what was said, or the answer."""
        params = SamplingParams(max_tokens=1) if self.answer else self.params
        return Request(f"replay-{self.key}", self.prompt + self.answer, params)


def replay(
    llm: LLM,
    texts: Iterable[Text],
    store: Store,
    at_once: int,
    max_bytes: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Add what the store does not have yet; whatever ends it, what is finished is saved.

    Args:
        llm: the target, without a prefix cache; its drafters are taken out.
        texts: what is wanted.
        store: where it goes.
        at_once: sequences in the engine.
        max_bytes: stop before the store is larger.
        on_progress: called with the number of texts that are there.

    Raises:
        CapacityError: the disk is full.
    """
    done = store.keys()
    missing = {text.key: text for text in texts if text.key not in done}
    recorder = Recorder(store.info.taps, store.info.states)
    llm.engine.drafting = Drafting({"none": recorder}, store.info.vocab_size)
    with Filling(store) as filling:
        for count, example in enumerate(_examples(llm, missing.values(), recorder, at_once), 1):
            filling.add(example)
            on_progress(len(done) + count)
            if filling.nbytes >= max_bytes:
                break


def _examples(
    llm: LLM, texts: Iterable[Text], recorder: Recorder, at_once: int
) -> Iterator[Example]:
    engine, left = llm.engine, iter(texts)
    running: dict[str, tuple[Text, EngineSequence]] = {}
    try:
        while True:
            while len(running) < at_once and (text := next(left, None)) is not None:
                request = text.request()
                [sequence] = engine.add(request)
                running[request.request_id] = (text, sequence)
            if not running:
                return
            engine.step()
            ended = [name for name, (_, one) in running.items() if one.output.finish_reason]
            for name in ended:
                text, sequence = running.pop(name)
                tokens, taps, last = recorder.take(sequence.seq_id)
                if len(tokens) > len(text.prompt):
                    yield Example(text.key, text.kind, len(text.prompt), tokens, taps, last)
    finally:
        for name in running:
            engine.abort(name)
