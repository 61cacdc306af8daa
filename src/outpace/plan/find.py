"""From the name of a model to its architecture, without loading weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from outpace.errors import CheckpointError, InvalidValueError
from outpace.plan.architecture import Architecture, Experts
from outpace.plan.names import plain, table, unknown

_HUB_NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_OTHERWISE = "or give a folder or config.json, a FILE.gguf, or a hub name (owner/model)"
_SAME_AS_DEMO = "smollm2-135m"


def model_names() -> list[str]:
    """All names of the table."""
    return sorted(table("models.toml"))


def find_architecture(name: str, field: str = "target") -> Architecture:
    """Return the architecture of a model.

    Args:
        name: one of the table's names; a folder with a ``config.json``, or such a file; a GGUF
            file; ``demo``; or a hub name, of which only ``config.json`` is fetched.
        field: the option to name in errors.

    Raises:
        InvalidValueError: nothing has that name.
        CheckpointError: it was found, but does not say what a plan needs.
    """
    if name == "demo":
        name = _SAME_AS_DEMO
    rows = table("models.toml")
    if plain(name) in rows:
        return Architecture.from_hf(rows[plain(name)]["shape"], plain(name))
    if not name.strip() or "\0" in name:
        raise unknown(field, name, model_names(), _OTHERWISE)
    path = _expanded(name)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError:  # longer than a file name can be
        is_folder = is_file = False
    if is_folder:
        return Architecture.from_hf(_read_json(path / "config.json"), path.name or str(path))
    if is_file:
        if _is_gguf(path):
            return _from_gguf(path)
        return Architecture.from_hf(_read_json(path), str(path))
    if _HUB_NAME.fullmatch(name) and path.suffix not in (".json", ".gguf"):
        return Architecture.from_hf(_hub_config(name, field), name)
    raise unknown(field, name, model_names(), _OTHERWISE)


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # the home of a user that does not exist
        return Path(name)


def _read_json(file: Path) -> dict[str, Any]:
    from outpace.model.loader import read_json  # here, because it waits for PyTorch

    return read_json(file)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error


def _hub_config(name: str, field: str) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download

    try:
        try:
            file = hf_hub_download(name, "config.json", local_files_only=True)
        except Exception:  # not cached: the network decides
            file = hf_hub_download(name, "config.json")
    except Exception as error:  # hub, HTTP, sockets and disk have errors of their own
        text = str(error).strip()
        reason = (text.splitlines()[0] if text else type(error).__name__)[:160]
        raise InvalidValueError(
            field, name, f"no such folder, and the hub gave: {reason}; {_OTHERWISE[3:]}"
        ) from error
    return _read_json(Path(file))


def _from_gguf(path: Path) -> Architecture:
    """Read a GGUF file's metadata; its tensors stay on the disk."""
    import gguf

    try:
        reader = gguf.GGUFReader(str(path))
        values = {key: field.contents() for key, field in reader.fields.items()}
        shapes = {one.name: [int(n) for n in one.shape] for one in reader.tensors}
    except Exception as error:  # the gguf library has no error type of its own
        raise CheckpointError(
            f"{path}: not a readable GGUF file ({type(error).__name__}); download it again"
        ) from error
    kind = values.get("general.architecture")

    def number(key: str, default: int | None = None) -> int:
        value = values.get(f"{kind}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            what = "is missing" if value is None else f"= {value!r} is no number above 0"
            raise CheckpointError(f"{path}: {kind}.{key} {what}; a plan needs it")
        return value

    if "token_embd.weight" not in shapes:
        raise CheckpointError(f"{path}: token_embd.weight is missing; this is no complete model")
    hidden, heads = number("embedding_length"), number("attention.head_count")
    experts = None
    if f"{kind}.expert_count" in values:
        inner = number("expert_feed_forward_length", number("feed_forward_length"))
        experts = Experts(number("expert_count"), number("expert_used_count"), inner)
    return Architecture(
        name=path.name,
        hidden=hidden,
        layers=number("block_count"),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_dim=number("attention.key_length", max(hidden // heads, 1)),
        inner=number("feed_forward_length", 1 if experts else None),
        vocab=shapes["token_embd.weight"][1],
        context=number("context_length"),
        tied="output.weight" not in shapes,
        experts=experts,
    )
