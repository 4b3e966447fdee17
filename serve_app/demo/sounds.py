"""Prompts and hold music of real telephone systems: Debian's Asterisk packages, fetched once into the user's cache.

They are not part of this repository (CC BY-SA 3.0; `usr/share/doc/*/copyright` in the folder names the artists).
Works as any user where apt-get is set up, Debian and Ubuntu; nothing is installed.
"""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = ("asterisk-core-sounds-en-gsm", "asterisk-core-sounds-es-gsm", "asterisk-moh-opsound-gsm")
VOICES = {"en": "en_US_f_Allison", "es": "es_MX_f_Allison"}
ENDING = ".gsm"
SECONDS = 180.0  # one step may take so long


class SoundsMissing(Exception):
    """The sounds could not be fetched; the message says why."""


def cache() -> Path:
    """The folder for fetched sounds: $XDG_CACHE_HOME/switchboard/asterisk, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "switchboard" / "asterisk"


def fetch(folder: Path | None = None, packages: tuple[str, ...] = PACKAGES) -> Path:
    """Return the folder with `share/asterisk`, after downloading and unpacking `packages` (7 MB) if need be.

    Raises `SoundsMissing` where apt-get or dpkg-deb is missing or the packages cannot be had.
    """
    folder = folder or cache()
    done = folder / ".complete"
    if not done.is_file() or set(packages) - set(done.read_text().split()):
        folder.mkdir(parents=True, exist_ok=True)
        _download(folder, packages)
        for package in sorted(folder.glob("*.deb")):
            _run(["dpkg-deb", "-x", package.name, "."], folder)
            package.unlink()
        done.write_text("\n".join(packages))
    return folder / "usr"


def prompt_file(sounds: Path, name: str) -> Path:
    """The file of a prompt such as "en/queue-youarenext"."""
    language, _, rest = name.partition("/")
    return sounds / "share" / "asterisk" / "sounds" / VOICES[language] / f"{rest}{ENDING}"


def music_file(sounds: Path, name: str) -> Path:
    """The file of hold music such as "reno_project-system"."""
    return sounds / "share" / "asterisk" / "moh" / f"{name}{ENDING}"


def _download(folder: Path, packages: tuple[str, ...]) -> None:
    """With the machine's package lists; where it has none, with lists of our own, which any user may write."""
    try:
        _run(["apt-get", "download", *packages], folder)
    except SoundsMissing:
        lists, archives = folder / "lists", folder / "archives"
        for parent in (lists, archives / "archives"):
            (parent / "partial").mkdir(parents=True, exist_ok=True)
        places = (f"Dir::State::Lists={lists}", f"Dir::Cache={archives}", "APT::Sandbox::User=")
        own = [word for place in places for word in ("-o", place)]
        _run(["apt-get", *own, "update"], folder)
        _run(["apt-get", *own, "download", *packages], folder)
        shutil.rmtree(lists)
        shutil.rmtree(archives)


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        raise SoundsMissing(f"{command[0]} is not installed here: the sounds come from Debian's packages.") from None
    except subprocess.TimeoutExpired:
        raise SoundsMissing(f"{' '.join(command[:2])} took longer than {SECONDS:.0f} s.") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise SoundsMissing(f"{' '.join(command[:2])} failed: {last[0]}") from None
