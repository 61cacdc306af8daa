"""The page at ``/``: one file, nothing from elsewhere."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib.resources import files

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@functools.cache
def page() -> str:
    """The page's HTML."""
    return files("outpace.server").joinpath("page.html").read_text("utf-8")


@functools.cache
def page_policy() -> str:
    """What the page may do: run its own script and style, and talk to this server."""
    allowed: dict[str, str] = {}
    for kind, text in _INLINE.findall(page()):
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
        allowed[kind] = f"'sha256-{digest}'"
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
