"""How requests fared one by one, not on average alone: speed-ups, and times between tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestTime:
    """One request's decoding.

    Attributes:
        seconds: that it took.
        plain_seconds: that its tokens would have taken plainly, by the cost table, in steps with
            as many sequences.
        drafted: whether anything was drafted for it; without that it was plain decoding itself.
    """

    seconds: float
    plain_seconds: float
    drafted: bool = True

    @property
    def speedup(self) -> float:
        """Times faster than plain."""
        return self.plain_seconds / self.seconds

    @property
    def loss(self) -> float:
        """Share of the plain time that it took longer; below 0 if it was faster."""
        return self.seconds / self.plain_seconds - 1


@dataclass(frozen=True, slots=True)
class SpeedupDistribution:
    """Speed-ups over requests that drafted.

    Attributes:
        requests: how many.
        whole: all plain seconds over all seconds, which a mean of speed-ups is not.
        p5, p50, p95: percentiles of the requests' speed-ups.
        slower: share of requests that were slower than plain.
        worst_loss: the largest share of its plain time that a request lost.
    """

    requests: int
    whole: float
    p5: float
    p50: float
    p95: float
    slower: float
    worst_loss: float


def speedups(times: Sequence[RequestTime]) -> SpeedupDistribution | None:
    """The distribution over requests for which something was drafted; None if there are none.

    The others were decoded plainly: what they took beside their plain seconds is the error of what
    foretold these, and neither a gain nor a loss.
    """
    times = [one for one in times if one.drafted]
    if not times:
        return None
    each = [one.speedup for one in times]
    return SpeedupDistribution(
        requests=len(times),
        whole=sum(one.plain_seconds for one in times) / sum(one.seconds for one in times),
        p5=percentile(each, 5),
        p50=percentile(each, 50),
        p95=percentile(each, 95),
        slower=sum(one < 1 for one in each) / len(each),
        worst_loss=max(one.loss for one in times),
    )


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Seconds between tokens.

    A step with k tokens makes the reader wait once and then gives k tokens together. *Per step*
    counts its seconds once, as the gap between two deliveries; *amortised* counts k times a k-th
    of it, as a reader who is shown tokens at an even pace would see. Speculation makes the first
    longer and the second shorter; one number for both would hide that.
    """

    p50_step: float
    p99_step: float
    p50_amortised: float
    p99_amortised: float


def token_times(steps: Iterable[tuple[int, float]]) -> TokenTimes | None:
    """Percentiles over all steps of all requests; None if no step brought a token.

    Args:
        steps: ``(tokens, seconds since this request's last delivery)``, without the first of
            each request, whose time is that of the prompt.
    """
    gaps: list[float] = []
    shares: list[float] = []
    for tokens, seconds in steps:
        if tokens > 0:
            gaps.append(seconds)
            shares += [seconds / tokens] * tokens
    if not gaps:
        return None
    return TokenTimes(
        percentile(gaps, 50), percentile(gaps, 99), percentile(shares, 50), percentile(shares, 99)
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile by linear interpolation between the ordered values, at least one.

    Type 7 of Hyndman and Fan (1996), numpy's default.
    """
    if not values or not 0 <= percent <= 100:
        raise ValueError(f"no percentile {percent} of {len(values)} values")
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
