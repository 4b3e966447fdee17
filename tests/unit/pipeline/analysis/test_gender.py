import pytest

from pipeline.analysis.rules.people.gender import of_first_name, of_known, of_title


@pytest.mark.parametrize(
    ("language", "title", "kind"),
    [
        ("de", "Frau", "female"), ("de", "Herrn", "male"), ("de", "Dr.", None), ("en", "Mrs.", "female"),
        ("en", "Sir", "male"), ("es", "doña", "female"), ("fr", "Monsieur", "male"), ("nl", "mevrouw", None),
        (None, "", None),
    ],
)  # fmt: skip
def test_a_title_tells_who_bears_it_or_nothing(language, title, kind):
    assert of_title(title, language) == kind


@pytest.mark.parametrize(
    ("language", "name", "kind"),
    [
        ("de", "Holger", "male"), ("de", "Ines", "female"), ("es", "Fermín", "male"), ("es", "Macarena", "female"),
        ("fr", "Bérangère", None), ("fr", "Dominique", None), ("en", "Priya", "female"), ("en", "Robin", None),
        ("de", "Luca", "male"), ("en", "", None), ("es", "Ñ", None),
    ],
)  # fmt: skip
def test_a_first_name_that_says_nothing_is_open(language, name, kind):
    assert of_first_name(name, language) == kind


def test_a_known_name_is_read_by_its_title_and_without_a_first_name_it_is_open():
    assert of_known("Mrs Pillay", "en") == "female"
    assert of_known("Holger Sievers", "de") == "male"
    assert of_known("Sievers", "de") is None
    assert of_known(None, "de") is None
