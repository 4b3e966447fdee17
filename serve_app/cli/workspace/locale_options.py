"""A country and a time zone, as options."""

from typing import Annotated

import typer

from serve_app.cli.ui.errors import USAGE, CommandError

Country = Annotated[
    str | None,
    typer.Option(metavar="CC", help="Country of national numbers, ISO 3166 (DE, US).", show_default=False),
]
TimeZone = Annotated[str, typer.Option(help="Time zone of dates such as 'tomorrow', an IANA name.")]


def check_place(country: str | None, time_zone: str | None) -> None:
    """Raise `CommandError` (2) for what is none."""
    from zoneinfo import ZoneInfo

    import phonenumbers

    if country is not None and country not in phonenumbers.SUPPORTED_REGIONS:
        raise CommandError(f"{country!r} is not a country code.", "Two capital letters of ISO 3166: DE, US, ES.", USAGE)
    try:
        ZoneInfo(time_zone or "UTC")
    except (ValueError, OSError, LookupError) as error:
        raise CommandError(f"{time_zone!r} is not a time zone.", "An IANA name: Europe/Berlin, UTC.", USAGE) from error
