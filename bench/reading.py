"""How long does a reader wait for a list or a search with many calls stored?

    python -m bench.reading [--calls 100000] [--teams 10] [--texts 2000] [--rounds 20] [--json FILE]

One workspace has completed calls over a year, in five-minute steps. `--texts` different transcripts of 250 words, drawn
from 20,000 words with a Zipf distribution, are stored many times. Each call also has a unique word, numbers and contact
name. The search index is written as in the completing transaction; the tsvector of a transcript is computed once.
Milliseconds are those of `db.search.call_list.list_calls` for a page of 50 calls (a search: 25) with everything a row
shows, after one warm-up round. Half of the readers see one team only. The script also reports the size of the index.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.core.rows import dump_json
from db.search.call_list import CallFilter, list_calls
from db.search.task_list import TaskFilter, list_tasks
from db.search.trends import score_weeks
from db.server import embedded, migrate
from db.workspace import directory
from pipeline.domain.speech import Layout, LayoutKind, Role, Speaker, Transcript, Turn, Word

WORDS, TALK, BATCH = 20_000, 250, 5_000
NOW = datetime(2026, 11, 20, tzinfo=UTC)
SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu", "shen")
CALLS = """
    INSERT INTO calls (workspace_id, call_id, team_id, user_id, from_number, to_number, from_e164, to_e164, start_time,
        outgoing, duration, state, created_at, updated_at, completed_at)
    SELECT :workspace, gen_random_uuid(), (CAST(:teams AS uuid[]))[1 + n % cardinality(CAST(:teams AS uuid[]))],
        (CAST(:members AS uuid[]))[1 + n % cardinality(CAST(:members AS uuid[]))],
        number, '+4930100', number, '+4930100',
        at, n % 2 = 0, 180, CASE WHEN n % 200 = 0 THEN 'failed' ELSE 'completed' END, at, at, at
    FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n,
        LATERAL (SELECT '+49171' || lpad((n::bigint * 7919 % 10000000)::text, 7, '0'),
            CAST(:now AS timestamptz) - n * :step)
            AS made (number, at)
"""
REST = (
    """INSERT INTO jobs (call_pk, kind, state, attempts)
        SELECT id, 'process', 'done', 1 FROM calls WHERE id BETWEEN :first AND :last""",
    """UPDATE calls SET job_id = jobs.id FROM jobs
        WHERE jobs.call_pk = calls.id AND calls.id BETWEEN :first AND :last""",
    """INSERT INTO transcripts (call_pk, job_id, language, duration, engine, content)
        SELECT c.id, c.job_id, t.language, 180, 'bench', t.content FROM calls c JOIN talks t ON t.id = c.id % :texts
        WHERE c.id BETWEEN :first AND :last AND c.state = 'completed'""",
    """INSERT INTO findings (call_pk, step, version, position, value)
        SELECT id, 'summary', 1, 0, '{"text": "They talked about what had been agreed, and about the price."}'
        FROM calls WHERE id BETWEEN :first AND :last AND state = 'completed'""",
    """INSERT INTO tasks (call_pk, position, title, owner, kind, due_date, confidence, evidence)
        SELECT id, 0, 'Send the offer ' || id, CASE WHEN id % 3 = 0 THEN 'customer' ELSE 'rep' END, 'commitment',
            CASE WHEN id % 4 > 0 THEN (start_time + interval '5 days')::date END, 0.9,
            '{"turn": 0, "start": 0, "end": 1, "quote": "I will send it."}'
        FROM calls WHERE id BETWEEN :first AND :last AND state = 'completed' AND id % 2 = 0""",
    """INSERT INTO task_marks (call_pk, task_id, done_by) SELECT call_pk, task_id(call_pk, title, evidence), 'bench'
        FROM tasks WHERE call_pk BETWEEN :first AND :last AND call_pk % 10 > 0""",
    """INSERT INTO call_search (call_pk, workspace_id, team_id, start_time, config, tone, names, terms)
        SELECT c.id, c.workspace_id, c.team_id, c.start_time, search_config(t.language),
            CASE WHEN c.id % 50 = 0 THEN 'negative' WHEN c.id % 3 = 0 THEN 'positive' ELSE 'neutral' END,
            names, t.terms || to_tsvector('simple', 'ticket' || c.id) || array_to_tsvector(search_grams(names))
        FROM calls c JOIN talks t ON t.id = c.id % :texts,
            LATERAL (SELECT lower(concat_ws(' ', substr(c.from_e164, 2), '4930100',
                (CAST(:syllables AS text[]))[1 + c.id % 16] || (CAST(:syllables AS text[]))[1 + c.id / 16 % 16]
                    || (CAST(:syllables AS text[]))[1 + c.id / 256 % 16] || 'son'))) AS made (names)
        WHERE c.id BETWEEN :first AND :last AND c.state = 'completed'""",
    """INSERT INTO call_outcomes (call_pk, key, workspace_id, outcome, score)
        SELECT c.id, 'question' || q, c.workspace_id, CASE WHEN c.id % (1000 * q) = 0 THEN 'yes' ELSE 'no' END,
            NULL FROM calls c, generate_series(1, 10) AS q WHERE c.id BETWEEN :first AND :last AND c.state = 'completed'
        UNION ALL SELECT id, 'service', workspace_id, CASE WHEN id % 97 < 70 THEN 'passed' ELSE 'failed' END,
            100 - id % 97 FROM calls WHERE id BETWEEN :first AND :last AND state = 'completed'""",
)


def word(rank: int) -> str:
    """Return a word that no stemmer shortens to another's."""
    text = ""
    while True:
        rank, at = divmod(rank, len(SYLLABLES))
        text += SYLLABLES[at]
        if not rank:
            return text + "k"


