"""What a country and a time zone may be."""

from serve_app.cli.errors import USAGE, CommandError


def check_place(country: str | None, time_zone: str | None) -> None:
    """Raise `CommandError` (2) for what is none."""
    from zoneinfo import ZoneInfo

    import phonenumbers

    if country is not None and country not in phonenumbers.SUPPORTED_REGIONS:
        raise CommandError(f"{country!r} is no country.", "Two capital letters of ISO 3166: DE, US, ES.", USAGE)
    try:
        ZoneInfo(time_zone or "UTC")
    except (ValueError, OSError, LookupError) as error:
        raise CommandError(f"{time_zone!r} is no time zone.", "An IANA name: Europe/Berlin, UTC.", USAGE) from error
