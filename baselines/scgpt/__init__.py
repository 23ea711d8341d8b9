"""scGPT for perturbations, under the training harness."""

from pertbase.baselines.scgpt._baseline import ScGPT
from pertbase.baselines.scgpt._checkpoint import LoadReport

__all__ = ["LoadReport", "ScGPT"]
