"""A plan with its setting, as it is shown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from outpace.plan.forecast import Forecast, Setting
from outpace.plan.memory import Deployed


@dataclass(frozen=True, slots=True)
class Report:
    """What was asked, and what came out.

    Attributes:
        setting: what was asked.
        forecast: what came out.
        where: the hardware, with ``name``, ``source`` and ``step_times``.
        assumptions: by name, with their values.
    """

    setting: Setting
    forecast: Forecast
    where: Mapping[str, Any]
    assumptions: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Target, draft and hardware in a line."""
        memory = self.setting.memory
        target = f"{memory.target.model.name} ({memory.target.precision.name})"
        draft = "a drafter without a model"
        if memory.draft is not None:
            draft = f"{memory.draft.model.name} ({memory.draft.precision.name})"
        return f"{target} with {draft} on {self.where['name']}"

    def assumed(self) -> list[tuple[str, str]]:
        """What was assumed, in words and readable units."""
        shown = []
        for name, value in self.assumptions.items():
            text = f"{value * 1e3:g} ms" if name.endswith("_overhead") else f"{value:.0%}"
            shown.append((name.replace("_", " "), text))
        return shown

    def findings(self) -> list[str]:
        """The plan in sentences, the losses with the gains."""
        return [
            *self._speed(),
            *self._crossing(),
            *self._memory(),
            *self._replicas(),
            *self.forecast.notes,
        ]

    def _speed(self) -> list[str]:
        first = self.forecast.at_batches[0]
        k = first.best_k
        if k == 0:
            return ["At batch 1 no draft pays: plain decoding is fastest."]
        gain = first.speedups[k]
        return [
            f"At batch 1, k = {k} is best: {gain:.2f} times plain decoding; a draft step costs "
            f"{self.forecast.draft_ratio:.3f} of a target step."
        ]

    def _crossing(self) -> list[str]:
        found, end = self.forecast.paying_by_k[0], self.forecast.largest_with[1]
        what = "memory holds with the draft"
        if self.setting.measured_batches is not None:
            end, what = found.looked_at, "was measured"
        if not found.runs or found.runs[0][0] > end:
            return [f"Speculation pays at no batch that {what} (up to {end})."]
        first, last = found.runs[0][0], found.runs[-1][1]
        gaps = ", with gaps" if len(found.runs) > 1 else ""
        if found.crossing is not None and found.crossing <= end:
            return [
                f"Speculation pays from batch {first} to {last}{gaps} and no longer from "
                f"{found.crossing} on."
            ]
        beyond = ""
        if found.crossing is not None:
            beyond = f"; with more memory it would stop paying at {found.crossing}"
        return [f"Speculation pays from batch {first} to the largest that {what}, {end}{beyond}."]

    def _memory(self) -> list[str]:
        one = self.forecast.smaller_batch
        if one.batch_with == one.batch_without:
            return []
        loss = 1 - one.plain_with / one.plain_without
        net = one.drafted / one.plain_without
        word = "more" if net > 1 else "less"
        return [
            f"The draft's memory lowers the largest batch from {one.batch_without} to "
            f"{one.batch_with}, which costs {loss:.1%} of plain throughput; k = {one.k} there "
            f"brings {abs(net - 1):.1%} {word} than plain decoding at the larger batch."
        ]

    def _replicas(self) -> list[str]:
        plan, load = self.forecast, self.setting.load
        target = load.latency_target
        within = "" if target is None else f" within {target * 1e3:g} ms a token"
        best = plan.best_drafted
        if plan.plain is None or best is None:
            who = "Only plain decoding meets" if plan.plain is not None else "Neither way meets"
            if best is not None:
                who = f"Only speculation (k = {best.k}, batch {best.batch}) meets"
            found = [f"{who} the latency target of {(target or 0) * 1e3:g} ms a token."]
        else:
            ratio = plan.cost_ratio
            found = [
                f"A replica finishes {plan.plain.requests_per_second:.3g} requests a second "
                f"plainly (batch {plan.plain.batch}) and {best.requests_per_second:.3g} with "
                f"k = {best.k} (batch {best.batch}){within}: cost ratio {ratio:.2f}."
            ]
        fleets = (("without", plan.plain_fleet), ("with", plan.drafted_fleet))
        counted = [f"{one.replicas} {how} speculation" for how, one in fleets if one is not None]
        if counted:
            found.append(f"For {load.rate:g} requests a second: replicas {', '.join(counted)}.")
        return found

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON; seconds and bytes."""
        memory, pair, plan = self.setting.memory, self.setting.pair, self.forecast
        return {
            "title": self.title,
            "findings": self.findings(),
            "target": _model(memory.target),
            "draft": None if memory.draft is None else _model(memory.draft),
            "hardware": dict(self.where),
            "assumptions": dict(self.assumptions),
            "context": pair.context,
            "mix": [asdict(one) for one in pair.mix.types],
            "load": asdict(self.setting.load),
            "max_k": self.setting.max_k,
            "cost_ratio": plan.cost_ratio,
            **asdict(plan),
        }


def _model(deployed: Deployed) -> dict[str, Any]:
    model = deployed.model
    return {
        **asdict(model),
        "weights": model.weights,
        "precision": asdict(deployed.precision),
        "weight_bytes": deployed.weight_bytes,
        "cache_bytes_per_number": deployed.cache_bytes,
    }
