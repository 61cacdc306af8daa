"""What this processor can do, as the operating system tells."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

# What each build of the kernels needs, the best build first; "avx2" is what every build needs.
_AVX2 = ("avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe")
NEEDED = {
    "avx512": (
        *_AVX2,
        *("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx512_bf16", "avx512_vnni"),
    ),
    "avx2": _AVX2,
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
