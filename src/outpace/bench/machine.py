"""What it ran on: the facts without which a time means nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("outpace", "torch", "transformers", "tokenizers", "numpy")


def machine_facts() -> dict[str, Any]:
    """Return processor, cores, memory, system and how busy the machine was just before."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": processor_name(),
        "cores": usable,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average_before": round(psutil.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Return the versions of what decides about speed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor as it calls itself, or as good as it can be known."""
    try:
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"
