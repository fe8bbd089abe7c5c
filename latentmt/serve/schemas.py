"""Requests and responses. /translate, /detect and /languages have LibreTranslate's formats."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from annotated_types import Ge
from pydantic import BaseModel, Field, create_model, model_validator

from latentmt.options import DecodingOptions, field_annotations

Text = Annotated[str, Field(examples=["Das ist ein Haus."])]
Source = Annotated[str, Field(max_length=35, description="A language's code, or `auto`. Default: that of the model.")]
Target = Annotated[
    str, Field(max_length=35, description="A language's code. Default: that of the first model for the source.")
]
ApiKey = Annotated[str, Field(description="If the server requires one.")]
Probability = Annotated[float, Field(ge=0, le=1)]
Point = tuple[float, float]

_OPTIONS = ("method", "steps", "lengths", "samples", "rerank", "lm_weight")
"""The fields of `DecodingOptions` that a request may set."""


class BaseRequest(BaseModel):
    """The body of a request."""

    @model_validator(mode="before")
    @classmethod
    def _drop_blanks(cls, fields: Any) -> Any:
        """LibreTranslate's clients send null or an empty string for what they leave out."""
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if name == "q" or value not in (None, "")}


R = TypeVar("R", bound=BaseRequest)


def with_decoding_options(schema: type[R]) -> type[R]:
    """Add decoding options to a schema, as `DecodingOptions` declares them but optional.

    The translator knows its methods and rerankers, so their names are plain strings here.
    """
    fields: dict[str, Any] = {}
    for name in _OPTIONS:
        base, info = get_args(field_annotations()[name])
        kind: Any = str if get_origin(base) is Literal else base
        least = next((bound.ge for bound in info.metadata if isinstance(bound, Ge)), None)
        # Upper bounds are the server's, which are lower.
        fields[name] = (Annotated[kind | None, Field(description=info.description, ge=least)], None)
    return create_model(schema.__name__, __base__=schema, __doc__=schema.__doc__, **fields)


def decoding_options(of: BaseRequest | DecodingOptions) -> dict[str, Any]:
    """The decoding options that a request sets, or those of all options that a request may set."""
    return {name: value for name in _OPTIONS if (value := getattr(of, name)) is not None}


@with_decoding_options
class TranslateRequest(BaseRequest):
    """Texts to translate."""

    q: Annotated[str | list[str], Field(description="A text, or several.", examples=["Das ist ein Haus."])]
    source: Source = ""
    target: Target = ""
    format: Annotated[str, Field(description="`text` or `html`.", pattern="^(text|html)$")] = "text"
    alternatives: Annotated[int, Field(ge=0, le=10, description="How many other translations to return.")] = 0
    confidence: Annotated[
        bool, Field(description="Return probabilities, and a warning if a text is in another language.")
    ] = False
    alignment: Annotated[bool, Field(description="Return which characters and sentences belong together.")] = False
    api_key: ApiKey = ""


@with_decoding_options
class TraceRequest(BaseRequest):
    """A text whose refinement is traced."""

    q: Text
    source: Source = ""
    target: Target = ""
    sentence: Annotated[int | None, Field(ge=0, description="Return the field, too, of this sentence …")] = None
    token: Annotated[int | None, Field(ge=0, description="… and this token of it.")] = None
    api_key: ApiKey = ""


class DetectRequest(BaseRequest):
    """A text in an unknown language."""

    q: Text
    api_key: ApiKey = ""


class DetectedLanguage(BaseModel):
    """A language a text may be in."""

    confidence: Annotated[float, Field(ge=0, le=100)]
    language: str


class TokenConfidence(BaseModel):
    """A piece of a translation as the model wrote it."""

    text: Annotated[str, Field(description="With the white space before it.")]
    confidence: Probability


class SentenceSpans(BaseModel):
    """A sentence: start and end in characters of the text and of its translation."""

    source: tuple[int, int]
    target: tuple[int, int]


class AlignmentLink(SentenceSpans):
    """Characters of a text and of its translation that belong together."""

    weight: Annotated[float, Field(ge=0, description="How much of the target is owed to the source.")]


