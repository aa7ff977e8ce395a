"""Pictures of a study: rates with verdicts, repeats, seconds, rejections, knobs."""

from __future__ import annotations

import io
from collections.abc import Callable

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tuner.standing import Standing, knob_shares

COLOURS = {
    "accepted": "#2e7d32",
    "promising": "#0288d1",
    "rejected": "#c62828",
    "invalid": "#9e9e9e",
    "diagnostic": "#6d4c41",
}
RUNG_COLOURS = {
    "startup": "#90a4ae",
    "smoke": "#4fc3f7",
    "medium": "#1976d2",
    "deep": "#1a237e",
    "control": "#ffb300",
    "teardown": "#d7ccc8",
}


def figures(standing: Standing) -> dict[str, Figure]:
    """The pictures that these trials can fill, by file name without its ending."""
    drawn: dict[str, Figure] = {}
    for name, draw in _DRAWERS.items():
        figure = Figure(figsize=(9, 4), layout="constrained")
        axes = figure.subplots()
        if draw(axes, standing):
            drawn[name] = figure
    return drawn


def as_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as a file of that kind ("png" or "svg"), equal for equal trials."""
    out = io.BytesIO()
    # Without a fixed salt and date two drawings of the same trials would differ.
    with mpl.rc_context({"svg.hashsalt": "tuner"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(out, format=kind, dpi=120, metadata=metadata)
    return out.getvalue()


def _rates(axes: Axes, standing: Standing) -> bool:
    """Rate of every trial with its interval, coloured by verdict, and the best so far as a line."""
    measured = [trial for trial in standing.trials if trial.rate is not None]
    for verdict, colour in COLOURS.items():
        points = [t for t in measured if t.verdict.value == verdict and t.rate is not None]
        rates = [t.rate.tok_s for t in points if t.rate is not None]
        if not points:
            continue
        errors = [
            [r.mean - r.low if r.low is not None else 0.0 for r in rates],
            [r.high - r.mean if r.high is not None else 0.0 for r in rates],
        ]
        axes.errorbar(
            [t.number for t in points],
            [r.mean for r in rates],
            yerr=errors,
            fmt="o",
            color=colour,
            capsize=3,
            label=verdict,
        )
    steps = [(t.number, t.tok_s) for t in [standing.first_control, *standing.promotions] if t]
    known = [(number, tok_s) for number, tok_s in steps if tok_s is not None]
    if known:
        last = max(trial.number for trial in standing.trials)
        numbers = [number for number, _ in known] + [last]
        best = [tok_s for _, tok_s in known] + [known[-1][1]]
        axes.step(numbers, best, where="post", color=COLOURS["accepted"], lw=1, label="control")
    # The interval of two scattered repeats reaches below zero, where no rate is.
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "Decode rate by trial", "trial", "tok/s")
    if measured:
        axes.legend()
    return bool(measured)


def _repeats(axes: Axes, standing: Standing) -> bool:
    """Every measured repeat in the order of its session: shows warm-up, drift and noise."""
    measured = [t for t in standing.trials if t.rate is not None and len(t.rate.repeats) > 1]
    for trial in measured:
        if trial.rate is not None:
            axes.plot(
                range(1, len(trial.rate.repeats) + 1),
                [row.tok_s for row in trial.rate.repeats],
                marker=".",
                lw=1,
                color=COLOURS[trial.verdict.value],
                alpha=0.7,
            )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "Every repeat of every trial", "repeat", "tok/s")
    return bool(measured)


def _seconds(axes: Axes, standing: Standing) -> bool:
    """Where the time went: seconds of each trial by rung."""
    spent = [trial for trial in standing.trials if trial.seconds_by_rung]
    rungs = dict.fromkeys(rung for trial in spent for rung in trial.seconds_by_rung)
    bottom = [0.0] * len(spent)
    for rung in rungs:
        heights = [trial.seconds_by_rung.get(rung, 0.0) for trial in spent]
        numbers = [trial.number for trial in spent]
        axes.bar(numbers, heights, bottom=bottom, label=rung, color=RUNG_COLOURS.get(rung))
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "Seconds by rung", "trial", "s")
    if spent:
        axes.legend()
    return bool(spent)


def _rejections(axes: Axes, standing: Standing) -> bool:
    """How many trials each rejection code took."""
    codes = {code.value: len(trials) for code, trials in standing.rejections.items()}
    axes.barh(list(codes), list(codes.values()), color=COLOURS["rejected"])
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "Rejections by code", "trials", "")
    return bool(codes)


def _pareto(axes: Axes, standing: Standing) -> bool:
    """Rate against time to the first token, and the front that only accepted trials may form."""
    measured = [trial for trial in standing.trials if trial.rate is not None]
    for trial in measured:
        if trial.rate is None:
            continue
        x, y = trial.rate.ttft_ms.mean, trial.rate.tok_s.mean
        axes.plot(x, y, "o", color=COLOURS[trial.verdict.value])
        axes.annotate(str(trial.number), (x, y), xytext=(4, 4), textcoords="offset points")
    accepted = sorted(
        (t.rate.ttft_ms.mean, t.rate.tok_s.mean)
        for t in measured
        if t.verdict.value == "accepted" and t.rate is not None
    )
    front = [p for i, p in enumerate(accepted) if all(p[1] > q[1] for q in accepted[:i])]
    if front:
        axes.step([x for x, _ in front], [y for _, y in front], where="post", color="#2e7d32", lw=1)
    _label(axes, "Rate against time to first token", "TTFT, ms (mean)", "tok/s")
    return len(measured) > 1


def _knobs(axes: Axes, standing: Standing) -> bool:
    """How much of the variance of the log rate each knob explains by itself."""
    shares = knob_shares(standing.trials)
    axes.barh(list(shares), list(shares.values()), color="#1976d2")
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    _label(axes, "Share of the rate's variance that one knob alone explains", "share", "")
    return bool(shares)


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.3)


_DRAWERS: dict[str, Callable[[Axes, Standing], bool]] = {
    "rates": _rates,
    "repeats": _repeats,
    "seconds": _seconds,
    "rejections": _rejections,
    "pareto": _pareto,
    "knobs": _knobs,
}
