"""What a baseline is, and all that a plug-in must write.

An *expression baseline* predicts effects; adapters turn them into answers. An *answer baseline* answers questions
itself. Either is one class and one YAML file:

.. code-block:: python

    class MyModel(pb.ExpressionBaseline):
        \"\"\"Predicts that nothing changes.\"\"\"

        def fit(self, training):
            self.genes = training.genes

        def predict(self, inputs):
            values = np.zeros((len(inputs.conditions), len(self.genes)))
            return pb.Effects(values, inputs.conditions, self.genes, inputs.statistic)

.. code-block:: yaml

    # my_conf/baseline/my_model.yaml
    _target_: my_package.MyModel

``fit`` sees train and val with outcomes (:class:`~pertbase.folds.Training`), ``predict`` and ``answer`` see the
questions without them (:class:`~pertbase.folds.Inputs`). What ``fit`` returns is ignored by runs; returning
``self`` lets notebooks chain. A second ``fit`` forgets the first. Models that draw take a generator of their own,
``numpy.random.default_rng(training.seed)``, made in ``fit``.

Keyword arguments of ``__init__`` are the YAML's other keys; keep each under an attribute of its own name, so that a
run can record it with :meth:`Baseline.parameters`, and knows by :meth:`Baseline.file_hashes` when a file that one of
them names has changed.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from pertbase.baselines._files import named_files
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import Answers, Effects, Inputs, Training
from pertbase.knowledge import GeneSets, default_gene_sets, gene_sets

__all__ = ["AnswerBaseline", "Baseline", "ExpressionBaseline", "PredictedCells", "refusal", "sets_of"]

PredictedCells = Mapping[tuple[str, str], np.ndarray]
"""(context, perturbation) -> predicted cells, natural log1p on the screen's scale, shape (n_cells, n_genes). A
condition the model cannot speak to is left out."""


class Baseline(ABC):
    """What expression and answer baselines share. Derive from one of those two.

    Attributes
    ----------
    refit
        Whether ``fit`` uses every condition it is given, val included. The adapters' held-out predictions then come
        from a copy fitted on train alone. False for models that select on val themselves: theirs are held out already.
    needs_cells
        Whether ``fit`` and ``predict`` want cells (``training.cells``, ``inputs.controls``) beside effects.
    needs_expression
        Whether it needs measured effects or basal expression, which an outcome table does not have.
    speaks_of
        What it can speak to, in words, where that is not everything: a report says so below a table in which some of
        its answers are ``unsupported``.
    """

    refit: ClassVar[bool] = True
    needs_cells: ClassVar[bool] = True
    needs_expression: ClassVar[bool] = True
    speaks_of: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        """Have ``fit`` refuse what is no training: a fold has effects too, and those of test are among them."""
        super().__init_subclass__(**options)
        if "fit" in vars(cls):
            cls.fit = _fits_training(vars(cls)["fit"])  # type: ignore[method-assign]

    @abstractmethod
    def fit(self, training: Training) -> Any:
        """Fit to train and val; forget any earlier fit."""

    @abstractmethod
    def answers_directly(self, training: Training) -> bool:
        """Return whether ``answer`` is to be called on such a fold, rather than ``predict``."""

    def refuses(self, training: Training) -> str | None:
        """Return why this baseline cannot run on such a fold, or None. The run is then skipped with that reason."""
        return None

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments, read from the attributes of the same names.

        Those that it passes on as ``**options`` are among them.
        """
        found: dict[str, Any] = {}
        for cls in type(self).__mro__:
            if "__init__" not in vars(cls):
                continue
            arguments = inspect.signature(vars(cls)["__init__"]).parameters
            found.update({name: getattr(self, name) for name in arguments if name != "self" and hasattr(self, name)})
            if not any(item.kind is item.VAR_KEYWORD for item in arguments.values()):
                break
        return found

    def file_hashes(self) -> dict[str, str]:
        """Return the hash of every file that its options name, by the option.

        A run is identified by these, and a training too: a file that has changed is another option. Override it where
        an option names a file that is written.
        """
        return named_files(self.parameters())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.parameters().items())})"


class ExpressionBaseline(Baseline):
    """Predicts the effect of each condition asked about, in the fold's statistic."""

    @abstractmethod
    def predict(self, inputs: Inputs) -> Effects:
        """Return one row of effects for each of ``inputs.conditions``.

        Conditions it cannot speak to are rows of zeros with status ``unsupported``, never NaN.
        """

    def predict_cells(self, inputs: Inputs) -> PredictedCells:
        """Return predicted cells of each condition, for models that predict populations.

        Raises
        ------
        UnsupportedError
            Where the model predicts none, as here.
        """
        raise UnsupportedError(f"{type(self).__name__} predicts effects, not cells")

    def answer(self, inputs: Inputs) -> Answers:
        """Return answers, for baselines that answer some data sets directly.

        Raises
        ------
        UnsupportedError
            Where the model predicts effects alone, as here.
        """
        raise UnsupportedError(
            f"{type(self).__name__} predicts effects, and answers no questions itself",
            remedy="call predict(inputs), and turn the effects into answers with an adapter, such as "
            "pertbase.adapters.Calibrated().fit(training, model)",
        )

    def answers_directly(self, training: Training) -> bool:
        """Return False: adapters turn effects into answers."""
        return False


class AnswerBaseline(Baseline):
    """Answers each question itself: an outcome and three scores."""

    needs_cells: ClassVar[bool] = False
    needs_expression: ClassVar[bool] = False

    @abstractmethod
    def answer(self, inputs: Inputs) -> Answers:
        """Return one answer for each of ``inputs.questions``.

        A question it cannot speak to is answered ``no_change`` with status ``unsupported``.
        """

    def predict(self, inputs: Inputs) -> Effects:
        """Raise: there are no effects to predict.

        Raises
        ------
        UnsupportedError
            Always; the message says what to call.
        """
        raise UnsupportedError(
            f"{type(self).__name__} answers questions itself, and predicts no effects", remedy="call answer(inputs)"
        )

    def answers_directly(self, training: Training) -> bool:
        """Return True."""
        return True


def _fits_training(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``fit`` that raises where it is given something else than a training, such as a screen or a fold."""

    @functools.wraps(fit)
    def checked(self: Any, training: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(training, Training):
            kind = type(training).__name__
            remedy = "give fold.training"
            if kind != "Fold":
                remedy += ", of a fold = pertbase.make_fold(screen, kind=...)"
            raise InputError("is not a Training", key="training", value=kind, remedy=remedy)
        return fit(self, training, *arguments, **options)

    return checked


def sets_of(training: Training, source: str | None) -> GeneSets:
    """Return the named gene sets, else those the data set brings, else the default ones."""
    if source is not None:
        return gene_sets(source)
    return training.gene_sets if training.gene_sets is not None else default_gene_sets()


def refusal(baseline: Baseline, training: Training) -> str | None:
    """Return why a baseline cannot run on a fold, or None where it can.

    Asks for expression where the baseline needs it and the data set is an outcome table, then the baseline's own
    :meth:`Baseline.refuses`.
    """
    if baseline.needs_expression and training.effects is None and training.basal is None:
        return f"{type(baseline).__name__} needs expression, and {training.data} is a table of outcomes"
    return baseline.refuses(training)
