"""Styles of methods: those of the paper are fixed, others get one that depends on their name only."""

from latentmt.measure.methods import Style, field_style


def test_styles_of_the_papers_methods() -> None:
    assert field_style("delta") == Style("delta", "#0072B2", "X")
    assert field_style("energy") == Style("energy", "#D55E00", "^")
    assert field_style("score") == Style("score", "#009E73", "o")
    assert field_style("teacher") == Style("autoregressive", "#000000", "D")
    assert field_style("prior") == Style("L = 0", "#7f7f7f", "*")


def test_an_unknown_method_has_a_deterministic_style_of_its_own() -> None:
    known = {field_style(name).color for name in ("teacher", "latent", "prior", "delta", "energy", "score")}
    styles = [field_style(name) for name in ("curl", "flow", "langevin")]
    assert styles == [field_style(name) for name in ("curl", "flow", "langevin")]
    assert [style.label for style in styles] == ["curl", "flow", "langevin"]
    assert len({(style.color, style.marker) for style in styles}) == 3
    assert not known & {style.color for style in styles}
