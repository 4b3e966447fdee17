from dataclasses import fields

import pytest

from pipeline.domain.redaction import RedactionMode, RedactionPolicy, RedactionPreset
from serve_app.api.bodies import NewRedaction
from serve_app.cli.ui.errors import CommandError
from serve_app.cli.ui.policy import _choice


def test_the_api_and_the_command_line_have_each_option_of_a_policy_with_its_default() -> None:
    options = {field.name for field in fields(RedactionPolicy)}
    assert NewRedaction.model_fields.keys() - {"team_id", "presets"} == options
    choice = _choice(preset=[RedactionPreset.PCI])
    assert choice.options.keys() | {"mode", "kinds"} == options
    policy = choice.policy(RedactionMode.MASK)
    assert NewRedaction(mode=RedactionMode.MASK, presets=["pci"]).policy() == policy
    assert all(getattr(policy, name) == getattr(RedactionPolicy(), name) for name in options - {"mode", "kinds"})


def test_options_without_anything_to_hide_are_refused() -> None:
    _choice().require()
    _choice(preset=[RedactionPreset.PCI], show_unchecked=True).require()
    for options in ({"show_unchecked": True}, {"last_digits": 4}, {"guard_seconds": 1.0}):
        with pytest.raises(CommandError, match="something to hide"):
            _choice(**options).require()  # type: ignore[arg-type]
