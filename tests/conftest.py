from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

import tiny

# No deadlines: how long a test takes says nothing here, on a machine shared with others. And
# generating a batch of requests is slow by nature.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For work on the engine: `pytest --hypothesis-profile=noshrink` fails at once, without shrinking.
settings.register_profile(
    "noshrink",
    parent=settings.get_profile("default"),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
settings.load_profile("default")


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
