"""What a plan is made for: rates and memory, from the table or typed in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outpace.config import check_integer
from outpace.errors import InvalidValueError
from outpace.plan.names import plain, table, unknown
from outpace.plan.precision import Arithmetic

_RATES: tuple[Arithmetic, ...] = ("fp32", "bf16", "fp8", "int8")
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Hardware:
    """One replica's hardware.

    Attributes:
        name: for people.
        source: where the figures are from.
        bandwidth: bytes a second.
        compute: operations a second by arithmetic; bf16 is always there.
        memory: bytes, or None where it is a matter of what is plugged in.
        devices: how many parts share each model by slices of its matrices.
    """

    name: str
    source: str
    bandwidth: float
    compute: dict[Arithmetic, float] = field(hash=False)
    memory: float | None
    devices: int = 1

    def operations(self, arithmetic: Arithmetic) -> float:
        """Operations a second; a rate that the part lacks is that of bf16."""
        return self.compute.get(arithmetic, self.compute["bf16"])

    @property
    def bytes_of_memory(self) -> float:
        """Memory in bytes.

        Raises:
            InvalidValueError: it is not known.
        """
        if self.memory is None:
            raise InvalidValueError(
                "memory", None, f"{self.name} has as much as is plugged in: give --memory in GiB"
            )
        return self.memory

    def times(self, devices: int) -> Hardware:
        """So many parts as one: all rates and the memory added up."""
        if devices == 1:
            return self
        return replace(
            self,
            name=f"{devices} x {self.name}",
            bandwidth=self.bandwidth * devices,
            compute={kind: rate * devices for kind, rate in self.compute.items()},
            memory=None if self.memory is None else self.memory * devices,
            devices=devices,
        )


def find_hardware(
    name: str | None,
    bandwidth: float | None = None,
    compute: float | None = None,
    memory: float | None = None,
    devices: int = 1,
) -> Hardware:
    """Take hardware from the table, or put it together, or change what the table says.

    Args:
        name: one of the table, or None for a part that the other values describe.
        bandwidth: GB/s of one part.
        compute: 10^12 operations a second of one part, for every arithmetic.
        memory: GiB of one part.
        devices: parts in a replica.

    Raises:
        InvalidValueError: an unknown name, or too little to plan with.
    """
    check_integer("devices", devices, 1, 1024)
    if name is None:
        if bandwidth is None or compute is None:
            raise InvalidValueError(
                "hardware", None, "name one of the table, or give --bandwidth and --compute"
            )
        part = Hardware("typed in", "given", bandwidth * 1e9, {"bf16": compute * 1e12}, None)
    else:
        part = _from_table(name)
        if bandwidth is not None:
            part = replace(part, bandwidth=bandwidth * 1e9)
        if compute is not None:
            part = replace(part, compute={"bf16": compute * 1e12})
        if bandwidth is not None or compute is not None:
            part = replace(part, source=f"{part.source}; changed by what was given")
    if memory is not None:
        part = replace(part, memory=memory * GIB)
    return part.times(devices)


def hardware_names() -> list[str]:
    """All names of the table."""
    return sorted(table("hardware.toml"))


def _from_table(name: str) -> Hardware:
    rows = table("hardware.toml")
    row = rows.get(plain(name))
    if row is None:
        otherwise = "or give 'this', or --bandwidth and --compute"
        raise unknown("hardware", name, hardware_names(), otherwise)
    rates = {kind: row[kind] * 1e12 for kind in _RATES if kind in row}
    memory = row["memory"] * GIB if "memory" in row else None
    return Hardware(row["title"], row["source"], row["bandwidth"] * 1e9, rates, memory)
