"""render: the Jinja environments, alike but for escaping. Templates lay out what Python decided."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment(*, escape: bool = False) -> Environment:
    """A misspelt name in a template is an error, and control lines leave no trace.

    escape: of what is filled in, for pages; sources are text as it is.
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
    """`template` with `view` under the name `it`."""
    return environment().get_template(template).render(it=view)
