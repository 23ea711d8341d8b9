"""`list` with a name: every option there is, its default, and a line of meaning that the docstring itself says."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pertbase.runs import Names
from pertbase.runs._compose import defaults
from pertbase.runs._docstrings import meaning_of, parameters
from pertbase.runs._options import class_of, parts
from pertbase.runs._store import flat

GROUPS = ("baseline", "fold", "data", "adapter", "trainer", "asking", "paths")
EVERY = [(group, name) for group in GROUPS for name in Names().options(group)]


class Other:
    """Something else.

    Parameters
    ----------
    depth
        How deep. And why.
    width
        How wide.
    """


class Base:
    """What is shared.

    Parameters
    ----------
    size, rate
        Of ``the`` thing, e.g. 3.5 of it; see :func:`pertbase.folds.make_fold`. A second sentence.
    kept
        Stays as
        it is.

        Another paragraph.
    """


class Derived(Base):
    """What is derived.

    Parameters
    ----------
    depth, width,
    none
        See :class:`Other`.
    kept
        Is said anew.
    **options
        Those of :class:`Other`.

    Returns
    -------
    nothing
        Not a parameter.
    """


def test_a_parameter_means_what_its_docstring_says_first() -> None:
    assert meaning_of(Base, "size") == meaning_of(Base, "rate") == "Of the thing, e.g. 3.5 of it; see make_fold"
    assert meaning_of(Base, "kept") == "Stays as it is"
    assert meaning_of(Derived, "kept") == "Is said anew"
    assert meaning_of(Derived, "size") == meaning_of(Base, "size")
    assert meaning_of(Derived, "depth") == "How deep"
    assert meaning_of(Derived, "width") == "How wide"
    # Where the other says nothing of it, the reference stays.
    assert meaning_of(Derived, "none") == "See Other"
    assert "nothing" not in parameters(Derived)
    assert meaning_of(Derived, "unknown") == ""


@pytest.mark.parametrize(("group", "name"), EVERY, ids=[f"{group}={name}" for group, name in EVERY])
def test_every_option_of_ours_is_listed_with_its_default_and_a_meaning(group: str, name: str) -> None:
    names = Names()
    config = defaults(group, name, names)
    (part, *_) = parts(group, name, names)
    prefix = f"adapters.{name}" if group == "adapter" else group
    listed = {option.key: option for option in part.options}
    assert [option.key for option in part.options if not option.meaning] == []
    for key, value in flat(config, prefix).items() if config else ():
        if key.endswith("_target_"):
            continue
        # A mapping whose keys are data stands as one value.
        place = next(place for place in _places(key) if place in listed)
        if place == key:
            assert listed[key].default == value or yaml.safe_load(listed[key].default) == value


@pytest.mark.parametrize(("group", "name"), EVERY, ids=[f"{group}={name}" for group, name in EVERY])
def test_no_two_options_of_a_part_are_told_in_the_same_words(group: str, name: str) -> None:
    for part in parts(group, name, Names()):
        told: dict[str, str] = {}
        for option in part.options:
            assert told.setdefault(option.meaning, option.key) == option.key


def _places(key: str) -> list[str]:
    words = key.split(".")
    return [".".join(words[:end]) for end in range(len(words), 0, -1)]


@pytest.mark.parametrize("name", list(Names().options("baseline")))
def test_every_argument_of_a_baseline_can_be_set_and_is_listed(name: str) -> None:
    config = defaults("baseline", name, Names())
    owner = class_of("baseline", config)
    taken = _arguments(owner)
    given: Mapping[str, Any] = {key: value for key, value in config.items() if key != "_target_"}
    assert set(given) <= taken
    hidden = {key for key in inspect.signature(owner).parameters if key != "options"} - set(given)
    assert hidden == set()


def _arguments(owner: type) -> set[str]:
    """Return what a constructor takes, with what it hands on to the classes it derives from."""
    return {key for item in inspect.getmro(owner)[:-1] for key in inspect.signature(item).parameters}


def test_a_language_model_lists_its_client_and_how_it_is_asked(pertbase) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = pertbase("list", "baselines", "llm/gpt")
    assert code == 0
    assert "  baseline.client.model " in out
    assert "???" in out
    assert "\nasking=default: how a language model is asked" in out
    assert "  asking.concurrency " in out
    code, out, _ = pertbase("list", "baselines", "gears", "no_change")
    assert "\ntrainer=cpu: " in out
    assert "baseline=no_change: nothing ever changes\n  no options" in out


def test_a_label_rule_lists_its_own_parameters(pertbase) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = pertbase("list", "folds", "combinatorial")
    (line,) = [line for line in out.splitlines() if line.split()[:1] == ["fold.rule.threshold"]]
    assert line.split()[1] == "0.25"
    assert "natural log" in line


def test_an_experiment_lists_its_runs_and_what_they_take(pertbase) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = pertbase("list", "experiments", "perturbqa_auroc")
    assert code == 0
    assert "part=gpu: one GPU" in out
    assert "baseline=llm/summer" in out
    assert "pertbase report experiment=perturbqa_auroc" in out


def test_a_plug_in_lists_its_options_with_what_its_docstring_says(pertbase, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert pertbase("new", "baseline", "listed_plug_in")[0] == 0
    code, out, err = pertbase("list", "--config-dir", "conf", "baselines", "listed_plug_in")
    assert code == 0, err
    assert "  baseline.scale  1.0  What the mean is multiplied with" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["baselines", "gaers"], "Did you mean 'gears'?"),
        (["baselins", "gears"], "Did you mean 'baselines'?"),
        (["manifests", "simulated"], "has no options"),
    ],
)
def test_what_cannot_be_listed_is_told(pertbase, arguments: list[str], said: str) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase("list", *arguments)
    assert code == 2
    assert said in err
