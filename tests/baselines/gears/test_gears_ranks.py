"""Ranks that share a batch train what one process does: moments and loss are those of the whole batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gears_share
import numpy as np
import pytest
import torch.distributed as dist

from pertbase.baselines.gears import GEARS

CONDITIONS = {"mixed": gears_share.CONDITION, "controls on one": [3, 0, 2, 0], "controls": [0, 0, 0, 0]}


@pytest.fixture(scope="module")
def shares(tmp_path_factory) -> list[dict[str, np.ndarray]]:
    """What each of two ranks found in its share of every batch."""
    folder = tmp_path_factory.mktemp("shares")
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    command = [sys.executable, str(Path(gears_share.__file__))]
    ranks = [
        subprocess.Popen([*command, str(rank), "2", str(store.port), str(folder / f"{rank}.npz")]) for rank in (0, 1)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    return [dict(np.load(folder / f"{rank}.npz")) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["corrected", "upstream"])
@pytest.mark.parametrize("which", CONDITIONS)
def test_shares_of_a_batch_give_the_gradient_and_statistics_of_the_whole(shares, preset, which):
    whole = gears_share.step(preset, gears_share.batch(CONDITIONS[which]))
    parts = [
        {key.split("/")[2]: value for key, value in share.items() if key.startswith(f"{preset}/{which}/")}
        for share in shares
    ]
    assert parts[0].keys() == parts[1].keys() == whole.keys()
    for key, value in whole.items():
        if key.startswith(("loss", "gradient")):  # which the ranks average
            mine = np.mean([part[key] for part in parts], axis=0)
            np.testing.assert_allclose(mine, value, rtol=1e-7, atol=1e-10, err_msg=key)
        else:
            for part in parts:
                np.testing.assert_allclose(part[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["corrected", "upstream"])
def test_two_ranks_predict_what_one_process_does(training, inputs, preset, tmp_path):
    found = []
    for devices in (1, 2):
        model = GEARS(hidden_size=8, max_epochs=2, batch_size=256, preset=preset)
        model.workspace(tmp_path / str(devices), {"devices": devices})
        found.append(model.fit(training).predict(inputs).values)
    assert np.abs(found[0]).max() > 0.1
    # Float32, and Adam makes steps of rounding errors where a gradient is zero: 2e-4 here, 0.12 with moments of shares.
    assert np.abs(found[0] - found[1]).max() < 2e-3
