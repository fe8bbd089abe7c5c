"""Training curves: the second metric is found in the log, whatever the stage is called."""

from reports import make_report

from latentmt.measure.methods import field_style
from latentmt.measure.report import Curves
from latentmt.plots.style import styled
from latentmt.plots.training import draw_training


def curves(**metrics: float) -> Curves:
    return Curves([{"step": float(step), "loss": 1.0 / step, **metrics} for step in (1, 2, 3)], [])


def test_the_second_metric_is_the_first_known_one_in_the_log() -> None:
    training = {
        "curl": curves(cosine=0.5, accuracy=0.5),
        "flow": curves(),
        "latent": curves(accuracy=0.5, kl=0.4),
        "teacher": curves(accuracy=0.5),
    }
    report = make_report(training=training, styles={stage: field_style(stage) for stage in training})
    with styled("training"):
        figure = draw_training(report)
    top, bottom = figure.axes[:4], figure.axes[4:]
    stages = [axes.get_title(loc="left") for axes in top]
    assert stages == ["teacher", "latent", "curl", "flow"]
    assert [axes.get_ylabel() for axes in bottom] == ["tokens right, %", "raw KL, nats a token", "cosine", ""]
    colors = [axes.get_lines()[0].get_color() for axes in top]
    assert colors == [field_style(stage).color for stage in stages]
    (line,) = bottom[0].get_lines()
    assert list(line.get_ydata()) == [50.0] * 3  # in percent
