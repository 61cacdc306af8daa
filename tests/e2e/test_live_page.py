"""The live page in a browser without a window: what it shows is what the data say.

Skipped where there is no Chromium.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from outpace.control.controller import Outcome, StepRecord
from outpace.report.live import Live, live_page

from record_rows import counts, row, undrafted

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
NONE = "\N{EN DASH}"
NASTY = '<img src=x onerror="document.title=1">'


def sample() -> Live:
    clock = iter(range(10_000, 20_000))
    live = Live(clock=lambda: next(clock))
    for number in range(40):
        live.add_row(row(number, speedup=1.5 + number / 40))
        live.add_row(row(number, speedup=0.8, request_type=NASTY))
        live.add_row(row(number, undrafted(), speedup=1.0, request_type="chat"))
        live.add_row(row(number, undrafted("ngram"), speedup=0.8, request_type="plain"))
        live.add_row(row(number, counts((0, 0), (8, 0), drafter="model"), request_type="chat"))
    for number in range(60):
        outcome = Outcome(0, "ngram", 3, number % 4, False, 4, 1 + number % 4)
        live.add_step(StepRecord(8, 0.02, {"ngram": 0.001}, (outcome,) * (1 + number % 3), 0.004))
    return live


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, Any]]]:
    data = sample().data()
    answers = {
        "/dashboard": ("text/html", live_page()),
        "/dashboard/data": ("application/json", json.dumps(data)),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, text = answers.get(self.path, ("text/plain", ""))
            self.send_response(200 if text else 404)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            """Not a word."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/dashboard", data
        server.shutdown()
        thread.join()


def test_every_cell_is_a_figure_of_the_data(
    served: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    url, data = served
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=1500", "--dump-dom", url]
    page = subprocess.run(command, capture_output=True, check=True, text=True, timeout=300).stdout
    table = page[page.index('id="types"') : page.index("</table>", page.index('id="types"'))]
    shown = [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", line)]
        for line in table.split("<tr>")[2:]
    ]
    expected = []
    for group in data["types"]:
        name = group["type"].replace("<", "&lt;").replace(">", "&gt;")
        alpha, length = group["alpha"]["value"], group["acceptance_length"]
        cells = [name, str(group["requests"]), str(group["tokens"]), f"{length:.2f}"]
        if name == "plain":  # slow by the table, which is the table's error
            expected.append([*cells, NONE, "0.00", "plain", NONE, NONE, NONE])
            continue
        cells += [f"{alpha:.2f}", f"{group['asked_per_step']:.2f}"]
        cells += [f"{group[key]:.2f}×" for key in ("speedup", "speedup_p5", "speedup_p50")]
        expected.append([*cells, f"{100 * group['slower_share']:.0f} %"])
    assert shown == expected
    assert "<b>80</b><span>plain requests, which took 1.13 times what the cost table says" in page
    assert "<title>Outpace live</title>" in page
    assert ">needs attention</span>" in page
    assert "exactly 1.00" in page
    assert page.count("<polyline") == 6
    assert 'class="badge lost"' not in page
