"""XML from enemies: refused with a reason, in little memory and time; nothing is fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hccc
from tests.interop import corpus

LIMITED = Path(__file__).with_name("limited.py")
MB = 1 << 20
ALGO = (
    '<algo name="x" proto="Simple" nchannels="1" nchunksperloop="{chunks}" ngpus="{n}" '
    'coll="{coll}" inplace="1">'
)
GPU = '<gpu id="{r}" i_chunks="2" o_chunks="0" s_chunks="{s}">'
TB = '<tb id="{b}" send="{send}" recv="{recv}" chan="{chan}">'
STEP = (
    '<step s="{s}" type="{kind}" srcbuf="i" srcoff="{off}" dstbuf="i" dstoff="0" cnt="{cnt}" '
    'depid="{dep}" deps="{deps}" hasdep="{has}"/>'
)
GOOD = (corpus.OWN / "allreduce_pair_n2.xml").read_text()
HEAD = ALGO.format(chunks=2, n=2, coll="allreduce")


def step(**given: object) -> str:
    """Makes a step: harmless values, overridden by `given`."""
    usual: dict[str, object] = {
        "s": 0,
        "kind": "s",
        "off": 0,
        "cnt": 1,
        "dep": -1,
        "deps": -1,
        "has": 0,
    }
    return STEP.format(**(usual | given))


def changed(old: str, new: str) -> str:
    """Replaces one text of a good file."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def laughs() -> str:
    """Makes a file of a billion laughs: nested entities."""
    entities = ['<!ENTITY e0 "lol">']
    entities += [f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10)]
    return f"<!DOCTYPE algo [{''.join(entities)}]>{HEAD}&e9;</algo>"


def quadratic() -> str:
    """Makes a file that uses one long entity often."""
    return f'<!DOCTYPE a [<!ENTITY e "{"x" * 50_000}">]>{HEAD}{"&e;" * 50_000}</algo>'


def many_steps() -> str:
    """Makes as many valid steps as fit, and then a mistake."""
    blocks = []
    for b in range(64):
        rows = "".join(step(s=s) for s in range(1000))
        blocks.append(TB.format(b=b, send=1, recv=-1, chan=b) + rows + "</tb>")
    return HEAD + GPU.format(r=0, s=0) + "".join(blocks)[: 8 * MB - 1000]


def many_chunks() -> str:
    """Makes steps of 71 chunks: 500,000 primitives in half a megabyte, then a mistake."""
    blocks = []
    for b in range(7):
        rows = "".join(step(s=s, cnt=71) for s in range(1000))
        blocks.append(TB.format(b=b, send=1, recv=-1, chan=b) + rows + "</tb>")
    other = GPU.format(r=1, s=0) + "</gpu></algo>"
    head = ALGO.format(chunks=100, n=2, coll="allreduce")
    return head + GPU.format(r=0, s=0) + "".join(blocks) + "</gpu>" + other


def many_waits() -> str:
    """Makes 1,000 steps that each wait for a block without any signal in its 1,000 steps."""
    quiet = "".join(step(s=s, kind="cpy") for s in range(1000))
    waits = "".join(step(s=s, kind="cpy", dep=0, deps=0) for s in range(1000))
    first = TB.format(b=0, send=-1, recv=-1, chan=0) + quiet + "</tb>"
    blocks = "".join(
        TB.format(b=b, send=-1, recv=-1, chan=0) + waits + "</tb>" for b in range(1, 30)
    )
    gpus = GPU.format(r=0, s=0) + first + blocks + "</gpu>" + GPU.format(r=1, s=0) + "</gpu>"
    return HEAD + gpus + "</algo>"


def huge_buffers() -> str:
    """Makes 1,024 ranks of 32,768 chunks, and a step."""
    one = TB.format(b=0, send=-1, recv=-1, chan=0) + step(kind="cpy") + "</tb></gpu>"
    return idle().replace("</gpu>", one, 1)


def idle() -> str:
    """Makes 1,024 ranks of 32,768 chunks without any step."""
    gpus = "".join(GPU.format(r=r, s=32768) + "</gpu>" for r in range(1024))
    return ALGO.format(chunks=32768, n=1024, coll="allreduce") + gpus + "</algo>"


