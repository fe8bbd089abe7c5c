"""An engine whose translations can be made to wait or to fail, so that a test decides who comes first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from uppercase import UppercaseEngine

from latentmt.data.tokenizer import Tokenizer
from latentmt.engines.backend import CheckCancelled, never_cancelled
from latentmt.options import DecodingOptions
from latentmt.results import Candidates

HELD, FAILS = "der lange satz" + " und so weiter" * 4, "der falsche satz"


class Gate(UppercaseEngine):
    """Translates to capitals. A held sentence waits at a gate, and lets others be served meanwhile."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.open = threading.Event()
        self.calls: list[list[str]] = []
        self.held = 0

    def candidates(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidates]:
        texts = self._tokenizer.decode(sentences)
        self.calls.append(texts)
        if any(FAILS in text for text in texts):
            raise RuntimeError(FAILS)
        if any(HELD in text for text in texts):
            self.held += 1
            try:
                while not self.open.is_set():
                    check_cancelled()
                    time.sleep(0.001)
            finally:
                self.held -= 1
        return super().candidates(sentences, options, check_cancelled)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)
