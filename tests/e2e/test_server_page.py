"""The page at ``/`` in a real browser, if there is one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from serving import Running

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture
def page(tiny_server: Running) -> Iterator[sync_api.Page]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs Chromium on the path")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        yield page
        browser.close()


def test_a_conversation(tiny_server: Running, page: sync_api.Page) -> None:
    asked: list[str] = []
    faults: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    page.goto(tiny_server.url)
    sync_api.expect(page.locator("#model")).to_have_text("tiny")
    page.fill("#tokens", "12")
    page.fill("#text", "the quick <b>brown</b> fox")
    page.press("#text", "Enter")
    sync_api.expect(page.locator(".user")).to_have_text("the quick <b>brown</b> fox")
    sync_api.expect(page.locator("#length")).to_have_text(re.compile(r"\d\.\d\d"))
    sync_api.expect(page.locator(".note")).to_contain_text("bit-exact")
    sync_api.expect(page.locator("#send")).to_have_text("Send")
    sync_api.expect(page.locator("#load")).to_have_text(re.compile(r"\d+, \d+"))
    body = {
        "messages": [{"role": "user", "content": "the quick <b>brown</b> fox"}],
        "temperature": 0,
        "max_tokens": 12,
    }
    reply = tiny_server.post("/v1/chat/completions", body).json()
    shown = page.locator(".assistant").evaluate("element => element.textContent")
    assert shown == reply["choices"][0]["message"]["content"]
    assert all(url.startswith((tiny_server.url, "data:")) for url in asked)
    assert not faults
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tiny_server.wait_until_idle()


def test_stopping_and_errors(tiny_server: Running, page: sync_api.Page) -> None:
    page.goto(tiny_server.url)
    page.fill("#tokens", "1900")
    page.fill("#text", "hello")
    page.press("#text", "Enter")
    sync_api.expect(page.locator("#send")).to_have_text("Stop")
    page.click("#send")
    sync_api.expect(page.locator("#send")).to_have_text("Send")
    tiny_server.wait_until_idle()
    page.fill("#temperature", "-3")
    page.fill("#text", "hello again")
    page.click("#send")
    sync_api.expect(page.locator(".error")).to_contain_text("temperature")
    page.click("#reset")
    sync_api.expect(page.locator(".turn")).to_have_count(0)
