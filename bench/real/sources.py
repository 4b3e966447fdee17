"""Real speech and telephone sounds: source, license and half of each recording.

Three sources; none of them is part of this repository.

LibriSpeech (Panayotov et al. 2015, CC BY 4.0): `UTTERANCES` of test-other and `VOICES` of train-clean-100. Give the
    folder with `--librispeech FOLDER` or `LIBRISPEECH=FOLDER`: splits as published (SPEAKER/CHAPTER/*.flac with
    *.trans.txt, at any depth), or a flat folder of *.flac with transcripts.tsv ("id<TAB>words").
Debian's Asterisk sounds: prompts spoken by Allison Smith (en, es; Digium), June Wallack (fr), Carlo Flora (it),
    ivrvoice.ru (ru); hold music by Macroform, Manolo Camp and Reno Project. CC BY-SA 3.0, Italian and Russian prompts
    CC BY 3.0; each package's `copyright` file has the credits. Downloaded with apt-get and unpacked into the cache, or
    a folder into which the packages were unpacked with `dpkg -x` (`--asterisk FOLDER`, `ASTERISK_SOUNDS`).
pyannote.audio's own sample (MIT): 30 s of a telephone conversation with speaker turns and words, from the installed
    package.

Every recording belongs to one half. Tune on "development"; "report" is read once. No speaker is in both: LibriSpeech by
speaker, VOICES by even or odd speaker id, prompts by the parity of the CRC-32 of their name.
"""

import csv
import gzip
import importlib.util
import os
import re
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

RATE = 16_000  # Hz, of every clip
Sound = npt.NDArray[np.float32]  # shape (n,), -1..1, mono
Half = Literal["development", "report"]

UTTERANCES: dict[Half, dict[str, str]] = {
    "development": {"1688": "142285", "1998": "15444"},
    "report": {"2033": "164914", "367": "130732"},
}
"""Of each half, two speakers of test-other and the chapter whose first `PER_SPEAKER` utterances are used."""
PER_SPEAKER = 10

VOICES = (
    *("103-1240", "1034-121119", "1040-133433", "1069-133699", "1081-125237", "1088-129236", "1098-133695"),
    *("1116-132847", "118-121721", "1183-124566", "1235-135883", "1246-124548", "125-121124", "1263-138246"),
    *("1334-135589", "1355-39947", "1363-135842", "1447-130550", "1455-134435", "150-126107", "1502-122615"),
    *("1553-140047", "1578-140045", "1594-135914", "1624-142933", "163-121908", "1723-141149", "1737-142396"),
    *("1743-142912", "1841-150351", "1867-148436", "1898-145702", "19-198", "1926-143879", "196-122150"),
    *("1963-142393", "1970-10594", "198-126831", "1992-141719", "200-124139", "2002-139469", "2007-132570"),
    *("201-122255", "2092-145706", "211-122425", "2136-5140", "2159-179154", "2182-150130", "2196-170151"),
    *("226-122538", "2289-152253", "229-130880", "233-134440", "2384-152900", "2391-145015", "2416-152137"),
    *("2436-2476", "248-130644", "250-140277", "2514-149482"),
)
"""Speaker and chapter of train-clean-100; utterance 0000 of each. Voices for voiceprints, babble and human turns."""

PROMPT_VOICES = {
    "en": "en_US_f_Allison",
    "es": "es_MX_f_Allison",
    "fr": "fr_CA_f_June",
    "it": "it_IT_m_Carlo",
    "ru": "ru_RU_f_IvrvoiceRU",
}
PACKAGES = (
    "asterisk-moh-opsound-wav",
    *(f"asterisk-core-sounds-{language}" for language in PROMPT_VOICES),
    *(f"asterisk-core-sounds-{language}-wav" for language in PROMPT_VOICES),
)
MUSIC: dict[Half, tuple[str, ...]] = {
    "development": ("macroform-cold_day", "reno_project-system"),
    "report": ("macroform-robot_dity", "macroform-the_simplicity", "manolo_camp-morning_coffee"),
}
NOT_AS_WRITTEN = {  # the recording says more or less, or is a tone that the text describes
    *("en/vm-intro", "en/tt-monkeys", "en/tt-weasels", "en/spy-iax2"),
    *("it/beep", "it/beeperr", "it/confbridge-join", "it/confbridge-leave"),
}


