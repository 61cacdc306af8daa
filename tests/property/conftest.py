from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

# For work on the engine: `pytest --hypothesis-profile=noshrink` fails at once instead of shrinking.
settings.register_profile(
    "noshrink",
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
# Generating a batch of requests is slow by nature; that says nothing about the test.
settings.register_profile("default", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("default")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """A tiny model gains nothing from threads, which spin and wait for each other instead."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
