"""``python -m pertbase``."""

from pertbase.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
