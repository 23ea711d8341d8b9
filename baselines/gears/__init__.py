"""GEARS on torch-geometric, under the training harness."""

from pertbase.baselines.gears._baseline import GEARS

__all__ = ["GEARS"]
