"""STATE's transition model: sets of cells, under the training harness."""

from pertbase.baselines.state._baseline import STATE

__all__ = ["STATE"]
