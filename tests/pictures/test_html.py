"""The page: self-contained, escaped, and rendered by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from hccc.ir.topology import Device
from hccc.pictures.dag import dag
from hccc.pictures.html import Page, PageTable, ProofLine, html
from hccc.pictures.page import FIGURES
from hccc.pictures.pipeline import pipeline
from hccc.pictures.timeline import timeline
from hccc.pictures.topology import topology
from tests.pictures.drawn import compiled, ran, site

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
EVIL = "<script>document.documentElement.dataset.evil = 1</script><img src=x onerror=alert(1)>"
VOID = {"meta", "br", "img", "link", "input", "hr"}


def _page(name: str = "ring") -> Page:
    stops = compiled("ring_allreduce", "mi300x")
    t = replace(site("mi300x"), devices=(Device(EVIL, EVIL),))
    stops_dag = replace(stops.dag, program=replace(stops.program, name=name))
    return Page(
        title=f"{name}: Allreduce over 8 ranks",
        summary=f"Compiled from {name}.",
        options=[("--fuse", name)],
        figures=[("ranks", "8"), (name, name)],
        proofs=[ProofLine("race", name, name)],
        pictures=[
            topology(t, name),
            dag(stops_dag),
            pipeline(replace(stops.pipeline, dag=stops_dag)),
            timeline(ran("ring_allreduce", "mi300x", 1 << 20), name),
        ],
        missing=[("bandwidth", name)],
        tables=[PageTable(name, ("size", "time"), [("1 KiB", name)], name)],
        explanation=f"{name}\n  because",
    )


class _Reader(HTMLParser):
    """Collects elements, and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = html(_page())
    found = _read(text).found
    tags = [tag for tag, _ in found]
    assert tags.count("svg") == 5 and tags.count("script") == 1
    assert not {"link", "img", "iframe", "object"} & set(tags)
    for _, attrs in found:
        for name in ("src", "href", "xlink:href"):
            assert (attrs.get(name) or "#").startswith("#")
    ids = [attrs["id"] for _, attrs in found if "id" in attrs]
    assert len(ids) == len(set(ids))
    hrefs = {(attrs.get("href") or "")[1:] for tag, attrs in found if tag == "a"}
    assert hrefs and hrefs <= set(ids)
    referred = set(re.findall(r"url\(#([^)]+)\)", text))
    assert referred <= set(ids)
    assert html(_page()) == text


def test_nothing_from_input_becomes_markup() -> None:
    reader = _read(html(_page(EVIL)))
    tags = [tag for tag, _ in reader.found]
    assert tags.count("script") == 1 and "img" not in tags


def _browse(tmp_path: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH")
    return subprocess.run(
        [
            CHROMIUM,
            "--no-sandbox",
            "--headless=new",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
            "--v=0",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_nothing_in_tables_is_cut(tmp_path: Path, scheme: int) -> None:
    """A script of the test's own measures; the policy that forbids it is taken out."""
    figures = [(label, "2,048") for label in (*FIGURES.values(), "accumulate" * 9)]
    text = html(replace(_page(), figures=figures))
    text = re.sub(r"<meta http-equiv[^>]*>", "", text)
    measure = "[...document.querySelectorAll('th, td')].filter(e => e.scrollWidth > e.clientWidth)"
    script = f"<script>document.documentElement.dataset.cut = {measure}.length</script></body>"
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", script), encoding="utf-8")
    options = (
        "--dump-dom",
        "--window-size=1200,900",
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    assert 'data-cut="0"' in _browse(tmp_path, page, *options).stdout


@pytest.mark.parametrize("name", ["ring", EVIL], ids=["plain", "evil"])
@pytest.mark.slow
def test_a_browser_shows_it(tmp_path: Path, name: str) -> None:
    """Its script ran, nothing else did, no error was logged, and there is something to see."""
    page, shot = tmp_path / "page.html", tmp_path / "shot.png"
    page.write_text(html(_page(name)), encoding="utf-8")
    options = "--dump-dom", f"--screenshot={shot}", "--window-size=1200,3000"
    seen = _browse(tmp_path, page, *options)
    assert 'data-hccc="ready"' in seen.stdout
    assert "data-evil" not in seen.stdout
    assert seen.stdout.count(">Full size</button>") == 4
    assert "CONSOLE" not in seen.stderr
    assert shot.exists(), seen.stderr
    image = imread(shot)[:, :, :3]
    assert image.shape[1] == 1200
    assert len(np.unique((100 * image).round() @ (101**2, 101, 1))) > 30  # colours
    ink = image.min(axis=2) < 0.6
    assert 0.005 < ink.mean() < 0.5
    for top in range(0, 2400, 600):  # every screenful
        assert ink[top : top + 600].any()
