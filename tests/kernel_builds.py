"""The builds of the kernels, one after the other, in place of the best one."""

from __future__ import annotations

import pytest

from outpace.kernels import native
from outpace.kernels.features import NEEDED

each_build = pytest.mark.parametrize("build", NEEDED, indirect=True)


def usable(name: str) -> native.Kernels:
    """A build of the kernels; skips where there is none, and fails where it computes nonsense."""
    found = native.load(name)
    if found.reason.startswith(("this processor lacks", "not built", "this PyTorch")):
        pytest.skip(f"{name}: {found.reason}")
    assert found.name, f"{name}: {found.reason}"
    return found
