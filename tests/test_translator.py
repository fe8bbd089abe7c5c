"""The translator: text is neither lost nor reordered, for any text."""

from __future__ import annotations

import copy
import sys
import threading
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny import SENTENCES, enliven, onnx_translator
from torch import nn

from latentmt.data.normalise import TextRules, normalise
from latentmt.data.tokenizer import BLANK, EOS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.data.tokens import Layout, Tokens
from latentmt.engines.backend import Backend
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.engines.torch_engine import TorchEngine
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig, FieldNetwork
from latentmt.fields.registry import field_network
from latentmt.infer.noise import standard_noise
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.networks import BundleConfig
from latentmt.nn.attention import Memory
from latentmt.options import DecodingOptions
from latentmt.results import Candidate, Candidates, without_special
from latentmt.translator import Translator

LONGEST = 64  # what a translator takes unless its bundle says otherwise

DIM = 3
SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 16, "d_filter": 32, "layers": 1, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=DIM)
LATENTS = {"tokens": LATENT, "ctc": replace(LATENT, output="ctc")}
TEACHER = TeacherConfig(**SIZE, encoder_layers=1)
Rules = tuple[TextRules, TextRules]
AS_IT_IS = TextRules()
SEARCH: dict[str, Any] = {"method": "score", "lengths": 2, "samples": 3, "rerank": "teacher"}


@dataclass(frozen=True)
class Parts:
    """Untrained networks with heads so large that every sentence and every method has its own text."""

    tokenizer: Tokenizer
    config: LatentConfig
    latent: LatentModel
    fields: dict[str, FieldNetwork]
    teacher: Teacher


@pytest.fixture(scope="module", params=[("torch", "tokens"), ("onnx", "tokens"), ("onnx", "ctc")], ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Engine and output model. Every test runs on every engine."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture(scope="module")
def parts(case: tuple[str, str]) -> Parts:
    config = LATENTS[case[1]]
    tokenizer = train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=440))
    torch.manual_seed(6)
    model = LatentModel(config, tokenizer.size)
    fields = {kind: field_network(FieldConfig(**SIZE, kind=kind), config) for kind in ("score", "energy")}
    teacher = Teacher(TEACHER, tokenizer.size)
    for network in (model, *fields.values(), teacher):
        enliven(network)
        network.double().eval()
    return Parts(tokenizer, config, model, fields, teacher)


Make = Callable[..., Translator]
"""Makes a translator from networks and, if they differ, text rules."""


