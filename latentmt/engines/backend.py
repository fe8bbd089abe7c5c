"""What the translator asks of an engine: sentences of ids in, candidates, annotations and traces out.

An engine owns the networks, their device and how sentences are batched. The translator owns text. An engine that needs
no torch is another class with these methods, chosen in `load.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from latentmt.options import DecodingOptions
from latentmt.results import Annotation, Candidate, Candidates, SentenceTrace

CheckCancelled = Callable[[], None]
"""Called before every batch. What it raises ends the work, of which nothing is kept."""


def never_cancelled() -> None:
    """The work is done to its end."""


@runtime_checkable
class Backend(Protocol):
    """An engine with a model loaded. It may be used from several threads at once."""

    @property
    def methods(self) -> list[str]:
        """The methods that it can decode with, `prior` and `teacher` among them where they are there."""
        ...

    @property
    def hints(self) -> dict[str, str]:
        """What each method does, in a few words."""
        ...

    @property
    def default_method(self) -> str:
        """The method to use when none is asked for."""
        ...

    @property
    def rerankers(self) -> list[str]:
        """What it can choose between candidates with, `none` first."""
        ...

    @property
    def latent_dim(self) -> int | None:
        """Entries of a token's latent; None without a latent model."""
        ...

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a GPU, where one batch at a time is best."""
        ...

    @property
    def cores(self) -> int:
        """Cores of this machine that batches may be spread over."""
        ...

    @property
    def info(self) -> dict[str, Any]:
        """What results depend on beside the options: device, dtype, versions, batch_tokens, graphed."""
        ...

    def best(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidate]:
        """The candidate that is kept, of each sentence."""
        ...

    def candidates(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidates]:
        """All candidates of each sentence."""
        ...

    def annotate(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        check_cancelled: CheckCancelled = never_cancelled,
        log_probs: bool = False,
    ) -> list[Annotation]:
        """Attention, and if asked for log-probabilities, of given targets. Sources end with EOS, targets do not."""
        ...

    def trace(self, sentence: list[int], options: DecodingOptions) -> SentenceTrace:
        """Translate a sentence with the latent model, and keep every step."""
        ...

    def field_around(
        self, trace: SentenceTrace, options: DecodingOptions, position: int, points: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """Where one token would move from these latents, the others being where they ended; zero if nothing moves."""
        ...

    def warmup(
        self, options: DecodingOptions, max_length: int, batches: Sequence[int] = (1,), compiled: bool = True
    ) -> None:
        """Make first translations as fast as later ones, where that can be done."""
        ...
