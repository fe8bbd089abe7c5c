"""The interface of an engine: sentences of ids in, candidates, annotations and traces out.

An engine owns the networks, their device and batching. The translator owns text. An engine without torch is another
class with these methods, chosen in `load.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from latentmt.options import DecodingOptions
from latentmt.results import Annotation, Candidate, Candidates, SentenceTrace

CheckCancelled = Callable[[], None]
"""Called before every batch, and more often where a batch takes long: every few tens of milliseconds on a CPU.

An exception from it cancels the call. It may also wait while others are served, so it is not called with a lock held.
"""


def never_cancelled() -> None:
    """Never cancel."""


@runtime_checkable
class Backend(Protocol):
    """An engine with a loaded model. It may be used from several threads at once."""

    @property
    def methods(self) -> list[str]:
        """The decoding methods of the model, including `prior` and `teacher` if it has them."""
        ...

    @property
    def hints(self) -> dict[str, str]:
        """What each method does, in a few words."""
        ...

    @property
    def default_method(self) -> str:
        """The method used when none is given."""
        ...

    @property
    def rerankers(self) -> list[str]:
        """The rerankers of the model, `none` first."""
        ...

    @property
    def has_language_model(self) -> bool:
        """Whether the model has a language model to read translations with."""
        ...

    @property
    def latent_dim(self) -> int | None:
        """Entries of a place's latent; None without a latent model."""
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
        """What results and times depend on beside the options.

        device, dtype, versions, threads, workers, batch_tokens and graphed.
        """
        ...

    def best(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidate]:
        """The kept candidate of each sentence."""
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

    def trace(
        self, sentence: list[int], options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> SentenceTrace:
        """Translate a sentence with the latent model and record every step."""
        ...

    def field_around(
        self, trace: SentenceTrace, options: DecodingOptions, position: int, points: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """The field at these latents of one place, the others being at their final latents. Zero without refinement."""
        ...

    def warmup(
        self, options: DecodingOptions, max_length: int, batches: Sequence[int] = (1,), compiled: bool = True
    ) -> None:
        """Make the first translations as fast as later ones, where possible."""
        ...