@pytest.fixture(scope="module")
def make(case: tuple[str, str], parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Make:
    def on_torch(rules: Rules = (AS_IT_IS, AS_IT_IS), **networks: Any) -> Translator:
        return Translator.from_networks(parts.tokenizer, rules, **networks)

    def on_onnx(
        rules: Rules = (AS_IT_IS, AS_IT_IS),
        latent: LatentModel | None = None,
        fields: Mapping[str, FieldNetwork] | None = None,
        teacher: Teacher | None = None,
    ) -> Translator:
        text: dict[str, Any] = {"languages": ("de", "en"), "rules": rules}
        networks: dict[BundleConfig, nn.Module] = {}
        if latent:
            networks[BundleConfig(**text, latent=parts.config)] = latent
        for kind, network in (fields or {}).items():
            networks[BundleConfig(**text, latent=parts.config, field=FieldConfig(**SIZE, kind=kind))] = network
        if teacher:
            networks[BundleConfig(**text, teacher=TEACHER)] = teacher
        return onnx_translator(tmp_path_factory.mktemp("exported"), parts.tokenizer, rules, networks)

    return on_torch if case[0] == "torch" else on_onnx


@pytest.fixture(scope="module")
def translator(make: Make, parts: Parts) -> Translator:
    return make(latent=parts.latent, fields=parts.fields, teacher=parts.teacher)


def skip_without(translator: Translator, method: str) -> None:
    """The ONNX engine does not differentiate, so it has no energy."""
    if method not in translator.methods:
        assert isinstance(translator.backend, OnnxEngine)
        pytest.skip(f"the ONNX engine has no {method}")


@pytest.fixture
def given_to_engine(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """An engine that translates every sentence by itself; and what it was given."""
    seen: list[list[int]] = []

    def best(_: Backend, sentences: Sequence[Sequence[int]], *__: object) -> list[Candidate]:
        seen.extend(list(sentence) for sentence in sentences)
        return [Candidate(list(sentence[:-1]), list(sentence[:-1]), 0.0) for sentence in sentences]

    monkeypatch.setattr(type(translator.backend), "best", best)
    return seen


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for a user: the types of arguments are not checked."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def plain(text: str) -> str:
    """As the tokenizer sees it."""
    return normalise(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), AS_IT_IS)


any_text = st.text(st.characters(exclude_categories=()), max_size=30)  # halves of characters among them


# One text, several texts.


def test_a_text_gives_a_text_and_a_list_a_list(translator: Translator) -> None:
    first, second = (translator.translate(text) for text in ("Ein Satz.", "Zwei Bücher!"))
    assert isinstance(first, str)
    assert "" != first != second != ""
    assert translator.translate(["Ein Satz."]) == [first]
    assert translator.translate(("Zwei Bücher!", "Ein Satz.", "Zwei Bücher!")) == [second, first, second]
    assert translator.translate([]) == []


@pytest.mark.parametrize("gap", [" ", "\n", "\n\n", "\t", "   ", " \r\n\t", "\u00a0", "\u2028"])
def test_sentences_are_translated_independently_and_white_space_is_kept(translator: Translator, gap: str) -> None:
    sentences = ["Ein Satz steht hier.", "Noch einer!", "Wir haben Bücher?", "Noch einer!"]
    for choices in ({}, {"method": "delta", "steps": 2}, SEARCH):
        alone = translator.translate(sentences, **choices)
        assert alone[1] == alone[3]
        assert len(set(alone)) == 3
        assert translator.translate(f"{gap}{gap.join(sentences)}{gap}", **choices) == f"{gap}{gap.join(alone)}{gap}"
        assert translator.translate(gap.join(sentences), **choices) == gap.join(alone)


def test_the_teacher_translates_one_sentence_at_a_time_too(translator: Translator) -> None:
    first, second = translator.translate(["Ein Satz.", "Noch einer!"], method="teacher")
    assert first != second
    assert translator.translate("Ein Satz.\n Noch einer!", method="teacher") == f"{first}\n {second}"


def test_the_ids_of_a_text_are_those_of_its_sentences(translator: Translator, case: tuple[str, str]) -> None:
    options = translator.options(method="prior")
    first, second, both = translator.translations(["Ein Satz.", "Noch einer!", "Ein Satz. Noch einer!"], options)
    assert both.ids == first.ids + second.ids
    assert first.ids != second.ids
    raw = translator.translations(["Ein Satz."], translator.options(method="prior", remove_repeats="none"))[0]
    assert raw.ids == first.ids
    assert raw.text == plain(translator.tokenizer.decode([first.ids])[0])
    assert (raw.text != first.text) == (case[1] == "tokens")  # CTC repeats nothing here


def test_text_without_content_is_unchanged(translator: Translator, given_to_engine: list[list[int]]) -> None:
    blank = ["", " ", "\n", " \t \n", "\u3000", "\r\n"]
    assert translator.translate(blank) == blank
    assert [translator.translate(text) for text in blank] == blank
    assert translator.translate(["", "Ein Satz.", "\n"]) == ["", "Ein Satz.", "\n"]
    assert translator.translate(" \u200b\x00 ") == "  "  # white space, and two characters that nobody sees
    assert translator.translate("Ein Satz. \u200b\u200b") == "Ein Satz."
    assert given_to_engine == translator.tokenizer.encode(["Ein Satz."] * 2)
    assert translator.translations(["", " "], translator.options())[0].ids == []


def test_text_rules_apply_to_both_sides(translator: Translator, make: Make, parts: Parts) -> None:
    lower = TextRules(lowercase=True)
    networks = {"latent": parts.latent, "fields": parts.fields}
    text = "Ein Kleiner SATZ. Noch Einer!"
    source = make((lower, AS_IT_IS), **networks)
    assert source.translate(text) == source.translate("ein kleiner satz. Noch einer!") != translator.translate(text)
    target = make((AS_IT_IS, lower), **networks)
    assert target.translate(text) == translator.translate(text).lower() != translator.translate(text)


# Nothing is lost.


LONG = [
    "Wir haben sehr viele Bücher gelesen und " * 40 + "dann noch eins.",
    "Erst das, " * 90 + "dann jenes; " * 30 + "Schluss.",
    "Donaudampfschifffahrtsgesellschaft" * 20,
    "Ein Satz. " + "x1" * 300 + " steht hier. Noch einer!",
    "これは長い文です、" * 40 + "終わり。",
    "😀👨‍👩‍👧🇩🇪e\u0301" * 60,
    "~a" * 100 + "\u200b" * 600 + "~b" * 100,  # of some parts, nothing is left
]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_a_long_text_is_split_and_nothing_of_it_is_lost(
    translator: Translator, given_to_engine: list[list[int]], text: str
) -> None:
    assert len(translator.tokenizer.encode([text])[0]) > 2 * LONGEST
    assert translator.translate(text) == plain(text)
    assert max(map(len, given_to_engine)) <= LONGEST
    assert len(given_to_engine) > 2
    assert all(ids[-1] == EOS and ids.count(EOS) == 1 for ids in given_to_engine)
    # Not into splinters either.
    assert sum(map(len, given_to_engine)) / len(given_to_engine) > LONGEST / 4


def test_a_text_of_the_maximum_length_is_not_split(translator: Translator, given_to_engine: list[list[int]]) -> None:
    for words, parts in ((LONGEST - 2, 1), (LONGEST - 1, 2)):
        given_to_engine.clear()
        text = "~" * words  # a piece each, one for the space before them, and EOS
        assert len(translator.tokenizer.encode([text])[0]) == words + 2
        assert translator.translate(text, verbatim=False) == text
        assert len(given_to_engine) == parts


def test_text_without_letters_is_not_given_to_the_engine(
    translator: Translator, given_to_engine: list[list[int]]
) -> None:
    texts = ["~" * 300, "12:30", "😀", "3 + 4 = 7", "www.a.de", "---\u200b---"]
    assert translator.translate(texts) == texts
    assert given_to_engine == []
    assert translator.translate("Ein Satz. 12:30! Noch einer.") == "Ein Satz. 12:30! Noch einer."


def test_the_real_engine_translates_every_part(translator: Translator) -> None:
    text = " ".join(LONG[:2])
    parts = [translator.tokenizer.decode([trace.source])[0] for trace in translator.trace(text)]
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert translator.translate(text) == " ".join(translator.translate(parts))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(any_text, max_size=4))
@example(["▁ \ue000 \ue0001 ▁", "Ein Satz.\u0301 Noch. \u0301Einer.", "\ud800\udc00. A", "a\x00b. \x85 C"])
def test_an_identity_engine_returns_any_text(
    translator: Translator, given_to_engine: list[list[int]], texts: list[str]
) -> None:
    given_to_engine.clear()
    found = translator.translate(texts)
    assert [plain(text) for text in found] == [plain(text) for text in texts]
    assert all(1 < len(ids) <= LONGEST for ids in given_to_engine)


