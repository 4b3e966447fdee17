"""How well are facts, contacts, direction and the agent read out of short dialogues that no rule was written for?

    python -m bench.training.people.table [TABLE ...] [--half all] [--language en] [--section facts] [--detail]
    [--json FILE]

The tables (rows/) hold a row for each way of saying something: country, turns, what is said in them. Rows of
odd number within a section are open to those who write rules ("open"); those of even number are kept to check them by.
Figures: right of all by field and language; how much of what was found is true.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.agent import AgentStep
from pipeline.analysis.rules.people.contacts import FIELDS, ContactsStep
from pipeline.domain.call import Call
from pipeline.domain.insight import Contact, Finding, Material, Member, Roster
from pipeline.domain.speech import Layout, LayoutKind, Role, Speaker, Transcript, Turn, Word
from pipeline.evaluation.matching import same_field

TABLES = sorted((Path(__file__).parent / "rows").glob("*.txt"))
PARTY = {"r": "rep", "c": "customer"}
OUTGOING = {"in": False, "out": True, "?": None}


@dataclass(frozen=True)
class TableRow:
    """`gold` as in the table: facts by field, or the one answer of a direction, an agent or a match."""

    language: str
    section: str
    number: int
    region: str
    talk: str
    gold: str
    members: tuple[Member, ...] = ()
    contacts: tuple[Contact, ...] = ()

    @property
    def half(self) -> str:
        return "open" if self.number % 2 else "check"

    @property
    def facts(self) -> dict[str, str]:
        return {} if self.gold == "-" else dict(part.split("=", 1) for part in self.gold.split("; "))

    @property
    def material(self) -> Material:
        lines = [(PARTY[text[0]], text[2:]) for text in self.talk.split(" / ")]
        turns = tuple(_turn(at, who, text, self.language) for at, (who, text) in enumerate(lines))
        speakers = tuple(Speaker(label, Role(label), 1.0, "channel") for label in PARTY.values())
        layout = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "given")
        transcript = Transcript(self.language, 1.0, 5.0 * len(turns), speakers, turns, layout, "given")
        start = datetime(2026, 3, 4, 10, tzinfo=UTC)
        roster = Roster(members=self.members, contacts=self.contacts, default_country=self.region)
        return Material(Call(UUID(int=1), "anonymous", "anonymous", start), transcript, roster)


def _turn(at: int, who: str, text: str, language: str) -> Turn:
    words = text.split()
    step = 4.0 / len(words)
    spoken = tuple(Word(5 * at + n * step, 5 * at + (n + 1) * step, word, 1.0) for n, word in enumerate(words))
    return Turn(at, who, 5.0 * at, 5.0 * at + 4, spoken, language)


def rows(path: Path) -> Iterator[TableRow]:
    """Yield the rows of one table; a section's head has members and contacts, which apply to later sections, too."""
    section, number = "", 0
    members: tuple[Member, ...] = ()
    contacts: tuple[Contact, ...] = ()
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section, _, head = line[1:].partition("]")
            number = 0
            if section == "agent":
                members = tuple(_member(item) for item in head.split(";"))
            elif section == "match":
                contacts = tuple(_contact(item) for item in head.split(";"))
        elif line.strip() and not line.startswith("#"):
            number += 1
            region, talk, gold = (part.strip() for part in line.split(" | "))
            team = members if section in ("agent", "match") else ()
            yield TableRow(path.stem, section, number, region, talk, gold, team, contacts if section == "match" else ())


def _member(item: str) -> Member:
    user, _, name = item.strip().partition(" ")
    match = re.fullmatch(r"(.*?)(?: \((.*)\))?", name)
    assert match is not None
    return Member(user, match[1], (match[2],) if match[2] else ())


def _contact(item: str) -> Contact:
    head, *rest = (part.strip() for part in item.split(","))
    contact, _, name = head.partition(" ")
    company = next((text for text in rest if "@" not in text), None)
    return Contact(contact, name, company, next((text for text in rest if "@" in text), None), None)


def findings(row: TableRow) -> dict[str, Finding]:
    material = row.material
    for step in (DirectionStep(), AgentStep(), ContactsStep()):
        material = replace(material, findings={**material.findings, step.name: step.run(material)})
    return dict(material.findings)


@dataclass
class Count:
    right: int = 0
    of: int = 0

    def add(self, right: bool) -> None:
        self.right, self.of = self.right + right, self.of + 1


@dataclass
class TableCounts:
    """Counts by (language, what): of what is said, and, with `found` before the name, of what was found."""

    counts: dict[tuple[str, str], Count] = field(default_factory=lambda: defaultdict(Count))
    mistakes: list[str] = field(default_factory=list)

    def add(self, row: TableRow, what: str, right: bool, why: str) -> None:
        for language in (row.language, "all"):
            self.counts[language, what].add(right)
        if not right:
            self.mistakes.append(f"{row.language} {row.section} {row.number}: {row.talk} || {why}")


def judge(row: TableRow, judged: TableCounts) -> None:
    values = findings(row)
    contact = values["contacts"].value
    if row.section == "facts":
        _judge_facts(row, {name: fact for name, fact in contact["heard"].items() if fact}, judged)
        return
    if row.section == "direction":
        answer = next(key for key, value in OUTGOING.items() if value is values["direction"].value["outgoing"])
    elif row.section == "agent":
        answer = values["agent"].value["user_id"] or "-"
    else:
        answer = contact["contact_id"] if contact["match"] == "matched" else contact["match"]
    judged.add(row, row.section, answer == row.gold, f"{answer} for {row.gold}")


def _judge_facts(row: TableRow, facts: dict[str, dict[str, str]], judged: TableCounts) -> None:
    for name in FIELDS:
        value, expected = facts[name]["value"] if name in facts else None, row.facts.get(name)
        if expected:
            right = same_field(name, value, expected)
            judged.add(row, name, right, f"{name} {value!r} for {expected!r}")
            judged.add(row, "facts", right, "")
        if value and not ("@" in (facts[name].get("said") or "") and not expected):  # a name out of an address
            right = expected is not None and same_field(name, value, expected)
            judged.add(row, "facts found", right, f"false {name} {value!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*", default=TABLES, help="default: all that ship")
    parser.add_argument("--half", choices=("open", "check", "all"), default="all")
    parser.add_argument("--language")
    parser.add_argument("--section", choices=("facts", "direction", "agent", "match"))
    parser.add_argument("--detail", action="store_true", help="print every mistake (not of the half kept to check by)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    judged = TableCounts()
    for row in (row for table in arguments.tables for row in rows(table)):
        asked = (arguments.half, arguments.language, arguments.section)
        has = (row.half, row.language, row.section)
        if all(want in (None, "all", got) for want, got in zip(asked, has, strict=True)):
            judge(row, judged)
    languages = [*sorted({language for language, _ in judged.counts} - {"all"}), "all"]
    print(f"{'':14}" + "".join(f"{language:>16}" for language in languages))
    for what in (*FIELDS, "facts", "facts found", "direction", "agent", "match"):
        cells = [judged.counts[language, what] for language in languages]
        if cells[-1].of:
            shown = (f"{count.right / count.of:.3f} ({count.of})" if count.of else "-" for count in cells)
            print(f"{what:14}" + "".join(f"{cell:>16}" for cell in shown))
    if arguments.detail:
        print(*judged.mistakes, sep="\n")
    if arguments.json:
        figures = {f"{language} {what}": [count.right, count.of] for (language, what), count in judged.counts.items()}
        arguments.json.write_text(json.dumps({"half": arguments.half, "right, of": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