def talk(chance: random.Random, weights: list[float]) -> Transcript:
    ranks = chance.choices(range(WORDS), cum_weights=weights, k=TALK)
    words = [Word(round(0.7 * n, 2), round(0.7 * n + 0.5, 2), word(rank), 0.93) for n, rank in enumerate(ranks)]
    turns = tuple(
        Turn(
            at,
            "rep" if at % 2 else "customer",
            words[n].start,
            words[min(n + 9, TALK - 1)].end,
            tuple(words[n : n + 10]),
            "en",
        )
        for at, n in enumerate(range(0, TALK, 10))
    )
    people = (Speaker("rep", Role.REP, 1.0, "channel"), Speaker("customer", Role.CUSTOMER, 1.0, "channel"))
    return Transcript("en", 0.99, 180.0, people, turns, Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, ""), "bench")


async def filled(url: str, arguments: argparse.Namespace) -> tuple[Database, UUID, list[UUID], list[UUID]]:
    """Create a database with calls; return it with its workspace, teams and members."""
    database = await Database.open(url, answer_seconds=None)
    home = (await directory.create_workspace(database, "bench", default_country="DE")).workspace_id
    teams = [(await directory.create_team(database, home, f"team {n}")).team_id for n in range(arguments.teams)]
    members = [(await directory.add_member(database, home, f"Member {n}")).user_id for n in range(100)]
    chance = random.Random(7)
    weights = list(statistics_of_ranks())
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SET LOCAL ROLE NONE"))
        await connection.execute(
            sa.text("CREATE TABLE talks (id bigint, language text, content jsonb, terms tsvector)")
        )
        add = sa.text(
            "INSERT INTO talks SELECT :id, 'en', CAST(:content AS jsonb), to_tsvector('english', CAST(:said AS text))"
        )
        for at in range(arguments.texts):
            transcript = talk(chance, weights)
            text = " ".join(turn.text for turn in transcript.turns)
            await connection.execute(add, {"id": at, "content": dump_json(transcript), "said": text})
    shared = {"workspace": home, "teams": teams, "members": members, "now": NOW, "syllables": list(SYLLABLES)}
    shared |= {"texts": arguments.texts, "step": timedelta(days=365) / arguments.calls}
    for first in range(1, arguments.calls + 1, BATCH):
        values = shared | {"first": first, "last": min(first + BATCH - 1, arguments.calls)}
        async with database.transaction(EVERY_WORKSPACE) as connection:
            await connection.execute(sa.text("SET LOCAL ROLE NONE"))
            for statement in (CALLS, *REST):
                used = {name: value for name, value in values.items() if f":{name}" in statement}
                await connection.execute(sa.text(statement), used)
    async with database.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(sa.text("RESET ROLE"))
        await connection.execute(sa.text("VACUUM ANALYZE"))
        await connection.invalidate()
    return database, home, teams, members


def statistics_of_ranks() -> list[float]:
    """Return cumulative weights of words by rank."""
    total, weights = 0.0, []
    for rank in range(WORDS):
        total += 1 / (rank + 3)
        weights.append(total)
    return weights


