"""Conversations that the target draws: their turns, their states, and what a store gets of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from outpace.cache.pools import KVPool
from outpace.cli import run
from outpace.errors import CapacityError
from outpace.model.batch import Batch
from outpace.model.build import load_decoder
from outpace.model.precision import Precision
from outpace.text.tokenizer import Tokenizer
from outpace.train.converse import Converse, ConverseOptions, Talk
from outpace.train.filling import Filling
from outpace.train.frame import Frame
from outpace.train.prompts.openings import Opening, openings
from outpace.train.store import Example, Store, StoreInfo
from outpace.train.target_parts import TargetParts

from train_cases import tiny_target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TargetParts:
    return TargetParts.load(str(tiny_target(tmp_path_factory.mktemp("talk"))))


@pytest.fixture(scope="module")
def frame(target: TargetParts) -> Frame:
    return Frame.of(Tokenizer.load(target.folder), target.config.eos_token_ids)


def converse(target: TargetParts, frame: Frame, count: int, seed: int = 0) -> list[Example]:
    precision = Precision(torch.float32)
    decoder = load_decoder(target.folder, target.config, precision, torch.device("cpu"))
    options = ConverseOptions(seats=3, length=250, seed=seed)
    ends = target.config.eos_token_ids
    talks = Converse(decoder, frame, ends, (0, 2), options)
    begun = (
        Opening("chat", "Say fox", whole=i % 2 == 0, user_tokens=5, answer_tokens=9 + i)
        for i in itertools.count()
    )
    return list(itertools.islice(talks.examples(begun, "talk"), count))


def test_a_frame_says_what_the_template_does(target: TargetParts, frame: Frame) -> None:
    tokenizer = frame.tokenizer
    wanted = tokenizer.encode_chat([{"role": "user", "content": "Say fox"}])
    assert [*frame.begin(None, "Say fox"), *frame.answering] == wanted
    turns = [
        {"role": "user", "content": "Say fox"},
        {"role": "assistant", "content": "fox"},
        {"role": "user", "content": "hello"},
    ]
    whole = tokenizer.encode_chat(turns)
    end = [token for token in whole if token in target.config.eos_token_ids][:1]
    grown = [*wanted, *tokenizer.encode("fox"), *end, *frame.asking, *tokenizer.encode("hello")]
    assert [*grown, *frame.answering] == whole


def test_a_talk_takes_turns(target: TargetParts, frame: Frame) -> None:
    [end, *_] = target.config.eos_token_ids
    opening = Opening("chat", user_tokens=2, answer_tokens=3, turns=2)
    talk = Talk("t", opening, frame, (end,), length=900, warmth=0.0)
    assert talk.temperature == opening.temperature  # the user speaks
    assert not talk.take(5)
    assert not talk.take(6)  # the most that is drawn of a question
    assert talk.first_answer == len(talk.tokens)
    assert talk.temperature == 0.0
    assert not talk.take(7)
    assert not talk.take(end)  # the answer ended by itself, so the user asks again
    assert talk.tokens[-len(frame.asking) :] == list(frame.asking)
    assert not talk.take(end)
    assert [talk.take(token) for token in (7, 8, 9)] == [False, False, True]
    assert talk.tokens[-3:] == [7, 8, 9]


def test_states_are_those_of_the_tokens(target: TargetParts, frame: Frame) -> None:
    """Seats are used again and steps mix beginnings with single tokens; each row is its own."""
    examples = converse(target, frame, 8)
    assert len({e.key for e in examples}) == 8
    config, device = target.config, torch.device("cpu")
    decoder = load_decoder(target.folder, config, Precision(torch.float32), device)
    pool = KVPool(
        config.num_layers, 256, config.num_kv_heads, config.head_dim, torch.float32, device
    )
    for example in examples:
        batch = Batch()
        count = len(example.token_ids)
        batch.append_run(example.token_ids.long().numpy(), 0, np.arange(count))
        with torch.inference_mode():
            hidden = decoder.forward(batch, pool, (0, 2))
        for kept, wanted in ((example.taps, hidden.taps), (example.last, hidden.last)):
            assert kept is not None
            assert wanted is not None
            torch.testing.assert_close(kept.float(), wanted[:count], rtol=0.02, atol=0.02)


def test_the_same_seed_says_the_same(target: TargetParts, frame: Frame) -> None:
    def said(seed: int) -> list[list[int]]:
        return [e.token_ids.tolist() for e in converse(target, frame, 4, seed)]

    assert said(1) == said(1) != said(2)


def test_openings_are_of_all_kinds() -> None:
    some = list(itertools.islice(openings(3, ["A first text.", "A second one."]), 400))
    assert some == list(itertools.islice(openings(3, ["A first text.", "A second one."]), 400))
    assert some != list(itertools.islice(openings(4, ["A first text.", "A second one."]), 400))
    assert {"drawn", "chat", "code", "math", "qa", "rag", "summary"} <= {o.kind for o in some}
    assert not any("{" in o.user and "}" in o.user for o in some if o.kind in ("summary", "rag"))
    none = itertools.islice(openings(3, []), 400)
    assert not any("{document}" in o.user for o in none)


class Disk(Store):
    """A store that remembers what it was given, until it is full."""

    def __init__(self, room: int) -> None:
        super().__init__(Path("nowhere"), StoreInfo("m", "f", 96, 8, (), states=False))
        self.given: list[list[str]] = []
        self.room = room

    def add(self, examples: Sequence[Example]) -> None:
        if len(self.given) == self.room:
            raise CapacityError("full")
        self.given.append([e.key for e in examples])


def test_what_a_full_disk_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.train.filling._SHARD_BYTES", 60)
    disk = Disk(room=1)
    filling = Filling(disk)

    def fill() -> None:
        with filling:
            for key in "abcd":  # 32 bytes each
                filling.add(Example(key, "", 0, torch.zeros(8, dtype=torch.int32)))

    with pytest.raises(CapacityError):
        fill()
    assert disk.given == [["a", "b"]]
    assert (filling.tokens, filling.saved_tokens) == (32, 16)


def test_a_store_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_target(tmp_path / "target")
    line = f"train converse -o {tmp_path / 'talks'} --model {model} --quantization none --json"
    more = "--tokens 900 --batch 6 --max-length 240 --threads 1"
    for _ in range(2):
        assert run([*line.split(), *more.split()]) == 0
        assert json.loads(capsys.readouterr().out)["saved_tokens"] >= 900
    examples = list(Store.open(tmp_path / "talks"))
    assert len({e.key for e in examples}) == len(examples)
    assert len({tuple(e.token_ids.tolist()) for e in examples}) == len(examples)
    assert run([*line.split(), "--max-length", "9"]) == 1
    assert "max_length = 9" in capsys.readouterr().err
