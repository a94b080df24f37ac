"""render: the Jinja environments, which differ only in escaping. Templates lay out, Python
decides."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment(*, escape: bool = False) -> Environment:
    """Returns an environment that rejects unknown names and leaves no blank lines for control
    lines.

    escape: whether to escape filled-in text, as HTML pages need.
    """
    return Environment(
        loader=PackageLoader("hccc", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escape,
    )


def render(template: str, view: object) -> str:
    """Renders `template` with `view` under the name `it`."""
    return environment().get_template(template).render(it=view)
