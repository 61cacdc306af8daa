"""The pages: one document each, nothing from elsewhere, and a policy that says so."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

from outpace.report.live import live_page

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is sent.

    Attributes:
        html: with its style and its script in it.
        policy: what it may do: run these, and talk to this server.
    """

    html: str
    policy: str


@functools.cache
def front_page() -> Page:
    """The page at ``/``."""
    return _with_policy(files("outpace.server").joinpath("page.html").read_text("utf-8"))


@functools.cache
def dashboard() -> Page:
    """The page at ``/dashboard``; it fetches its data from beside itself."""
    return _with_policy(live_page("dashboard/data"))


def _with_policy(html: str) -> Page:
    allowed: dict[str, str] = {}
    for kind, text in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
        allowed[kind] = f"'sha256-{digest}'"
    policy = (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return Page(html, policy)
