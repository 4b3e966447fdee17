"""The database of a service on this machine: a server, or an embedded PostgreSQL that is held, watched, stopped."""

import os
from collections.abc import Callable

import psutil

from pipeline.errors import CallError
from serve_app.service.holder import FolderHeld, FolderLock
from serve_app.settings import PREFIX, Settings


class ServiceError(CallError):
    """The service could not be started."""

    code = "service_error"


class State:
    """`open` it, use its URL, `close` it. With a database URL in the settings nothing here runs or is held."""

    def __init__(self, settings: Settings, on_step: Callable[[str], None] = lambda _: None) -> None:
        self._settings = settings
        self._on_step = on_step
        self._folder = FolderLock(settings.data_dir)
        self._embedded = settings.database_url is None

    def open(self) -> str:
        """The URL of the database, whose embedded PostgreSQL is started if it does not run. Raises `ServiceError`."""
        self._close_recordings()
        if not self._embedded:
            return self._settings.require_database_url()
        self.hold()
        return self._start("Starting the embedded PostgreSQL")

    def hold(self) -> None:
        """Two services on one folder would stop each other's PostgreSQL. Raises `ServiceError`."""
        if not self._embedded or self._folder.held:
            return
        try:
            self._folder.hold(url=self._settings.base_url)
        except FolderHeld as held:
            raise ServiceError(
                f"The data folder {self._settings.data_dir} is in use by the service at {held.facts.get('url', '?')} "
                f"(process {held.facts.get('pid', '?')}). Stop that one, or give this one a folder of its own: "
                f"{PREFIX}DATA_DIR=FOLDER."
            ) from None

    def restart_if_gone(self) -> bool:
        """Start the embedded PostgreSQL again if it died; whether it had. Raises what `embedded.start` raises."""
        from db.server import embedded

        if not self._embedded or not self._folder.held or embedded.postmaster(self._settings.data_dir):
            return False
        self._start("PostgreSQL is gone: starting it again")
        return True

    def processes(self) -> set[psutil.Process]:
        """Those of the embedded PostgreSQL."""
        from db.server import embedded

        server = embedded.postmaster(self._settings.data_dir) if self._embedded else None
        if server is None:
            return set()
        try:
            return {server, *server.children(recursive=True)}
        except psutil.NoSuchProcess:
            return set()

    def close(self) -> None:
        """Stop the embedded PostgreSQL if this is its holder, and let go of its folder."""
        try:
            self.stop()
        finally:
            self._folder.release()

    def stop(self) -> None:
        """Stop the embedded PostgreSQL if this is its holder, and keep the folder."""
        if self._folder.held:
            from db.server import embedded

            embedded.stop(self._settings.data_dir)

    def _close_recordings(self) -> None:
        """Recordings and decoded sound in the data folder are for this user alone; they were not always."""
        folder = self._settings.data_dir.expanduser().resolve() / "recordings"
        if self._settings.storage is None and folder.is_dir() and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o700)

    def _start(self, step: str) -> str:
        from db.server import embedded

        self._on_step(step)
        return embedded.start(self._settings.data_dir, outlives=False)
