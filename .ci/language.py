"""Check the language of the project: `python .ci/language.py [--counts] [PATH ...]`.

Names, docstrings and sentences follow docs/style.md. A word that is right in its place gets `# language: ok` at the
end of its line, or of the last line of its string. `--counts` prints the number of findings per kind and folder.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CODE = ("serve_app", "db", "pipeline", "client/src", "client/generate.py", ".ci", "docs", "notebooks", "bench")
PROSE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples")
SUFFIXES = {".py", ".md", ".json", ".yaml", ".toml", ".sh", ".env", ".example", ".sql", ".html", ".ipynb"}
SKIPPED = re.compile(  # vendored and generated files, speech, and the lists of words
    r"^\.ci/language\.py$|/vendor/|^serve_app/demo/samples/|^pipeline/speakers/announcements/|/corpus/"
    r"|^bench/(analysis_cases|training/.*/(rows|turns|calls|windows))/"
    r"|^bench/training/fixtures/|^bench/real/outputs/|examples/\w+\.json$|^\.ci/language\.py$|^bench/real/figures\.json$|/openapi\.json$|^client/src/switchboard/models\.py$|events\.schema\.json$|SETTINGS\.md$"
)
PACKS = "pipeline/language/packs/"  # speech, except sections and keys
KEY = re.compile(r"\[?\w+")
ALLOWED = ("# language: ok", "-- language: ok")

FILLER = re.compile(
    r"^(ones?|found|told|made|own|known|said|kept|held|wanted|named|brought|left|heard|meant|given|lost|gone)$"
)
LIMIT = re.compile(r"^_?(MOST|LONGEST|FEWEST|LEAST|SHORTEST|SMALLEST|LARGEST|GREATEST)(_|$)")
FRAGMENT = re.compile(
    r"^(The|An?|What|Whether|Who|Which|How|Of|In|On|By|With|As|It|Where|When|Those|All|This|That|Every|Each|No|Nobody"
    r"|Somebody|True|None)\b"
)

REPLACED = {
    # sentences
    r"anew": "again",
    r"meanwhile": "in the meantime",
    r"nobody|somebody|whoever": "no member, the caller, anyone who",
    r"beside": "next to, with, in parallel with",
    r"mend(s|ed|ing)?": "fix",
    r"nobody's": "unassigned",
    r"(tells?|told|telling) apart": "separate, diarize",
    r"(takes?|took|taken|taking) up": "claim",
    r"(gives?|gave|given|giving) up": "fail",
    r"heard by": "transcribed by",
    r"laid where (it|they) belongs?": "aligned",
    r"(comes? and goes?|come and go)": "scale up and down",
    r"looks? closer": "show details",
    r"(goes|go|gone|went) on with": "resume",
    r"(works?|worked|working) off": "process",
    r"lined up": "requeued",
    r"at work": "running",
    r"hand(s|ed|ing)? out": "serve",
    r"once in a while": "periodically",
    # names
    r"conducting": "ConductorLoop",
    r"delivering": "WebhookDispatcher",
    r"handout": "a server of files",
    r"shelf": "LazyGroup",
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


class Finding(NamedTuple):
    path: str
    line: int
    kind: str
    text: str


def check(path: Path) -> list[Finding]:
    """Return the findings in a file, without those on lines that allow them."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    findings = list(_words(path, _pack_keys(lines) if str(path).startswith(PACKS) else lines))
    allowed = {number for number, line in enumerate(lines, 1) if line.endswith(ALLOWED)}
    if path.suffix == ".py":
        tree = ast.parse(text)
        findings += [*_names(path, tree), *_docstrings(path, tree)]
        strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.end_lineno in allowed)
        allowed |= {number for node in strings for number in range(node.lineno, (node.end_lineno or 0) + 1)}
    return [finding for finding in findings if finding.line not in allowed]


def _pack_keys(lines: list[str]) -> list[str]:
    return [match[0].replace("_", " ") if (match := KEY.match(line)) else "" for line in lines]


def _words(path: Path, lines: list[str]) -> Iterator[Finding]:
    for number, line in enumerate(lines, 1):
        for match in PATTERN.finditer(line):
            assert match.lastgroup is not None
            yield Finding(str(path), number, "word", f"'{match[0]}': say {TERMS[int(match.lastgroup[1:])]}")


def _names(path: Path, tree: ast.AST) -> Iterator[Finding]:
    for name, line in _bindings(tree):
        if FILLER.match(name):
            yield Finding(str(path), line, "name", f"{name}: name the variable after the thing")
        if LIMIT.match(name):
            yield Finding(str(path), line, "name", f"{name}: a limit is MAX_ or MIN_")


def _bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def _docstrings(path: Path, tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            text = ast.get_docstring(node)
            if text and FRAGMENT.match(text):
                yield Finding(str(path), node.lineno, "docstring", f"begin with a verb: {text.splitlines()[0][:60]}")


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def paths(names: list[str]) -> list[Path]:
    """Return the tracked text files to check, by path or folder."""
    listed = subprocess.run(["git", "ls-files", "--", *names], capture_output=True, text=True, check=True).stdout
    return [
        path
        for path in map(Path, listed.splitlines())
        if path.suffix in SUFFIXES and path.is_file() and not SKIPPED.search(path.as_posix())
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("paths", nargs="*", help=f"default: {' '.join((*CODE, *PROSE))}")
    parser.add_argument("--counts", action="store_true", help="print the number of findings per kind and folder")
    options = parser.parse_args()
    findings = [finding for path in paths(options.paths or [*CODE, *PROSE]) for finding in check(path)]
    if options.counts:
        counts = Counter(("/".join(finding.path.split("/")[:2]), finding.kind) for finding in findings)
        for (folder, kind), count in sorted(counts.items()):
            print(f"{count:5} {kind:10} {folder}")
    else:
        for finding in sorted(findings):
            print(f"{finding.path}:{finding.line}: {finding.text}")
    if findings:
        print(f"{len(findings)} findings: see docs/style.md.")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
