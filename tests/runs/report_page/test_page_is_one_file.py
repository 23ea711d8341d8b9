"""The page is one file: it loads nothing, is well formed, and the same runs give the same bytes."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from page_reader import Page

from pertbase.runs import collect
from pertbase.runs._reports._page import page


def test_page_loads_nothing_from_anywhere(shown: Page) -> None:
    for item in shown.elements:
        assert item.tag not in ("link", "img", "iframe", "object", "embed", "image", "use", "base")
        for name, value in item.attributes.items():
            assert name not in ("src", "srcset", "xlink:href", "action", "background")
            assert name != "href" or value.startswith("#")
            assert "url(" not in value
    (style,) = shown.all("style")
    assert not re.search(r"url\(|@import|https?:", style.text)
    (script,) = shown.all("script")
    assert not re.search(r"https?:|fetch|XMLHttpRequest|import\b|eval", script.text)


def test_page_allows_its_own_script_and_no_other(shown: Page) -> None:
    (policy,) = [
        item.attributes["content"]
        for item in shown.all("meta")
        if item.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    (script,) = shown.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_page_is_well_formed_and_its_links_and_pictures_find_their_targets(shown: Page) -> None:
    assert shown.unclosed == []
    idents = [item.attributes["id"] for item in shown.elements if "id" in item.attributes]
    assert len(idents) == len(set(idents))
    for link in shown.all("a"):
        assert link.attributes["href"][1:] in idents
    for drawn in shown.all("svg"):
        assert drawn.attributes.get("role") == "img"
        assert set(drawn.attributes["aria-labelledby"].split()) <= set(idents)


def test_same_runs_give_the_same_bytes_wherever_they_lie(finished: Path, copied: Path) -> None:
    assert page(collect(finished)) == page(collect(copied))
    assert str(copied.parent) not in page(collect(copied), shortcuts=False)
