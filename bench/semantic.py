"""Does a question in other words find the call, by words and by meaning?

    python -m bench.semantic [--librispeech FOLDER] [--json FILE]

Every call of bench/analysis_cases, in four languages, is completed and indexed as the service does it. With
`--librispeech` each utterance of the development speakers is a further call. Each question of `semantic_questions.json`
asks for one call in other words: "de" and "en" in the language of the call, "other" in the other language, "read" for
an utterance. Recall at k: the call is among the first k of all. The reference is search by words, with all words of the
question and with `or` between them, latest call first. The script also reports the size of the index.
"""

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from db.core.database import Database, Reader
from db.search import passages
from db.search.call_list import CallFilter, list_calls
from db.search.semantic import closest_calls
from db.server import embedded, migrate
from pipeline import embedding
from pipeline.domain.passages import passages_of
from pipeline.embedding import EmbeddingOptions, Engine
from tests.finished import finished
from tests.postgres import NOT_DURABLE, new_world

CASES = Path(__file__).parent / "analysis_cases"
QUESTIONS = CASES / "semantic_questions.json"
RANKS = (1, 5, 10)
Search = Callable[[str], Awaitable[list[str]]]


def calls_by_hand() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Name, language and turns."""
    for path in sorted(CASES.glob("*/*.json")):
        call_input = json.loads(path.read_text(encoding="utf-8"))["input"]
        yield path.stem, call_input["language"], [(turn["speaker"], turn["text"]) for turn in call_input["turns"]]


def utterances(folder: Path) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Likewise, of transcripts.tsv."""
    for line in (folder / "transcripts.tsv").read_text(encoding="utf-8").splitlines():
        name, text = line.split("\t")
        yield name, "en", [("customer", text)]


async def measured(database: Database, engine: Engine, folder: Path | None) -> dict[str, Any]:
    world = await new_world(database)
    await passages.switch_on(database, engine.name)
    names = {}
    for at, (name, language, turns) in enumerate([*calls_by_hand(), *(utterances(folder) if folder else ())]):
        names[await finished(world, *turns, language=language, minutes=at)] = name
    before, began = await _bytes(database), time.process_time()
    indexed = await _indexed(database, engine)
    seconds = time.process_time() - began
    reader = Reader(world.workspace_id, None, 60.0)

    async def by_meaning(question: str) -> list[str]:
        vector = engine.query(question)[0].tolist()
        lines = await closest_calls(database, reader, vector, engine.name, CallFilter(), RANKS[-1])
        return [names[line.call.call_id] for line in lines]

    async def by_words(question: str) -> list[str]:
        page = await list_calls(database, reader, CallFilter(text=question), None, RANKS[-1])
        return [names[line.call.call_id] for line in page.items]

    async def by_any_word(question: str) -> list[str]:
        return await by_words(" or ".join(question.replace("?", " ").split()))

    questions = [
        question for question in json.loads(QUESTIONS.read_text(encoding="utf-8")) if question["call"] in names.values()
    ]
    ways: dict[str, Search] = {"words": by_words, "any word": by_any_word, "meaning": by_meaning}
    grown = await _bytes(database) - before
    return {
        "calls": len(names),
        "passages": indexed,
        "questions": len(questions),
        "model": engine.name,
        "recall": {way: await _recall(search, questions) for way, search in ways.items()},
        "processor_ms_per_passage": round(1000 * seconds / indexed, 1),
        "bytes_per_passage": round(grown / indexed),
        "bytes_per_call": round(grown / len(names)),
    }


async def _indexed(database: Database, engine: Engine) -> int:
    count = 0
    while claimed := await passages.claim(database, 50, 600.0):
        for due in claimed:
            parts = passages_of(due.turns)
            vectors = engine.passages([part.text for part in parts]).tolist()
            assert await passages.store(database, due, engine.name, parts, vectors)
            count += len(parts)
    return count


async def _bytes(database: Database) -> int:
    async with database.engine.connect() as connection:
        size = await connection.scalar(sa.text("SELECT pg_total_relation_size('call_passages')"))
        return int(size or 0)


async def _recall(search: Search, asked: Sequence[dict[str, str]]) -> dict[str, dict[str, float]]:
    """Share of questions whose call is among the first 1, 5, 10, by kind of question and of all."""
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for question in asked:
        hits = await search(question["question"])
        rank = hits.index(question["call"]) + 1 if question["call"] in hits else RANKS[-1] + 1
        ranks[question["kind"]].append(rank)
        ranks["all"].append(rank)
    return {
        kind: {"questions": len(these)}
        | {f"@{k}": round(sum(rank <= k for rank in these) / len(these), 2) for k in RANKS}
        for kind, these in ranks.items()
    }


def show(results: dict[str, Any]) -> None:
    print(
        f"{results['questions']} questions, {results['calls']} calls, {results['passages']} passages, "
        f"{results['model']}"
    )
    for way, kinds in results["recall"].items():
        for kind, figures in kinds.items():
            shares = "  ".join(f"@{k} {figures[f'@{k}']:.2f}" for k in RANKS)
            print(f"{way:10} {kind:6} {figures['questions']:3}  {shares}")
    print(
        f"{results['processor_ms_per_passage']} ms of one core and {results['bytes_per_passage']} bytes a passage, "
        f"{results['bytes_per_call']} bytes a call"
    )


async def run(url: str, folder: Path | None) -> dict[str, Any]:
    engine = embedding.load(EmbeddingOptions(engine="e5"))
    async with await Database.open(url) as database:
        return await measured(database, engine, folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.semantic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--librispeech", type=Path, default=os.environ.get("LIBRISPEECH"), help="a flat folder")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="semantic-"))
    try:
        url = embedded.start(data, NOT_DURABLE)
        migrate.migrate(url)
        results = asyncio.run(run(url, arguments.librispeech and Path(arguments.librispeech)))
    finally:
        embedded.stop(data)
        shutil.rmtree(data, ignore_errors=True)
    show(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
