"""The errors that a user can meet: each says the field, the value and the way out."""

from __future__ import annotations


class OutpaceError(Exception):
    """Base of every error that Outpace raises on purpose; its text is one readable line."""


class InvalidValueError(OutpaceError, ValueError):
    """A field has a value that cannot be honoured.

    The text names the field, the value and what would work, so that it can be shown as it is.
    """

    def __init__(self, field: str, value: object, way_out: str) -> None:
        self.field = field
        self.value = value
        self.way_out = way_out
        try:
            shown = repr(value)
        except RecursionError:
            shown = f"({type(value).__name__}, nested too deep to show)"
        if len(shown) > 120:
            shown = f"{shown[:100]}… ({len(shown)} characters)"
        super().__init__(f"{field} = {shown}: {way_out}")


class CheckpointError(OutpaceError):
    """A model folder or file is missing, damaged, or of a kind that is not supported."""


class DraftError(OutpaceError):
    """A drafter does not fit the target model."""


class CapacityError(OutpaceError):
    """The memory or cache that was asked for does not exist or does not suffice."""


def in_short(error: BaseException) -> str:
    """What an error of another library says, for a line of our own: its first line, or its kind."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
