"""From the name a user gives to a folder with a checkpoint in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from outpace.errors import CheckpointError
from outpace.model.converted import cache_folder

# Weights only as safetensors: pickled files can run code when they are opened.
HUB_FILES = [
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.*",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
]
_HUB_NAME = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
_CHOICES = "give 'demo', a folder with config.json and safetensors, a FILE.gguf, or a hub name"


def resolve(name: str) -> Path:
    """Return the checkpoint folder for a model name.

    Args:
        name: "demo"; an existing folder in HF layout; a GGUF file; or a hub name, looked up in the
            local hub cache first and on the network only when it is not there.

    Raises:
        CheckpointError: nothing fits; the text says what was tried and what would work.
    """
    if name == "demo":
        from outpace.model.demo import demo_folder

        return demo_folder(cache_folder())
    if not name.strip() or "\0" in name:
        raise CheckpointError(f"model = {name!r}: empty or not a name; {_CHOICES}")
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # the home of a user that does not exist
        path = Path(name)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError:  # longer than a file name can be
        is_folder = is_file = False
    if is_folder:
        return _checked_folder(path)
    if is_file:
        return _converted_file(path)
    if len(name) > 96 or not _HUB_NAME.fullmatch(name) or ".." in name or path.suffix == ".gguf":
        raise CheckpointError(f"{_short(name)}: no such file or folder; {_CHOICES}")
    return _from_hub(name)


def _short(name: str) -> str:
    return name if len(name) <= 120 else f"{name[:100]}… ({len(name)} characters)"


def _checked_folder(path: Path) -> Path:
    if not (path / "config.json").is_file():
        raise CheckpointError(f"{path}: no config.json in this folder; {_CHOICES}")
    return path


def _converted_file(path: Path) -> Path:
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if path.suffix.lower() != ".gguf" and magic != b"GGUF":
        hint = f"give its folder: {path.parent}" if path.suffix == ".safetensors" else _CHOICES
        raise CheckpointError(f"{path}: a file that is not GGUF; {hint}")
    from outpace.model.gguf import convert

    return convert(path, cache_folder())


def _from_hub(name: str) -> Path:
    """Local hub cache first, so that a cached model works offline and starts without a request."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))
        if _complete(folder):
            return folder
    except Exception:  # not cached, or only a broken reference: the network decides
        pass
    try:
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except Exception as error:  # every layer below has its own errors: hub, HTTP, sockets, disk
        text = str(error).strip()
        reason = (text.splitlines()[0] if text else type(error).__name__)[:160]
        raise CheckpointError(
            f"{name}: no such folder here, not in the local hub cache, and the hub gave: {reason}; "
            f"check the name and the network, or {_CHOICES}"
        ) from error
    if not _complete(folder):
        raise CheckpointError(
            f"{name}: the hub has no config.json with complete model*.safetensors under this name; "
            "choose a repository with safetensors weights"
        )
    return folder


def _complete(folder: Path) -> bool:
    """Whether a snapshot has a config and all its weights (a cache may hold parts of one)."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return all((folder / shard).is_file() for shard in shards)
    return (folder / "model.safetensors").is_file()
