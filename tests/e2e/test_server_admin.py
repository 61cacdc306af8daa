"""An admin gives a running server another head, under load, and takes it back."""

from __future__ import annotations

import gc
import re
import shutil
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from outpace.errors import InvalidValueError
from outpace.llm import LLM
from outpace.server.admin_key import admin_keys, load_admin_key
from outpace.server.keys import ApiKeys

from serving import Running, paused, serving, until
from tiny import write_checkpoint
from tiny_heads import eagle_tensors, medusa_tensors, write_eagle, write_head
from train_cases import tiny_target

KEY, ADMIN = "an-api-key", "an-admin-key-of-length"
WIDE = {"transformer_layer_config": {"vocab_size": 400}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with two heads of it, and things that are none."""
    folder = tmp_path_factory.mktemp("admin")
    tiny_target(folder / "target")
    for seed in (0, 1):
        tensors = eagle_tensors(seed=seed, scale=0.3, **WIDE)
        write_eagle(folder / f"head-{seed}", tensors, **WIDE)
    damaged = write_eagle(folder / "damaged", eagle_tensors(**WIDE), **WIDE)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    write_eagle(folder / "other-target", eagle_tensors())
    write_head(
        folder / "medusa",
        {"model_type": "medusa", "medusa_num_heads": 3},
        medusa_tensors(vocab=None),
    )
    write_checkpoint(folder / "small", seed=3, num_hidden_layers=1)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    llm = LLM(
        str(folder / "target"),
        f"ngram+eagle:{folder / 'head-0'}",
        num_speculative_tokens=3,
        dtype="fp32",
        threads=1,
        max_num_seqs=6,
    )
    with serving(llm, {KEY: "user"}, ADMIN) as running:
        yield running


def ask(server: Running, method: str, path: str, body: Any = None, key: str = ADMIN) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.request(method, server.url + path, json=body, headers=headers, timeout=60)


def load(server: Running, drafter: str) -> httpx.Response:
    answer: httpx.Response = ask(server, "POST", "/admin/drafters", {"drafter": drafter})
    return answer


def back(server: Running) -> httpx.Response:
    answer: httpx.Response = ask(server, "POST", "/admin/drafters/rollback")
    return answer


def drafter(server: Running) -> Any:
    return server.service.llm.engine.drafting.current.drafters["ngram+eagle"]


def said(server: Running, number: int) -> list[str]:
    """An answer and its tokens, by way of the server."""
    body = {
        "model": "tiny",
        "prompt": [5 + number, 6, 7, 8 + number],
        "max_tokens": 40,
        "temperature": 0.8,
        "seed": number,
        "ignore_eos": True,
        "logprobs": 0,
    }
    answer = ask(server, "POST", "/v1/completions", body, KEY)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    return [choice["text"], *choice["logprobs"]["tokens"]]


def test_swaps_under_load_change_no_token(server: Running, folder: Path) -> None:
    plain = LLM(str(folder / "target"), "none", dtype="fp32", threads=1)
    with serving(plain, {KEY: "user"}) as reference:
        wanted = [said(reference, number) for number in range(24)]
    former = [weakref.ref(drafter(server))]
    with ThreadPoolExecutor(8) as crowd:
        answers = [crowd.submit(said, server, number) for number in range(24)]
        for turn in range(6):
            answer = load(server, f"eagle:{folder / f'head-{(turn + 1) % 2}'}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["replaced"] == ["ngram+eagle"]
            former.append(weakref.ref(drafter(server)))
        assert back(server).status_code == 200
        assert [one.result() for one in answers] == wanted
    books = httpx.get(
        f"{server.url}/debug/engine", headers={"Authorization": f"Bearer {KEY}"}
    ).json()
    assert books["integrity"] == "ok"
    assert ask(server, "GET", "/admin/drafters").json()["finishing"] == 0
    gc.collect()
    assert not any(reference() for reference in former)


def test_it_goes_back_by_one_call(server: Running, folder: Path) -> None:
    first = ask(server, "GET", "/admin/drafters").json()["current"]
    spelling = f"ngram+eagle:{folder / 'head-1'}"
    answer = load(server, f"eagle:{folder / 'head-1'}").json()
    assert answer["current"]["drafters"]["ngram+eagle"] == spelling
    assert answer["before"]["drafters"] == first["drafters"]
    assert answer["current"]["drafters"]["none"] == "none"
    again = back(server).json()
    assert again["current"]["drafters"] == first["drafters"]
    assert again["current"]["version"] == first["version"]


def test_nothing_to_go_back_to(folder: Path) -> None:
    options = {"dtype": "fp32", "threads": 1, "num_speculative_tokens": 3}
    llm = LLM(str(folder / "target"), f"model:{folder / 'small'}", **options)
    with serving(llm, admin_key=ADMIN) as server:
        answer = back(server)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert "nothing to go back to" in answer.json()["error"]["message"]
        # A draft model is replaced like a head.
        before = server.service.llm.engine.drafting.current.drafters["model"]
        assert load(server, f"model:{folder / 'small'}").status_code == 200
        assert server.service.llm.engine.drafting.current.drafters["model"] is not before


@pytest.mark.parametrize(
    ("spelling", "status", "message"),
    [
        ("eagle:{folder}/none", 400, "none"),
        ("eagle:{folder}/damaged", 400, "damaged or truncated"),
        ("eagle:{folder}/other-target", 400, "trained for this target"),
        ("eagle:{folder}/medusa", 400, "this is Medusa heads; use medusa:PATH"),
        ("medusa:{folder}/medusa", 400, "no drafter here has a part 'medusa'"),
        ("model:{folder}/small", 400, "no drafter here has a part 'model'"),
        ("ngram", 400, "give a head or a draft model"),
        ("ngram+eagle:{folder}/head-1", 400, "give a head or a draft model"),
        ("nonsense", 400, "choose one of"),
        ("", 400, "choose one of"),
    ],
)
def test_a_failure_leaves_all_as_it_was(
    server: Running, folder: Path, spelling: str, status: int, message: str
) -> None:
    before, shown = drafter(server), ask(server, "GET", "/admin/drafters").json()
    answer = load(server, spelling.format(folder=folder))
    assert answer.status_code == status
    assert re.search(message, answer.json()["error"]["message"]), answer.text
    assert drafter(server) is before
    assert ask(server, "GET", "/admin/drafters").json() == shown
    assert said(server, 1)


def test_what_does_not_fit_is_refused(
    server: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outpace.parts.loaded.available_bytes", lambda device: 100_000)
    before = drafter(server)
    answer = load(server, f"eagle:{folder / 'head-1'}")
    assert answer.status_code == 507
    assert answer.json()["error"]["code"] == "does_not_fit"
    assert "MiB are free" in answer.json()["error"]["message"]
    assert drafter(server) is before


def test_a_head_that_is_gone_cannot_be_gone_back_to(server: Running, folder: Path) -> None:
    shutil.copytree(folder / "head-0", folder / "lent")
    assert load(server, f"eagle:{folder / 'lent'}").status_code == 200
    assert load(server, f"eagle:{folder / 'head-1'}").status_code == 200
    shutil.rmtree(folder / "lent")
    before = drafter(server)
    assert back(server).status_code == 400
    assert drafter(server) is before


def test_loading_does_not_stop_the_steps(
    server: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, began = threading.Event(), threading.Event()
    drafters = server.service.llm.drafters
    make = drafters._make

    def slowly(*given: Any) -> Any:
        began.set()
        assert go.wait(60)
        return make(*given)

    monkeypatch.setattr(drafters, "_make", slowly)
    with ThreadPoolExecutor(1) as one:
        slow = one.submit(load, server, f"eagle:{folder / 'head-1'}")
        assert began.wait(60)
        assert said(server, 3)  # answered meanwhile
        busy = load(server, f"eagle:{folder / 'head-0'}")
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "busy")
        assert busy.headers["retry-after"]
        go.set()
        assert slow.result().status_code == 200


def test_requests_that_wait_get_the_new_one(server: Running, folder: Path) -> None:
    with ThreadPoolExecutor(9) as crowd:
        with paused(server):
            answers = [crowd.submit(said, server, number) for number in range(8)]
            until(lambda: server.service.desk.unfinished == 8)
            swap = crowd.submit(load, server, f"eagle:{folder / 'head-1'}")
            time.sleep(0.05)
        assert swap.result().json()["finishing"] <= 6  # no more than have a seat
        assert all(one.result() for one in answers)


@pytest.mark.parametrize("path", ["/admin/drafters", "/admin/drafters/rollback"])
def test_the_admin_key_alone_opens(server: Running, path: str) -> None:
    for key in ("", KEY, "wrong-key-of-some-length", f"{ADMIN}x"):
        answer = ask(server, "POST", path, {"drafter": "ngram"}, key)
        assert answer.status_code == 401
    assert ask(server, "GET", "/v1/models", key=ADMIN).status_code == 401  # and nothing else
    # Nobody learns anything about bodies without the key.
    answer = httpx.post(server.url + path, content=b"{", timeout=60)
    assert answer.status_code == 401


def test_bodies(server: Running) -> None:
    for body in (None, {}, {"drafter": 3}, {"drafter": "ngram", "name": "x"}, ["ngram"]):
        assert ask(server, "POST", "/admin/drafters", body).status_code == 400


def test_without_an_admin_key_there_is_no_such_path(tiny_server: Running) -> None:
    for method, path in (("GET", "/admin/drafters"), ("POST", "/admin/drafters/rollback")):
        assert ask(tiny_server, method, path).status_code == 404
    assert "/admin/drafters" not in tiny_server.get("/openapi.json").json()["paths"]


def test_reading_the_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    assert load_admin_key(None, {}) == ""
    assert load_admin_key(None, {"OUTPACE_ADMIN_KEY": f" {ADMIN}\n"}) == ADMIN
    file.write_text(ADMIN + "\n")
    assert load_admin_key(file, {}) == ADMIN
    for text in ("", "short", "two words-of-some-length"):
        file.write_text(text)
        with pytest.raises(InvalidValueError, match="must hold one key"):
            load_admin_key(file, {})
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(InvalidValueError, match="not UTF-8"):
        load_admin_key(file, {})
    with pytest.raises(InvalidValueError, match="cannot be read"):
        load_admin_key(tmp_path / "none", {})
    with pytest.raises(InvalidValueError, match="is an API key too"):
        admin_keys(ADMIN, ApiKeys({ADMIN: "user"}))
    assert admin_keys("", ApiKeys()) is None
