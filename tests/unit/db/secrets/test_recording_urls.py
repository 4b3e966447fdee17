import base64
import hashlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.secrets.encryption import SecretSealed
from db.secrets.recording_urls import UrlSealer, in_body, readable, shown

OLD, NEW = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
SEALER = UrlSealer([OLD])
SIGNED = "https://store.example:8443/a/call.wav?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=5ec4e7"
CLEAR = "https://store.example:8443/a/call.wav"

READABLE = {
    SIGNED: CLEAR,
    "https://store.example?sig=5ec4e7": "https://store.example",
    "https://store.example/a.wav#5ec4e7": "https://store.example/a.wav",
    "https://store.example/a.wav?": "https://store.example/a.wav",
    "http://ops:5ec4e7@pbx.example/a@b.wav": "http://pbx.example/a@b.wav",
    "http://ops:5ec4@e7@[2001:db8::1]:8088/a.wav": "http://[2001:db8::1]:8088/a.wav",
    "http://pbx.example/a?u=http://x@y/z": "http://pbx.example/a",
    "HTTP://PBX.Example/%C3%BC/%2e%2e/a.wav": "HTTP://PBX.Example/%C3%BC/%2e%2e/a.wav",
}


@pytest.mark.parametrize(("url", "clear"), READABLE.items())
def test_scheme_host_port_and_path_stay_readable_and_nothing_else(url: str, clear: str) -> None:
    assert readable(url) == clear
    stored = SEALER.seal(url)
    assert "5ec4" not in stored
    assert stored.partition(" ")[0] == clear
    assert (stored == url) == (clear == url)
    assert shown(stored) == shown(url) == (clear if clear == url else clear + "?...")
    assert SEALER.open(stored) == url


@settings(deadline=None)  # a crowded machine takes its time
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" ")))
def test_what_was_sealed_is_opened_byte_for_byte_and_sealed_the_same_each_time(tail: str) -> None:
    url = f"https://store.example/{tail}"
    assert SEALER.open(SEALER.seal(url)) == url
    assert SEALER.seal(url) == UrlSealer([OLD]).seal(url)
    assert SEALER.reseal(SEALER.seal(url)) == SEALER.seal(url)


def test_a_key_is_replaced_by_putting_a_new_one_before_it() -> None:
    before, both = SEALER.seal(SIGNED), UrlSealer([NEW, OLD])
    assert both.open(before) == SIGNED
    after = both.reseal(before)
    assert after == both.seal(SIGNED) == UrlSealer([NEW]).seal(SIGNED) != before
    assert UrlSealer([NEW]).open(after) == SIGNED


def test_without_a_key_urls_are_stored_as_they_are_and_open_later() -> None:
    assert UrlSealer().seal(SIGNED) == SIGNED
    assert SEALER.open(SIGNED) == SIGNED
    assert SEALER.reseal(SIGNED) == SEALER.seal(SIGNED)
    assert not UrlSealer().seals and SEALER.seals


def test_either_alphabet_names_the_same_key() -> None:
    raw = b"\xfb\xff\xfe" * 10 + b"ab"
    standard, urlsafe = base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()
    assert standard != urlsafe
    assert UrlSealer([urlsafe + "\n"]).open(UrlSealer([standard]).seal(SIGNED)) == SIGNED


@pytest.mark.parametrize("keys", [(), (NEW,)])
def test_without_its_key_the_error_says_what_to_set_and_nothing_secret(keys: tuple[str, ...]) -> None:
    with pytest.raises(SecretSealed, match="SWITCHBOARD_SECRETS_KEYS") as failure:
        UrlSealer(keys).open(SEALER.seal(SIGNED))
    assert "5ec4e7" not in str(failure.value) + repr(failure.value.__cause__)
    assert OLD not in repr(SEALER)


def test_what_was_sealed_for_one_host_opens_for_no_other() -> None:
    stored = SEALER.seal(SIGNED)
    for moved in (stored.replace("store.example", "evil.example"), stored.replace("call.wav", "else.wav"), stored[:-4]):
        with pytest.raises(SecretSealed, match="altered"):
            SEALER.open(moved)
    with pytest.raises(SecretSealed, match="form"):
        SEALER.open(f"{CLEAR} other:form")


def test_other_forms_of_a_url_are_those_of_earlier_keys_and_of_none() -> None:
    both = UrlSealer([NEW, OLD])
    forms = both.earlier_forms(SIGNED)
    assert forms is not None and len(forms) == 2
    assert "5ec4e7" not in "".join(forms)
    assert both.earlier_forms(CLEAR) is None
    assert UrlSealer().earlier_forms(SIGNED) is None


def test_in_a_body_urls_are_changed_and_nothing_else() -> None:
    body = {"recordingUrl": SIGNED, "recordingUrl2": None, "from": SIGNED, "duration": 3}
    assert in_body(body, SEALER.seal) == body | {"recordingUrl": SEALER.seal(SIGNED)}


PATHS = UrlSealer([OLD], paths=True)


@pytest.mark.parametrize(
    ("url", "clear"),
    {
        "https://store.example:8443/sig/5ec4e7/call.wav": "https://store.example:8443/",
        "https://ops:5ec4e7@store.example/5ec4e7/a@b.wav?token=5ec4e7": "https://store.example/",
        "http://[2001:db8::1]:8088/5ec4e7": "http://[2001:db8::1]:8088/",
        "https://store.example/": "https://store.example/",
        "https://store.example?sig=5ec4e7": "https://store.example",
    }.items(),
)
def test_paths_are_sealed_where_that_is_asked_for(url: str, clear: str) -> None:
    stored = PATHS.seal(url)
    assert "5ec4" not in stored
    assert stored.partition(" ")[0] == clear
    assert shown(stored) == (clear if clear == url else f"{clear}...")
    assert PATHS.open(stored) == SEALER.open(stored) == url
    assert PATHS.reseal(SEALER.seal(url)) == stored
    assert SEALER.reseal(stored) == SEALER.seal(url)
    with pytest.raises(SecretSealed, match="form"):
        PATHS.open(f"{clear} siv-host:{stored}")


def test_with_sealed_paths_a_url_is_known_by_each_form_of_before() -> None:
    both = UrlSealer([NEW, OLD], paths=True)
    before = [sealer.seal(SIGNED) for sealer in (UrlSealer(), UrlSealer([NEW]), SEALER, PATHS)]
    assert both.earlier_forms(SIGNED) is not None
    assert sorted(both.earlier_forms(SIGNED) or ()) == sorted(
        hashlib.sha256(form.encode()).hexdigest() for form in before
    )
    assert both.earlier_forms("https://store.example/") is None
    assert len(both.earlier_forms(CLEAR) or ()) == 2, "as it is, and by the earlier key"
