"""The documentation: `make docs` builds it into docs/_build/html, without a network and without warnings."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
# Each page and notebook is read in a process of its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "pertbase"
author = "The pertbase developers"
project_copyright = author
release = metadata.version("pertbase")
html_title = f"pertbase {release}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "pertbase_docs",
]
exclude_patterns = ["_build", "_templates", "_ext", "**.ipynb_checkpoints"]
templates_path = ["_templates"]

html_theme = "sphinx_book_theme"
html_theme_options = {"show_toc_level": 2, "home_page_in_toc": True}
html_show_copyright = False

autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_attr_annotations = False
napoleon_custom_sections = ["Presets"]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# Notebooks are run where they or the code have changed since; their outputs are published, and not committed.
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True

# Other projects' names are linked where the network may be used: PERTBASE_DOCS_ONLINE=1 make docs
if os.environ.get("PERTBASE_DOCS_ONLINE"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "anndata": ("https://anndata.readthedocs.io/en/stable/", None),
        "numpy": ("https://numpy.org/doc/stable/", None),
        "pandas": ("https://pandas.pydata.org/docs/", None),
        "python": ("https://docs.python.org/3/", None),
        "scipy": ("https://docs.scipy.org/doc/scipy/", None),
        "torch": ("https://docs.pytorch.org/docs/stable/", None),
    }
