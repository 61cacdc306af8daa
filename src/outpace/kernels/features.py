"""What this processor can do, as the operating system tells."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

# What the compiled kernels need, beyond what their compiler flags imply.
NEEDED = {
    "avx512": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512_vnni"),
}


@functools.cache
def cpu_flags() -> frozenset[str]:
    """The processor's feature flags in the spelling of Linux; empty where they cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


@functools.cache
def cpu_name() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
