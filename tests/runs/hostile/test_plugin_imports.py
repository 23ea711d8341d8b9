"""A plug-in that cannot be imported: its file, what it names, the whole reason and the remedy are told, everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_runs import Pertbase

_BROKEN = {
    "absent": ("nope_{0}.Model", "", "there is no module nope_{0}", ("put nope_{0}.py there", "PYTHONPATH", "{1}")),
    "deeper": ("nope_{0}.inner.Model", "", "there is no module nope_{0}", ("PYTHONPATH",)),
    "syntax": ("mod_{0}.Model", "def f(:\n", "importing mod_{0} raised SyntaxError: invalid syntax", ("line 1",)),
    "raises": (
        "mod_{0}.Model", "x = 1\nraise RuntimeError('no licence\\nfor you')\n",
        "importing mod_{0} raised RuntimeError: no licence for you", ("Mend {1}/mod_{0}.py, line 2",),
    ),
    "exits": ("mod_{0}.Model", "raise SystemExit(3)\n", "importing mod_{0} raised SystemExit: 3", ("line 1",)),
    "needs": (
        "mod_{0}.Model", "import absent_package_{0}\n",
        "importing mod_{0} raised ModuleNotFoundError: No module named 'absent_package_{0}'",
        ("Install absent_package_{0}", "mod_{0}.py, line 1"),
    ),
    "misspelt": ("mod_{0}.Modle", "class Model: ...\n", "mod_{0} ({1}/mod_{0}.py) has no Modle", ("mean 'Model'",)),
    "within": ("mod_{0}.Model.Inner", "class Model: ...\n", "mod_{0}.Model has no Inner", ("check the name",)),
    "bare": ("Model", "", "names no class", ("package.module.Class",)),
}  # fmt: skip


@pytest.mark.parametrize("kind", _BROKEN)
def test_what_cannot_be_imported_is_told_with_its_file_its_name_the_whole_reason_and_a_remedy(
    kind: str, pertbase: Pertbase, small_screen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, source, said, remedies = _BROKEN[kind]
    place = tmp_path / "mine"
    (place / "my_conf" / "baseline").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    name = f"{kind}_{os.getpid()}"
    file = place / "my_conf" / "baseline" / "broken.yaml"
    file.write_text(f"_target_: {target.format(name)}\n")
    if source:
        (place / f"mod_{name}.py").write_text(source.format(name))
    given = ["--config-dir", str(place / "my_conf")]
    code, out, err = pertbase(
        "run", *given, "baseline=broken", "data=h5ad", f"data.path={small_screen}", "data.name=small",
        "fold=combinatorial", f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 1, out + err
    listed = ["list", "baselines", "broken", *given]
    for told in (out, pertbase(*listed)[2]):
        assert f"{file}: baseline._target_: " in told
        assert said.format(name, place) in told
        assert target.format(name) in told
        for remedy in remedies:
            assert remedy.format(name, place).lower() in told.lower()
        assert "Traceback" not in told
        assert "HYDRA_FULL_ERROR" not in told
    assert "Error getting object" not in err


def test_a_function_of_a_data_set_that_cannot_be_imported_is_told_alike(pertbase: Pertbase, tmp_path: Path) -> None:
    (tmp_path / "conf" / "data").mkdir(parents=True)
    (tmp_path / "conf" / "data" / "mine.yaml").write_text("_target_: nope_at_all.load\n")
    code, out, err = pertbase("run", "--config-dir", str(tmp_path / "conf"), "data=mine", f"runs={tmp_path / 'runs'}")
    assert code == 1
    assert "data._target_: cannot be imported: there is no module nope_at_all" in out + err
