"""Record, live page and health of a server: what they say is what its replies said."""

from __future__ import annotations

import logging
import re
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from outpace import LLM
from outpace.cli import run
from outpace.model.heads.target import TargetMismatch
from outpace.record.capture import load_capture
from outpace.record.recorder import load
from outpace.server import books

import tiny
from serving import Running, paused, serving, until

LOOP = {"5": 100, "6": 99, "70": 99}
CHAT = [{"role": "user", "content": "Name three rivers."}]
# A request of each type, and what its answer says of it.
TYPED: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"messages": CHAT}),
    ("other", {"prompt": "once upon a time"}),
    ("code", {"prompt": "def add(a, b):\n    return a + b\n\nimport os\nimport sys\n"}),
    ("translation", {"prompt": "Wie heißt der Fluss, und was ist mit der Brücke?"}),
    ("long-context", {"prompt": "Summarize the following text: " + "1 2 " * 50}),
    ("structured", {"prompt": "a", "guided_regex": "[a-z]{3,5}"}),
    ("prediction", {"prompt": "a", "prediction": {"type": "content", "content": "b c d"}}),
    ("support", {"prompt": "a", "metadata": {"request_type": " Support "}}),
]


def make_llm(folder: Path, **more: Any) -> LLM:
    options: dict[str, Any] = {"dtype": "float32", "num_speculative_tokens": 4, "max_num_seqs": 4}
    return LLM(str(folder), "auto", **options | more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model"
    tiny.write_checkpoint(path, max_position_embeddings=2048)
    return path


@pytest.fixture
def recorded(folder: Path, tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    path = tmp_path / "kept" / "record.db"
    with serving(make_llm(folder, record=path)) as server:
        yield server, path


def ask(server: Running, body: dict[str, Any]) -> dict[str, Any]:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    response = server.post(path, {"max_tokens": 12, "temperature": 0} | body)
    assert response.status_code == 200, response.text
    value: dict[str, Any] = response.json()
    return value


def rows_of(server: Running, path: Path, count: int) -> list[Any]:
    """The record when so many requests are in it."""
    recorder = server.service.llm.recorder
    assert recorder is not None
    until(lambda: recorder.written >= count)
    return load(path)


def until_remembered(server: Running, count: int) -> None:
    until(lambda: server.get("/dashboard/data").json()["window"]["requests"] == count)


def test_every_request_is_a_row_with_the_figures_of_its_reply(
    recorded: tuple[Running, Path],
) -> None:
    server, path = recorded
    with ThreadPoolExecutor(4) as pool:
        bodies = [body for _, body in TYPED] + [{"prompt": "x", "logit_bias": LOOP, "n": 3}] * 4
        replies = list(pool.map(lambda body: ask(server, body), bodies))
    rows = {row.request_id: row for row in rows_of(server, path, len(replies))}
    assert len(rows) == len(replies)
    for reply in replies:
        row, usage = rows[f"{reply['id']}-0"], reply["usage"]
        told, [draft] = reply["metrics"]["speculative_decoding"], row.drafts
        assert row.request_type == told["request_type"]
        assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (
            usage["prompt_tokens"],
            usage["completion_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
        )
        assert (draft.drafted, draft.accepted) == (
            told["num_draft_tokens"],
            told["num_accepted_draft_tokens"],
        )
        assert (draft.steps, draft.emitted) == (told["target_steps"], usage["completion_tokens"])
        assert (row.samples, row.prompt, row.answer) == (len(reply["choices"]), None, None)
    assert sum(row.drafts[0].accepted for row in rows.values()) > 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_replies_say_who_was_chosen_to_draft_and_why(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    more = {"num_speculative_tokens": "auto", "keep_learned": False, "record": path}
    with serving(make_llm(folder, **more)) as server:
        replies = [ask(server, body) for _, body in TYPED]
        chosen = ask(server, {"prompt": "a", "speculative": {"drafter": "ngram"}})
        figures = server.get("/metrics").text
    assert chosen["metrics"]["speculative_decoding"]["decisions"] == []  # nobody had a choice
    drafters = {"ngram", "none"}  # nobody drafts while the prompt is read
    rows = {row.request_id: row for row in load(path)}
    for reply in replies:
        told, row = reply["metrics"]["speculative_decoding"], rows[f"{reply['id']}-0"]
        decisions = told["decisions"]
        assert told["drafter"] == row.drafter == decisions[-1]["drafter"]
        assert all(one["reason"] for one in decisions)
        assert [(one.drafter, one.reason, one.at_token) for one in row.decisions] == [
            (one["drafter"], one["reason"], one["at_token"]) for one in decisions
        ]
        drafters |= {one["drafter"] for one in decisions}
    emitted = "outpace:spec_decode_num_emitted_tokens_total"
    assert set(re.findall(emitted + '{drafter="([^"]*)"', figures)) <= drafters


def test_types_come_from_labels_and_rules(recorded: tuple[Running, Path]) -> None:
    server, path = recorded
    for name, body in TYPED:
        told = ask(server, body)["metrics"]["speculative_decoding"]
        assert told["request_type"] == name
        expected = "label" if name == "support" else "no rule" if name == "other" else "the rule"
        assert expected in told["request_type_reason"]
    assert [row.request_type for row in rows_of(server, path, len(TYPED))] == [
        name for name, _ in TYPED
    ]
    headers = {"X-Outpace-Request-Type": "from the header"}
    refused = server.post("/v1/completions", {"prompt": "a"}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "request_type")


def test_the_pages_figures_are_those_of_the_record(recorded: tuple[Running, Path]) -> None:
    server, path = recorded
    for _ in range(3):
        for _, body in TYPED:
            ask(server, body)
    rows_of(server, path, 24)
    until_remembered(server, 24)
    data = server.get("/dashboard/data").json()
    query = """
        select request_type, count(*), sum(completion_tokens),
          sum(json_extract(drafts, '$[0].accepted')), sum(json_extract(drafts, '$[0].steps'))
        from requests group by 1"""
    with sqlite3.connect(path) as connection:
        kept = {name: counts for name, *counts in connection.execute(query)}
    shown = {
        one["type"]: [
            one["requests"],
            one["tokens"],
            one["alpha"]["right"],
            one["acceptance_length"],
        ]
        for one in data["types"]
    }
    assert shown == {
        name: [requests, tokens, accepted, tokens / steps]
        for name, (requests, tokens, accepted, steps) in kept.items()
    }
    assert sum(second["emitted"] for second in data["steps"]) == data["all"]["tokens"]
    health = server.get("/health/speculation").json()
    assert (health["status"], health["requests"]) == (data["health"]["status"], 24)


def test_requests_that_are_left_are_rows_too(recorded: tuple[Running, Path]) -> None:
    server, path = recorded
    body = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
        next(response.iter_lines())
    late = server.post(
        "/v1/completions", body | {"stream": False}, headers={"X-Outpace-Timeout": "0.2"}
    )
    assert late.status_code == 408
    rows = rows_of(server, path, 2)
    assert [row.finish_reason for row in rows] == ["abort", "abort"]
    assert all(row.completion_tokens < 1900 for row in rows)
    server.wait_until_idle()


def test_a_request_that_is_left_before_its_first_step_is_a_row(
    recorded: tuple[Running, Path],
) -> None:
    server, path = recorded
    with paused(server):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"}, timeout=0.3)
        until(lambda: not server.service.desk.unfinished)
    [row] = rows_of(server, path, 1)
    assert (row.finish_reason, row.completion_tokens, row.first_token_seconds) == ("abort", 0, None)
    until_remembered(server, 1)


def test_a_restart_goes_on_from_the_record(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    for expected in (3, 6):
        with serving(make_llm(folder, record=path)) as server:
            for _ in range(3):
                ask(server, {"prompt": "a"})
            until_remembered(server, expected)
        recorder = server.service.llm.recorder
        assert recorder is not None
        assert len(load(path)) == expected  # all is written when the server has ended
        recorder.close()


def test_texts_and_tokens_are_kept_only_where_they_were_asked_for(
    folder: Path, tmp_path: Path
) -> None:
    record, capture = tmp_path / "record.db", tmp_path / "capture.db"
    more = {"record": record, "record_text": True, "capture": capture}
    with serving(make_llm(folder, **more)) as server:
        reply = ask(server, {"prompt": "the quick brown", "logprobs": 0, "seed": 5})
    [row], [one] = load(record), load_capture(capture)
    assert (row.prompt, row.answer) == ("the quick brown", reply["choices"][0]["text"])
    assert server.service.llm.tokenizer.decode(one.prompt) == "the quick brown"
    assert len(one.answer) == reply["usage"]["completion_tokens"]
    assert (one.request_type, one.sampling["seed"]) == ("other", 5)


def test_keys_guard_what_tells_of_requests(folder: Path) -> None:
    with serving(make_llm(folder), keys={"a-long-key": "one"}) as server:
        for path in ("/dashboard/data", "/health/speculation"):
            assert server.get(path).status_code == 401
            wrong = server.get(path, headers={"Authorization": "Bearer another-key"})
            assert wrong.status_code == 401
            right = server.get(path, headers={"Authorization": "Bearer a-long-key"})
            assert right.status_code == 200
        page = server.get("/dashboard")
        assert page.status_code == 200
        assert "unsafe" not in page.headers["Content-Security-Policy"]
        assert server.get("/dashboard/", follow_redirects=True).text == page.text
        for path in ("/dashboard", "/dashboard/data", "/health/speculation"):
            headers = {"Authorization": "Bearer a-long-key"}
            answer = httpx.post(f"{server.url}{path}", content=b"\xff" * 100, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                405,
                "method_not_allowed",
            )


def test_findings_are_told_with_evidence_and_advice(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make_llm(folder)
    monkeypatch.setattr(type(llm), "mismatches", (TargetMismatch("heads/x", "a" * 64, "b" * 64),))
    monkeypatch.setenv("OUTPACE_API_KEY", "a-long-key")
    with serving(llm, keys={"a-long-key": "one"}) as server:
        body = server.get(
            "/health/speculation", headers={"Authorization": "Bearer a-long-key"}
        ).json()
        [found] = body["findings"]
        assert (found["name"], found["subject"]) == ("fingerprint-mismatch", "heads/x")
        assert found["evidence"] == {"trained_for": "a" * 64, "target": "b" * 64}
        assert found["advice"]
        for url in (server.url, f"{server.url}/v1", f"{server.url}/health/speculation"):
            assert run(["doctor", "--url", url]) == 1  # it warns
            told = capsys.readouterr()
            assert "attention" in told.out
            assert "what to do: answers stay right" in told.out
        monkeypatch.setenv("OUTPACE_API_KEY", "another-key")
        assert run(["doctor", "--url", server.url]) == 1
        assert "set OUTPACE_API_KEY" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["host:80", "ftp://host", "http://", "http://h:x", "http://h?q=1"])
def test_a_doctor_is_not_sent_to_what_is_no_address(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--url", url]) == 1
    assert "is no address" in capsys.readouterr().err


def test_a_full_disk_is_told_and_costs_no_answer(
    recorded: tuple[Running, Path], caplog: pytest.LogCaptureFixture
) -> None:
    server, path = recorded
    recorder = server.service.llm.recorder
    assert recorder is not None
    database = recorder._table._connection
    database.execute("PRAGMA max_page_count = 1")  # as many as are there, and no more
    label = {"metadata": {"request_type": "x" * 30}}
    with caplog.at_level(logging.WARNING, "outpace"):
        for asked in range(1, 200):
            ask(server, {"prompt": "a", "max_tokens": 1} | label)
            until(lambda asked=asked: recorder.written + recorder.dropped == asked)  # type: ignore[misc]
            if recorder.dropped:
                break
    assert "full" in caplog.text
    until(lambda: "not-kept" in server.get("/health/speculation").text)
    assert "full" in server.get("/health/speculation").text
    database.execute("PRAGMA max_page_count = 100000")
    ask(server, {"prompt": "a"})
    until(lambda: recorder.written == asked)
    assert len(load(path)) == asked


def test_findings_are_in_the_log_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    llm = make_llm(folder)
    monkeypatch.setattr(type(llm), "mismatches", (TargetMismatch("heads/x", "a" * 64, "b" * 64),))
    monkeypatch.setattr(books, "_LOOK_EVERY", 2)
    with caplog.at_level(logging.WARNING, "outpace"), serving(llm) as server:
        for _ in range(6):
            ask(server, {"prompt": "a", "max_tokens": 1})
        until_remembered(server, 6)
    assert caplog.text.count("fingerprint-mismatch: heads/x was trained for a target") == 1


def test_what_cannot_be_a_record_is_refused_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("create table mine (a)")
    serve = ["serve", "--model", str(tmp_path / "none"), "--port", "0"]
    for options, complaint in (
        (["--record", str(tmp_path / "notes.txt")], "is no record but another file"),
        (["--capture", str(tmp_path / "notes.txt")], "is no capture but another file"),
        (["--record", str(other)], "database of something else"),
        (["--record", str(tmp_path)], "cannot be used"),
        (["--record", ""], "must be the path of a file"),
        (["--record-text"], "record"),
        (["--record", "/proc/nowhere/record.db"], "cannot be used"),
    ):
        assert run([*serve, *options]) == 1
        error = capsys.readouterr().err
        assert re.search(complaint, error), error
        assert "defect" not in error
    assert (tmp_path / "notes.txt").read_text() == "mine"
