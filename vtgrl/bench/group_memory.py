"""Memory of a group's update as the group grows, packed against a batch with a row for every answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from vtgrl.bench.measure.kit import Kit, TinyConfig, Vlm, answers, tiny_kit
from vtgrl.bench.measure.memory import peak_memory
from vtgrl.bench.measure.peer import pairs
from vtgrl.bench.measure.scoring import Way, differences, packed_way, padded_way
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.model.types import PackedGroup

WayName = Literal["ours", "baseline"]


@dataclass(frozen=True)
class GroupMemoryConfig(TinyConfig):
    """Groups of different size over one prompt with a clip."""

    family: Vlm = opt("qwen2_5_vl", "model family")
    prompt: int = opt(2048, "tokens of the prompt, those of the clip included", ge=1)
    answer: int = opt(64, "tokens of an answer", ge=1)
    groups: tuple[int, ...] = opt((4, 8, 16), "sizes of the group; the largest one makes the ratio")
    frames: int = opt(60, "frames of the clip; two make one temporal slice", ge=2)
    side: int = opt(8, "tokens of a slice along each side", ge=1)


@register("bench", "group-memory", config=GroupMemoryConfig)
def group_memory(*, config: GroupMemoryConfig) -> BenchResult:
    """Peak memory of forward and backward grows with packed tokens, not with answers x prompt."""
    table = {n: _row(config, n) for n in sorted(config.groups)}
    smallest, largest = min(table), max(table)
    with tiny_kit(config.family, config) as kit:
        difference = differences(*(_way(way, kit, config, smallest) for way in ("ours", "baseline")))
    tracked = {way: {n: row[way]["tracked"] for n, row in table.items()} for way in ("ours", "baseline")}
    return BenchResult(
        bench="group-memory",
        ratio=tracked["baseline"][largest] / tracked["ours"][largest],
        exactness=max(difference.values()),
        unit=f"peak growth of tensor memory, forward and backward, {largest} answers",
        baseline="a batch with one row [prompt ; answer] for every answer, logits of answer tokens only",
        details={
            "difference": difference,
            "growth": {
                "answers": largest / smallest,
                "packed_tokens": table[largest]["tokens"]["ours"] / table[smallest]["tokens"]["ours"],
                **{way: tracked[way][largest] / tracked[way][smallest] for way in tracked},
            },
            "answers": {str(n): row for n, row in table.items()},
        },
    )


def _row(config: GroupMemoryConfig, n: int) -> dict[str, Any]:
    packed = config.prompt + n * config.answer
    peaks = {way: asdict(peak_memory(f"{__name__}:prepare", way=way, n=n, settings=asdict(config))) for way in ("ours", "baseline")}
    return {"tokens": {"ours": packed, "baseline": n * (config.prompt + config.answer)}, **peaks}


def prepare(way: WayName, n: int, settings: dict[str, Any]) -> Any:
    """The work whose memory counts, after a warm-up on one token."""
    config = GroupMemoryConfig(**settings)
    with tiny_kit(config.family, config) as kit:
        small = PackedGroup(kit.prompt("When?", [kit.medium(1)]), answers([1]))
        _way_of(way, kit, small).run()
        return _way(way, kit, config, n).run


def _way(way: str, kit: Kit, config: GroupMemoryConfig, n: int) -> Way:
    clip = kit.medium(0, frames=config.frames, side=config.side)
    prompt = kit.prompt("When does it happen?", [clip], tokens=config.prompt)
    return _way_of(way, kit, PackedGroup(prompt, answers([config.answer] * n)))


def _way_of(way: str, kit: Kit, group: PackedGroup) -> Way:
    if way == "ours":
        return packed_way(kit.policy(), [(group,)])
    return padded_way(kit.hf(), [pairs([group])], full_logits=False)
