"""Refinement on a terminal and as JSON: every step, and what it changed."""

import io
import json
import math
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.text import Text

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import EOS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.options import DecodingOptions
from latentmt.refinement import CHANGED, MAX_CANDIDATES, show_trace, trace_to_dict
from latentmt.results import Candidate, SentenceTrace, Step
from latentmt.translator import Translator

TEXTS = ["ein kleiner Satz steht hier", "a small sentence is is here", "a small sentence is here", "the small one"]


@pytest.fixture(scope="module", params=["tokens", "ctc"])
def translator(request: pytest.FixtureRequest) -> Translator:
    tokenizer = train_tokenizer(TEXTS * 20, TokenizerConfig(vocab_size=400))
    torch.manual_seed(1)
    config = LatentConfig(
        preset="tiny", d_model=16, d_filter=16, layers=1, heads=2, encoder_layers=1, output=request.param
    )
    model = LatentModel(config, tokenizer.size).eval()
    return Translator.from_networks(tokenizer, (TextRules(), TextRules()), latent=model)


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text])[0]


def trace_of(tokenizer: Tokenizer, steps: list[str], candidates: list[tuple[str, float]]) -> SentenceTrace:
    def step(number: int, text: str) -> Step:
        ids = ids_of(tokenizer, text)
        return Step(number, [[0.5, float(number)]] * len(ids), ids, [math.log(0.5)] * len(ids))

    found = [Candidate(ids_of(tokenizer, text)[:-1], ids_of(tokenizer, text)[:-1], score) for text, score in candidates]
    return SentenceTrace(ids_of(tokenizer, TEXTS[0]), [step(*one) for one in enumerate(steps)], found, 0)


def shown(translator: Translator, trace: SentenceTrace, **console: Any) -> str:
    file = io.StringIO()
    show_trace(translator, DecodingOptions("delta", 2), [trace], Console(file=file, width=40, **console))
    return file.getvalue()


def test_every_step_is_a_line_with_its_certainty(translator: Translator) -> None:
    trace = trace_of(translator.tokenizer, TEXTS[1:3] + TEXTS[2:3], [(TEXTS[2], 0.0)])
    assert shown(translator, trace).splitlines() == [
        "source          ein kleiner Satz steht hier",
        "L=0        50%  a small sentence is is here",
        "delta-1    50%  a small sentence is here",
        "delta-2    50%  a small sentence is here",
        "read as         a small sentence is here",
        "",
    ]


def test_changed_words_are_marked(translator: Translator) -> None:
    trace = trace_of(translator.tokenizer, [TEXTS[2], TEXTS[3]], [(TEXTS[3], 0.0)])
    coloured = shown(translator, trace, force_terminal=True, color_system="standard")
    first, second = (line for line in coloured.splitlines() if "L=0" in line or "delta-1" in line)
    green = Console(force_terminal=True, color_system="standard", file=io.StringIO())
    with green.capture() as captured:
        green.print(Text("the", CHANGED), end="")
    assert captured.get() in second
    assert "32m" not in first  # nothing was there before
    assert second.count("32m") == 2  # "the" and "one", not "small"


def test_candidates_are_ranked_and_shown_once(translator: Translator) -> None:
    scores = [
        (TEXTS[2], -0.5),
        (TEXTS[3], -0.25),
        (TEXTS[2], -0.75),
        *((f"{'a' * n} one", -float(n)) for n in range(1, 9)),
    ]
    trace = trace_of(translator.tokenizer, TEXTS[2:3], scores)
    lines = shown(translator, trace).splitlines()[3:-1]
    assert lines[:2] == ["-0.250          the small one", "-0.500          a small sentence is here"]
    assert len(lines) == MAX_CANDIDATES


def test_json_has_every_step(translator: Translator) -> None:
    text = "ein kleiner Satz. hier"
    options = translator.options(method="delta", steps=2)
    tree = json.loads(json.dumps(trace_to_dict(translator, text, options, translator.traces(text, options))))
    assert tree["source"] == text
    assert tree["options"] == "delta-2"
    for sentence in tree["sentences"]:
        assert [step["number"] for step in sentence["steps"]] == [0, 1, 2]
        assert sentence["source"][-1] == EOS
        for step in sentence["steps"]:
            assert len(step["z"]) == len(step["ids"]) == len(step["log_probs"]) == len(step["pieces"])
        last = sentence["steps"][-1]
        assert last["text"] == translator.texts([sentence["candidates"][0]["decoded"]])[0]  # blanks have no text
