"""OpenVINO GenAI, reading GGUF files: plain, with prompt lookup, with a draft model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from peers.workers.protocol import Arrivals, Tokens, serve


class _Streamer(genai.StreamerBase):  # type: ignore[misc]
    """Is handed every new token, or several."""

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__()
        self._arrivals = arrivals

    def write(self, token: int | list[int]) -> Any:
        self._arrivals.more(len(token) if isinstance(token, list) else 1)
        return genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


def _converted(gguf: Path, root: Path) -> Path:
    """A folder in OpenVINO's own format, which is all that its draft models are read from."""
    folder = root / gguf.stem
    link = folder / gguf.name
    if not (folder / "openvino_detokenizer.xml").exists():  # it is written last
        folder.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(gguf.resolve())
        genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
    return folder


class OpenVino:
    """One pipeline, set up for one way of drafting."""

    version = genai.__version__

    def __init__(self, options: dict[str, Any]) -> None:
        settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": options["threads"]}
        if options["mode"] == "draft":
            draft = _converted(Path(options["draft_gguf"]), Path(options["converted"]))
            settings["draft_model"] = genai.draft_model(str(draft), "CPU", **settings)
        elif options["mode"] == "lookup":
            settings["prompt_lookup"] = True
        self._pipeline = genai.LLMPipeline(options["target_gguf"], "CPU", **settings)

    def generate(
        self,
        options: dict[str, Any],
        prompt: Tokens,
        limit: int,
        stops: Sequence[int],
        arrivals: Arrivals,
    ) -> Tokens:
        """Answer one prompt greedily."""
        config = genai.GenerationConfig()
        config.max_new_tokens = limit
        config.do_sample = False
        config.eos_token_id = stops[0]
        config.stop_token_ids = set(stops)
        config.apply_chat_template = False
        if options["mode"] != "plain":
            config.num_assistant_tokens = options["k"]
        if options["mode"] == "lookup":
            config.max_ngram_size = 3
        ids = np.array([prompt], dtype=np.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        result = self._pipeline.generate(inputs, config, _Streamer(arrivals))
        return [int(token) for token in result.tokens[0]]


if __name__ == "__main__":
    serve(OpenVino)
