"""The other party of a call: its names, numbers and facts, and the words that tell similar contacts apart."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from pipeline.analysis.rules.people.agent import fit
from pipeline.analysis.rules.people.claim import ADDRESSED, CONFIRMED, DENIED, LATE, OWN, NameClaim
from pipeline.analysis.rules.people.fact import Fact
from pipeline.analysis.rules.people.gender import listed, of_first_name, of_title
from pipeline.analysis.rules.people.introductions import bare, introductions, words_of
from pipeline.analysis.rules.people.similarity import name_fit, written
from pipeline.analysis.talk import Turns
from pipeline.domain.insight import Contact, Member
from pipeline.domain.speech import Role
from pipeline.language.pack import pack, titles
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.phonetics import folded
from pipeline.language.spoken.spelling import spelled_words

_WORDS = re.compile(r"[^\W_]+")
WEIGHTS = {OWN: 3.0, CONFIRMED: 2.0, ADDRESSED: 1.0, LATE: 0.5}  # of a claim's evidence


@dataclass(frozen=True)
class Party:
    """The data of the other party. `numbers` are the call's, in E.164; `spoken_number` is from the talk."""

    numbers: tuple[str, ...]
    spoken_number: str | None
    facts: dict[str, Fact]
    claims: tuple[NameClaim, ...] = ()
    turns: Turns = ()
    contacts: tuple[Contact, ...] = ()  # all of the workspace
    members: tuple[Member, ...] = ()

    @cached_property
    def names(self) -> tuple[NameClaim, ...]:
        """The claims with the most weight for each name and speaker, without those that another one contains."""
        result: dict[tuple[str, bool], NameClaim] = {}
        claims = [claim for claim in self.claims if claim.rank in WEIGHTS and not self._is_asked_for(claim)]
        for claim in sorted(claims, key=lambda claim: WEIGHTS[claim.rank]):
            parts = words_of(claim.spoken.name)
            is_members = len(parts) == 1 and any(fit(parts[0], member) for member in self.members)
            key = folded(claim.spoken.name), claim.rank in (CONFIRMED, ADDRESSED)
            rank = LATE if is_members and claim.rank == OWN else claim.rank
            result[key] = replace(claim, rank=rank, is_spelled=claim.is_spelled or self._is_written(parts))
        return tuple(claim for claim in result.values() if not any(_is_part(claim, other) for other in result.values()))

    def _is_asked_for(self, claim: NameClaim) -> bool:
        """Return whether the agent uses another name before the own one: "Michel Corbin?" - "I'm Michèle, his wife"."""
        theirs = [other.spoken for other in self.claims if other.rank == OWN]
        is_before = bool(theirs) and claim.rank == ADDRESSED and claim.spoken.turn < min(name.turn for name in theirs)
        return is_before and not any(name_fit(name.name, claim.spoken.name, self.language) > 0 for name in theirs)

    @cached_property
    def hypotheses(self) -> tuple[str, ...]:
        """The spoken names, and first names with a contact's last name that the other party says or confirms."""
        certain = [claim for claim in self.names if claim.rank in (OWN, CONFIRMED)]
        names = tuple(dict.fromkeys(claim.spoken.name for claim in certain or self.names))
        first = [c.spoken.name for c in self.names if len(words_of(c.spoken.name)) == 1 and listed(c.spoken.name)]
        of_contacts = {(contact.name or "").rpartition(" ")[2] for contact in self.contacts}
        last = sorted(of_contacts.intersection(claim.spoken.name for claim in certain))
        return (*names, *(f"{name} {other}" for name in first for other in last))

    def is_own(self, name: str) -> bool:
        """Return whether the other party says or confirms a part of the name."""
        words = {word for c in self.claims if c.rank in (OWN, CONFIRMED) for word in c.spoken.name.split()}
        return not words.isdisjoint(name.split())

    def _is_written(self, parts: list[str]) -> bool:
        """Return whether the own address has the last name, or a contact has exactly these words."""
        words = {written(part) for part in parts}
        in_address = len(parts) > 1 and written(parts[-1]) in re.split(r"[@._-]", written(self.text("email")))
        return in_address or any(words <= of_contact for of_contact in self._contact_words)

    @cached_property
    def _contact_words(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(written(word) for word in (c.name or "").split()) for c in self.contacts)

    @cached_property
    def denied(self) -> frozenset[str]:
        return frozenset(claim.spoken.name for claim in self.claims if claim.rank == DENIED)

    @cached_property
    def nicknames(self) -> tuple[str, ...]:
        """First names that the other party also has: "everybody calls me Billie"."""
        theirs = (turn for turn in self.turns if turn.by_customer)
        return tuple(match["name"].split()[0] for turn in theirs for _, match in turn.searches("people", "also_called"))

    @cached_property
    def former_names(self) -> tuple[str, ...]:
        """Last names by which a list may still have the other party: "you may have me under Hill"."""
        theirs = (turn for turn in self.turns if turn.by_customer)
        return tuple(
            words_of(match["name"])[-1] for turn in theirs for _, match in turn.searches("people", "former_name")
        )

    @cached_property
    def is_new(self) -> bool:
        """Return whether they have never called before, or the agent adds them to the list and they agree."""
        pairs = pairwise(turn for turn in self.turns if turn.by_agent or turn.by_customer)
        replies = [reply for t, reply in pairs if t.by_agent and t.pack.matches("people", "new_record", t.text)]
        return self.matches("people", "first_time") or any(
            not reply.pack.matches("contact", "deny", reply.text) for reply in replies
        )

    @cached_property
    def first_names(self) -> frozenset[str]:
        """Words of the own names, of nicknames and of the own address, folded."""
        theirs = [claim for claim in self.names if claim.rank != ADDRESSED]
        names = (claim.spoken.name for claim in theirs or self.names)
        return frozenset(folded(" ".join([*names, *self.nicknames, *re.split(r"[._@-]", self.text("email"))])).split())

    @cached_property
    def language(self) -> str | None:
        return next((turn.pack.language for turn in self.turns if turn.pack.known), None)

    @property
    def name(self) -> str | None:
        return self.facts["name"].text if "name" in self.facts else None

    def text(self, field: str) -> str:
        return self.facts[field].text if field in self.facts else ""

    @cached_property
    def gender(self) -> str | None:
        quote = self.facts["name"].evidence.quote if "name" in self.facts else ""
        words = "|".join(titles())
        before = (
            word.strip(".")
            for claim in self.claims
            for turn in self.turns
            if claim.rank in (OWN, CONFIRMED) and turn.turn.index == claim.spoken.turn
            for match in re.finditer(rf"\b((?:(?i:{words})\.? ){{1,2}}){re.escape(claim.spoken.name)}\b", turn.text)
            for word in match[1].split()
        )
        kinds = (of_title(word, self.language) for word in (*f"{quote} {self.name or ''}".split(), *before))
        names = [words_of(claim.spoken.name) for claim in self.claims if claim.rank == OWN]
        first = max(names, key=len, default=[])  # "monsieur Tremblay" is the husband of Denise Tremblay
        is_certain = len(first) > 1 and listed(first[0]) and not any(set(first).isdisjoint(name) for name in names)
        of_own_name = of_first_name(first[0], self.language) if is_certain else None
        return next(filter(None, kinds), None) or of_own_name or self._form_of_address()

    def _form_of_address(self) -> str | None:
        """Return the gender of the agent's form of address ("danke, Frau Magister", "Hallo, Frau Pham?")."""
        name_words = set(folded(bare(self.name or "")).split())
        for turn in self.turns:
            if turn.role is not Role.REP or turn.turn.machine:
                continue
            greetings = "|".join(turn.pack.get("people", "greetings", ())) or "(?!)"
            pattern = rf"(?=(?:^|[,.!?¿¡] ?|\b(?i:{greetings}) )([^\W\d]+)\.?(?: ([^\W\d]+))?(?:[,.!?]| [a-z]|$))"
            for match in re.finditer(pattern, turn.text):
                first, second = match[1], match[2]
                kind = of_title(first, self.language)
                if second is None and first.lower() in turn.pack.words("text", "stopwords"):
                    continue  # "Seu e-mail"
                is_title = second and (second.lower() in titles() or folded(second) in name_words)
                if kind and (second is None or is_title):
                    return kind
        return None

    @cached_property
    def named_by_agent(self) -> frozenset[str]:
        """Words of the agent, folded, without the names by which the agent introduces themselves."""
        result: set[str] = set()
        for turn in (turn for turn in self.turns if turn.by_agent):
            ours = {part for spoken in introductions(turn) for part in folded(spoken.name).split()}
            result |= set(re.findall(r"[\w-]+", folded(turn.text))) - ours
        return frozenset(result)

    @cached_property
    def business(self) -> frozenset[str]:
        return frozenset(map(folded, pack(self.language).words("people", "business")))

    @cached_property
    def read_out(self) -> frozenset[str]:
        """E-mail addresses in the agent's words: the customer's record contains one of them."""
        ours = (turn for turn in self.turns if turn.role is Role.REP)
        return frozenset(address.text for turn in ours for address in emails(turn.text, turn.pack))

    @cached_property
    def spelled(self) -> frozenset[str]:
        """Words that either party spells."""
        return frozenset(word.text for turn in self.turns for word in spelled_words(turn.text, turn.pack))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Each turn's words, folded, between spaces."""
        return tuple(in_words(turn.text) for turn in self.turns)

    @cached_property
    def own_words(self) -> str:
        return "".join(words for words, turn in zip(self.words, self.turns, strict=True) if turn.by_customer)

    def matches(self, section: str, key: str) -> bool:
        return any(turn.role is Role.CUSTOMER and turn.pack.matches(section, key, turn.text) for turn in self.turns)


def _is_part(claim: NameClaim, other: NameClaim) -> bool:
    words, whole = (set(folded(each.spoken.name).split()) for each in (claim, other))
    return words < whole and WEIGHTS[other.rank] >= WEIGHTS[claim.rank]


def in_words(text: str) -> str:
    """Return the words of a text, folded, between spaces."""
    return "".join((" ", " ".join(_WORDS.findall(folded(text))), " "))
