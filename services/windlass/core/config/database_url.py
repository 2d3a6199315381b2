"""URLs of Postgres, as people write them and as SQLAlchemy wants them."""

_DRIVER = "postgresql+psycopg"
_SCHEMES = ("postgresql", "postgres", _DRIVER)


def driver_url(text: str) -> str:
    """Returns the URL with the driver's name in it; raises ValueError, without the password."""
    # Imported here: most configurations name no URL, and SQLAlchemy takes a fifth of a second.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _SCHEMES:
        other = f", and {scheme}:// is another database" if separator else ""
        raise ValueError(f"must begin with postgresql://{other}")
    url = f"{_DRIVER}://{rest}"
    try:
        make_url(url)
    except (ArgumentError, ValueError):
        raise ValueError(
            "is not a URL such as postgresql://user:password@host:5432/database"
        ) from None
    return url


def libpq_url(url: str) -> str:
    """Returns a URL as psycopg and PostgreSQL's own programs want it."""
    return url.replace(f"{_DRIVER}://", "postgresql://", 1)
