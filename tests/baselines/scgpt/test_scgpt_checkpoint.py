"""Published checkpoints: every weight of the encoder finds its place, or is refused by name."""

from __future__ import annotations

import importlib.util
import json
import logging
import pickle
import shutil
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from scgpt_toy import SHORT, STYLES, resumed, theirs

from pertbase.baselines.scgpt import LoadReport, ScGPT
from pertbase.baselines.scgpt._checkpoint import FILES, open_checkpoint
from pertbase.baselines.scgpt._genes import read_vocabulary
from pertbase.errors import InputError, PertbaseError


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "best_model.pt", weights_only=True)


def changed(folder: Path, **values: torch.Tensor | None) -> None:
    """Write a checkpoint's weights anew, some of them replaced, and those that are None left out."""
    state = {**weights(folder), **values}
    torch.save({name: value for name, value in state.items() if value is not None}, folder / "best_model.pt")


@pytest.mark.parametrize("style", STYLES)
def test_every_weight_of_the_encoder_is_loaded_in_each_style(style, checkpoint, training, caplog):
    folder = checkpoint(style=style)
    with caplog.at_level(logging.INFO, "pertbase"):
        module = ScGPT(**SHORT, checkpoint=str(folder)).build(training)
    state, vocabulary = weights(folder), json.loads((folder / "vocab.json").read_text())
    ours = module.net.state_dict()
    rows = [vocabulary[gene] for gene in training.genes]
    torch.testing.assert_close(ours["embedding.weight"], state["encoder.embedding.weight"][rows], rtol=0, atol=0)
    for name, value in ours.items():
        if name.startswith(("gene_norm", "values", "layers")):
            torch.testing.assert_close(value, state[theirs(name, style)], rtol=0, atol=0)
    report = module.loaded
    assert isinstance(report, LoadReport)
    assert report.style == style
    assert {name.partition(".")[0] for name in report.fresh} == {"coefficient", "offset", "perturbed", "untouched"}
    assert set(report.loaded) | set(report.fresh) == set(ours)
    assert set(report.ignored) == {"decoder.fc.0.weight", "cls_decoder.out_layer.bias"}
    assert f"({style} names)" in caplog.text


def test_the_three_styles_predict_alike(checkpoint, training, inputs):
    found = []
    for style in STYLES:
        model = ScGPT(**SHORT, checkpoint=str(checkpoint(style, style=style, decoder=True)))
        model._module = model.build(training).eval()
        model._module.genes = training.genes
        found.append(model.predict(inputs).values)
    assert found[0].any()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_model_trained_on_perturbations_brings_its_decoder_and_its_mark(checkpoint, training):
    folder = checkpoint(decoder=True)
    module = ScGPT(**SHORT, checkpoint=str(folder)).build(training)
    state = weights(folder)
    assert module.loaded.fresh == ()
    torch.testing.assert_close(module.net.perturbed.data, state["pert_encoder.weight"][1])
    torch.testing.assert_close(module.net.offset[2].weight.data, state["decoder.bias_decoder.fc.2.weight"])


def test_weights_of_data_parallel_and_of_half_precision_are_loaded(checkpoint, training):
    folder = checkpoint()
    before = ScGPT(**SHORT, checkpoint=str(folder)).build(training).net.state_dict()["layers.0.norm1.bias"]
    state = {f"module.{name}": value.half() for name, value in weights(folder).items()}
    torch.save(state, folder / "best_model.pt")
    after = ScGPT(**SHORT, checkpoint=str(folder)).build(training).net.state_dict()["layers.0.norm1.bias"]
    assert after.dtype == torch.float32
    torch.testing.assert_close(after, before, rtol=0, atol=1e-3)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("damage", ["missing", "misshapen", "unknown"])
