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


def test_the_program_names_key_and_value(pertbase, tmp_path):
    code, out, _ = pertbase(
        "run", "data=simulated", "fold=combinatorial", "baseline=bilinear_ridge", "baseline.n_components=two",
        f"runs={tmp_path}",
    )  # fmt: skip
    assert code == 1
    assert "baseline.n_components: is not a whole number (got 'two')" in out
