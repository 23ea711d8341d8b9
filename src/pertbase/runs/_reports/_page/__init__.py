"""The report that a person reads: one page with plots, or one picture."""

from pertbase.runs._reports._page._document import experiment_page, page
from pertbase.runs._reports._page._picture import picture

__all__ = ["experiment_page", "page", "picture"]