@settings(
    max_examples=settings().max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.lists(any_text, min_size=2, max_size=4))
def test_order_and_count_are_kept_for_any_texts(translator: Translator, texts: list[str]) -> None:
    found = translator.translate(texts)
    assert found == [translator.translate(text) for text in texts]
    assert translator.translate(texts[::-1]) == found[::-1]
    for text in found:
        text.encode("utf-8")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("given", [None, 3, b"x"])
def test_values_other_than_text_are_refused(translator: Translator, given: Any) -> None:
    with pytest.raises(UserError, match="expected a text or a list of texts, got"):
        translator.translate(given)


def test_surrogates_are_joined_or_replaced(translator: Translator) -> None:
    broken = ["Ein \ud83d Satz.", "\udc80", "Ein Satz. \udfff\ud800 Noch einer.", "Ein \ud83d\ude00 Satz."]
    whole = ["Ein \ufffd Satz.", "\ufffd", "Ein Satz. \ufffd\ufffd Noch einer.", "Ein \U0001f600 Satz."]
    assert translator.translate(broken) == translator.translate(whole)
    translator.candidates(broken, translator.options())
    translator.trace(broken[0])


def test_control_characters_are_never_emitted(make: Make, parts: Parts) -> None:
    """By a model whose favourite pieces are bytes of control characters, and a few letters."""
    latent, tokenizer = copy.deepcopy(parts.latent), parts.tokenizer
    pieces = [*(f"<0x{ord(control):02X}>" for control in "\n\r\t\0\x7f"), *"aeio"]
    ids = [id_ for id_, piece in enumerate(tokenizer.pieces(range(tokenizer.size))) if piece in pieces]
    assert len(ids) == len(pieces)
    with torch.no_grad():
        latent.embedding.weight[ids] *= 20 / latent.embedding.weight[ids].norm(dim=1, keepdim=True)
    forced = make(latent=latent)
    texts = ["Ein Satz steht hier.", "Wir haben 1100 Bücher gelesen!", "Noch einer, und noch einer.", "Dort."]
    options = forced.options(method="prior", samples=16, rerank="decoder")
    found = [one for some in forced.candidates(texts, options) for one in some]
    raw = tokenizer.decode([one.ids for one in found])
    assert set("\n\raei") <= set("".join(raw))
    for one, decoded in zip(found, raw, strict=True):
        assert not any(unicodedata.category(character).startswith("C") for character in one.text)
        assert len(one.text.splitlines()) <= 1
        assert one.text == one.text.strip()
        assert set(one.text) - {" "} == set(decoded) - set(" \n\r\t\0\x7f")
    for text in forced.translate(texts):
        assert text.isprintable()


