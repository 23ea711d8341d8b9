"""placeholder."""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.baselines', not as {__name__!r}: the folder 'baselines' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )
