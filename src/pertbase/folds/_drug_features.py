"""What compounds look like: Morgan fingerprints from SMILES."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pertbase.errors import InputError, PertbaseError
from pertbase.folds._perturbation import Perturbation
from pertbase.folds._screen import Screen

__all__ = ["drug_features", "read_smiles"]

_MISSING = ("error", "omit")


def drug_features(
    compounds: Screen | Mapping[str, Perturbation] | Iterable[str],
    *,
    smiles: Mapping[str, str] | str | Path,
    radius: int = 2,
    bits: int = 2048,
    chirality: bool = False,
    missing: str = "error",
) -> pd.DataFrame:
    """Return Morgan fingerprints, one row a compound and one uint8 column a bit, 0 or 1.

    A perturbation's features are the rows of its compounds, ``features.loc[list(perturbation.compounds)]``: neither
    dose nor context changes them.

    Parameters
    ----------
    compounds
        A screen or its perturbations, for the compounds they name, or the names themselves.
    smiles
        Compound -> SMILES, or a csv or tsv file with the columns compound and smiles.
    radius
        How many bonds around an atom are looked at; 2 gives what is called ECFP4.
    bits
        Length of the fingerprint.
    chirality
        Whether mirror images differ.
    missing
        What to do about compounds without a SMILES: ``error``, or ``omit`` their rows.

    Raises
    ------
    PertbaseError
        Where RDKit is not installed.
    InputError
        For a SMILES that cannot be read, by its compound, and where compounds have none.

    Notes
    -----
    Rogers and Hahn, Extended-connectivity fingerprints, J. Chem. Inf. Model. 50:742 (2010), as RDKit computes them.
    """
    if missing not in _MISSING:
        raise InputError(
            "is no way to treat compounds without a SMILES", key="missing", value=missing, remedy="error or omit"
        )
    if radius < 0 or bits < 1:
        raise InputError(
            "a radius is not negative and a fingerprint has bits", key="radius, bits", value=(radius, bits)
        )
    names = _names(compounds)
    known = read_smiles(smiles)
    without = [name for name in names if not known.get(name, "").strip()]
    if without and missing == "error":
        raise InputError(
            f"{len(without)} of {len(names)} compounds have no SMILES",
            file=None if isinstance(smiles, Mapping) else smiles,
            key="smiles",
            value=without[:10],
            remedy="add them, by the names the screen has, or say missing='omit' to do without their rows",
        )
    asked = [name for name in names if name not in set(without)]
    chem, generators = _rdkit()
    generator = generators.GetMorganGenerator(radius=radius, fpSize=bits, includeChirality=chirality)
    table = np.zeros((len(asked), bits), dtype=np.uint8)
    for row, name in enumerate(asked):
        table[row] = generator.GetFingerprintAsNumPy(_molecule(chem, name, known[name].strip()))
    return pd.DataFrame(table, index=pd.Index(asked, name="compound", dtype=object))


def read_smiles(smiles: Mapping[str, str] | str | Path) -> dict[str, str]:
    """Return compound -> SMILES from a mapping, or from a csv or tsv file with the columns compound and smiles.

    Raises
    ------
    InputError
        Where the file is absent or lacks a column, or gives one compound two SMILES.
    """
    if isinstance(smiles, Mapping):
        return {str(name): str(text) for name, text in smiles.items()}
    path = Path(smiles)
    if not path.exists():
        raise InputError("there is no such file", file=path, key="smiles", remedy="check the path")
    try:
        # Compounds and SMILES may be called NA or N: nothing is read as missing.
        table = pd.read_csv(
            path, sep="\t" if path.suffix in (".tsv", ".txt") else ",", dtype=str, keep_default_na=False
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a table ({error})", file=path, key="smiles") from error
    lacking = [column for column in ("compound", "smiles") if column not in table.columns]
    if lacking:
        raise InputError(
            "the table of SMILES lacks columns",
            file=path,
            key=", ".join(lacking),
            value=list(table.columns),
            remedy="it needs compound, smiles",
        )
    found: dict[str, str] = {}
    for row, (name, text) in enumerate(zip(table["compound"].str.strip(), table["smiles"].str.strip(), strict=True)):
        if found.setdefault(name, text) != text:
            raise InputError(
                "one compound has two SMILES",
                file=path,
                key=f"line {row + 2}",
                value=(name, found[name], text),
                remedy="keep one of them",
            )
    return found


def _names(compounds: Screen | Mapping[str, Perturbation] | Iterable[str]) -> list[str]:
    given = compounds.perturbations if isinstance(compounds, Screen) else compounds
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        given = [name for perturbation in given.values() for name in perturbation.compounds]
    names = sorted(set(given))
    if not names:
        raise InputError("names no compound", key="compounds", value=0, remedy="features are of chemical perturbations")
    return names


def _rdkit() -> tuple[Any, Any]:
    try:
        from rdkit import Chem
        from rdkit.Chem import rdFingerprintGenerator
    except ImportError as error:
        raise PertbaseError(
            f"fingerprints need RDKit ({error})", key="smiles", remedy="run pip install 'pertbase[drugs]'"
        ) from error
    return Chem, rdFingerprintGenerator


def _molecule(chem: Any, name: str, text: str) -> Any:
    from rdkit.rdBase import BlockLogs

    # RDKit writes its reason to standard error; ours names the compound.
    with BlockLogs():
        molecule = chem.MolFromSmiles(text)
    if molecule is None or molecule.GetNumAtoms() == 0:
        raise InputError(
            f"the SMILES of {name!r} cannot be read", key=f"smiles[{name!r}]", value=text, remedy="mend or drop it"
        )
    return molecule