class SourceMissing(Exception):
    """A recording is not there; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording. `text` holds its words as written by its publisher; empty where they are unknown."""

    id: str  # "1688-142285-0000", "en/queue-youarenext", "moh/macroform-cold_day"
    speaker: str  # LibriSpeech's id, or the name of the prompts' voice; for music its name
    path: Path
    text: str = ""
    language: str = "en"

    def load(self) -> Sound:
        """Load the samples at `RATE`, mono. Raises `SourceMissing`."""
        return load(self.path)


@dataclass(frozen=True, slots=True)
class Spoken:
    """Words or a turn of the telephone sample; seconds."""

    start: float
    end: float
    speaker: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Telephone:
    """Real telephone talk of two people, mixed: who speaks when (`turns`), and words by sentence (`sentences`)."""

    path: Path
    turns: tuple[Spoken, ...]
    sentences: tuple[Spoken, ...]


def half_of(name: str) -> Half:
    """Return the half of a prompt: "development" if the CRC-32 of its name ("queue-youarenext") is even."""
    return "development" if zlib.crc32(name.encode()) % 2 == 0 else "report"


def load(path: Path) -> Sound:
    """Load a recording at `RATE`, channels averaged. Raises `SourceMissing`."""
    import soundfile
    import soxr

    if not path.is_file():
        raise SourceMissing(f"{path} does not exist.")
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    return np.asarray(mono if rate == RATE else soxr.resample(mono, rate, RATE), np.float32)


@dataclass(frozen=True)
class Sources:
    """Every recording by half. A folder left out is looked for in the environment, then in the cache."""

    librispeech: Path | None = None
    asterisk: Path | None = None

    def utterances(self, half: Half) -> dict[str, list[Clip]]:
        """Return the `PER_SPEAKER` utterances of each speaker with their words, in order."""
        return {
            speaker: [self._utterance(f"{speaker}-{chapter}-{index:04}", words=True) for index in range(PER_SPEAKER)]
            for speaker, chapter in UTTERANCES[half].items()
        }

    def voices(self, half: Half) -> list[Clip]:
        """One utterance of each further speaker of the half: even speaker ids are development."""
        parity = 0 if half == "development" else 1
        return [self._utterance(f"{name}-0000") for name in VOICES if int(name.split("-")[0]) % 2 == parity]

    def prompts(self, half: Half, language: str = "en") -> list[Clip]:
        """Prompts of the half whose words are known, by name; letters, digits and tones included."""
        folder = self._asterisk / "share/asterisk/sounds" / PROMPT_VOICES[language]
        clips = []
        for name, text in sorted(self._prompt_texts(language).items()):
            path = folder / f"{name}.wav"
            spoken = clean(text)
            if half_of(name) == half and spoken and f"{language}/{name}" not in NOT_AS_WRITTEN and path.is_file():
                clips.append(Clip(f"{language}/{name}", PROMPT_VOICES[language], path, spoken, language))
        return clips

    def prompt(self, name: str, language: str = "en") -> Clip:
        """Return a prompt of either half by name. Raises `SourceMissing`."""
        voice = PROMPT_VOICES[language]
        path = self._asterisk / "share/asterisk/sounds" / voice / f"{name}.wav"
        if not path.is_file():
            raise SourceMissing(f"{path} does not exist: is {PACKAGES[1]}-wav unpacked there?")
        return Clip(f"{language}/{name}", voice, path, clean(self._prompt_texts(language).get(name, "")), language)

    def music(self, half: Half) -> list[Clip]:
        """Hold music of the half."""
        folder = self._asterisk / "share/asterisk/moh"
        return [Clip(f"moh/{name}", name, folder / f"{name}.wav") for name in MUSIC[half]]

    @staticmethod
    def telephone() -> Telephone:
        """pyannote.audio's sample; it is in neither half, nothing is tuned on it."""
        spec = importlib.util.find_spec("pyannote.audio")
        if spec is None or not spec.submodule_search_locations:
            raise SourceMissing("pyannote.audio is not installed.")
        folder = Path(spec.submodule_search_locations[0]) / "sample"
        turns = []
        for line in (folder / "sample.rttm").read_text().splitlines():
            fields = line.split()
            turns.append(Spoken(float(fields[3]), float(fields[3]) + float(fields[4]), fields[7]))
        sentences = []
        for line in (folder / "sample.stm").read_text().splitlines():
            _, _, name, start, end, text = line.split(maxsplit=5)
            sentences.append(Spoken(float(start), float(end), name, text))
        return Telephone(folder / "sample.wav", tuple(turns), tuple(sentences))

    def _utterance(self, name: str, words: bool = False) -> Clip:
        try:
            path = self._librispeech[name]
            text = self._transcripts[name].lower() if words else self._transcripts.get(name, "").lower()
        except KeyError:
            raise SourceMissing(f"LibriSpeech utterance {name} or its words are not in {self._folder}.") from None
        return Clip(name, name.split("-", maxsplit=1)[0], path, text)

    @cached_property
    def _folder(self) -> Path:
        configured = self.librispeech or os.environ.get("LIBRISPEECH")
        folder = Path(configured) if configured else None
        if folder is None or not folder.is_dir():
            raise SourceMissing(
                f"LibriSpeech's folder is {folder or 'not set'}. Unpack test-other and train-clean-100 and give their "
                "folder with --librispeech or LIBRISPEECH."
            )
        return folder

    @cached_property
    def _librispeech(self) -> dict[str, Path]:
        return {path.stem: path for path in self._folder.rglob("*.flac")}

    @cached_property
    def _transcripts(self) -> dict[str, str]:
        return dict(_transcripts(self._folder))

    @cached_property
    def _asterisk(self) -> Path:
        """Return the folder with share/asterisk and share/doc: "usr" of the unpacked packages."""
        configured = self.asterisk or os.environ.get("ASTERISK_SOUNDS")
        folder = Path(configured) if configured else fetch_asterisk()
        return folder if (folder / "share").is_dir() else folder / "usr"

    def _prompt_texts(self, language: str) -> dict[str, str]:
        name = f"asterisk-core-sounds-{language}"
        path = self._asterisk / "share/doc" / name / f"core-sounds-{language}.txt.gz"
        if not path.is_file():
            raise SourceMissing(f"{path} does not exist: unpack the package {name} there.")
        with gzip.open(path, "rt", encoding="utf-8-sig", errors="replace") as lines:
            matches = (re.match(r"([\w/.-]+):\s*(\S.*)", line) for line in lines)
            return {match[1]: own_text(match[1], match[2]) for match in matches if match}


