import os
import pwd
import sys
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import out

NAME = "switchboard"
UNITS = Path("/etc/systemd/system")
TEMPLATES = Path(__file__).parents[2] / "deploy" / "systemd"


def install_service(
    user: Annotated[str, typer.Option(metavar="NAME", help="The user that runs it, and owns its data folder.")],
    settings: Annotated[
        Path, typer.Option(metavar="FILE", help="Settings, one VARIABLE=VALUE a line; only this user may read it.")
    ] = Path("/etc/switchboard/deploy.env"),
    backups: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Back up every night into it.")] = None,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where units are.")] = UNITS,
) -> None:
    """Write a systemd unit for `switchboard up`, and with --backups a timer for backups.

    Nothing is started. Run it again after the program has moved.

    Example:

      sudo .venv/bin/switchboard install-service --user switchboard --backups /backups
    """
    _refuse(user, settings, folder)
    values = {
        "user": user,
        "settings": settings.absolute(),
        "program": Path(sys.executable).with_name(NAME),
        "backups": backups and backups.absolute(),
        "stop_seconds": _stop_seconds(),
    }
    units = (f"{NAME}.service", *((f"{NAME}-backup.service", f"{NAME}-backup.timer") if backups else ()))
    for name in units:
        draft = folder / f".{name}"
        draft.write_text((TEMPLATES / name).read_text(encoding="utf-8").format(**values), encoding="utf-8")
        draft.replace(folder / name)
        out().print(f"Wrote {folder / name}", markup=False, soft_wrap=True)
    enabled = " ".join(name for name in units if name != f"{NAME}-backup.service")
    out().print(f"Start it: systemctl daemon-reload && systemctl enable --now {enabled}", markup=False, soft_wrap=True)


def _refuse(user: str, settings: Path, folder: Path) -> None:
    try:
        pwd.getpwnam(user)
    except KeyError:
        advice = f"Create it: useradd --system --create-home {user}"
        raise CommandError(f"There is no user {user!r}.", advice, USAGE) from None
    if settings.is_file() and settings.stat().st_mode & 0o007:
        raise CommandError(f"Everyone can access {settings}, which has secrets.", f"chmod 640 {settings}", FAILED)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise CommandError(f"Units cannot be written to {folder}.", "Use sudo, or another --folder.", FAILED)


def _stop_seconds() -> int:
    """Return what a stop may take: running calls, and then the end of Ray and PostgreSQL."""
    from serve_app.service.supervisor import STANDBY_SECONDS, STOP_SECONDS
    from serve_app.settings import Settings

    return int(Settings().processing.drain_seconds + STOP_SECONDS + STANDBY_SECONDS)
