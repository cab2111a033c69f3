"""Log-probabilities of chosen tokens chunk by chunk, against from the full logits.

Shape legend: N rows, V vocabulary, D hidden size.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from vtgrl.bench.measure.memory import peak_memory
from vtgrl.bench.measure.scoring import Way, differences, times_less, work_and_time
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.model.head import install_head

WayName = Literal["ours", "baseline"]


@dataclass(frozen=True)
class LogprobConfig:
    """A head of V x D on N hidden states, fp32, all of them trained."""

    rows: int = opt(2048, "N: tokens whose log-probability is read", ge=1)
    vocabulary: int = opt(151_936, "V: that of the Qwen models", ge=2)
    hidden: int = opt(128, "D", ge=1)
    repeats: int = opt(5, "runs whose least CPU time counts", ge=1)


@register("bench", "logprob", config=LogprobConfig)
def logprob(*, config: LogprobConfig) -> BenchResult:
    """The chunked head against full logits and their log-softmax: growth of memory in forward and backward."""
    sizes = {"rows": config.rows, "vocabulary": config.vocabulary, "hidden": config.hidden}
    peaks = {way: asdict(peak_memory(f"{__name__}:prepare", way=way, **sizes)) for way in ("ours", "baseline")}
    ours, baseline = (make_way(way, **sizes) for way in ("ours", "baseline"))
    difference = differences(ours, baseline)
    measured = work_and_time({"ours": ours, "baseline": baseline}, repeats=config.repeats)
    return BenchResult(
        bench="logprob",
        ratio=peaks["baseline"]["tracked"] / peaks["ours"]["tracked"],
        exactness=difference["gradient_relative"],
        unit="peak growth of tensor memory, forward and backward",
        baseline="logits of all rows, log_softmax, gather",
        details={
            "peak_bytes": peaks,
            "resident_ratio": peaks["baseline"]["resident"] / peaks["ours"]["resident"],
            "gradient_bytes_in_both": 4 * config.hidden * (config.rows + config.vocabulary),
            "difference": difference,
            "flops_ratio": times_less(measured["flops"])["baseline"],
            "time_ratio": times_less(measured["seconds"])["baseline"],
            **measured,
        },
    )


def prepare(way: WayName, rows: int, vocabulary: int, hidden: int) -> Any:
    """The work whose memory counts, after a warm-up on one row."""
    make_way(way, rows=1, vocabulary=64, hidden=hidden).run()
    return make_way(way, rows=rows, vocabulary=vocabulary, hidden=hidden).run


def make_way(way: WayName, *, rows: int, vocabulary: int, hidden: int) -> Way:
    """The same random head and hidden states for both."""
    g, device = torch.Generator().manual_seed(0), "cuda" if torch.cuda.is_available() else "cpu"
    states = nn.Parameter(torch.randn(rows, hidden, generator=g).to(device))
    target_N = torch.randint(0, vocabulary, (rows,), generator=g).to(device)
    head = nn.Linear(hidden, vocabulary, bias=False)
    with torch.no_grad():
        head.weight.normal_(std=hidden**-0.5, generator=g)
    trained = nn.ModuleDict({"head": head.to(device), "states": nn.ParameterList([states])})
    if way == "ours":
        install_head(head)
        return Way(trained, [lambda: head(states, target_N)[0][:, 0]])
    return Way(trained, [lambda: F.linear(states, head.weight).log_softmax(-1).gather(1, target_N[:, None])[:, 0]])
