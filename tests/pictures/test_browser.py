"""The page in a real browser: what it says first, its view of the timeline, its parts and lines by
mouse, touch and keyboard, on a phone, and without scripts.

Screenshots are compared without their texts, whose fonts are the machine's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image

from hccc.ir import text as words
from hccc.pictures.html import html
from hccc.pictures.page import Subject
from tests.pictures.drawn import compiled, ran, site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
PROGRAM, CLUSTER, SIZE = "ring_allreduce", "resccl-topo1", 1 << 22
REDUCES, COPIES = 7, 10  # the lines of the program with transfers
BARS = "#timeline [data-lines]"
NO_TEXT = "text { visibility: hidden } * { caret-color: transparent !important }"
LABEL = "e => e.ariaLabel"
COLOURS = 256  # of a golden screenshot, which is small then


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the page of a ring over two nodes."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    subject = Subject(compiled(PROGRAM, CLUSTER), site(CLUSTER), SIZE)
    path.write_text(html(subject.page()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yields one browser for all tests."""
    driver = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH")
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
    with driver.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield found
        found.close()


@contextmanager
def opened(browser: Browser, file: Path, **how: Any) -> Iterator[Page]:
    """Yields the page in a context of its own: it logs no errors, and loads nothing but itself."""
    size = {"width": 1400, "height": 900}
    with browser.new_context(**{"viewport": size, **how}) as context:
        page = context.new_page()
        page.set_default_timeout(10_000)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url))
        page.goto(file.as_uri())
        yield page
        assert said == [file.as_uri()]


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """Yields the page as a desktop shows it."""
    with opened(browser, file) as found:
        yield found


def _shown(page: Page) -> tuple[float, float]:
    """Returns where the shown part of the timeline begins, and its length: of the whole."""
    box = page.eval_on_selector("#timeline svg svg", "e => e.getAttribute('viewBox')")
    x, _, width, _ = (float(value) for value in box.split())
    view = page.eval_on_selector(
        "#timeline svg svg", "e => ['x', 'width'].map(k => Number(e.getAttribute(k)))"
    )
    return (x - view[0]) / view[1], width / view[1]


def _focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.ariaLabel"))


def _lit(page: Page) -> list[str]:
    """Returns the labels of the timeline's bars that are lit."""
    found: list[str] = page.eval_on_selector_all(f"{BARS}.lit", f"all => all.map({LABEL})")
    return found


def test_the_headline_is_first(page: Page) -> None:
    """The time, its share of the bound and what limits it stand above all pictures."""
    run = ran(PROGRAM, CLUSTER, SIZE)
    shown = page.locator(".headline dd").all_inner_texts()
    assert shown[0].startswith(words.time(run.time))
    assert page.locator(".headline dt").all_inner_texts() == [
        "Time",
        "Share of the bound",
        "Limited by",
        "NCCL",
    ]
    share = float(shown[1].split(" ")[0])
    least = float(
        page.locator("#table1 tbody tr", has_text="4 MiB")
        .locator("td")
        .nth(3)
        .inner_text()
        .split()[0]
    )
    assert 0 < share < 100 and share == pytest.approx(100 * least / run.time, abs=0.1)
    tops = [page.locator(f).first.bounding_box() for f in (".headline", "figure", "table")]
    assert [top and top["y"] for top in tops] == sorted(top["y"] for top in tops if top)


def test_bars_stand_where_the_simulator_says(page: Page) -> None:
    run = ran(PROGRAM, CLUSTER, SIZE)
    bars = page.locator("#timeline [data-row='0'][data-lines]")
    view = page.locator("#timeline svg svg")
    left = view.evaluate(
        "e => { const m = e.getScreenCTM(); return [m.a, m.e + m.a * e.viewBox.baseVal.x]; }"
    )
    wide = left[0] * view.evaluate("e => e.viewBox.baseVal.width")
    edges = sorted(b["x"] for b in (bar.bounding_box() for bar in bars.all()) if b)
    begins = np.sort(run.ready[: run.machine.plan.tb_ptr[1] * run.batches]) + run.launch
    for edge in edges:
        assert np.abs(left[1] + begins / run.time * wide - edge).min() < 1.6  # half an edge's width