def questions(chance: random.Random, arguments: argparse.Namespace, members: list[UUID]) -> dict[str, dict[str, Any]]:
    """Return one round of queries, by name."""
    number = chance.randrange(1, arguments.calls)
    since = NOW - timedelta(days=chance.randrange(1, 300))
    common, usual, rare = (
        word(chance.randrange(3)),
        word(chance.randrange(60, 200)),
        word(chance.randrange(2_000, 9_000)),
    )
    return {
        "list: all": {},
        "list: since a day": {"started_before": since},
        "list: failed": {"states": ("failed",)},
        "list: a member": {"user_id": chance.choice(members)},
        "list: a number": {"number": f"+49171{number * 7919 % 10000000:07}"},
        "list: negative": {"tone": "negative"},
        "list: open tasks": {"open_tasks": True},
        "list: outgoing, German": {"outgoing": True, "language": "de"},
        "list: rare answer": {"question": "question9", "answer": "yes"},
        "list: usual answer": {"question": "question1", "answer": "no"},
        "list: failed by score": {"scorecard": "service", "passed": False},
        "list: lowest scores": {"scorecard": "service", "score_below": 5},
        "search: usual word, rare answer": {"text": usual, "question": "question1", "answer": "yes"},
        "search: word of one call": {"text": f"ticket{number}"},
        "search: rare word": {"text": rare},
        "search: usual word": {"text": usual},
        "search: word of most calls": {"text": common},
        "search: two usual words": {"text": f"{usual} {word(chance.randrange(60, 200))}"},
        "search: phrase": {"text": f'"{common} {usual}"'},
        "search: usual word, negative": {"text": usual, "tone": "negative"},
        "search: name": {
            "name": SYLLABLES[number % 16] + SYLLABLES[number // 16 % 16] + SYLLABLES[number // 256 % 16] + "son"
        },
        "search: name with a wrong letter": {"name": SYLLABLES[number % 16] + SYLLABLES[number // 16 % 16] + "xason"},
        "search: part of a number": {"name": f"{number * 7919 % 10000000:07}"[:6]},
    }


async def asked(
    database: Database, home: UUID, teams: list[UUID], members: list[UUID], arguments: argparse.Namespace
) -> dict[str, list[float]]:
    """Return the milliseconds of each query, by name."""
    chance = random.Random(11)
    took: dict[str, list[float]] = {}

    async def timed(name: str, question: Callable[[], Awaitable[Any]], counts: bool) -> Any:
        began = time.perf_counter()
        result = await question()
        if counts:
            took.setdefault(name, []).append(1000 * (time.perf_counter() - began))
        return result

    cursor = None
    for number in range(arguments.rounds + 1):
        reader = Reader(home, chance.choice(teams) if number % 2 else None, seconds=30)
        counts = number > 0
        for name, criteria in questions(chance, arguments, members).items():
            size = 25 if name.startswith("search") else 50
            filter_ = CallFilter(**criteria)
            page = await timed(name, partial(list_calls, database, reader, filter_, None, size), counts)
            if page.next and name in ("list: all", "search: usual word"):
                for _ in range(5):
                    cursor = page.next or cursor
                    following = partial(list_calls, database, reader, filter_, cursor, size)
                    page = await timed(f"{name}, next page", following, counts)
        tasks = TaskFilter(done=False, due_from=NOW.date() - timedelta(days=30))
        for by in ("team", "member"):
            await timed(f"scores: by {by}", partial(score_weeks, database, reader, "UTC", 12, by), counts)
        await timed("tasks: open, due", partial(list_tasks, database, reader, tasks), counts)
    return took


async def sizes(database: Database, calls: int) -> dict[str, float]:
    """Return bytes per call: of the full-text index, of its table, of the indexes of lists."""
    query = sa.text("""
        SELECT pg_relation_size('call_search_terms_idx'), pg_table_size('call_search'), (
            SELECT sum(pg_relation_size(indexrelid)) FROM pg_index
            WHERE indexrelid::regclass::text = ANY ('{calls_started_idx,calls_team_started_idx,calls_updated_idx,
                calls_member_idx,calls_unfinished_idx,tasks_due_idx,tasks_open_idx,call_search_started_idx,
                call_search_team_idx,call_search_tone_idx,call_search_pkey}')
        )
    """)
    async with database.transaction(EVERY_WORKSPACE) as connection:
        terms, table, lists = (await connection.execute(query)).one()
    return {"terms_index": terms / calls, "search_table": table / calls, "list_indexes": float(lists) / calls}


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[18] if len(values) > 1 else values[0]


async def measured(url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    began = time.perf_counter()
    database, home, teams, members = await filled(url, arguments)
    print(f"{arguments.calls} calls in {time.perf_counter() - began:.0f} s", flush=True)
    took = await asked(database, home, teams, members, arguments)
    rows = {name: {"p50": statistics.median(ms), "p95": p95(ms), "times": len(ms)} for name, ms in took.items()}
    for kind in ("list", "search", "tasks", "scores"):
        every = [ms for name, some in took.items() if name.startswith(kind) for ms in some]
        rows[f"{kind}, all of these"] = {"p50": statistics.median(every), "p95": p95(every), "times": len(every)}
    for name, row in rows.items():
        print(f"{name:36} p50 {row['p50']:7.1f} ms   p95 {row['p95']:7.1f} ms   {row['times']} times")
    bytes_ = await sizes(database, arguments.calls)
    for name, size in bytes_.items():
        print(f"{name:36} {size:8.0f} bytes a call")
    await database.close()
    return {"calls": arguments.calls, "milliseconds": rows, "bytes_a_call": bytes_}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reading", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100_000, help="completed calls")
    parser.add_argument("--teams", type=int, default=10, help="teams that have them")
    parser.add_argument("--texts", type=int, default=2_000, help="different talks")
    parser.add_argument("--rounds", type=int, default=20, help="repetitions of each query")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="swb-reading-"))
    try:
        url = embedded.start(folder)
        migrate.migrate(url)
        results = asyncio.run(measured(url, arguments))
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
