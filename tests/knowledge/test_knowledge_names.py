from __future__ import annotations

import subprocess
import sys

import pertbase.knowledge as knowledge


def test_every_public_name_is_there_and_loaded_when_it_is_used() -> None:
    for name in knowledge.__all__:
        assert getattr(knowledge, name) is not None
    assert not hasattr(knowledge, "nothing")


def test_what_takes_long_to_import_is_imported_by_the_search_alone() -> None:
    told = "import sys, pertbase.knowledge as k; k.PathFinder, k.signed_graph; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