def test_lines_light_what_they_cause(page: Page) -> None:
    """And only that: reductions come of one line, copies of the other."""
    every = page.eval_on_selector_all(BARS, f"all => all.map({LABEL})")
    assert {label.split()[0] for label in every} >= {"reduce", "put"} or len(every) > 16
    counts = []
    for line in (REDUCES, COPIES):
        page.hover(f".program li[value='{line}']")
        lit = _lit(page)
        assert 0 < len(lit) < len(every)
        faint = page.locator(f"{BARS}:not(.lit)").first
        assert faint.evaluate("e => getComputedStyle(e).opacity") == "0.2"
        counts.append(len(lit))
    assert sum(counts) >= len(every)
    page.hover("h1")
    assert _lit(page) == []


def test_parts_light_their_lines(page: Page) -> None:
    """A bar, a cell of the pipeline and a box of the dependencies."""
    program = (Path(__file__).parents[2] / "examples" / f"{PROGRAM}.rccl").read_text().split("\n")
    for picture in ("timeline", "pipeline", "dag"):
        part = page.locator(f"#{picture} [data-lines='{COPIES}']").first
        part.hover()
        label = part.evaluate(LABEL)
        assert page.locator(f"#{picture} .says").inner_text() == label != ""
        assert page.locator("li.lit").all_inner_texts() == [program[COPIES - 1]]


def test_keys_lead_through_the_timeline(page: Page) -> None:
    bars = page.locator("#timeline [data-row='1']")
    assert page.locator("#timeline figure [tabindex='0']").count() == 1
    bars.first.focus()
    labels = [bar.evaluate(LABEL) for bar in bars.all()]
    assert _focused(page) == labels[0] == page.locator("#timeline .says").inner_text()
    page.keyboard.press("ArrowLeft")
    assert _focused(page) == labels[0]  # the first of its row
    page.keyboard.press("ArrowRight")
    assert _focused(page) == labels[1]
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.row") == "2"
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.row") == "1"
    for _ in range(3):
        page.keyboard.press("+")
    assert _shown(page)[1] == pytest.approx(1 / 8)
    begin = _shown(page)[0]
    for _ in range(len(labels)):
        page.keyboard.press("ArrowRight")
    assert _focused(page) == labels[-1]
    assert _shown(page)[0] > begin  # what has the focus is shown
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("-")
    assert _shown(page)[1] == pytest.approx(1 / 4)
    page.keyboard.press("0")
    assert _shown(page) == pytest.approx((0, 1), abs=1e-6)


def test_a_line_has_keys_too(page: Page) -> None:
    page.locator(f".program li[value='{REDUCES}']").focus()
    first = _lit(page)
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.value") == COPIES
    assert first and _lit(page) and _lit(page) != first


def test_the_wheel_zooms_at_the_pointer_and_a_drag_pans(page: Page) -> None:
    bar = page.locator(BARS).nth(5)
    box = bar.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_selector("figure.zoomed")
    zoomed = bar.bounding_box()
    assert zoomed is not None and _shown(page)[1] < 0.5
    middle = zoomed["x"] + zoomed["width"] / 2
    assert middle == pytest.approx(x, abs=1.5)  # what is under the pointer stays there
    assert zoomed["width"] > 2 * box["width"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=5)
    page.mouse.up()
    moved = bar.bounding_box()
    assert moved is not None
    assert moved["x"] + moved["width"] / 2 == pytest.approx(middle + 60, abs=2.5)
    label = page.locator("#timeline output").inner_text()
    assert " to " in label and label.endswith("s")
    page.get_by_label("Show the whole time").click()
    assert page.locator("figure.zoomed").count() == 0


