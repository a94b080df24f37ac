"""printer_device: devices and networks in the cluster language, with every figure that differs from
the default, so that nothing depends on the library."""

from __future__ import annotations

from collections.abc import Iterator

from hccc.ir.device import BLOCK_RATES, ByProtocol, Cached, Device, Network
from hccc.lang.cluster.printer_text import number

WORDS = ("arch", "generation", "link")
NUMBERS = (
    *BLOCK_RATES[1:],
    *("sms", "hbm", "wire", "delivered", "launch", "graph", "own", "fence", "blocks"),
)


def device(d: Device) -> str:
    """Writes `define device = …`."""
    supposed = Device(d.vendor, d.name, d.reduce, d.block)
    pairs = [f'vendor => "{d.vendor}"', f'name => "{d.name}"']
    pairs += [f"reduce => {number(d.reduce)}", f"block => {number(d.block)}"]
    pairs += [f'{key} => "{getattr(d, key)}"' for key in WORDS if getattr(d, key)]
    pairs += [
        f"{key} => {number(getattr(d, key))}"
        for key in NUMBERS
        if getattr(d, key) != getattr(supposed, key)
    ]
    pairs += _times("alpha", d.alpha, supposed.alpha)
    pairs += _times("base", d.base, supposed.base)
    pairs += [] if d.peer else ["peer => no"]
    pairs += ["nvls => yes"] if d.nvls else []
    pairs += [f"read => {number(d.read)}"] if d.read != supposed.read else []
    pairs += [f"step => {number(d.step)}"] if d.step else []
    pairs += [f"cache => [{', '.join(map(_cached, d.cache))}]"] if d.cache else []
    return f"define device = {{{', '.join([*pairs, _estimates(d.estimates)])}}}"


def network(n: Network) -> str:
    """Writes `define network = …`; its NICs are printed separately."""
    pairs = [f'name => "{n.name}"'] if n.name else []
    pairs += [f"bandwidth => {number(n.bandwidth)}"] if n.bandwidth else []
    pairs += [f"delivered => {number(n.delivered)}"]
    pairs += _times("alpha", n.alpha, Network().alpha)
    pairs += [f"proxy => {number(n.proxy)}"] if n.proxy else []
    return f"define network = {{{', '.join([*pairs, 'nics => 0', _estimates(n.estimates)])}}}"


def _cached(c: Cached) -> str:
    rates = f"({number(c.block)}, {number(c.all)})" if c.all else number(c.block)
    return f"({c.size} -> {rates})"


def _times(figure: str, times: ByProtocol, supposed: ByProtocol) -> Iterator[str]:
    for protocol, time, other in zip(ByProtocol._fields, times, supposed, strict=True):
        if time != other:
            yield f"{figure}_{protocol} => {number(time)}"


def _estimates(names: tuple[str, ...]) -> str:
    return f"estimates => ({', '.join(names)})" if names else "estimates => none"
