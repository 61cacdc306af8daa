"""A configured head, found and read before anything large is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outpace.config import EagleConfig, MedusaConfig
from outpace.errors import DraftError
from outpace.model.config import ModelConfig
from outpace.model.heads.eagle_load import EagleHead, read_eagle_head
from outpace.model.heads.files import find_head
from outpace.model.heads.medusa import MedusaHeads, read_medusa_heads
from outpace.model.heads.target import TargetMismatch, compare_target, shipped_head
from outpace.model.precision import Precision

HeadConfig = EagleConfig | MedusaConfig


@dataclass(frozen=True, slots=True, eq=False)
class HeadSource:
    """A head that was found to fit.

    Attributes:
        head: its tensors and shape.
        precision: what they will become.
        mismatch: set if it was trained for other weights than the target's.
    """

    head: EagleHead | MedusaHeads
    precision: Precision
    mismatch: TargetMismatch | None

    @property
    def stored_bytes(self) -> int:
        """About how much memory the weights take."""
        return self.head.stored_bytes(self.precision)

    @property
    def bytes_per_token(self) -> int:
        """Of keys and values."""
        return self.head.bytes_per_token(self.precision)


def find_source(
    config: HeadConfig, target_folder: Path, target: ModelConfig, precision: Precision
) -> HeadSource:
    """Find and read a head.

    Raises:
        CheckpointError: it is missing, damaged or of an unsupported variant.
        DraftError: it is for another target, or of another kind.
    """
    path = config.path or str(shipped_head(target_folder))
    if path == "demo":
        raise DraftError(
            f"drafter = '{config.name}:demo': demo is a model, not a head; "
            "for the head that ships write eagle without a path"
        )
    files = find_head(path)
    read = read_eagle_head if isinstance(config, EagleConfig) else read_medusa_heads
    head = read(files, target)
    mismatch = compare_target(
        f"drafter = '{config.name}:{path}'", head.config.target_fingerprint, target_folder
    )
    return HeadSource(head, precision, mismatch)