def test_fingers_tell_and_pinch(browser: Browser, file: Path) -> None:
    with opened(browser, file, has_touch=True) as page:
        bar = page.locator(BARS).nth(5)
        bar.tap()
        assert page.locator("#timeline .says").inner_text() == bar.evaluate(LABEL)
        box = page.locator("#timeline figure").bounding_box()
        assert box is not None
        y, middle = box["y"] + 150, box["x"] + box["width"] / 2
        send = page.context.new_cdp_session(page).send
        for kind, apart in (("touchStart", 50), ("touchMove", 90), ("touchMove", 200)):
            points = [{"x": middle + d, "y": y, "id": i} for i, d in enumerate((-apart, apart))]
            send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert 0.2 < _shown(page)[1] < 0.35


def test_a_phone_can_read_it(browser: Browser, file: Path) -> None:
    """Nothing is wider than the screen but what scrolls by itself, and no text is tiny."""
    with opened(browser, file, viewport={"width": 390, "height": 844}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        small = page.eval_on_selector_all(
            "figure text",
            "all => Math.min(...all.map(e => "
            "parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().d))",
        )
        assert small > 10
        for figure in page.locator("figure").all():
            scrolls = figure.evaluate(
                "e => [e.scrollWidth, e.clientWidth, getComputedStyle(e).overflowX]"
            )
            assert scrolls[0] <= scrolls[1] or scrolls[2] == "auto"


def test_without_scripts_it_reads_well(browser: Browser, file: Path) -> None:
    with opened(browser, file, java_script_enabled=False) as page:
        assert page.locator("button").count() == 0
        for name in ("timeline", "bandwidth", "topology", "pipeline", "dag"):
            box = page.locator(f"#{name} figure svg").first.bounding_box()
            assert box is not None and box["width"] > 300 and box["height"] > 100
        assert page.locator(".program li").count() == COPIES
        assert "chunk" in (page.locator(f"{BARS} title").first.text_content() or "")


def _compared(shot: bytes, name: str, update: bool) -> None:
    """Compares a screenshot with its golden file: nearly all pixels are nearly the same."""
    path = Path(__file__).parent / "screenshots" / f"{name}.png"
    pixels = imread(BytesIO(shot), format="png")[:, :, :3]
    if update:
        path.parent.mkdir(exist_ok=True)
        Image.open(BytesIO(shot)).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    expected = imread(path)[:, :, :3]
    rows, columns = np.minimum(pixels.shape[:2], expected.shape[:2])
    assert np.abs(np.subtract(pixels.shape, expected.shape)).max() <= 1, pixels.shape
    apart = np.abs(pixels[:rows, :columns] - expected[:rows, :columns]).max(axis=2) > 0.2
    assert apart.mean() < 0.004, f"{apart.mean():.1%} of {name} is not as in {path}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshots(
    browser: Browser, file: Path, scheme: Any, request: pytest.FixtureRequest
) -> None:
    """Of the timeline and the chart, and of a line's bars in a magnified part of the timeline."""
    update = bool(request.config.getoption("--update-golden"))
    with opened(browser, file, color_scheme=scheme, viewport={"width": 900, "height": 900}) as page:
        for name in ("timeline", "bandwidth"):
            shot = page.locator(f"#{name} figure").screenshot(style=NO_TEXT)
            _compared(shot, f"{name}-{scheme}", update)
        page.get_by_label("Zoom in").click()
        page.locator(f".program li[value='{COPIES}']").focus()
        shot = page.locator("#timeline figure").screenshot(style=NO_TEXT)
        _compared(shot, f"lit-{scheme}", update)
        with pytest.raises(AssertionError, match="is not as in"):
            broken = page.locator("#timeline figure").screenshot(
                style=f"{NO_TEXT} .lit {{ fill: red }}"
            )
            _compared(broken, f"lit-{scheme}", False)
