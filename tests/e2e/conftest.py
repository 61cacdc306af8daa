from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outpace.llm import LLM

import tiny
from serving import Running, serving


@pytest.fixture(scope="session")
def tiny_llm(tiny_folder: Path) -> LLM:
    """A tiny random model in fp32, ngram drafter, fixed k."""
    return LLM(str(tiny_folder), "ngram", num_speculative_tokens=4, dtype="float32")


@pytest.fixture(scope="session", params=["bfloat16", "float32"])
def demo_llm(request: pytest.FixtureRequest, demo_folder: Path) -> LLM:
    """The demo model in each precision; a cache that is too small for eight requests at once."""
    return LLM(str(demo_folder), "auto", num_speculative_tokens=5, dtype=request.param)


@pytest.fixture(scope="session")
def tiny_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server around a tiny model with a small batch; tests share it."""
    folder = tmp_path_factory.mktemp("served") / "model"
    tiny.write_checkpoint(folder, max_position_embeddings=2048)
    llm = LLM(str(folder), "auto", num_speculative_tokens=4, dtype="float32", max_num_seqs=6)
    with serving(llm) as server:
        yield server
