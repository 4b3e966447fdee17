"""Which of similar contacts the other party is, in five languages; controls follow each group.

A row: language, turns (r: rep, c: customer), the contacts ("name; company"), and the right one's number, or `new`,
`none`, or `ambiguous`.
"""

from dataclasses import replace

from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.domain.insight import Contact, Roster
from tests.paths import FIXTURES
from tests.support.calls_by_hand import call

ROWS = (FIXTURES / "similar_contacts.txt").read_text(encoding="utf-8")


def test_a_similar_contact_is_chosen_only_when_the_talk_tells_them_apart(subtests):
    for row in ROWS.strip().splitlines():
        if row.startswith("#"):
            continue
        language, talk, stored, right = (part.strip() for part in row.split("|"))
        lines = [({"r": "rep", "c": "customer"}[turn[0]], turn[3:]) for turn in talk.split(" / ")]
        contacts = tuple(
            Contact(str(at), *(part.strip() for part in contact.split(";")))
            for at, contact in enumerate(stored.split("+"), start=1)
        )
        material = call(*lines, language=language, roster=Roster(contacts=contacts), numbers=("anonymous", "anonymous"))
        value = ContactsStep().run(replace(material, findings={"direction": DirectionStep().run(material)})).value
        with subtests.test(row):
            assert (value["contact_id"] or value["match"]) == right
