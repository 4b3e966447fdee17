"""Fails if a file contains a word that this project replaces with another: `python .ci/terms.py [FOLDER ...]`.

Reads every text file that git tracks in FOLDERS; add a folder once it is clean.
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDERS = (
    *(
        "serve_app",
        "db",
        "client",
        "docs",
        "examples",
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "bench/README.md",
        "notebooks",
    ),
    *(":(glob)pipeline/*", "pipeline/audio", "pipeline/checkpoints", "pipeline/domain", "pipeline/fetch"),
    *("pipeline/language", "pipeline/runtime", "pipeline/asr", "pipeline/diarization", "pipeline/speakers"),
    "pipeline/analysis",
)
SUFFIXES = {".py", ".md", ".json", ".yaml", ".toml", ".sh", ".env", ".example", ".sql", ".html", ".ipynb"}
KEPT = (" # terms: ok", " -- terms: ok")  # at the end of a line
SKIPPED = ("serve_app/demo/samples/", "pipeline/speakers/announcements/")  # what people say
PACKS = "pipeline/language/packs/"  # what people say, but for sections and keys
KEY = re.compile(r"\[?\w+")

REPLACED = {
    # sentences
    r"anew": "again",
    r"mend(s|ed|ing)?": "fix",
    r"whoever": "the caller, the member, anyone who",
    r"nobody's": "unassigned",
    r"(tells?|told|telling) apart": "separate, diarize",
    r"(takes?|took|taken|taking) up": "claim",
    r"(gives?|gave|given|giving) up": "fail",
    r"heard by": "transcribed by",
    r"laid where (it|they) belongs?": "aligned",
    r"(comes? and goes?|come and go)": "scale up and down",
    r"looks? closer": "show details",
    r"(goes|go|gone|went) on with": "resume",
    r"lined up": "requeued",
    r"at work": "running",
    r"hand(s|ed|ing)? out": "serve",
    # names
    r"conducting": "ConductorLoop",
    r"delivering": "WebhookDispatcher",
    r"handout": "FileServer",
    r"shelf": "LazyGroup",
    r"ledger": "SubmissionStore",
    r"on_company": "on_peer_count",
    r"clear_seconds": "target_drain_seconds",
    r"\w*__patience_seconds": "retry_window_seconds",
    r"vouch(es|ed|ing)?": "approve",
    r"nobodysvoice": "UnassignedVoiceprint",
    r"misfits": "OUTLIERS",
    r"longest_left_out": "max_skipped_pause",
    r"told_apart": "voice_done, separated",
    r"undertakings?": "commitment",
    r"turntone|partytone|valence": "sentiment",
    r"suspect_from": "quarantine_after",
    # American spelling
    r"\w*(recogn|organ|initial|serial|normal|summar|util|priorit|author|minim|maxim|synchron)"
    r"is(e|es|ed|ing|er|ation)": "American spelling (-ize)",
    r"\w*(analys)(e|ed|ing|er)": "American spelling (analyze)",
    r"\w*(behavi|col|fav|neighb|hon|lab)our(s|ed|ing|able|hood)?": "American spelling (-or)",
    r"(?<!\.)(cancell|labell|modell|signall)(ed|ing)": "American spelling (one l)",  # asyncio has `.cancelled()`
    r"catalogue|licence|grey|centre|centred|defence|artefacts?|whilst|amongst|towards": "American spelling",
}
PATTERN = re.compile("|".join(rf"(?P<t{at}>\b(?:{word})\b)" for at, word in enumerate(REPLACED)), re.IGNORECASE)
TERMS = list(REPLACED.values())


def faults(path: Path) -> list[str]:
    """Return a line for each replaced word in a file."""
    found = []
    lines = path.read_text(encoding="utf-8").splitlines()
    if str(path).startswith(PACKS):
        lines = [match[0].replace("_", " ") if (match := KEY.match(line)) else "" for line in lines]
    for number, line in enumerate(lines, 1):
        for match in () if line.endswith(KEPT) else PATTERN.finditer(line):
            assert match.lastgroup is not None
            found.append(f"{path}:{number}: '{match.group()}': say: {TERMS[int(match.lastgroup[1:])]}")
    return found


def main(folders: list[str]) -> int:
    listed = subprocess.run(["git", "ls-files", "--", *folders], capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in listed.splitlines() if Path(name).suffix in SUFFIXES]
    found = [fault for path in paths if not str(path).startswith(SKIPPED) and path.is_file() for fault in faults(path)]
    for fault in found:
        print(fault)
    if found:
        print(f"{len(found)} words that this project replaces with others: see REPLACED in .ci/terms.py.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(FOLDERS)))
