"""The command as a process, with real models."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-c", "from outpace.cli import main; main()"]
STORY = ["Write a long story about a lighthouse.", "--max-tokens", "400", "--ignore-eos"]


def outpace(*arguments: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, check=False)


def answer(*arguments: str) -> dict[str, Any]:
    done = outpace("generate", *arguments, "--json")
    assert done.returncode == 0, done.stderr.decode()
    value: dict[str, Any] = json.loads(done.stdout.decode("utf-8"))
    return value


def one_error(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.returncode == 1
    assert done.stdout == b""
    text = done.stderr.decode("utf-8")
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    assert "defect" not in text
    return text


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_tokens_do_not_depend_on_the_drafter(tiny_folder: Path, dtype: str) -> None:
    common = ["a b c a b c a b c", "--model", str(tiny_folder), "--raw", "--dtype", dtype]
    common += ["--seed", "7", "--temperature", "0.8", "--max-tokens", "40", "--ignore-eos"]
    plain = answer(*common, "--drafter", "none")
    drafted = answer(*common, "--drafter", "ngram", "-k", "4")
    assert plain["token_ids"] == drafted["token_ids"]
    assert plain["text"] == drafted["text"]
    assert len(plain["token_ids"]) == 40
    assert plain["speculative"]["target_steps"] == 40
    assert drafted["speculative"]["verification"] == "coupled"


def test_a_draft_model_from_the_command_line(tiny_folder: Path) -> None:
    common = ["hello", "--model", str(tiny_folder), "--dtype", "fp32", "--max-tokens", "24"]
    common += ["--ignore-eos"]
    plain = answer(*common, "--drafter", "none")
    drafted = answer(*common, "--drafter", f"model:{tiny_folder}", "-k", "3")
    assert plain["token_ids"] == drafted["token_ids"]
    assert drafted["speculative"]["accepted"] > 0


def test_a_missing_model() -> None:
    error = one_error(outpace("generate", "hi", "--model", "./no/such/folder"))
    assert "./no/such/folder" in error


def test_a_truncated_checkpoint(tiny_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(tiny_folder, copy)
    weights = next(copy.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    one_error(outpace("generate", "hi", "--model", str(copy)))


def test_a_damaged_config(tiny_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(tiny_folder, copy)
    (copy / "config.json").write_text('{"model_type": "llama",', encoding="utf-8")
    error = one_error(outpace("generate", "hi", "--model", str(copy)))
    assert "config.json" in error


def test_a_prompt_longer_than_the_context(tiny_folder: Path) -> None:
    arguments = ["generate", "-", "--model", str(tiny_folder), "--raw", "--max-model-len", "16"]
    error = one_error(outpace(*arguments, stdin=b"word " * 100))
    assert "must be shorter than the context of 16 tokens" in error


def test_a_bias_outside_the_vocabulary(tiny_folder: Path) -> None:
    model = ["--model", str(tiny_folder)]
    error = one_error(outpace("generate", "hi", *model, "--logit-bias", "99999999:1"))
    assert "logit_bias" in error
    assert "99999999" in error


def test_bytes_that_are_not_utf8() -> None:
    error = one_error(outpace("generate", b"caf\xe9"))
    assert error.startswith("error: argument 2 = ")


def test_a_conversation_from_a_pipe(tiny_folder: Path) -> None:
    done = outpace(
        "chat", "--model", str(tiny_folder), "--max-tokens", "4", stdin=b"hello\n/reset\nyou\n"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.decode().count("target steps") == 2


def start_story(folder: Path) -> subprocess.Popen[bytes]:
    """Start a long answer and wait for its beginning."""
    process = subprocess.Popen(
        [*COMMAND, "generate", *STORY, "--model", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    return process


def test_ctrl_c_in_a_stream(demo_folder: Path) -> None:
    process = start_story(demo_folder)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert err == b""


def test_a_reader_that_goes_away(demo_folder: Path) -> None:
    process = start_story(demo_folder)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() != 0
    assert err == b""


def test_the_demo(demo_folder: Path) -> None:
    done = outpace(
        "demo", "--model", str(demo_folder), "--repeats", "1", "--max-tokens", "12", "--json"
    )
    assert done.returncode == 0, done.stderr.decode()
    value = json.loads(done.stdout)
    assert value["identical"] is True
    assert len(value["kinds"]) == 5