@pytest.mark.parametrize("text", ["a\nb", "\na\r\n", "a\x85b", "a\u2028b\u2029", "\x1b[31m", "a\u200b\x00 b", "\n"])
def test_byte_pieces_are_normalised(translator: Translator, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (ids,) = translator.tokenizer.encode([text])
    assert translator.tokenizer.decode([ids]) == [text]
    monkeypatch.setattr(type(translator.backend), "best", lambda *_: [Candidate(ids[:-1], ids[:-1], 0.0)])
    assert translator.translate("Ein Satz.") == plain(text) != text


# Choices.


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_option_is_named(translator: Translator) -> None:
    for call in (translator.options, lambda **choices: translator.translate("Ein Satz.", **choices)):
        with pytest.raises(UserError, match=r"unknown option stepz \(did you mean steps\?\)"):
            call(stepz=1)
    with pytest.raises(UserError, match=r"unknown option stepz \(did you mean steps\?\)"):
        translator.trace("Ein Satz.", stepz=1)
    with pytest.raises(UserError, match="method scores: this model has only prior, delta"):
        translator.translate("", method="scores")
    with pytest.raises(UserError, match="6 candidates need a rerank"):
        translator.translate([], lengths=2, samples=3)


def test_unsupported_methods_and_rerankers_are_refused(translator: Translator, make: Make, parts: Parts) -> None:
    skip_without(translator, "energy")
    assert translator.methods == ["prior", "delta", "score", "energy", "teacher"]
    assert translator.options().method == "score"
    assert translator.options(rerank="teacher").rerank == "teacher"

    latent = make(latent=parts.latent, fields={"energy": parts.fields["energy"]})
    assert latent.methods == ["prior", "delta", "energy"]
    assert latent.options(steps=3) == DecodingOptions("energy", 3)
    with pytest.raises(UserError, match="method score: this model has only prior, delta, energy"):
        latent.translate("Ein Satz.", method="score")
    with pytest.raises(UserError, match="rerank teacher: this model has no teacher; decoder, elbo and marginal need"):
        latent.options(samples=2, rerank="teacher")

    teacher = make(teacher=parts.teacher)
    assert teacher.methods == ["teacher"]
    assert teacher.options() == DecodingOptions("teacher")
    assert teacher.translate("Ein Satz.") == translator.translate("Ein Satz.", method="teacher")
    for method in ("prior", "delta", "score", "energy"):
        with pytest.raises(UserError, match=f"method {method}: this model has only teacher"):
            teacher.options(method=method)
    for one in (teacher, translator):
        with pytest.raises(UserError, match="the teacher has no refinement steps"):
            one.trace("Ein Satz.", method="teacher")


def test_options_reach_the_search(translator: Translator) -> None:
    text = "Ein kleiner Satz steht hier, und noch einer dort."
    names: list[dict[str, Any]] = [
        {"method": "prior"},
        {"method": "delta"},
        {"method": "score"},
        {"method": "energy", "steps": 2},
        {"method": "score", "steps": 2},
        {"method": "score", "length_bias": 0.5},
        {"method": "prior", "remove_repeats": "none", "length_bias": 0.5},
    ]
    names = [choices for choices in names if choices["method"] in translator.methods]
    assert len({translator.translate(text, **choices) for choices in names}) == len(names)
    seeds = {translator.translate(text, method="prior", samples=9, rerank="elbo", seed=seed) for seed in range(6)}
    assert len(seeds) > 1
    assert translator.translate(text) == translator.translate(text, method="score", steps=1)


@pytest.mark.parametrize(
    "choices",
    [{"method": "energy", "steps": 2}, {"method": "delta", "steps": 2}, SEARCH, {**SEARCH, "rerank": "marginal"}],
    ids=lambda choices: choices["method"] + choices.get("rerank", ""),
)
def test_concurrent_threads_get_the_results_of_one(translator: Translator, choices: dict[str, Any]) -> None:
    skip_without(translator, choices["method"])
    words = ["Ein", "Satz", "steht", "hier", "und", "noch", "einer", "dort", "mit", "Büchern"]
    texts = [" ".join(words[n % 7 :][: 1 + n % 5]) + f" {n}!{' ' * n} Dort?" for n in range(16)]
    # Every text has white space of its own, and a seed.
    expected = [translator.translate([text, texts[-1]], seed=n, **choices) for n, text in enumerate(texts)]
    assert len({first for first, _ in expected}) == len(texts)
    together = threading.Barrier(8)

    def work(number: int) -> list[str]:
        if number < 8:
            together.wait(timeout=30)
        return translator.translate([texts[number], texts[-1]], seed=number, **choices)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, range(len(texts)))) == expected
    finally:
        sys.setswitchinterval(interval)


