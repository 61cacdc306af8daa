"""llama.cpp's own program for speculative decoding, started anew for each prompt.

It prints the time of decoding itself, loading and prompt left out. Its answer is text among
other text, so no tokens are returned.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers.workers.protocol import Arrivals, Tokens, serve

_ENCODED = re.compile(r"encoded\s+(\d+) tokens in")
_DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")
KINDS = {"draft": "draft-simple", "ngram": "ngram-simple"}


class LlamaProgram:
    """A command line; nothing stays loaded."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._program = options["program"]
        if not Path(self._program).is_file():
            raise FileNotFoundError(f"there is no {self._program}")
        told = subprocess.run([self._program, "--version"], capture_output=True, text=True)
        self.version = (told.stdout + told.stderr).strip().splitlines()[0]
        self._options = options

    def generate(
        self,
        options: dict[str, Any],
        prompt: Tokens,
        limit: int,
        stops: Sequence[int],
        arrivals: Arrivals,
    ) -> Tokens | None:
        """Answer one prompt greedily."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(options["text"] + "\n")  # it takes one line end away
            file.flush()
            done = subprocess.run(
                self._command(file.name, options, limit), capture_output=True, text=True
            )
        said = done.stdout + done.stderr
        encoded, decoded = _ENCODED.search(said), _DECODED.search(said)
        if encoded is None or decoded is None:
            last = (said.strip().splitlines() or ["nothing"])[-1]
            raise RuntimeError(f"exit status {done.returncode}, and it said: {last}")
        if int(encoded[1]) != len(prompt):
            raise RuntimeError(f"it read {encoded[1]} tokens where the others read {len(prompt)}")
        arrivals.told(int(decoded[1]), float(decoded[2]))
        return None

    def _command(self, file: str, options: dict[str, Any], limit: int) -> list[str]:
        threads, context = str(self._options["threads"]), str(self._options["context"])
        command = [
            *(self._program, "-m", self._options["target_gguf"], "-f", file, "--no-escape"),
            *("-n", str(limit), "-c", context, "-b", context, "--temp", "0", "-t", threads),
            *("--spec-type", KINDS[options["mode"]]),
        ]
        if options["mode"] == "draft":
            command += ["-md", self._options["draft_gguf"], "-td", threads]
            command += ["--spec-draft-n-max", str(options["k"])]
        return command


if __name__ == "__main__":
    serve(LlamaProgram)
