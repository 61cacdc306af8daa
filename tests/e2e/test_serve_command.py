"""``outpace serve`` as a process: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import outpace

from serving import ENOUGH

Process = subprocess.Popen[str]
LONG = {"prompt": "the dog", "max_tokens": 480, "ignore_eos": True, "n": 8}


@contextmanager
def process(
    folder: Path, cache: Path, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server and its start-up page."""
    command = [sys.executable, "-c", "from outpace.cli import main; main()", "serve"]
    command += ["--model", str(folder), "--port", "0", "--dtype", "fp32", "-k", "3", *options]
    source = str(Path(outpace.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OUTPACE_CACHE": str(cache)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            yield server, read_page(server)
        finally:
            server.kill()


def read_page(server: Process) -> str:
    assert server.stderr is not None
    lines = []
    for line in server.stderr:
        lines.append(line)
        if "curl" in line:
            return "".join(lines)
    raise AssertionError("".join(lines))


def address(page: str) -> str:
    found = re.search(r"http://\S+?:\d+", page)
    assert found is not None
    return found[0]


def test_what_it_prints_works(tiny_folder: Path, tmp_path: Path) -> None:
    with process(tiny_folder, tmp_path) as (server, page):
        for part in ("drafter", "prediction", "memory", "guarantee", "none needed"):
            assert part in page
        [line] = [line for line in page.splitlines() if "curl" in line]
        curl = shlex.split(line)
        if shutil.which("curl"):
            reply = json.loads(subprocess.check_output([*curl, "-s"], timeout=ENOUGH))
        else:
            reply = httpx.post(curl[1], json=json.loads(curl[-1]), timeout=ENOUGH).json()
        assert reply["choices"][0]["message"]["role"] == "assistant"
        assert reply["model"] == tiny_folder.name
        server.send_signal(signal.SIGTERM)
        assert server.wait(ENOUGH) == 0
        assert server.stdout is not None
        assert server.stdout.read() == ""


@pytest.mark.parametrize("drain", ["60", "0"])
def test_a_signal_lets_requests_end(tiny_folder: Path, tmp_path: Path, drain: str) -> None:
    """Under load: all are answered, or when time is up told that they are not."""
    with process(tiny_folder, tmp_path, "--drain-timeout", drain) as (server, page):
        url = f"{address(page)}/v1/completions"
        ends: list[str] = []
        started = threading.Semaphore(0)

        def ask() -> None:
            body = {**LONG, "stream": True}
            with httpx.stream("POST", url, json=body, timeout=ENOUGH) as response:
                lines = response.iter_lines()
                next(lines)
                started.release()
                ends.append([line for line in lines if line][-1])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert started.acquire(timeout=ENOUGH)
        server.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(ENOUGH)
        assert server.wait(ENOUGH) == 0
    assert len(ends) == 4
    if drain == "60":
        assert set(ends) == {"data: [DONE]"}
    else:
        errors = [json.loads(end.removeprefix("data: ")) for end in ends if "error" in end]
        assert errors
        assert {error["error"]["code"] for error in errors} == {"stopped"}


def test_killed_and_started_again(tiny_gguf: Path, tmp_path: Path) -> None:
    """What it keeps in the cache folder survives, at whatever moment it is killed."""
    for _ in range(2):
        with process(tiny_gguf, tmp_path) as (server, page):
            url = f"{address(page)}/v1/completions"
            reply = httpx.post(url, json={"prompt": "the dog", "max_tokens": 3}, timeout=ENOUGH)
            assert reply.status_code == 200
            server.kill()
            server.wait(ENOUGH)


def test_an_address_that_is_taken(tiny_folder: Path, tmp_path: Path) -> None:
    with process(tiny_folder, tmp_path) as (_, page):
        port = address(page).rsplit(":", 1)[1]
        message = f"error: port = {port}: cannot be listened on"
        with (
            pytest.raises(AssertionError, match=message),
            process(tiny_folder, tmp_path, "--port", port),
        ):
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "port = 70000"),
        (["--tenant-by", "name"], "tenant_by = 'name'"),
        (["--api-key-file", "/nowhere"], "api_key_file = '/nowhere'"),
        (["--max-num-seqs", "0"], "max_num_seqs = 0"),
        (["--request-timeout", "nan"], "request_seconds = nan"),
        (["--log", "everything"], "log = 'everything'"),
    ],
)
def test_bad_options(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from outpace.cli import run

    assert run(["serve", "--model", "/no/model", *options]) == 1
    assert message in capsys.readouterr().err
