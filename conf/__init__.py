"""Hydra configuration: ``pkg://pertbase.conf``."""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.conf', not as {__name__!r}: the folder 'conf' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )
