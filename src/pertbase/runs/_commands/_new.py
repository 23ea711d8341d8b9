"""``pertbase new baseline NAME``: a plug-in to start from, that runs as it stands."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from pertbase._io import write_text
from pertbase.errors import InputError

__all__ = ["new_baseline"]

_MODULE = '''\
"""{title}: a baseline for pertbase."""

import numpy as np

import pertbase as pb


class {title}(pb.ExpressionBaseline):
    """Predicts the mean effect of all training conditions, scaled, whatever the context.

    Parameters
    ----------
    scale
        What the mean is multiplied with.
    """

    needs_cells = False

    def __init__(self, *, scale=1.0):
        self.scale = scale

    def fit(self, training):
        """Fit to train and val, with outcomes and measured effects; forget any earlier fit."""
        self.mean = training.effects.values.mean(axis=0)
        self.genes = training.effects.genes
        return self

    def predict(self, inputs):
        """Predict one row of effects for each condition asked about."""
        values = np.tile(self.scale * self.mean, (len(inputs.conditions), 1))
        return pb.Effects(values, inputs.conditions, self.genes, inputs.statistic)
'''

_YAML = """\
# {name}: say in one line what it does
_target_: {module}.{title}
scale: 1.0
"""

_TEST = '''\
"""Tests of {title}."""

import numpy as np
from {module} import {title}

import pertbase as pb


def test_every_condition_asked_about_gets_finite_effects():
    fold = pb.make_fold(pb.data("simulated"), kind="unseen_perturbation_genetic")
    inputs = fold.inputs("test")
    effects = {title}().fit(fold.training).predict(inputs)
    assert effects.values.shape == (len(inputs.conditions), len(inputs.genes))
    assert np.isfinite(effects.values).all()
'''


def _importable(name: str) -> str | None:
    """Return where a module of the name comes from that Python finds; None where there is none but the user's own."""
    if name in sys.stdlib_module_names:
        return "Python's own"
    places = [place for place in sys.path if place and Path(place).resolve() != Path.cwd()]
    found = PathFinder.find_spec(name, places)
    return None if found is None else str(found.origin or found.name)


def new_baseline(name: str, folder: Path) -> list[Path]:
    """Write ``NAME.py``, ``conf/baseline/NAME.yaml`` and ``test_NAME.py`` under a folder, and return their paths.

    Raises
    ------
    InputError
        Where the name cannot be a module's, is an installed module's, or a file of that name is there already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise InputError(
            "is not a name for a baseline", key="name", value=name, remedy="use lower-case letters, digits and _"
        )
    if (known := _importable(name)) is not None:
        raise InputError(
            f"a module of this name is there already, {known}, and would be imported in its place",
            key="name",
            value=name,
            remedy="choose another name",
        )
    title = "".join(word.capitalize() for word in name.split("_") if word)
    texts = {
        folder / f"{name}.py": _MODULE,
        folder / "conf" / "baseline" / f"{name}.yaml": _YAML,
        folder / f"test_{name}.py": _TEST,
    }
    for path in texts:
        if path.exists():
            raise InputError("is there already", file=path, remedy="choose another name or output=FOLDER")
    for path, text in texts.items():
        write_text(path, text.format(name=name, module=name, title=title))
    return list(texts)
