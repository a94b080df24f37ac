"""Network namespaces that stand for hosts, joined by veth whose rate is limited. Needs root."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

DEVICE = "net0"  # of every host


@dataclass(frozen=True, slots=True)
class Host:
    """One host: a namespace and its address."""

    namespace: str
    address: str

    def before(self) -> tuple[str, ...]:
        """Returns what a command that runs there begins with."""
        return ("ip", "netns", "exec", self.namespace)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _wait_for_carrier(namespace: str) -> None:
    """Waits until the device is up, which takes some time after it was told to."""
    for _ in range(500):
        if "LOWER_UP" in _ip("-n", namespace, "link", "show", DEVICE):
            return
        time.sleep(0.01)
    raise OSError(f"{DEVICE} of {namespace} does not come up")


def _shape(namespace: str, rate: str) -> None:
    command = ["tc", "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", rate, "burst", "256kb"]
    command += ["latency", "50ms"]
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _join(hosts: list[Host], switch: str, rate: str) -> None:
    """Joins two hosts by a cable, more by a switch of their own."""
    for namespace in (*(host.namespace for host in hosts), switch):
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
    if len(hosts) > 2:
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
    for i, host in enumerate(hosts):
        at = ("-n", host.namespace, "link")
        if len(hosts) > 2:
            _ip(*at, "add", DEVICE, "type", "veth", "peer", "name", f"port{i}", "netns", switch)
            _ip("-n", switch, "link", "set", f"port{i}", "master", "switch")
            _ip("-n", switch, "link", "set", f"port{i}", "up")
        elif i == 0:
            other = hosts[-1].namespace
            _ip(*at, "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", other)
    for host in hosts:
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", DEVICE)
        _ip("-n", host.namespace, "link", "set", DEVICE, "up")
        _shape(host.namespace, rate)
    for host in hosts:
        _wait_for_carrier(host.namespace)


@contextmanager
def hosts(n: int, rate: str) -> Iterator[list[Host]]:
    """Makes n hosts, each of which sends at `rate` (as tc writes it: 10gbit) at most, and removes
    them.

    Raises:
        OSError: there can be none here.
    """
    stem = f"hccc-{os.getpid()}-{secrets.token_hex(3)}"
    made = [Host(f"{stem}-{i}", f"10.77.0.{i + 1}") for i in range(n)]
    switch = f"{stem}-s"
    try:
        _join(made, switch, rate)
        yield made
    finally:
        for namespace in (*(host.namespace for host in made), switch):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


@contextmanager
def ranks_on(
    hosts: Sequence[Host],
    each: int,
    command: Sequence[str],
    said: Callable[[int], Mapping[str, str]],
) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs a command as so many ranks of every host, in order, with pipes for their output; at the
    end none is left. said: a rank's own variables, beside this process's."""
    made = [
        subprocess.Popen(
            [*hosts[rank // each].before(), *command],
            env={**os.environ, "HCCC_HOST_ID": hosts[rank // each].namespace, **said(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(each * len(hosts))
    ]
    try:
        yield made
    finally:
        for one in made:
            one.kill()
            one.wait()


def job_on(hosts: Sequence[Host], each: int) -> dict[str, str]:
    """Returns the variables of a job of so many ranks of every host, which meet at the first."""
    return {
        "HCCC_JOB": secrets.token_hex(8),
        "HCCC_NRANKS": str(each * len(hosts)),
        "HCCC_ROOT": f"{hosts[0].address}:{20000 + secrets.randbelow(10000)}",
        "HCCC_SECRET": secrets.token_hex(16),
        "UCX_TLS": "tcp,self",
    }


@cache
def missing() -> str:
    """Says why there can be no such hosts here; returns "" where there can."""
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"there is no `{tool}` (apt-get install iproute2)"
    try:
        with hosts(2, "1gbit"):
            return ""
    except OSError as error:
        return f"network namespaces need root and the kernel's tbf: {error}"
