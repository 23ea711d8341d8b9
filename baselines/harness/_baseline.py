"""An expression baseline that is trained: ``fit`` and ``predict`` around a PerturbationModule."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pertbase.baselines.base import ExpressionBaseline
from pertbase.baselines.harness._trained import Trained, not_fitted
from pertbase.errors import InputError
from pertbase.folds import Effects, Inputs, Training
from pertbase.folds._batches import Pairing, PairSampler, Sampler

if TYPE_CHECKING:
    from typing import TypeVar

    import pandas as pd
    from lightning.pytorch.callbacks import Callback

    from pertbase.baselines.harness._module import PerturbationModule

    Module = TypeVar("Module", bound=PerturbationModule)

__all__ = ["LightningBaseline", "listed", "of_kind", "supported_conditions", "tell_unsupported"]

_log = logging.getLogger("pertbase")
_LISTED = 20


class LightningBaseline(Trained, ExpressionBaseline):
    """A baseline whose model is a LightningModule; a subclass writes :meth:`build`.

    It is trained on train's cells. After each epoch the effects of val are predicted and compared with the measured
    ones, and the weights of the epoch with the smallest mean squared error are kept; where there is no val, those of
    the last epoch.

    Parameters
    ----------
    max_epochs
        Epochs at most.
    batch_size
        Cells in a batch, over all devices together.
    patience
        Epochs without a better ``monitor`` after which training stops; it runs to ``max_epochs`` if None.
    clip_norm
        Largest norm of all gradients together; at most one of this and ``clip_value``.
    clip_value
        Largest absolute value of each gradient; at most one of this and ``clip_norm``.
    pairing, match, include_control
        See :class:`~pertbase.folds._batches.PairSampler`.
    n_controls
        Input controls of each context that effects are predicted from, a fixed set drawn from the seed; all if None.
    n_selection_controls
        The same for selection on val, which is done after every epoch.
    monitor
        What is selected on, smaller being better: ``val_mse``, or what the module logs itself by the end of each
        epoch. One whose name starts with ``val_`` is not asked for where val holds nothing the module speaks to.
    """

    needs_cells: ClassVar[bool] = True

    def __init__(
        self,
        *,
        max_epochs: int = 20,
        batch_size: int = 32,
        patience: int | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        pairing: Pairing = "redrawn",
        match: Sequence[str] | None = None,
        include_control: bool = True,
        n_controls: int | None = None,
        n_selection_controls: int | None = 100,
        monitor: str = "val_mse",
    ) -> None:
        super().__init__(
            max_epochs=max_epochs,
            batch_size=batch_size,
            patience=patience,
            clip_norm=clip_norm,
            clip_value=clip_value,
            monitor=monitor,
        )
        self.pairing = pairing
        self.match = None if match is None else tuple(match)
        self.include_control = include_control
        self.n_controls = n_controls
        self.n_selection_controls = n_selection_controls
        self._module: PerturbationModule | None = None
        self._seed = 0

    @abstractmethod
    def build(self, training: Training) -> PerturbationModule:
        """Return the untrained module for a training.

        Torch's generator is seeded from the training's seed before. Several ranks build the same.
        """

    @property
    def module(self) -> PerturbationModule:
        """The trained module.

        Raises
        ------
        PertbaseError
            Before ``fit``.
        """
        if self._module is None:
            raise not_fitted(self)
        return self._module

    def refuses(self, training: Training) -> str | None:
        """Return that there is no measured expression to learn from, where there is none."""
        if training.effects is None:
            return f"{type(self).__name__} is trained on cells, and {training.data} has none"
        return None

    # -- fit and predict ------------------------------------------------------------------------------------

    def fit(self, training: Training) -> LightningBaseline:
        """Train, or go on from where a training of the same key in the same folder stopped.

        Raises
        ------
        InputError
            Where the training has no cells, or a setting cannot be on this machine.
        PertbaseError
            Where training diverges or a rank fails.
        """
        if training.cells is None:
            raise InputError(
                f"{type(self).__name__} is trained on cells, and none were handed out",
                key="training.cells",
                value=None,
                remedy="open the fold with its screen",
            )
        self._module, self._seed = None, training.seed
        self._module = self.train(training)
        return self

    def sampler(self, training: Training, module: PerturbationModule, *, split: str = "train") -> Sampler:
        """Return what draws the batches of a training: pairs of cells, of perturbations that the module speaks to.

        A model of something else than pairs returns a sampler of its own; its module's methods get what that yields.
        """
        if training.cells is None:
            raise InputError("there are no cells to draw", key="training.cells", value=None)
        return PairSampler(
            training.cells,
            {name: item for name, item in training.perturbations.items() if module.speaks_to(item)},
            split=split,
            batch_size=self.batch_size,
            seed=training.seed,
            pairing=self.pairing,
            match=self.match,
            include_control=self.include_control,
            vocabulary=module.vocabulary,
        )

    def predict(self, inputs: Inputs) -> Effects:
        """Return the effects of the conditions asked about, from all or ``n_controls`` of their input controls."""
        from pertbase.baselines.harness._predict import ask, autocast, predicted_effects, reproducible

        module = self.module
        supported = supported_conditions(module, inputs.conditions, inputs.perturbations)
        values = np.zeros((len(inputs.conditions), len(inputs.genes)))
        if supported.any():
            asked = ask(module, inputs, supported, n_controls=self.n_controls, seed=self._seed)
            device = self._settings.device()
            module.to(device)
            try:
                with reproducible(self._settings), autocast(self._settings, device):
                    values[supported] = predicted_effects(module, asked)
            finally:
                module.to("cpu")
        status = np.where(supported, "ok", "unsupported").astype(object)
        return Effects(values, inputs.conditions, inputs.genes, inputs.statistic, status, inputs.basal)

    def selects(self, training: Training, module: PerturbationModule) -> bool:
        """Return whether val holds anything that the module speaks to."""
        val = training.conditions.loc[training.conditions["split"] == "val"]
        return bool(supported_conditions(module, val, training.perturbations).any())

    def selection(self, training: Training, module: PerturbationModule) -> Callback:
        """Return what compares predicted effects of val with the measured ones."""
        from pertbase.baselines.harness._callbacks import Selection
        from pertbase.baselines.harness._predict import ask

        inputs = training.inputs("val")
        supported = supported_conditions(module, inputs.conditions, inputs.perturbations)
        asked = ask(module, inputs, supported, n_controls=self.n_selection_controls, seed=training.seed)
        if training.effects is None:
            raise InputError(
                "a training without measured effects cannot be selected on", key="training.effects", value=None
            )
        return Selection(asked, training.effects.select(asked.inputs.conditions).values)


def of_kind(module: PerturbationModule, kind: type[Module]) -> Module:
    """Return a module as the kind that its baseline builds.

    Raises
    ------
    InputError
        Where it is another: a subclass that builds its own inherits what cannot know it.
    """
    if not isinstance(module, kind):
        raise InputError(
            "holds another model", key="baseline", value=type(module).__name__, remedy=f"build a {kind.__name__}"
        )
    return module


def supported_conditions(
    module: PerturbationModule, conditions: pd.DataFrame, perturbations: Mapping[str, Any]
) -> np.ndarray:
    """Return which conditions are of perturbations that a module speaks to, shape (n_conditions,)."""
    spoken = {name: module.speaks_to(perturbations[name]) for name in set(conditions["perturbation"])}
    return np.array([spoken[name] for name in conditions["perturbation"]], dtype=bool)


def listed(names: Sequence[str]) -> str:
    """Return some names for a message, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def tell_unsupported(module: PerturbationModule, training: Training, why: str) -> None:
    """Warn of a training's perturbations that a module does not speak to; ``why`` goes on from their number."""
    names = sorted(name for name, item in training.perturbations.items() if not module.speaks_to(item))
    if names:
        _log.warning("%s: %d perturbations %s: %s", training.fold, len(names), why, listed(names))
