"""``outpace serve``: a model behind OpenAI's protocol."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from outpace.cli import loading
from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.serve_options import ServerOptions
from outpace.cli.serve_report import start_page
from outpace.cli.show import note
from outpace.errors import OutpaceError


@with_groups
def serve(engine: EngineOptions, server: ServerOptions, common: CommonOptions) -> None:
    """Serve a model to clients of OpenAI's API.

    Listens on this machine only, unless --host says otherwise. The first Ctrl-C, or SIGTERM, lets
    unfinished requests end; a second one does not.
    """
    del common
    try:
        from outpace.server.admin_key import load_admin_key
        from outpace.server.keys import ApiKeys
        from outpace.server.run import serve as run
    except ImportError as error:
        if error.name is None or error.name.startswith("outpace"):
            raise
        message = f"serve: {error.name} is not installed: pip install 'outpace[server]'"
        raise OutpaceError(message) from error
    settings = server.settings(engine.model)
    keys = ApiKeys.load(Path(server.api_key_file) if server.api_key_file else None)
    admin = load_admin_key(Path(server.admin_key_file) if server.admin_key_file else None)
    config = server.seated(engine.config())
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if settings.log != "none":
        logging.getLogger("outpace.requests").setLevel(logging.INFO)
    llm = loading.load(
        engine,
        config,
        record=server.record,
        record_text=server.record_text,
        capture=server.capture,
    )

    def announce(address: str) -> None:
        for line in start_page(llm, settings, len(keys), address):
            note(line)

    with llm:
        run(llm, settings, keys, announce, admin)