def test_a_weight_that_does_not_fit_is_refused_by_its_name(style, damage, checkpoint, training):
    folder = checkpoint(style=style)
    name = theirs("layers.1.attention.in_proj.weight", style)
    if damage == "unknown":
        name = name.replace("layers.1", "layers.2")
    value = {"missing": None, "misshapen": torch.zeros(36, 11), "unknown": torch.zeros(36, 12)}[damage]
    changed(folder, **{name: value})
    with pytest.raises(InputError, match=name.replace(".", r"\.")) as told:
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)
    assert told.value.file == str(folder / "best_model.pt")


def test_attention_named_in_no_known_way_or_in_two_is_refused(checkpoint, training):
    folder = checkpoint()
    state = weights(folder)
    torch.save({name.replace("in_proj_", "qkv."): value for name, value in state.items()}, folder / "best_model.pt")
    with pytest.raises(InputError, match="in no way that is known"):
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)
    torch.save(state | {"transformer_encoder.layers.0.self_attn.Wqkv.bias": torch.zeros(36)}, folder / "best_model.pt")
    with pytest.raises(InputError, match="in several ways"):
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)


class Evil:
    def __reduce__(self):
        return (print, ("ran",))


def test_a_file_of_weights_runs_nothing(checkpoint, training, capsys):
    folder = checkpoint()
    torch.save({"encoder.embedding.weight": Evil()}, folder / "best_model.pt")
    with pytest.raises(InputError, match="more than tensors"):
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)
    (folder / "best_model.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match="more than tensors"):
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)
    (folder / "best_model.pt").write_text("<html>Quota exceeded</html>")
    with pytest.raises(InputError, match="error page"):
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nlayers": 3}, "lacks a weight"),
        ({"nlayers": 1}, "no place"),
        ({"d_hid": 9}, "not of the shape"),
        ({"nheads": 5}, "no multiple of 5 heads"),
        ({"embsize": None}, "embsize"),
        ({"pre_norm": True}, "normalises first"),
        ({"input_emb_style": "category"}, "binned"),
    ],
)
def test_arguments_of_another_model_are_refused(change, told, checkpoint, training):
    folder = checkpoint()
    about = json.loads((folder / "args.json").read_text()) | change
    (folder / "args.json").write_text(json.dumps({key: value for key, value in about.items() if value is not None}))
    with pytest.raises(InputError, match=told):
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)


def test_a_vocabulary_of_another_model_is_refused(checkpoint, training):
    folder = checkpoint()
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(vocabulary | {"MORE": len(vocabulary)}))
    with pytest.raises(InputError, match="fewer rows"):
        ScGPT(**SHORT, checkpoint=str(folder)).build(training)


@pytest.mark.parametrize(
    ("content", "told"),
    [("[]", "token -> row"), ('{"A": "0"}', "from 0 on"), ('{"A": -1}', "from 0 on"), ('{"A": 1, "B": 1}', "one row")],
)
def test_a_file_that_is_no_vocabulary_is_refused(content, told, tmp_path):
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(InputError, match=told):
        read_vocabulary(tmp_path / "vocab.json")


def test_the_packages_vocabulary_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "scgpt"
    (package / "tokenizer").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tokenizer" / "default_gene_vocab.json").write_text('{"<pad>": 1, "TP53": 0}')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_vocabulary("scgpt") == {"<pad>": 1, "TP53": 0}
    assert "scgpt" not in sys.modules
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps scgpt"):
        read_vocabulary("scgpt")


def test_a_folder_without_its_files_says_where_to_get_them(tmp_path, training):
    with pytest.raises(InputError, match=r"best_model.pt.*bowang-lab/scGPT.*checkpoint_url"):
        ScGPT(checkpoint=str(tmp_path)).refuses(training)


