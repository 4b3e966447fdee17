import base64
import os

import pytest
from cryptography.fernet import Fernet
from pydantic import ValidationError

from db.secrets.encryption import Sealer, SecretSealed
from pipeline.net.endpoint import REVEAL
from serve_app.settings import Settings

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
SECRET = "hush, Grüße"


def test_a_sealed_secret_is_not_to_be_read_and_opens_again() -> None:
    sealed = Sealer([OLD]).seal(SECRET)
    assert SECRET not in sealed
    assert sealed.isascii()
    assert Sealer([OLD]).open(sealed) == SECRET
    assert sealed != Sealer([OLD]).seal(SECRET)


def test_a_key_is_replaced_by_putting_a_new_one_before_it() -> None:
    before = Sealer([OLD]).seal(SECRET)
    both = Sealer([NEW, OLD])
    assert both.open(before) == SECRET
    assert not both.is_fresh(before)
    after = both.reseal(before)
    assert both.is_fresh(after)
    assert both.reseal(after) == after
    assert Sealer([NEW]).open(after) == SECRET


def test_without_keys_a_secret_is_kept_with_a_mark_and_sealed_once_there_is_one() -> None:
    stored = Sealer().seal(SECRET)
    assert not Sealer().seals
    assert stored == f"plain:{SECRET}"
    assert Sealer().open(stored) == SECRET
    assert Sealer([OLD]).open(stored) == SECRET
    assert SECRET not in Sealer([OLD]).reseal(stored)


@pytest.mark.parametrize("keys", [[], [NEW]])
def test_a_secret_whose_key_is_gone_says_what_to_set(keys: list[str]) -> None:
    sealed = Sealer([OLD]).seal(SECRET)
    with pytest.raises(SecretSealed, match="SWITCHBOARD_SECRETS_KEYS") as failure:
        Sealer(keys).open(sealed)
    assert failure.value.retryable
    assert sealed not in failure.value.message


@pytest.mark.parametrize("stored", ["", "hush", "fernet:", "fernet:AAAA", "vault:1"])
def test_what_is_no_sealed_secret_is_not_taken_for_one(stored: str) -> None:
    with pytest.raises(SecretSealed):
        Sealer([OLD]).open(stored)


def test_a_key_may_be_written_in_either_alphabet_of_base64() -> None:
    for _ in range(20):
        raw = os.urandom(32)
        sealed = Sealer([base64.b64encode(raw).decode()]).seal(SECRET)
        assert Sealer([base64.urlsafe_b64encode(raw).decode() + "\n"]).open(sealed) == SECRET


def test_settings_check_the_keys_and_never_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", f'["{NEW}", "{OLD}"]')
    settings = Settings()
    assert settings.sealer().open(Sealer([OLD]).seal(SECRET)) == SECRET
    shown = f"{settings!r} {settings} {settings.model_dump_json()} {settings.model_dump()}"
    assert NEW not in shown
    assert OLD not in shown
    assert settings.model_dump(mode="json", context={REVEAL: True})["secrets_keys"] == [NEW, OLD]
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", '["too-short"]')
    with pytest.raises(ValidationError, match="openssl rand -base64 32") as failure:
        Settings()
    assert "too-short" not in str(failure.value)