class TranslateResponse(BaseModel):
    """Translations in the order of the texts: one for a single text, a list for a list."""

    translatedText: str | list[str]  # noqa: N815 (LibreTranslate's name)
    detectedLanguage: Annotated[  # noqa: N815
        DetectedLanguage | list[DetectedLanguage] | None,
        Field(description="If the source is `auto`, or with a warning."),
    ] = None
    alternatives: Annotated[list[str] | list[list[str]] | None, Field(description="If requested.")] = None
    confidence: Annotated[
        Probability | list[Probability] | None, Field(description="The geometric mean over the tokens, if requested.")
    ] = None
    tokens: Annotated[
        list[TokenConfidence] | list[list[TokenConfidence]] | None, Field(description="With the confidence.")
    ] = None
    alignment: Annotated[list[AlignmentLink] | list[list[AlignmentLink]] | None, Field(description="If requested.")] = (
        None
    )
    sentences: Annotated[
        list[SentenceSpans] | list[list[SentenceSpans]] | None, Field(description="With the alignment.")
    ] = None
    warning: Annotated[
        str | list[str | None] | None,
        Field(description="With the confidence, if a text is evidently not in the source language."),
    ] = None


class Language(BaseModel):
    """A language, and those it can be translated into."""

    code: str
    name: str
    targets: list[str]


class TraceToken(BaseModel):
    """A token after a step."""

    text: Annotated[str, Field(description="With the white space before it.")]
    probability: Probability
    changed: Annotated[bool, Field(description="Whether the step changed it.")]
    place: Annotated[Point, Field(description="The position of its latent in the plane.")]


class TraceStep(BaseModel):
    """A sentence after a refinement step. Step 0 is before the first."""

    number: int
    text: str
    probability: Annotated[Probability, Field(description="The geometric mean over the tokens.")]
    milliseconds: float
    tokens: list[TraceToken]


class TraceCandidate(BaseModel):
    """A candidate of the search."""

    text: str
    score: float
    kept: bool


class TraceField(BaseModel):
    """The field on a grid: where a token would move from each point, with the other tokens at their final positions."""

    token: int
    points: list[Point]
    moves: list[Point]


class TraceSentence(BaseModel):
    """A sentence from its first latent to its translation."""

    source: str
    translation: str
    dimensions: Annotated[int, Field(description="Of a token's latent.")]
    seen: Annotated[float, Field(description="The share of all movement that lies in the plane.")]
    steps: list[TraceStep]
    candidates: list[TraceCandidate]
    field: TraceField | None = None


class TraceResponse(BaseModel):
    """Every step of every sentence of a text."""

    options: str
    sentences: list[TraceSentence]


class ModelResponse(BaseModel):
    """What a model can do, and what the server allows."""

    source: str
    target: str
    methods: list[str]
    hints: Annotated[dict[str, str], Field(description="What each method does, in a few words.")]
    reranks: list[str]
    default: Annotated[str, Field(description="The decoding options if a request sets none.")]
    default_options: Annotated[dict[str, Any], Field(description="The same, as fields of a request.")]
    method: str
    dimensions: int | None
    characters: int
    candidates: int
    steps: int
    keys: Annotated[bool, Field(description="Whether an API key is required.")]


class ErrorResponse(BaseModel):
    """What is wrong."""

    error: str


class FileResponseBody(BaseModel):
    """Where a translated document is, for some minutes."""

    translatedFileUrl: str  # noqa: N815 (LibreTranslate's name)


class DeepLTranslation(BaseModel):
    """A translation, as DeepL has it."""

    detected_source_language: str
    text: str
    billed_characters: Annotated[int, Field(description="Of the source, which clients expect.")]


class DeepLTranslations(BaseModel):
    """Translations in the order of the texts."""

    translations: list[DeepLTranslation]


class DeepLDocument(BaseModel):
    """A document that was received."""

    document_id: str
    document_key: str


class DeepLStatus(BaseModel):
    """How far a document is."""

    document_id: str
    status: Annotated[str, Field(description="`queued`, `translating`, `done` or `error`.")]
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None
    done: Annotated[int, Field(description="Texts that are translated.")]
    total: Annotated[int, Field(description="All texts.")]


class DeepLError(BaseModel):
    """What is wrong, as DeepL says it."""

    message: str
