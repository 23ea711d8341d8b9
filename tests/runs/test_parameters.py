"""Values that are of another type than their parameter are refused by key, before anything is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from pertbase.errors import InputError
from pertbase.runs._compose import compose
from pertbase.runs._names import Names
from pertbase.runs._parameters import check_parameters

if TYPE_CHECKING:
    from elsewhere import Strange


class Inner:
    def __init__(self, *, size: int = 1) -> None: ...


class Model:
    def __init__(
        self,
        *,
        n: int = 3,
        rate: float = 0.1,
        on: bool = False,
        name: str | None = None,
        mode: Literal["a", "b"] = "a",
        sloppy: int = None,  # type: ignore[assignment]  # noqa: RUF013
        inner: Inner | None = None,
        many: list[int] | None = None,
        other: Strange | None = None,
        bare=0,
        anything: Any = None,
    ) -> None: ...


class Derived(Model):
    def __init__(self, *, own: int = 0, **options: Any) -> None: ...


def made(kind: str = "Model", **values: object) -> dict[str, object]:
    return {"_target_": f"{__name__}.{kind}", **values}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


@pytest.mark.parametrize(
    ("value", "key", "said"),
    [
        ({"n": "two"}, "baseline.n", "is not a whole number (got 'two')"),
        ({"n": 2.5}, "baseline.n", "is not a whole number (got 2.5)"),
        ({"n": True}, "baseline.n", "is not a whole number"),
        ({"n": None}, "baseline.n", "is not a whole number (got None)"),
        ({"rate": "fast"}, "baseline.rate", "is not a number (got 'fast')"),
        ({"on": "yess"}, "baseline.on", "is not true or false"),
        ({"name": 4}, "baseline.name", "is not a text or null (got 4)"),
        ({"mode": "aa"}, "baseline.mode", "Did you mean 'a'?"),
        ({"inner": {"_target_": f"{__name__}.Inner", "size": "big"}}, "baseline.inner.size", "is not a whole number"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_key(value, key, said):
    with pytest.raises(InputError) as caught:
        check_parameters(made(**value), "baseline")
    assert caught.value.key == key
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        {"n": 4, "rate": 1, "on": True, "name": "x", "mode": "b"},
        {"n": 1e6, "name": None, "sloppy": None},
        {"many": [1], "other": "whatever", "bare": "text", "anything": "text"},
        {"inner": {"_target_": f"{__name__}.Inner", "size": 2}},
        {"unknown": "text"},
    ],
)
def test_what_fits_or_cannot_be_judged_is_left_to_the_class(value):
    check_parameters(made(**value), "baseline")


def test_what_a_class_hands_on_is_judged_by_the_class_it_derives_from():
    check_parameters(made("Derived", own=1, n=2), "baseline")
    with pytest.raises(InputError, match=r"baseline\.n: is not a whole number"):
        check_parameters(made("Derived", own=1, n="two"), "baseline")


def test_a_class_that_is_not_there_is_for_others_to_name():
    check_parameters({"_target_": "no.such.Thing", "n": "two"}, "baseline")


@pytest.mark.parametrize("name", sorted(Names(()).options("baseline")))
def test_every_configuration_of_ours_is_of_the_types_that_its_class_says(name):
    more = ["baseline.client.model=m"] if name == "llm/gpt" else []
    check_parameters(compose([f"baseline={name}", *more], Names(()))["baseline"], "baseline")


# -- before anything is loaded -------------------------------------------------------------------------------

WRONG = {
    "an unknown option": ("combinatorial", "baseline.rigde=1", "baseline.rigde: unknown option"),
    "an unknown option of the fold": ("combinatorial", "fold.see=1", "fold.see: unknown option"),
    "a fold's value": ("combinatorial", "fold.test_share=2", "fold.test_share: a share lies between 0 and 1"),
    "a value of the paths": ("combinatorial", "paths.k=0", "paths.k: is a whole number from 1 to 100"),
    "a seed": ("combinatorial", "seed=x", "a seed is a whole number"),
    "a baseline's type": ("combinatorial", "baseline.n_components=two", "baseline.n_components: is not a whole number"),
    "what a baseline refuses": ("combinatorial", "baseline.ridge=-1", "ridge"),
    "an adapter's type": ("combinatorial", "adapters.fixed.threshold=x", "adapters.fixed.threshold: is not a number"),
    "of a fold that data sets ship": ("published", "baseline.ridge=-1", "ridge"),
    "of each context": ("unseen_context_genetic", "baseline.ridge=-1", "ridge"),
}


@pytest.fixture
def nothing_loaded(monkeypatch):
    """Loading a data set is the end of the test."""
    from pertbase.runs._plan import DataShelf

    def load(*_):
        pytest.fail("a data set was loaded")

    monkeypatch.setattr(DataShelf, "maker", load)


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("many", [False, True])
def test_a_wrong_option_of_any_run_is_told_before_anything_is_loaded(case, many, pertbase, tmp_path):
    fold, option, said = WRONG[case]
    paths = ["paths=own"] if option.startswith("paths") else []
    context = ["fold.test_context=each"] if case == "of each context" else []
    # The right value first: its run is the one that would load.
    right = {"baseline.ridge=-1": "0.1,-1", "seed=x": "0,x", "paths.k=0": "5,0", "fold.test_share=2": "0.2,2"}
    key = option.partition("=")[0]
    wrong = f"{key}={right[option]}" if many and option in right else option
    baselines = "no_change,bilinear_ridge" if many else "bilinear_ridge"
    code, out, err = pertbase(
        "run", *(["-m"] if many else []), "data=simulated", f"fold={fold}", f"baseline={baselines}", *paths, *context,
        wrong, f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 2
    assert said in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(
    ("baseline", "option"),
    [
        ("gears", "baseline.preset=plian"),
        ("gears", "trainer.precision=33"),
        ("gears", "trainer.devices=0"),
        ("llm/smollm2_135m", "asking.batch_size=many"),
        ("llm/smollm2_135m", "asking.concurrency=0"),
        ("sft_outcome", "trainer.devices=none"),
        ("sft_outcome", "asking.batch_size=0"),
    ],
)
def test_how_a_baseline_is_trained_or_asked_is_checked_before_anything_is_loaded(baseline, option, pertbase, tmp_path):
    code, _, err = pertbase("run", "data=simulated", f"baseline={baseline}", option, f"runs={tmp_path / 'runs'}")
    assert code == 2
    assert option.partition("=")[0] in err
    assert list(tmp_path.iterdir()) == []


def test_what_is_of_others_is_imported_but_not_made_before_its_run(monkeypatch, tmp_path):
    from pertbase.runs._checked import check_options
    from pertbase.runs._plan import plan_of

    (tmp_path / "slow_models.py").write_text(
        "import pertbase as pb\n\nclass Slow(pb.ExpressionBaseline):\n"
        "    def __init__(self, *, n: int = 1):\n        raise AssertionError('made')\n"
        "    def fit(self, training): ...\n    def predict(self, inputs): ...\n"
    )
    (tmp_path / "bad_models.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "conf" / "baseline").mkdir(parents=True)
    for name, target in {"slow": "slow_models.Slow", "bad": "bad_models.Bad", "gone": "no.such.Thing"}.items():
        (tmp_path / "conf" / "baseline" / f"{name}.yaml").write_text(f"_target_: {target}\nn: 1\n")
    names = Names((tmp_path / "conf",))
    check_options([plan_of([f"baseline={name}"], names, {}) for name in ("slow", "bad", "gone")])
    with pytest.raises(InputError, match=r"baseline\.n: is not a whole number"):
        check_options([plan_of(["baseline=slow", "baseline.n=x"], names, {})])


# -- runs that would be one ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(
    ("options", "said", "remedy"),
    [
        (["baseline.ridge=1,2"], "baseline.ridge is 1 first and 2 second", "name='bilinear_ridge_${baseline.ridge}'"),
        (["paths=own", "paths.k=3,5"], "paths.k is 3 first and 5 second", "name='bilinear_ridge_${paths.k}'"),
        (["paths=own", "paths.gate=none,ks"], "paths.gate is 'none' first", "name='bilinear_ridge_${paths.gate}'"),
        (["paths=none,own"], "paths is None first", "in a command of its own"),
        (["paths=own,human"], "paths.graph is None first", "in a command of its own"),
        (["fold.input_share=0.4,0.5"], "fold.input_share is 0.4 first", "name='bilinear_ridge_${fold.input_share}'"),
        (["adapters.fixed.threshold=1,2"], "adapters.fixed.threshold is", "${adapters.fixed.threshold}'"),
        (["baseline=additive,no_change", "name=mine"], "baseline_name is 'additive' first", "Leave out name="),
        (["fold.test_share=.2,.3", "name=mine"], "fold.test_share", "name='mine_${fold.test_share}'"),
    ],
)
def test_runs_of_a_command_that_would_share_a_folder_are_refused_and_how_to_name_them(
    options, said, remedy, pertbase, tmp_path
):
    command = ["run", "-m", "data=simulated", "fold=combinatorial", "baseline=bilinear_ridge", f"runs={tmp_path / 'r'}"]
    for more in ([], ["dry_run=true"]):
        code, out, err = pertbase(*command, *options, *more)
        assert (code, out) == (2, "")
        assert said in err
        assert remedy in err
    assert list(tmp_path.iterdir()) == []


def test_the_name_that_is_proposed_tells_runs_apart(pertbase, tmp_path):
    command = ["run", "-m", "fold=combinatorial", "baseline=bilinear_ridge", "dry_run=true", f"runs={tmp_path}"]
    code, out, err = pertbase(*command, "paths=own", "paths.k=3,5", "name=bilinear_ridge_${paths.k}")
    assert code == 0, err
    assert [line.split()[2] for line in out.splitlines()] == ["bilinear_ridge_3", "bilinear_ridge_5"]
    # Twice the same is one, and is no harm: the second is found complete.
    assert pertbase(*command, "seed=0,0")[0] == 0
