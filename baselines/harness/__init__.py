"""Training for deep models: one harness for whatever is a LightningModule.

A model derives :class:`LightningBaseline` and writes ``build``, which returns a :class:`PerturbationModule` with
``forward``, ``training_step`` and ``configure_optimizers``. It gets batches of matched cell pairs, selection on val,
early stopping, checkpoints, exact resumption, devices, distributed ranks, progress and logs.

``PerturbationModule`` is imported when it is asked for: torch and lightning take seconds to import, and commands that
need neither must not pay for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pertbase.baselines.harness._baseline import LightningBaseline
from pertbase.baselines.harness._settings import TrainerSettings
from pertbase.errors import no_attribute

if TYPE_CHECKING:
    from pertbase.baselines.harness._module import PerturbationModule

__all__ = ["LightningBaseline", "PerturbationModule", "TrainerSettings"]


def __getattr__(name: str) -> Any:
    if name == "PerturbationModule":
        from pertbase.baselines.harness._module import PerturbationModule

        return PerturbationModule
    raise no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
