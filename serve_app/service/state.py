"""The database of a service on this machine: a server, or an embedded PostgreSQL that this process starts and stops."""

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
    """The database, from `open` to `close`. With a database URL in the settings nothing here runs or is locked."""

    def __init__(self, settings: Settings, on_step: Callable[[str], None] = lambda _: None) -> None:
        self._settings = settings
        self._on_step = on_step
        self._folder = FolderLock(settings.data_dir)
        self._embedded = settings.database_url is None

    def open(self) -> str:
        """Return the URL of the database after starting the embedded PostgreSQL if needed. Raises `ServiceError`."""
        self._close_recordings()
        if not self._embedded:
            return self._settings.require_database_url()
        self.hold()
        return self._start("Starting the embedded PostgreSQL")

    def hold(self) -> None:
        """Lock the data folder: two services would stop each other's PostgreSQL. Raises `ServiceError`."""
        if not self._embedded or self._folder.is_held:
            return
        try:
            self._folder.hold(url=self._settings.base_url)
        except FolderHeld as held:
            raise ServiceError(
                f"The data folder {self._settings.data_dir} is in use by the service at {held.facts.get('url', '?')} "
                f"(process {held.facts.get('pid', '?')}). Stop that one, or set another folder: "
                f"{PREFIX}DATA_DIR=FOLDER."
            ) from None

    def restart_if_gone(self) -> bool:
        """Restart the embedded PostgreSQL if it died; return whether it had. Raises the errors of `embedded.start`."""
        from db.server import embedded

        if not self._embedded or not self._folder.is_held or embedded.postmaster(self._settings.data_dir):
            return False
        self._start("PostgreSQL is gone: starting it again")
        return True

    def processes(self) -> set[psutil.Process]:
        """Return the processes of the embedded PostgreSQL."""
        from db.server import embedded

        server = embedded.postmaster(self._settings.data_dir) if self._embedded else None
        if server is None:
            return set()
        try:
            return {server, *server.children(recursive=True)}
        except psutil.NoSuchProcess:
            return set()

    def close(self) -> None:
        """Stop the embedded PostgreSQL, if this process has the lock, and release the folder."""
        try:
            self.stop()
        finally:
            self._folder.release()

    def stop(self) -> None:
        """Stop the embedded PostgreSQL, if this process has the lock, and keep the lock."""
        if self._folder.is_held:
            from db.server import embedded

            embedded.stop(self._settings.data_dir)

    def _close_recordings(self) -> None:
        """Make recordings and decoded sound in the data folder private: older versions did not."""
        folder = self._settings.data_dir.expanduser().resolve() / "recordings"
        if self._settings.storage is None and folder.is_dir() and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o700)

    def _start(self, step: str) -> str:
        from db.server import embedded

        self._on_step(step)
        return embedded.start(self._settings.data_dir, outlives=False)
