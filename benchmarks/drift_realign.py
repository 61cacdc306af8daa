"""A head falls behind a target that was fine-tuned: alarm, realignment, swap. On real models.

Usage: ``python benchmarks/drift_realign.py [--noise 0.135] [--minutes 5] [--json]``; about twenty
minutes of one core.

The demo model and the head that comes with it answer requests; then noise is added to the target's
linear layers, as in ``drift_finetune.py``, and the same head goes on. The drift tests watch, the
requests are captured. Then what ``outpace align run`` does: the head is trained further on the
captured requests and compared with the old one on prompts that it was not trained on. At last the
new head takes the old one's place in the middle of a batch, and all tokens are held against plain
ones.

Printed figures are alpha (accepted over judged guesses) and acceptance lengths (tokens a step).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from drift_finetune import answered, moved
from outpace import LLM, SamplingParams
from outpace.align.decide import ALL
from outpace.align.evaluate import steps_under
from outpace.align.realign import Listener, Order, realign
from outpace.align.report import Report, alphas
from outpace.align.traffic import Bounds, split
from outpace.bench.workload import Entry
from outpace.config import EagleConfig, EngineConfig, parse_drafter
from outpace.control.drift import ACCEPTANCE, DriftSettings, DriftWatch
from outpace.health.groups import whole
from outpace.health.history import watch
from outpace.model.heads.target import shipped_head
from outpace.model.source import resolve
from outpace.record.capture import Capture, load_capture
from outpace.request import Request
from outpace.train.loop import LoopOptions
from outpace.train.make_prompts import from_templates
from outpace.train.recipes import Watch

# Answers of prompts that the shipped head was not trained on.
_PROMPT_SEED = 20261130


@dataclass(frozen=True)
class Setting:
    """What is run.

    Attributes:
        noise: on the target's linear layers, as a share of their spread.
        baseline: requests before the change.
        requests: after it; all of them are captured.
        tokens: of an answer.
        minutes: of training.
        folder: for everything that is written.
    """

    noise: float
    baseline: int
    requests: int
    tokens: int
    minutes: float
    folder: Path

    def entries(self) -> Iterator[Entry]:
        """Prompts of several kinds, each once."""
        count = self.baseline + self.requests
        for number, said in enumerate(islice(from_templates(count, _PROMPT_SEED, None), count)):
            yield Entry(str(number), said["kind"], (("user", said["prompt"]),))

    def llm(self, model: str, drafter: str, **more: Any) -> LLM:
        """The target with a drafter, always three guesses in a chain or tree."""
        return LLM(
            model, drafter, num_speculative_tokens=3, threads=1, prefix_caching=False,
            kv_cache_tokens=8192, **more,
        )  # fmt: skip


def say(text: str) -> None:
    """A line on stderr: stdout is for the figures."""
    print(text, file=sys.stderr, flush=True)


def traffic(setting: Setting, model: str, changed: str, head: Path) -> dict[str, Any]:
    """Requests before and after the change, under the drift tests; those after it are captured."""
    entries = list(setting.entries())
    kinds = len({entry.task for entry in entries})
    watcher = DriftWatch(DriftSettings(learn=max(20, setting.baseline // (2 * kinds))))
    before = answered(
        setting.llm(model, f"eagle:{head}"), iter(entries), setting.baseline, setting.tokens, 0
    )
    early = [alarm for row in before for alarm in watch(watcher, row)]
    capture = Capture(setting.folder / "traffic.db")
    after = answered(
        setting.llm(changed, f"eagle:{head}"), iter(entries[setting.baseline :]),
        setting.requests, setting.tokens, 10_000, capture,
    )  # fmt: skip
    capture.close()
    alarms = [alarm for row in after for alarm in watch(watcher, row)]
    first = next((one.at - setting.baseline for one in alarms if one.kind == ACCEPTANCE), None)
    return {
        "alpha_before": whole(before).alpha.as_plain(),
        "alpha_after": whole(after).alpha.as_plain(),
        "alarms_before": len(early),
        "requests_to_alarm": first,
    }


def realigned(setting: Setting, changed: str, head: Path, model: str) -> tuple[Report, Any]:
    """What ``outpace align run`` does, and how the head was on the same prompts before all that."""
    order = Order(
        model=changed,
        engine=EngineConfig(num_speculative_tokens=3, threads=1),
        drafter=EagleConfig(str(head)),
        capture=setting.folder / "traffic.db",
        out=setting.folder / "new",
        loop=LoopOptions(
            minutes=setting.minutes, learning_rate=1e-3, matrix_rate=2e-3, judge_every=60
        ),
    )
    judged = split(load_capture(order.capture), changed, str(order.capture), Bounds()).judged
    once = steps_under(setting.llm(model, f"eagle:{head}"), judged)
    watch = Watch(look=lambda state, seen: say(f"  {state.tokens} tokens: {seen.as_dict()}"))

    def load(config: EngineConfig) -> LLM:
        options = {name: getattr(config, name) for name in EngineConfig.__dataclass_fields__}
        return LLM(changed, **options)

    report = realign(order, load, Listener(stage=say, training=watch))
    return report, alphas(judged, once, once)[ALL][0]


def swapped(setting: Setting, changed: str, head: Path, new: str) -> dict[str, Any]:
    """Put the new head in the old one's place while 16 requests run; compare all tokens."""
    llm = setting.llm(changed, f"eagle:{head}")
    entries = list(islice(setting.entries(), 32))
    prompts = [tuple(llm.tokenizer.encode_chat(entry.conversation)) for entry in entries]
    params = SamplingParams(max_tokens=setting.tokens, temperature=0.7, seed=5)
    plain = [one.token_ids for one in llm.generate(prompts, params, drafter="none")]
    groups = []
    for number, prompt in enumerate(prompts):
        if number == 16:
            for _ in range(6):
                llm.engine.step()
            finishing = llm.drafters.put(llm.drafters.load(parse_drafter(new)))
        groups.append(llm.engine.add(Request(str(number), prompt, params)))
    while llm.engine.has_work:
        llm.engine.step()
    same = sum(tuple(g[0].output.token_ids) == p for g, p in zip(groups, plain, strict=True))
    return {"requests": len(prompts), "finishing_with_old": finishing, "equal_to_plain": same}


