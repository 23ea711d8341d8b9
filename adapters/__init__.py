"""Adapters: effects, or option scores, to outcomes.

Expression models are adapted on effects and answer models on scores, by the same four: as they are (:class:`Fixed`),
with thresholds or offsets fitted for balanced accuracy (:class:`Calibrated`), with shares of outcomes matched
(:class:`PriorMatched`), and, for models that predict populations, by testing them (:class:`RankTest`). What is
fitted is fitted on held-out predictions of train and val (:func:`held_out`), never on test.
"""

if not __name__.startswith("pertbase."):
    raise ImportError(
        f"import this package as 'pertbase.adapters', not as {__name__!r}: the folder 'adapters' at the root of a "
        "checkout is a room of pertbase, not a package of its own"
    )

from pertbase.adapters._base import Adapter, FittedAdapter
from pertbase.adapters._calibrated import Calibrated
from pertbase.adapters._fixed import Fixed
from pertbase.adapters._held_out import HeldOut, Model, held_out
from pertbase.adapters._prior_matched import PriorMatched
from pertbase.adapters._rank_test import RankTest

__all__ = [
    "Adapter",
    "Calibrated",
    "FittedAdapter",
    "Fixed",
    "HeldOut",
    "Model",
    "PriorMatched",
    "RankTest",
    "held_out",
]
