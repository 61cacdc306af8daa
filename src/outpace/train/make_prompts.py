"""Files of prompts to capture answers to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from outpace.errors import InvalidValueError
from outpace.llm import LLM
from outpace.model.source import resolve
from outpace.text.tokenizer import Tokenizer
from outpace.train.prompts.drawn import drawn_prompts
from outpace.train.prompts.generate import open_prompts, prompts_about
from outpace.train.store import Store
from outpace.whole_file import appearing

# Whose answers are texts that can be asked about.
_TELLING = ("writing", "chat", "qa", "drawn")
_SHORTEST = 60  # words


def from_templates(count: int, seed: int, texts: Sequence[str] | None) -> Iterator[dict[str, str]]:
    """Prompts that need no text, or about given ones."""
    return open_prompts(count, seed) if texts is None else prompts_about(texts, count, seed)


def drawn_by(
    model: str,
    count: int,
    seed: int,
    threads: int | None,
    on_progress: Callable[[int, int], None],
) -> list[dict[str, str]]:
    """Prompts that the target draws.

    Raises:
        OutpaceError: the model cannot be used.
    """
    llm = LLM(
        model,
        "none",
        quantization="int8",
        num_speculative_tokens=0,
        max_num_seqs=32,
        max_model_len=512,
        kv_cache_tokens=32 * 512,
        prefix_caching=False,
        threads=threads,
    )
    return list(drawn_prompts(llm, count, seed, on_progress=on_progress))


def texts_of(folders: Sequence[str]) -> list[str]:
    """The longer answers in stores.

    Raises:
        CheckpointError: a folder is no store.
        InvalidValueError: there are no longer answers.
    """
    texts: list[str] = []
    for folder in folders:
        store = Store.open(Path(folder).expanduser())
        tokenizer = Tokenizer.load(resolve(store.info.model))
        for example in store:
            if example.kind in _TELLING:
                text = tokenizer.decode(example.token_ids[example.num_prompt :].tolist()).strip()
                if len(text.split()) >= _SHORTEST:
                    texts.append(text)
    if not texts:
        way_out = f"no answer of {_SHORTEST} words or more; capture longer ones"
        raise InvalidValueError("about", ", ".join(folders), way_out)
    return texts


def write_prompts(path: Path, prompts: Iterable[dict[str, str]]) -> int:
    """Write JSON lines, the file whole or not at all; how many there are.

    Raises:
        InvalidValueError: it cannot be written.
    """
    number = 0
    try:
        with appearing(path) as beside, beside.open("w", encoding="utf-8") as stream:
            for prompt in prompts:
                stream.write(json.dumps(prompt, ensure_ascii=False) + "\n")
                number += 1
    except OSError as error:
        reason = error.strerror or "cannot be written"
        raise InvalidValueError("out", str(path), f"cannot be written: {reason}") from error
    return number
