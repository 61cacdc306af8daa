"""An OpenAI-compatible completion server without a model: a Markov chain over a few words."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = (" heads", " tails", " edge")


@dataclass
class Behaviour:
    """What a server does, right or wrong.

    ``bias`` moves probability to the last word from the second token on, as a wrong verifier
    would; ``flip_at`` makes greedy decoding take the second word at that token.
    """

    model: str = "coin"
    logprobs: bool = True
    zero_logprobs: bool = False
    refuses: tuple[str, ...] = ()
    refuses_with: int = 400
    dies_after: int | None = None
    ignores_seed: bool = False
    bias: float = 0.0
    flip_at: int | None = None
    gap: float = 0.8
    shift: float = 0.0
    delay: float = 0.0
    answers_as: str | None = None
    body: bytes | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)


def probabilities(behaviour: Behaviour, prompt: str, place: int) -> list[float]:
    scores = [math.exp(behaviour.gap * -((i + place + len(prompt)) % 3)) for i in range(3)]
    scores[0] *= math.exp(behaviour.shift)
    return [score / sum(scores) for score in scores]


def completion(behaviour: Behaviour, body: dict[str, Any]) -> dict[str, Any]:
    seed = None if behaviour.ignores_seed else body.get("seed")
    source = random.Random(None if seed is None else repr((seed, behaviour.model)))
    texts, values, tops = [], [], []
    for place in range(body["max_tokens"]):
        probs = probabilities(behaviour, body["prompt"], place)
        if body["temperature"] == 0:
            order = sorted(range(3), key=lambda i: -probs[i])
            word = order[1 if place == behaviour.flip_at else 0]
        else:
            used = probs
            if place > 0:
                used = [p * (1 - behaviour.bias) for p in probs]
                used[2] += behaviour.bias
            [word] = source.choices(range(3), used)
        texts.append(WORDS[word])
        values.append(0.0 if behaviour.zero_logprobs and place else math.log(probs[word]))
        tops.append({WORDS[i]: math.log(p) for i, p in enumerate(probs)})
    logprobs = {"tokens": texts, "token_logprobs": values, "top_logprobs": tops}
    asked = body.get("logprobs") is not None and behaviour.logprobs
    choice = {
        "index": 0,
        "text": "".join(texts),
        "finish_reason": "length",
        "logprobs": logprobs if asked else None,
    }
    return {"model": behaviour.answers_as or body["model"], "choices": [choice]}


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Run a server in threads; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, {"data": [{"id": behaviour.model}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            behaviour.requests.append(body)
            time.sleep(behaviour.delay)
            if behaviour.dies_after is not None and len(behaviour.requests) > behaviour.dies_after:
                self.answer(503, {"error": "out of memory"})
                return
            refused = [name for name in behaviour.refuses if name in body]
            if refused:
                self.answer(behaviour.refuses_with, {"error": f"unknown field {refused[0]}"})
            else:
                self.answer(200, completion(behaviour, body))

        def answer(self, status: int, value: object) -> None:
            data = json.dumps(value).encode() if behaviour.body is None else behaviour.body
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *args: object) -> None:
            """A client that has given up is no news."""

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
