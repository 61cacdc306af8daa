"""What ``outpace doctor`` says of a record or a running server."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

from outpace.cli.show import printable
from outpace.config.checks import server_root
from outpace.errors import OutpaceError

# Its value is sent as the bearer token, if it is set.
API_KEY = "OUTPACE_API_KEY"
PATH = "/health/speculation"
_SECONDS = 10.0
_MOST_BYTES = 10 * 2**20


class HealthError(OutpaceError):
    """A server cannot be asked how it is."""


def health_of_record(path: str) -> dict[str, Any]:
    """The same body as a server's, of a whole record.

    Raises:
        RecordError: it cannot be read.
    """
    from outpace.health.history import find_drift
    from outpace.health.status import speculation_health
    from outpace.record.recorder import load

    rows = load(path)
    return speculation_health(rows, find_drift(rows).alarms)


def health_of_server(url: str) -> dict[str, Any]:
    """What a server says under ``/health/speculation``.

    Raises:
        InvalidValueError: the address is not one of HTTP.
        HealthError: it does not answer, or not with what was asked for.
    """
    address = server_root("url", url.removesuffix(PATH)) + PATH
    request = urllib.request.Request(address)
    if key := os.environ.get(API_KEY):
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            body = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        way_out = f"; set {API_KEY}" if error.code in (401, 403) else ""
        raise HealthError(f"{address}: answered {error.code} {error.reason}{way_out}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise HealthError(f"{address}: does not answer as an Outpace server: {reason}") from error
    if not isinstance(body, dict) or not isinstance(body.get("findings"), list):
        raise HealthError(f"{address}: does not answer as an Outpace server")
    return body


def print_health(body: dict[str, Any]) -> None:
    """Print it to stdout: figures in a line, then each finding with what to do."""
    lines = [_summary(body)]
    for one in body["findings"]:
        if isinstance(one, dict):
            mark = "!" if one.get("severity") == "warning" else "-"
            lines += ["", f"{mark} {one.get('name')}: {one.get('text')}"]
            lines.append(f"  what to do: {one.get('advice')}")
    if not body["findings"]:
        lines.append("no findings")
    sys.stdout.write("\n".join(printable(line) for line in lines) + "\n")


def _summary(body: dict[str, Any]) -> str:
    parts = [f"{body.get('requests')} requests"]
    for name, text in (("acceptance_length", "acceptance length"), ("speedup", "times faster")):
        value = body.get(name)
        if isinstance(value, int | float):
            parts.append(f"{text} {value:.2f}")
    alpha = body.get("alpha")
    if isinstance(alpha, dict) and isinstance(alpha.get("value"), int | float):
        parts.insert(2, f"alpha {alpha['value']:.2f}")
    return f"speculation: {body.get('status')} ({' · '.join(parts)})"
