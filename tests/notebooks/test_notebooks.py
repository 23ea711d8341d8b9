"""The notebooks run from top to bottom, offline, with what is public, and are kept without outputs."""

from __future__ import annotations

import ast
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
NAMES = [
    "01_explore_folds.ipynb",
    "02_read_a_run.ipynb",
    "03_plug_in_a_model.ipynb",
    "04_reasons.ipynb",
    "05_your_own_h5ad.ipynb",
]
# What a text says of the output below it, and what holds of names after the last cell.
PROMISED = {"05_your_own_h5ad.ipynb": "no cell is labelled as a control (looked for ctrl)"}
HOLDS = {
    "04_reasons.ipynb": """
thin = {(head, tail) for head, _, tail in mechanisms[position]}
broad = {(head, tail) for path in other["reference_paths"] for head, _, tail in path}
lacking = (thin - broad) - set(zip(fold.graph.edges["source"], fold.graph.edges["target"]))
assert thin & broad and lacking and broad - thin, (thin, broad)
"""
}
CLEAR = "jupyter nbconvert --clear-output --inplace notebooks/*.ipynb"


def _cells(name: str, kind: str) -> list[dict[str, Any]]:
    notebook = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_all_notebooks_are_here() -> None:
    assert NOTEBOOKS == NAMES


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    run = [cell["id"] for cell in _cells(name, "code") if cell["outputs"] or cell["execution_count"] is not None]
    assert not run, f"{name} was saved with outputs, in {', '.join(run)}: run {CLEAR}"
    about = json.loads((FOLDER / name).read_text(encoding="utf-8"))["metadata"]
    assert set(about) == {"kernelspec", "language_info"}, f"{name} holds settings of somebody's editor: {sorted(about)}"
    assert about["kernelspec"]["name"] == "python3"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_says_that_its_cells_are_simulated_and_uses_public_names_alone(name: str) -> None:
    first = _source(_cells(name, "markdown")[0])
    assert first.startswith("# ")
    assert "**simulated**" in first
    for cell in _cells(name, "code"):
        for node in ast.walk(ast.parse(_source(cell))):
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_"), f"{name}, {cell['id']}: {node.attr} is private"
            if isinstance(node, ast.ImportFrom):
                assert "._" not in str(node.module), f"{name}, {cell['id']}: {node.module} is private"


def _texts(name: str) -> list[str]:
    trees = [ast.parse(_source(cell)) for cell in _cells(name, "code")]
    found = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [text for text in found if isinstance(text, str)]


def _runs_read(name: str) -> set[str]:
    calls = [node for cell in _cells(name, "code") for node in ast.walk(ast.parse(_source(cell)))]
    return {
        ast.literal_eval(call.args[0])
        for call in calls
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "read_runs"
    }


def test_notebooks_in_one_folder_do_not_read_each_other_s_runs_or_files() -> None:
    """Whoever opens the folder runs them side by side, in any order."""
    owner: dict[Path, str] = {}
    for name in NOTEBOOKS:
        written = {text.removeprefix("runs=") for text in _texts(name) if text.startswith("runs=")}
        assert written == _runs_read(name), name
        files = {text.split("/")[0] for text in _texts(name) if text.endswith((".h5ad", ".yaml"))}
        for path in map(Path, written | files):
            assert path not in owner, f"{name} and {owner[path]} both use {path}"
            owner[path] = name
    for path, name in owner.items():
        assert not {*path.parents} & set(owner), f"{path} of {name} lies in a folder of another"


@pytest.fixture(scope="module")
def kernels() -> Iterator[Path]:
    """A folder with a kernel of the Python that runs the tests, and no trace of any other.

    Kernels are spoken to through sockets in it, whose names may be no longer than some 100 letters.
    """
    folder = Path(tempfile.mkdtemp(prefix="pertbase-"))
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "the tests' Python",
        "language": "python",
        "env": {"OMP_NUM_THREADS": "1", "IPYTHONDIR": str(folder / "ipython"), "PERTBASE_DATA": str(folder / "none")},
    }
    (folder / "this").mkdir()
    (folder / "this" / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_top_to_bottom(name: str, kernels: Path, tmp_path: Path) -> None:
    import nbformat
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpecManager
    from nbclient import NotebookClient

    before = (FOLDER / name).read_bytes(), sorted(FOLDER.iterdir())
    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(notebook)
    if name in HOLDS:
        notebook.cells.append(nbformat.v4.new_code_cell(HOLDS[name], id="holds"))
    manager = AsyncKernelManager(
        kernel_name="this", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernels)]), transport="ipc",
        connection_file=str(kernels / f"{name[:2]}.json"),
    )  # fmt: skip
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, km=manager, timeout=300, resources=resources, allow_errors=True)
    client.execute(cleanup_kc=True)
    drawn, printed = 0, ""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            where = f"{name}, {cell['id']}"
            if output["output_type"] == "error":
                pytest.fail(f"{where}:\n{cell['source']}\n\n" + "\n".join(output["traceback"]), pytrace=False)
            assert output.get("name") != "stderr", f"{where}: {output['text']}"
            data = output.get("data", {})
            drawn += "image/png" in data
            printed += output.get("text", "")
            about = data.get("text/plain", "")
            if about.startswith(("Screen ", "Fold ")):
                assert "(simulated)" in about.splitlines()[0], f"{where} does not say that its cells are simulated"
    assert PROMISED.get(name, "") in printed
    assert drawn, f"{name} draws nothing"
    assert ((FOLDER / name).read_bytes(), sorted(FOLDER.iterdir())) == before