def unmatched_messages() -> str:
    """Makes two blocks of one gpu on one connection, all steps alike and on one line."""
    block = "".join(step(s=s) for s in range(3))
    blocks = "".join(TB.format(b=b, send=1, recv=-1, chan=0) + block + "</tb>" for b in (0, 1))
    return HEAD + GPU.format(r=0, s=0) + blocks + "</gpu></algo>"


FIRST_STEP = 's="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1"'
CASES: dict[str, tuple[str, str | bytes | Callable[[], str]]] = {
    "entity bomb": ("E501", laughs),
    "long entity often": ("E502", quadratic),
    "external DTD": ("E501", f'<!DOCTYPE a SYSTEM "file:///etc/passwd">{GOOD}'),
    "external entity": (
        "E501",
        f'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]>{HEAD}&e;</algo>',
    ),
    "parameter entity": (
        "E501",
        f'<!DOCTYPE a [<!ENTITY % e SYSTEM "http://127.0.0.1:9/">%e;]>{HEAD}</algo>',
    ),
    "undeclared entity": ("E501", HEAD + "&e;</algo>"),
    "deep nesting": ("E501", lambda: "<a>" * (2 * MB)),
    "deep nesting of gpus": ("E501", lambda: HEAD + GPU.format(r=0, s=0) * 100_000),
    "duplicate attribute": ("E501", changed('chan="0"', 'chan="0" chan="0"')),
    "duplicate gpu": ("E502", changed('<gpu id="1"', '<gpu id="0"')),
    "duplicate block": (
        "E502",
        changed("</tb>", '</tb><tb id="0" send="-1" recv="-1" chan="0"></tb>'),
    ),
    "duplicate step": ("E502", changed('s="1"', 's="0"')),
    "second algo": ("E501", GOOD + GOOD),
    "no algo": ("E502", "<gpu/>"),
    "unknown element": ("E502", changed("<step", "<stop")),
    "element in the wrong place": (
        "E502",
        f"{HEAD}{TB.format(b=0, send=1, recv=1, chan=0)}</tb></algo>",
    ),
    "huge count": ("E502", changed('cnt="1"', 'cnt="4000000000"')),
    "count of 10,000 digits": ("E502", changed('cnt="1"', f'cnt="{"9" * 10_000}"')),
    "huge ngpus": ("E502", changed('ngpus="2"', 'ngpus="2000000000"')),
    "ngpus without gpus": ("E502", changed('ngpus="2"', 'ngpus="1024"')),
    "huge nchunksperloop": ("E502", changed('nchunksperloop="2"', f'nchunksperloop="{2**31}"')),
    "huge block id": ("E502", changed('tb id="0"', 'tb id="1000000"')),
    "huge channel": ("E502", changed('chan="0"', 'chan="4096"')),
    "huge buffers": ("E517", huge_buffers),
    "huge buffers, and nothing to do": ("E511", idle),
    "offset outside": ("E513", changed('srcoff="1"', 'srcoff="2"')),
    "negative offset": ("E513", changed(FIRST_STEP, FIRST_STEP.replace('off="1"', 'off="-1"'))),
    "offset below int16": ("E502", changed('srcoff="1"', 'srcoff="-32769"')),
    "count past the end": ("E513", changed('cnt="1"', 'cnt="71"')),
    "words for numbers": ("E502", changed('cnt="1"', 'cnt="one"')),
    "floats for numbers": ("E502", changed('cnt="1"', 'cnt="1.0"')),
    "other digits": ("E502", changed('cnt="1"', 'cnt="١"')),
    "hexadecimal": ("E502", changed('cnt="1"', 'cnt="0x1"')),
    "underscores": ("E502", changed('cnt="1"', 'cnt="1_0"')),
    "empty number": ("E502", changed('cnt="1"', 'cnt=""')),
    "missing attribute": ("E502", changed('cnt="1" ', "")),
    "unknown type": ("E502", changed('type="s"', 'type="ra"')),
    "unknown buffer": ("E502", changed('srcbuf="i"', 'srcbuf="x"')),
    "unknown protocol": ("E502", changed('proto="LL"', 'proto="LL64"')),
    "unknown collective": ("E511", changed('coll="allreduce"', 'coll="allsum"')),
    "no call": ("E502", changed('inplace="1"', 'inplace="0" outofplace="0"')),
    "no steps": (
        "E511",
        HEAD + GPU.format(r=0, s=0) + "</gpu>" + GPU.format(r=1, s=0) + "</gpu></algo>",
    ),
    "one rank": (
        "E511",
        ALGO.format(chunks=1, n=1, coll="allreduce") + GPU.format(r=0, s=0) + "</gpu></algo>",
    ),
    "peer is itself": ("E512", changed('send="1"', 'send="0"')),
    "peer that is not there": ("E512", changed('send="1"', 'send="9"')),
    "no peer": ("E512", changed('send="1"', 'send="-1"')),
    "more sends than receives": (
        "E515",
        changed(
            '<step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" '
            'deps="-1" hasdep="0"/>',
            "",
        ),
    ),
    "wait for no block": ("E516", changed('depid="-1"', 'depid="7"')),
    "waits for silence": ("E516", many_waits),
    "two blocks on a connection": ("E502", unmatched_messages),
    "text": ("E502", changed("<step", "now this <step")),
    "text for ever": ("E502", lambda: HEAD + "x" * (7 * MB) + "</algo>"),
    "junk": ("E404", lambda: "junk" * (10 * MB // 4)),
    "smaller junk": ("E502", lambda: "junk" * MB),
    "junk in angle brackets": ("E501", lambda: "<>" * MB),
    "long attribute": ("E502", lambda: changed('name="', f'name="{"x" * (7 * MB)}')),
    "many attributes": (
        "E502",
        lambda: changed("name=", " ".join(f'a{i}="1"' for i in range(400_000)) + " name="),
    ),
    "attributes that hash alike": (
        "E502",
        lambda: changed('ngpus="2"', " ".join(f'a{i}="{i}"' for i in range(5000))),
    ),
    "long comment": ("E502", lambda: changed("<gpu", f"<!--{'x' * (7 * MB)}--><gpu")),
    "many comments": ("E501", lambda: HEAD + "<!---->" * MB),
    "many steps": ("E501", many_steps),
    "many chunks": ("E515", many_chunks),
    "nothing": ("E501", ""),
    "zeros": ("E402", "\0" * 1000),
    "not UTF-8": ("E402", GOOD.encode("utf-16")),
    "UTF-16 said, UTF-8 meant": ("E501", '<?xml version="1.0" encoding="utf-16"?' + GOOD),
    "invalid UTF-8": ("E402", b"\xff\xfe\xfd" + GOOD.encode()),
    **{f"cut at {part}/10": ("E501", GOOD[: len(GOOD) * part // 10]) for part in range(1, 10)},
}


def found(folder: Path) -> dict[str, dict[str, object]]:
    """Returns the outcome of every case, read in processes of their own."""
    paths = []
    for i, (_, content) in enumerate(CASES.values()):
        made = content() if callable(content) else content
        paths.append(folder / f"{i}.xml")
        paths[-1].write_bytes(made if isinstance(made, bytes) else made.encode())
    source = str(Path(next(iter(hccc.__path__))).parent)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, str(LIMITED), *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=environment,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip(CASES, rows, strict=True))


@pytest.mark.slow
def test_refused_at_once(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """What takes more memory or processor time than limited.py allows is killed. One test, so that
    one worker reads all."""
    for name, outcome in found(tmp_path).items():
        with subtests.test(name):
            assert outcome["code"] == CASES[name][0], outcome


def test_declared_encodings_do_not_matter(tmp_path: Path) -> None:
    """The text is UTF-8; a declaration cannot make the parser read it otherwise."""
    for encoding in ("bogus", "utf-16", "idna", "latin-1"):
        text = f'<?xml version="1.0" encoding="{encoding}"?>\n{GOOD}'
        assert corpus.verdict(text)[1].result is None


def test_text_that_is_not_unicode() -> None:
    with pytest.raises(Exception, match="E402"):
        corpus.verdict(GOOD.replace("allreduce_pair", "\ud800"))
