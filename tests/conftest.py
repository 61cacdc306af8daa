from __future__ import annotations

from pathlib import Path

import pytest

import tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama checkpoint with tokenizer and chat template; do not write into it."""
    return tiny.write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_gguf(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint as a GGUF file in fp32."""
    return tiny.write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tiny_folder)


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    """The demo model as a checkpoint folder; skips where its package is not installed.

    It lives in the user's cache (or $OUTPACE_CACHE), so that it is converted once per machine.
    """
    from outpace.errors import CheckpointError
    from outpace.model.demo import demo_file
    from outpace.model.source import resolve

    try:
        demo_file()
    except CheckpointError as error:
        pytest.skip(str(error))
    return resolve("demo")
