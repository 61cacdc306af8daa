"""What an admin may do to a running server: give it another head or draft, and take that back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from fastapi import FastAPI

from outpace.config import parse_drafter, spelled
from outpace.errors import CapacityError
from outpace.parts.loaded import LoadedDrafters, Replacement, Version
from outpace.server.desk import Desk
from outpace.server.documents import answers
from outpace.server.errors import ApiError
from outpace.server.fields import Fields, Text

_LOG = logging.getLogger("outpace")


class NewDrafter(Fields):
    """A head or a draft model that is on this machine."""

    drafter: Text


class DrafterAdmin:
    """Loads beside the step loop, and changes names between two of its steps.

    Args:
        drafters: of the engine.
        desk: who runs it.
    """

    def __init__(self, drafters: LoadedDrafters, desk: Desk) -> None:
        self._drafters = drafters
        self._desk = desk
        self._busy = False

    async def load(self, spelling: str) -> dict[str, Any]:
        """Put a head or draft in the place of the one of its kind."""
        return await self._replace(lambda: self._drafters.load(parse_drafter(spelling)))

    async def go_back(self) -> dict[str, Any]:
        """Undo the last replacement."""
        return await self._replace(self._drafters.load_before)

    async def _replace(self, load: Callable[[], Replacement]) -> dict[str, Any]:
        """Load in a thread, then put in place; one after the other, or not at all."""
        if self._busy:
            message = "another head or draft is being loaded; try again when it is there"
            raise ApiError(409, message, "busy", retry_after=5)
        self._busy, began = True, perf_counter()
        try:
            replacement = await asyncio.to_thread(load)
            old = await self._desk.ask(lambda _: self._drafters.put(replacement))
        except CapacityError as error:
            raise ApiError(507, str(error), "does_not_fit", retry=False) from error
        finally:
            self._busy = False
        names = sorted(replacement.drafters)
        version = replacement.version
        _LOG.warning(
            "drafters: version %d serves new requests (%s); %d running ones finish with the old",
            version.number,
            ", ".join(spelled(version.configs[name]) for name in names),
            old,
        )
        seconds = round(perf_counter() - began, 3)
        return {"replaced": names, "finishing": old, "seconds": seconds} | await self.shown()

    async def shown(self) -> dict[str, Any]:
        """What is loaded, what was before, and how many requests still have a former one."""
        before = self._drafters.before
        finishing = await self._desk.ask(lambda engine: engine.drafting.num_former)
        return {
            "current": _version(self._drafters.current),
            "before": None if before is None else _version(before),
            "finishing": finishing,
        }


def _version(version: Version) -> dict[str, Any]:
    since = datetime.fromtimestamp(version.since, UTC).isoformat(timespec="seconds")
    drafters = {name: spelled(config) for name, config in sorted(version.configs.items())}
    return {"version": version.number, "since": since, "drafters": drafters}


def add_admin(app: FastAPI, drafters: LoadedDrafters, desk: Desk) -> None:
    """Add the admin's paths to an application that lets nobody else reach them."""
    admin = DrafterAdmin(drafters, desk)

    @app.get("/admin/drafters", responses=answers(401))
    async def show() -> dict[str, Any]:
        """What drafts now, and what did before."""
        return await admin.shown()

    @app.post("/admin/drafters", responses=answers(400, 401, 409, 507))
    async def load(body: NewDrafter) -> dict[str, Any]:
        """Load a head or draft for new requests; those that run finish with the old one."""
        return await admin.load(body.drafter)

    @app.post("/admin/drafters/rollback", responses=answers(400, 401, 409, 507))
    async def go_back() -> dict[str, Any]:
        """Go back to what drafted before the last replacement."""
        return await admin.go_back()