# Candidates and traces.


@pytest.mark.parametrize("rerank", ["teacher", "decoder", "elbo", "marginal"])
def test_the_translation_is_one_of_the_candidates(translator: Translator, rerank: str) -> None:
    texts = ["Ein Satz.", "Noch einer!", "Wir haben 1100 Bücher gelesen und noch eins.", "Dort"]
    options = translator.options(method="score", lengths=3, samples=4, rerank=rerank)
    found = translator.candidates(texts, options)
    assert [len(some) for some in found] == [options.candidates] * len(texts)
    listed = translator.backend.candidates(translator.tokenizer.encode(texts), options)
    kept = translator.translations(texts, options)
    for some, best, one in zip(found, [each.best for each in listed], kept, strict=True):
        assert (some[best].text, some[best].ids) == (one.text, one.ids)
        assert one.score == pytest.approx(some[best].score)
        assert len({candidate.text for candidate in some}) > 2
    assert any(each.best for each in listed)


def test_candidates_are_those_of_the_first_sentence_and_none_of_nothing(translator: Translator) -> None:
    options = translator.options(**SEARCH)
    nothing, first, blank, several = translator.candidates(["", "Ein Satz.", "\n", "Ein Satz. Noch einer!"], options)
    assert nothing == blank == []
    assert first == several
    assert len(first) == options.candidates
    assert translator.candidates([], options) == []


def memory_of(model: LatentModel, source: list[int]) -> tuple[Memory, Memory]:
    """What prior and decoder attend to."""
    encoded = model.encode(Tokens.padded([source]))
    return model.prior.project_kv(encoded), model.decoder_stack.project_kv(encoded)