def test_files_are_fetched_from_the_address_given_and_only_once(checkpoint, tmp_path):
    folder, asked = checkpoint(), []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: Handler(*given, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        for _ in range(2):
            found = open_checkpoint(tmp_path / "fetched", url=url)
        assert asked == [f"/{name}" for name in FILES]
        assert found.weights.read_bytes() == (folder / "best_model.pt").read_bytes()
        (folder / "args.json").unlink()
        with pytest.raises(PertbaseError, match="404"):
            open_checkpoint(tmp_path / "again", url=url)
    finally:
        server.shutdown()
    assert open_checkpoint(tmp_path / "fetched").vocabulary == found.vocabulary


# -- what of it is trained ------------------------------------------------------------------------------------


def trained(training, folder: Path, **options: object) -> tuple[set[str], ScGPT]:
    """What of the encoder a training changes."""
    model = ScGPT(**SHORT, checkpoint=str(folder), learning_rate=1e-2, **options).fit(training)
    before = ScGPT(**SHORT, checkpoint=str(folder)).build(training).net.state_dict()
    after = {name.replace(".base_layer", ""): value for name, value in model.module.net.state_dict().items()}
    assert all((after[name] != before[name]).any() for name in before if name.startswith(("coefficient", "offset")))
    assert (after["perturbed"] != before["perturbed"]).any()
    assert not after["untouched"].any()
    encoder = [name for name in before if name.startswith(("embedding", "gene_norm", "values", "layers"))]
    return {name for name in encoder if (after[name] != before[name]).any()}, model


def test_all_of_a_checkpoint_is_trained_unless_told_otherwise(checkpoint, training):
    found, model = trained(training, checkpoint())
    assert {name.split(".")[0] for name in found} == {"embedding", "gene_norm", "values", "layers"}
    assert model.module.optimisation.learning_rate == 1e-2
    assert ScGPT(checkpoint="x").learning_rate is None


def test_a_frozen_encoder_stays_as_it_was(checkpoint, training):
    assert trained(training, checkpoint(), tuning="frozen")[0] == set()


def test_the_last_layers_alone_are_trained(checkpoint, training):
    found = trained(training, checkpoint(), tuning="last", last_layers=1)[0]
    assert {name.rpartition("layers.")[2].split(".")[0] for name in found} == {"1"}
    assert len(found) == 12
    with pytest.raises(InputError, match="has 2 layers"):
        ScGPT(checkpoint=str(checkpoint("again")), tuning="last", last_layers=3).build(training)


def test_matrices_of_low_rank_are_trained_beside_the_layers(checkpoint, training, inputs, tmp_path, monkeypatch):
    pytest.importorskip("peft")
    folder = checkpoint()
    found, model = trained(training, folder, tuning="lora", lora_rank=3)
    assert found == set()
    added = {name: value for name, value in model.module.net.named_parameters() if "lora_" in name}
    assert len(added) == 2 * 2 * 4
    assert all(3 in value.shape for value in added.values())
    assert all(value.any() for value in added.values())
    # taken up where it stopped, it is what it would have been

    def made() -> ScGPT:
        return ScGPT(**SHORT | {"max_epochs": 2}, checkpoint=str(folder), tuning="lora", lora_rank=3)

    np.testing.assert_array_equal(*resumed(made, training, inputs, tmp_path, monkeypatch))


def test_lora_without_peft_says_what_to_install(checkpoint, training, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"pertbase\[lora\]"):
        ScGPT(checkpoint=str(checkpoint()), tuning="lora").build(training)


def test_another_file_of_weights_is_another_training(checkpoint, training, tmp_path):
    folder = checkpoint()
    model = ScGPT(**SHORT, checkpoint=str(folder))
    before = model.training_key(training)
    assert model.training_key(training) == before
    vocabulary = json.loads((folder / "vocab.json").read_text())
    swapped = vocabulary | {"<cls>": vocabulary["<pad>"], "<pad>": vocabulary["<cls>"]}
    (folder / "vocab.json").write_text(json.dumps(swapped))
    changed_vocabulary = model.training_key(training)
    assert changed_vocabulary != before
    shutil.copy(checkpoint("other", seed=4) / "best_model.pt", folder / "best_model.pt")
    assert model.training_key(training) not in (before, changed_vocabulary)