def own_text(name: str, text: str) -> str:
    """Remove later prompts of the group from a prompt's line, as in two lines of the Italian list."""
    group = re.escape(name.split("-", maxsplit=1)[0])
    return re.split(rf"\s{group}-[\w-]+:\s", text)[0].strip()


def clean(text: str) -> str:
    """Remove stage directions from a prompt's text: "[ascending tones]", "(simple tone sound plays)"."""
    return re.sub(r"\s+", " ", re.sub(r"\[[^\]]*\]|\([^)]*\)", " ", text)).strip()


def cache() -> Path:
    """Return the folder of downloads: bench-real/ in the user's cache for Switchboard."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "switchboard" / "bench-real"


def fetch_asterisk() -> Path:
    """Debian's Asterisk sounds (about 60 MB); the folder that holds share/. Raises `SourceMissing`."""
    try:
        return fetch_packages("asterisk", PACKAGES) / "usr"
    except SourceMissing as error:
        raise SourceMissing(f"{error} Or give their folder with --asterisk.") from error


def fetch_packages(name: str, packages: Sequence[str]) -> Path:
    """Packages of Debian, downloaded and unpacked once into the cache's folder of this name, which is returned.

    Needs apt-get and dpkg-deb, no root. Raises `SourceMissing` where they fail.
    """
    folder = cache() / name
    done = folder / "complete"
    if not done.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["apt-get", "download", *packages], cwd=folder, check=True, capture_output=True, text=True)
            for package in sorted(folder.glob("*.deb")):
                subprocess.run(["dpkg-deb", "-x", package.name, "."], cwd=folder, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            detail = str(getattr(error, "stderr", "") or error).strip()[-300:]
            raise SourceMissing(
                f"Debian's packages could not be fetched ({detail}). On Debian run apt-get update; elsewhere unpack "
                f"{', '.join(packages)} with dpkg -x."
            ) from error
        done.touch()
    return folder


def _transcripts(folder: Path) -> Iterator[tuple[str, str]]:
    table = folder / "transcripts.tsv"
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as lines:
            yield from ((row[0], row[1]) for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    for path in folder.rglob("*.trans.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, text = line.partition(" ")
            yield name, text
