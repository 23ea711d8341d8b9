"""What may help where a fold cannot rank baselines."""

from __future__ import annotations

from collections.abc import Mapping

from pertbase.folds._answers import OUTCOMES
from pertbase.folds._certificate import MINIMUM_OF_A_CLASS
from pertbase.folds._spec import FoldSpec

__all__ = ["remedies"]

_SHARES = {
    "combinatorial": "combination_test_share",
    "unseen_both_genetic": "both_share",
    "unseen_both_chemical": "both_share",
    "unseen_perturbation_genetic": "test_share",
    "unseen_perturbation_chemical": "test_share",
}


def remedies(spec: FoldSpec, counts: Mapping[str, int]) -> list[str]:
    """Return what may give a fold enough test questions of each class, as options to try, likeliest first.

    Parameters
    ----------
    spec
        The fold's.
    counts
        Test questions of each outcome.
    """
    found = []
    share = _SHARES.get(spec.kind)
    if share is not None and (larger := _larger(spec, share)) > getattr(spec, share):
        found.append(f"ask more in test: fold.{share}={larger:g} (now {getattr(spec, share):g})")
    if spec.kind.startswith(("unseen_context", "unseen_both")):
        found.append("hold out another context: fold.test_context=NAME, or =each for one fold a context")
    threshold = getattr(spec.rule, "threshold", None)
    if threshold is not None and any(counts[name] < MINIMUM_OF_A_CLASS for name in OUTCOMES[:2]):
        found.append(
            f"call more: fold.rule.threshold={threshold / 2:g} (now {threshold:g}), which is another question asked"
        )
    if spec.kind != "published":
        found.append(f"draw another split: fold.seed={spec.seed + 1}")
        found.append("pool contexts, where several are replicates of one: prepare the file with context_value=NAME")
    else:
        found.append("split by another kind of fold: the one that is shipped is as it is")
    return found


def _larger(spec: FoldSpec, share: str) -> float:
    """Return twice a share, or as much of that as leaves something to train on."""
    most = 0.45 if share == "both_share" else 0.9 - spec.val_share
    return round(min(most, 2 * float(getattr(spec, share))), 6)
