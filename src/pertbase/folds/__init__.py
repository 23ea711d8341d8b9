"""Screens, perturbations, questions, labels, splits, folds and their certificate."""

from pertbase.folds._answers import OUTCOMES, SCORES, STATUSES, Answers, outcome_codes, read_answers
from pertbase.folds._cell_files import StoredCells, read_cells, write_cells
from pertbase.folds._cells import CellTable
from pertbase.folds._certificate import certify
from pertbase.folds._check import FoldCheck, check_fold, leaks
from pertbase.folds._data import DataSet, data, data_names, load_data, load_effect_table, load_h5ad, load_perturbqa
from pertbase.folds._drug_features import drug_features, read_smiles
from pertbase.folds._effect_files import EffectTableOptions, read_effect_table, read_predictions
from pertbase.folds._effect_table import EffectTable
from pertbase.folds._effects import Effects
from pertbase.folds._fold import Fold
from pertbase.folds._fold_files import open_fold, read_manifest, read_truth
from pertbase.folds._graph_coverage import graph_coverage
from pertbase.folds._labels import RULES, LabelRule, label_rule
from pertbase.folds._make import FoldMaker, make_fold
from pertbase.folds._manifests import Manifest, PinnedFold
from pertbase.folds._mini import mini
from pertbase.folds._outcome_table import OutcomeTable, read_perturbqa
from pertbase.folds._path_layer import PathLayer, read_paths
from pertbase.folds._path_spec import PathSpec
from pertbase.folds._perturbation import CONTROL, MECHANISMS, Part, Perturbation
from pertbase.folds._prepare import PrepareOptions, PrepareReport, prepare, prepare_file
from pertbase.folds._priors import outcome_counts, vote
from pertbase.folds._question_files import read_questions, write_questions
from pertbase.folds._record_table import load_records
from pertbase.folds._records import FieldMap, Records, read_records
from pertbase.folds._remedies import remedies
from pertbase.folds._screen import Screen
from pertbase.folds._screen_files import read_screen, write_screen
from pertbase.folds._spec import KINDS, FoldSpec
from pertbase.folds._split_files import SplitFile, read_split, write_split
from pertbase.folds._views import Inputs, Training, Truth
from pertbase.folds._write_records import write_records

__all__ = [
    "CONTROL",
    "KINDS",
    "MECHANISMS",
    "OUTCOMES",
    "RULES",
    "SCORES",
    "STATUSES",
    "Answers",
    "CellTable",
    "DataSet",
    "EffectTable",
    "EffectTableOptions",
    "Effects",
    "FieldMap",
    "Fold",
    "FoldCheck",
    "FoldMaker",
    "FoldSpec",
    "Inputs",
    "LabelRule",
    "Manifest",
    "OutcomeTable",
    "Part",
    "PathLayer",
    "PathSpec",
    "Perturbation",
    "PinnedFold",
    "PrepareOptions",
    "PrepareReport",
    "Records",
    "Screen",
    "SplitFile",
    "StoredCells",
    "Training",
    "Truth",
    "certify",
    "check_fold",
    "data",
    "data_names",
    "drug_features",
    "graph_coverage",
    "label_rule",
    "leaks",
    "load_data",
    "load_effect_table",
    "load_h5ad",
    "load_perturbqa",
    "load_records",
    "make_fold",
    "mini",
    "open_fold",
    "outcome_codes",
    "outcome_counts",
    "prepare",
    "prepare_file",
    "read_answers",
    "read_cells",
    "read_effect_table",
    "read_perturbqa",
    "read_predictions",
    "read_manifest",
    "read_questions",
    "read_records",
    "read_paths",
    "read_screen",
    "read_smiles",
    "read_split",
    "read_truth",
    "remedies",
    "vote",
    "write_cells",
    "write_questions",
    "write_records",
    "write_screen",
    "write_split",
]