def main() -> None:
    """Print what was seen."""
    parser = argparse.ArgumentParser(description="Drift, alarm, realignment and swap.")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--noise", type=float, default=0.135)
    parser.add_argument("--baseline", type=int, default=1120, help="requests before the change")
    parser.add_argument("--requests", type=int, default=400, help="requests after it")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=5.0, help="of training")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    source = resolve(options.model)
    head = shipped_head(source)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        changed = str(moved(source, options.noise, folder / "target"))
        setting = Setting(
            options.noise, options.baseline, options.requests, options.tokens, options.minutes,
            folder,
        )  # fmt: skip
        found: dict[str, Any] = {"noise": options.noise}
        found |= traffic(setting, options.model, changed, head)
        say(json.dumps(found))
        report, first = realigned(setting, changed, head, options.model)
        before, after = report.alphas[ALL]
        lost, back = first.value - before.value, after.value - before.value
        found |= {
            "held_out": {"before": first.as_plain(), "after": before.as_plain(),
                         "realigned": after.as_plain()},
            "brought_back": back / lost if lost > 0 else None,
            "report": report.as_plain(),
            "swap": swapped(setting, changed, head, report.new),
        }  # fmt: skip
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"alpha {found['alpha_before']['value']:.3f} -> {found['alpha_after']['value']:.3f}; "
          f"alarm after {found['requests_to_alarm']} requests "
          f"({found['alarms_before']} alarms before the change)")  # fmt: skip
    print("\n".join(report.lines()))
    share = "-" if found["brought_back"] is None else f"{100 * found['brought_back']:.0f} %"
    print(f"on held-out prompts: {first} -> {before} -> {after}: {share} of the loss is back")
    print(f"swap: {found['swap']}")


if __name__ == "__main__":
    main()
