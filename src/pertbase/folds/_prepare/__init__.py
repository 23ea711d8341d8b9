"""Turning other people's files into screens: dialects, names, genes, values."""

from pertbase.folds._prepare._options import PrepareOptions
from pertbase.folds._prepare._prepare import PrepareReport, prepare, prepare_file, prepare_path

__all__ = ["PrepareOptions", "PrepareReport", "prepare", "prepare_file", "prepare_path"]
