"""``outpace report`` and ``outpace doctor`` on records: pages, figures, findings, bad input."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from outpace.cli import run
from outpace.health.status import speculation_health
from outpace.record.recorder import Recorder, load
from outpace.record.row import Row
from outpace.report.figures import report_figures
from outpace.report.page import make_page

from record_rows import counts, row, undrafted

WRONG = counts(accepted_at=(0, 0), rejected_at=(8, 0), drafter="model")


def rows() -> list[Row]:
    """Two good types, a plain one, and a draft model that is never right."""
    many = [row(i, load=1 + i % 5, speedup=1 + i / 50) for i in range(60)]
    many += [row(i, request_type="<b>chat", speedup=2.5) for i in range(20)]
    many += [row(i, undrafted(), request_type="plain", speedup=1.0) for i in range(5)]
    return many + [row(i, WRONG, request_type="odd", speedup=0.8) for i in range(20)]


@pytest.fixture
def record(tmp_path: Path) -> str:
    recorder = Recorder(tmp_path / "a.db")
    for one in rows():
        recorder.add(one)
    recorder.close()
    return recorder.path


def test_the_page_and_the_json_say_the_same(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page_file = tmp_path / "page.html"
    assert run(["report", record, "-o", str(page_file), "--json"]) == 0
    out, err = capsys.readouterr()
    assert f"wrote {page_file}" in err
    figures = json.loads(out)
    assert figures["requests"] == 105
    assert figures["format"] == "outpace-report"
    page = page_file.read_text("utf-8")
    assert page == make_page(figures)  # JSON alone makes the page
    for heading in ("In short", "By type and drafter", "Acceptance", "Distribution of speed-ups",
                    "Load", "Drift", "Calibration", "Decisions", "All figures"):  # fmt: skip
        assert f"<h2>{heading}</h2>" in page
    assert "<b>chat" not in page
    assert "exactly 1.00" in page
    assert "<script" not in page


def test_every_group_of_the_json_is_that_of_its_rows(record: str) -> None:
    figures = report_figures(load(record), record)
    for group in figures["groups"]:
        mine = [
            one
            for one in rows()
            if (one.request_type, one.drafter) == (group["type"], group["drafter"])
        ]
        assert group["requests"] == len(mine) > 0
        for name, field in (("tokens", "emitted"), ("target_steps", "steps"),
                            ("accepted", "accepted"), ("drafted", "drafted")):  # fmt: skip
            assert group[name] == sum(getattr(one.drafts[0], field) for one in mine)
    assert sum(group["requests"] for group in figures["groups"]) == 105
    assert sum(len(values) for values in figures["speedups"].values()) == 100
    assert figures["speedups"]["plain"] == []  # its five are plain


def test_plain_requests_are_called_plain_and_not_slower(tmp_path: Path) -> None:
    some = [row(i, undrafted(), speedup=0.8) for i in range(12)]
    page = make_page(report_figures(some, "a record"))
    assert "12 of 12 drafted nothing and are left out" in page
    assert "they took 1.25 times what the cost table says, which is the table&#x27;s error" in page
    assert '<td class="number">plain</td>' in page
    assert "slower than plain decoding" not in page
    few = make_page(report_figures(some[:9], "a record"))
    assert "none, but too little data yet: no type and drafter has 10 requests" in few


def test_few_requests_are_said_to_be_too_few() -> None:
    page = make_page(report_figures([row(i) for i in range(3)], "a record"))
    assert "too little data yet: no type and position has 200 guesses" in page
    assert "too little data yet: 3 of 150 requests for a baseline" in page
    assert "too little data yet: no type and drafter has 10 requests that drafted" in page
    assert "0 of 0" not in page
    assert "Right guesses over time" not in page
    many = make_page(report_figures([row(i) for i in range(160)], "a record"))
    assert "too little data" not in many
    assert "Right guesses over time" in many
    assert "Forecast against observed acceptance" in many


def test_an_empty_record_makes_a_page_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Recorder(tmp_path / "a.db").close()
    assert run(["report", str(tmp_path / "a.db"), "-o", str(tmp_path / "p.html")]) == 0
    assert "The record is empty" in (tmp_path / "p.html").read_text("utf-8")


def test_only_the_last_requests(record: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", record, "--last", "7", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [one["type"] for one in figures["types"]] == ["odd"]
    assert figures["requests"] == 7


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "missing.db", "--json"], "no such file"),
        (["report", "RECORD"], "name a page to write"),
        (["report", "RECORD", "-o", "/missing/page.html"], "cannot be written"),
        (["report", "RECORD", "--last", "0", "--json"], "last = 0"),
        (["doctor", "--record", "missing.db"], "no such file"),
        (["doctor", "--record", "RECORD", "--url", "http://x"], "not both"),
        (["doctor", "--record", "RECORD", "--dtype", "fp32"], "leave out the options"),
        (["doctor", "--url", "ftp://x"], "is no address"),
        (["doctor", "--url", "http://127.0.0.1:1"], "does not answer"),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], said: str, record: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([record if one == "RECORD" else one for one in arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_the_doctor_reads_a_record(record: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--record", record]) == 1
    text = capsys.readouterr().out
    assert text.startswith("speculation: attention (105 requests · acceptance length")
    assert "! nothing-accepted: acceptance length is exactly 1.00" in text
    assert "! time-lost: model took longer" in text


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, Any]]]:
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == "Bearer secret"
            status = 200 if self.path in answers else 404
            self.send_response(status if known else 401)
            self.end_headers()
            if known:
                self.wfile.write(answers.get(self.path, "").encode())

        def log_message(self, *args: Any) -> None:
            """Not a word."""

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", answers
        running.shutdown()
        thread.join()


def test_the_doctor_asks_a_server(
    server: tuple[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, answers = server
    body = speculation_health([row(i) for i in range(20)])
    answers["/health/speculation"] = json.dumps(body)
    monkeypatch.delenv("OUTPACE_API_KEY", raising=False)
    assert run(["doctor", "--url", url]) == 1
    assert "401" in (error := capsys.readouterr().err)
    assert "set OUTPACE_API_KEY" in error
    monkeypatch.setenv("OUTPACE_API_KEY", "secret")
    assert run(["doctor", "--url", f"{url}/v1/"]) == 0
    out = capsys.readouterr().out
    assert out == (
        "speculation: ok (20 requests · acceptance length 2.00 · alpha 0.71 · times faster 2.00)\n"
        "no findings\n"
    )
    assert run(["doctor", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == body
    for wrong in ("not JSON", "[]", '{"findings": 3}'):
        answers["/health/speculation"] = wrong
        assert run(["doctor", "--url", url]) == 1
        assert "does not answer as an Outpace server" in capsys.readouterr().err
