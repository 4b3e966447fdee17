"""Spelled names, numbers, e-mail addresses, companies and addresses in five languages; controls are in each group.

A row: language, turns (r: rep, c: customer), and "field: value" as heard; "-" for no value.
"""

from dataclasses import replace

from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.domain.insight import Roster
from pipeline.evaluation.matching import same_field
from tests.paths import FIXTURES
from tests.support.calls_by_hand import call

ROWS = (FIXTURES / "dictated_facts.txt").read_text(encoding="utf-8")


def test_what_the_other_party_dictates_is_read_with_its_corrections(subtests):
    for row in ROWS.strip().splitlines():
        if row.startswith("#"):
            continue
        language, talk, right = (part.strip() for part in row.split("|"))
        lines = [({"r": "rep", "c": "customer"}[turn[0]], turn[3:]) for turn in talk.split(" / ")]
        material = call(*lines, language=language, roster=Roster(), numbers=("anonymous", "anonymous"))
        finding = ContactsStep().run(replace(material, findings={"direction": DirectionStep().run(material)}))
        field, _, value = right.partition(": ")
        with subtests.test(row):
            fact = finding.value["heard"][field]
            if value == "-" or fact is None:
                assert (value, fact) == ("-", None)
            elif field in ("phone", "email"):
                assert fact["value"] == value
            else:
                assert same_field(field, fact["value"], value), fact["value"]