@torch.no_grad()
@pytest.mark.parametrize(
    "choices",
    [
        {"method": "prior", "steps": 3},
        {"method": "delta", "steps": 3},
        {"method": "energy", "steps": 2},
        {"method": "score", "steps": 2, "length_bias": 0.3},
        {**SEARCH, "steps": 2},
        {"method": "delta", "steps": 2, "lengths": 4, "samples": 3, "rerank": "decoder", "seed": 2},
    ],
    ids=lambda choices: choices["method"] + choices.get("rerank", ""),
)
def test_a_trace_agrees_with_the_translation(translator: Translator, parts: Parts, choices: dict[str, Any]) -> None:
    skip_without(translator, choices["method"])
    model, text = parts.latent, "Wir haben 1100 Bücher gelesen. Noch einer!"
    near = 1e-9 if isinstance(translator.backend, TorchEngine) else 1e-4  # in single precision
    sentences, options = ["Wir haben 1100 Bücher gelesen.", "Noch einer!"], translator.options(**choices)
    traces = translator.trace(text, **choices)
    kept = translator.translations(sentences, options)
    for trace, one, ids in zip(traces, kept, translator.tokenizer.encode(sentences), strict=True):
        assert trace.source == ids
        assert [step.number for step in trace.steps] == list(range(options.steps + 1 if options.refines else 1))
        assert without_special(trace.steps[-1].ids) == one.ids == trace.candidates[trace.best].decoded
        assert plain(translator.tokenizer.decode([trace.candidates[trace.best].readable])[0]) == one.text
        assert Candidates(trace.candidates, trace.best) == translator.backend.candidates([ids], options)[0]
        assert len(trace.candidates) == options.candidates
        assert trace.best == max(range(options.candidates), key=lambda n, of=trace.candidates: of[n].score)
        for_prior, for_decoder = memory_of(model, ids)
        length = len(trace.steps[0].z)
        layout = Layout.from_lengths(torch.tensor([length]), length)
        for step in trace.steps:
            z = torch.tensor([step.z], dtype=torch.float64)
            states = model.decode(z, layout, for_decoder)
            labels = model.output.labels(states, layout, model.embedding)
            written = model.output.written(labels, layout)
            assert step.ids == labels.masked_fill(~written, BLANK)[0].tolist()
            scores = torch.log_softmax(model.embedding.logits(states), -1).gather(2, labels[..., None])
            assert step.log_probs == pytest.approx(scores.flatten().tolist(), abs=near)
            assert max(step.log_probs) <= near
        sample = trace.best % options.samples
        drawn = standard_noise(options.samples, length, DIM, options.seed)
        noise = drawn[sample] if sample else torch.zeros(length, DIM)
        prior = model.prior(layout, for_prior)
        start = torch.tensor([trace.steps[0].z], dtype=torch.float64)
        torch.testing.assert_close(start, prior.gaussian.mean + prior.gaussian.std * noise, rtol=0, atol=near)
    if options.candidates > 1:
        assert any(trace.best % options.samples for trace in traces)


def test_a_step_of_a_trace_is_a_translation_with_fewer_steps(translator: Translator) -> None:
    text = "Wir haben 1100 Bücher gelesen."
    for method in {"delta", "score", "energy"} & set(translator.methods):
        (trace,) = translator.trace(text, method=method, steps=4)
        for step in trace.steps:
            (one,) = translator.translations([text], translator.options(method=method, steps=step.number))
            assert without_special(step.ids) == one.ids
        assert len({tuple(step.ids) for step in trace.steps}) > 2


def test_a_trace_ends_where_an_adaptive_search_does(make: Make, parts: Parts) -> None:
    latent = copy.deepcopy(parts.latent)
    with torch.no_grad():
        latent.posterior_head.weight *= 0.1  # steps then depend little on where they start
    settled = make(latent=latent)
    (trace,) = settled.trace("Ein Satz.", method="delta", steps=40, adaptive=True)
    assert 3 < len(trace.steps) < 41
    (fixed,) = settled.trace("Ein Satz.", method="delta", steps=len(trace.steps) - 1)
    assert fixed == trace


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_trace_in_slices_equals_a_whole_one(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, adaptive: bool
) -> None:
    options = {"lengths": 3, "samples": 3, "steps": 4, "rerank": "decoder", "adaptive": adaptive}
    (whole,) = translator.trace("Ein kleiner Satz steht hier.", **options)  # type: ignore[arg-type]
    monkeypatch.setattr("latentmt.engines.torch_engine.CPU_BATCH_TOKENS", 1)
    (sliced,) = translator.trace("Ein kleiner Satz steht hier.", **options)  # type: ignore[arg-type]
    assert sliced.best == whole.best
    assert [candidate.decoded for candidate in sliced.candidates] == [c.decoded for c in whole.candidates]
    for number, step in enumerate(sliced.steps):
        assert step.ids == whole.steps[number].ids
    assert sliced.steps[-1].ids == whole.steps[-1].ids
    assert len(sliced.steps) == len(whole.steps) or adaptive  # the others may have taken more


def test_a_trace_of_nothing_is_empty(translator: Translator) -> None:
    assert translator.trace("") == translator.trace(" \n") == []
