"""Pictures that another process draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hccc.pictures import drawer as drawers
from hccc.pictures.drawer import Drawer
from hccc.pictures.html import html
from hccc.pictures.page import Subject
from hccc.pictures.svg_picture import SvgPicture
from hccc.pictures.timeline import timeline
from tests.pictures.drawn import compiled, ran, site


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    made = Drawer()
    yield made
    made.close()


def test_it_draws_what_this_process_draws(drawer: Drawer) -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 20)
    here = timeline(run, "a note")
    there = drawer.ask("timeline", run, "a note")()
    assert (there.title, there.says, there.svg) == (here.title, here.says, here.svg)


def test_without_it_pictures_are_drawn_here(drawer: Drawer) -> None:
    run = ran("ring_allreduce", "mi300x", 1 << 20)
    drawer._kill()
    drawer._process.wait()
    assert drawer.ask("timeline", run, "a note")().svg == timeline(run, "a note").svg


def test_its_mistakes_are_raised_here(drawer: Drawer) -> None:
    with pytest.raises(AttributeError):  # no dependencies are drawn of a number
        drawer.ask("dag", 1)()


def test_a_page_is_the_same_whoever_draws(drawer: Drawer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled("ring_allreduce", "mi300x")
    here = html(Subject(made, site("mi300x"), 1 << 20).page())
    asked = list[str]()
    ask = Drawer.ask

    def noted(self: Drawer, name: str, *what: object) -> Callable[[], SvgPicture]:
        asked.append(name)
        return ask(self, name, *what)

    monkeypatch.setattr(Drawer, "ask", noted)
    monkeypatch.setattr(drawers, "_begun", [drawer])
    assert html(Subject(made, site("mi300x"), 1 << 20).page()) == here
    assert sorted(asked) == ["bandwidth", "dag", "pipeline", "timeline", "topology"]
    assert drawers.begun() is None
