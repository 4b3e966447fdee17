import pytest

from pipeline.language.spoken.phonetics import alike, cologne, sound


@pytest.mark.parametrize(
    ("name", "key"),
    [("Müller-Lüdenscheidt", "65752682"), ("Wikipedia", "3412"), ("Breschnew", "17863"), ("Meyer", "67"), ("", "")],
)
def test_cologne_phonetics_gives_the_published_keys(name, key):
    assert cologne(name) == key


@pytest.mark.parametrize(
    ("language", "name", "other"),
    [
        ("en", "Catherine", "Katherine"), ("en", "Smith", "Smyth"), ("en", "Jon", "John"), ("en", "Philip", "Filip"),
        ("en", "Stephen", "Steven"), ("en", "Walcott", "Wolcott"), ("en", "Wright", "Right"), ("en", "Sara", "Sarah"),
        ("de", "Meier", "Mayer"), ("de", "Schmidt", "Schmitt"), ("de", "Maier", "Meyer"), ("de", "Carsten", "Karsten"),
        ("es", "Jiménez", "Giménez"), ("es", "Hernández", "Ernandes"), ("es", "Yáñez", "Llanes"),
        ("fr", "Moreau", "Moreaux"), ("fr", "Lefèvre", "Lefebvre"), ("fr", "Gauthier", "Gautier"),
        ("fr", "Renaud", "Renault"), ("fr", "Dupont", "Dupond"),
    ],
)  # fmt: skip
def test_spellings_of_one_name_sound_alike(language, name, other):
    assert alike(name, other, language)
    assert alike(other, name, language)


@pytest.mark.parametrize(
    ("language", "name", "other"),
    [("en", "Dan", "Dana"), ("en", "Mario", "Marie"), ("fr", "Moreau", "Morel"), ("fr", "Martin", "Martine"),
     ("fr", "Camille", "Capucine"), ("de", "Ole", "Olaf"), ("de", "Anna", "Anne"), ("es", "Lucía", "Lucas")],
)  # fmt: skip
def test_other_names_do_not(language, name, other):
    assert not alike(name, other, language)


def test_a_key_of_nothing_is_empty_and_like_nothing():
    assert sound("", "en") == "" == sound("!?", "fr")
    assert not alike("", "Anna", "en")
