"""placeholder."""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.scorers', not as {__name__!r}: the folder 'scorers' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )
