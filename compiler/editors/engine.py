"""engine: asks a worker, one request at a time, and ends it where it takes too long."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import asdict
from typing import Any

from hccc.editors.subject import Text

LONGEST = 1 << 26  # bytes of an answer
GRACE = 0.5  # s that a request has to end after nobody waits for it any more


class WorkerFailed(Exception):
    """A worker ended, or an answer is a bug's."""


class WorkerProcess:
    """A worker, started when it is first needed, and again after it was ended."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._lock = asyncio.Lock()

    async def ask(self, call: str, text: Text, *more: object, seconds: float | None = None) -> Any:
        """Returns the answer to a request.

        Raises:
            TimeoutError: it took more than `seconds`, and the worker was ended.
            WorkerFailed: there is no answer, because of a bug.
        """
        async with self._lock:
            request = {"call": call, "text": asdict(text), "more": more}
            answer = asyncio.ensure_future(self._answer(json.dumps(request) + "\n"))
            try:
                found = await asyncio.wait_for(asyncio.shield(answer), seconds)
            except TimeoutError:
                await self._end(answer)
                raise
            except asyncio.CancelledError:
                await asyncio.wait([answer], timeout=GRACE)
                await self._end(answer)
                raise
        if "failed" in found:
            raise WorkerFailed(found["failed"])
        return found["answer"]

    async def start(self) -> None:
        """Starts the worker before it is needed."""
        async with self._lock:
            await self._started()

    async def _started(self) -> Process:
        """Returns the worker, started if there is none."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hccc.editors.worker"),
                stdin=PIPE,
                stdout=PIPE,
                limit=LONGEST,
                env={**os.environ, "HCCC_PROGRESS": "off"},
            )
        return self._process

    async def close(self) -> None:
        """Ends the worker."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _answer(self, request: str) -> dict[str, Any]:
        process = await self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request.encode())
            await process.stdin.drain()
            line = await process.stdout.readline()
        except (OSError, ValueError) as error:
            raise WorkerFailed(str(error)) from None
        if not line:
            raise WorkerFailed(f"the worker ended with {await process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    async def _end(self, answer: asyncio.Future[dict[str, Any]]) -> None:
        """Ends the worker unless it has answered."""
        if not answer.done():
            await self.close()
            await asyncio.wait([answer])
        answer.exception()  # nobody asks for it
