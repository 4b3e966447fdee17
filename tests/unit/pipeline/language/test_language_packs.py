import re
import tomllib
from copy import deepcopy

import pytest

from pipeline.analysis import AnalysisOptions, load_engine
from pipeline.analysis.rules.dates.calendar_rules import RULES
from pipeline.language import pack as packs
from pipeline.language.schema import DATE_RULES, REQUIRED, LanguagePackInvalid, faults

ENGLISH = packs.FOLDER / "en.toml"
DATA = tomllib.loads(ENGLISH.read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an empty folder of packs, with no pack loaded."""

    def forget():
        for cached in (packs._load, packs.load_all, packs.pack):
            cached.cache_clear()

    monkeypatch.setattr(packs, "FOLDER", tmp_path)
    forget()
    yield tmp_path
    forget()


def test_the_packs_that_ship_are_whole():
    assert [pack.language for pack in packs.load_all()] == ["de", "en", "es", "fr", "pt"]


@pytest.mark.parametrize("pack", packs.load_all(), ids=lambda pack: pack.language)
def test_every_pattern_of_a_pack_compiles(pack):
    lists = [(key, value) for keys in pack.data.values() for key, value in keys.items() if isinstance(value, list)]
    of_pairs = {"rules": 1, "times": 1, "listener": 0}  # where in a pair the pattern is
    texts = [entry[of_pairs[key]] if key in of_pairs else entry for key, value in lists for entry in value]
    patterns = [text for text in texts if isinstance(text, str) and re.search(r"[\\(\[^$%]", text)]
    assert len(patterns) > 300
    for pattern in patterns:
        pack.compile(pattern.replace("%minute%", "x"))


@pytest.mark.parametrize("section", REQUIRED)
def test_every_key_that_is_missing_is_named(section):
    for key in REQUIRED[section].split():
        data = deepcopy(DATA)
        del data[section][key]
        assert faults(data) == [f"{section}.{key} is missing"]


def test_the_analysis_does_not_load_with_an_incomplete_pack_and_names_file_and_key(folder):
    (folder / "en.toml").write_text(re.sub(r"(?m)^weekdays = .*\n", "", ENGLISH.read_text(encoding="utf-8")))
    with pytest.raises(LanguagePackInvalid, match=r"en\.toml: dates\.weekdays is missing; .*schema\.py"):
        load_engine(AnalysisOptions())


def test_a_pack_that_is_no_toml_is_named(folder):
    (folder / "it.toml").write_text("[text\n")
    with pytest.raises(LanguagePackInvalid, match=r"it\.toml: .*line 1"):
        packs.pack("it")


@pytest.mark.parametrize(
    ("section", "key", "value", "fault"),
    [
        ("dates", "weekday", ["monday"], "nothing reads dates.weekday"),
        ("dates", "weekdays", ["monday"], "dates.weekdays must be a list of 7"),
        ("numbers", "tens", "twenty", "numbers.tens must be a table"),
        ("topics", "capitals", "no", "topics.capitals must be true or false"),
        ("tasks", "commit", [1], "tasks.commit must be text or a list of text"),
        ("numbers", "units", "zero one", "numbers.units must hold the words for 0 to 9"),
        ("numbers", "compose", "{tens}", "numbers.compose must hold {tens} and {unit}"),
        ("dates", "rules", [["someday", "x"]], "dates.rules has no rule someday"),
        ("dates", "times", [["loose:teatime", "x"]], "dates.times has no rule teatime"),
    ],
)
def test_what_has_another_form_is_named(section, key, value, fault):
    data = deepcopy(DATA)
    data[section][key] = value
    assert faults(data) == [fault]


def test_a_section_that_nothing_reads_is_named():
    assert faults({**DATA, "date": {}}) == ["nothing reads the section date"]


def test_every_date_rule_that_a_pack_may_name_has_its_code():
    assert set(DATE_RULES.split()) == RULES.keys()
