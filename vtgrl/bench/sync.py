"""Weights from a sharded trainer to the rollout engine: in buckets, against the whole model on every rank at once."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vtgrl.bench.measure.kit import Kit, TinyConfig, Vlm, tiny_kit
from vtgrl.bench.sync_parts.rank import MIB, Spec, Way
from vtgrl.bench.types import BenchResult
from vtgrl.core.errors import RunError
from vtgrl.core.registry import opt, register
from vtgrl.train.launch import launch


@dataclass(frozen=True)
class SyncConfig(TinyConfig):
    """A random model under ZeRO-3."""

    family: Vlm = opt("qwen2_5_vl", "model family")
    hidden: int = opt(512, "width of the text model, a multiple of 32", ge=32)
    layers: int = opt(8, "depth of the text model", ge=1)
    freeze: tuple[str, ...] = opt(("vision",), "parts that do not train, as in model.freeze")
    bucket_mb: int = opt(4, "weights gathered at a time, in MiB; training uses 512 for models a hundred times as large", ge=1)
    ranks: int = opt(2, "processes that share the weights", ge=1)


@register("bench", "sync", config=SyncConfig)
def sync(*, config: SyncConfig) -> BenchResult:
    """Publishing weights under ZeRO-3: peak memory and gathered bytes in buckets, against the whole state dict at once."""
    with tiny_kit(config.family, config) as kit, TemporaryDirectory(prefix="vtgrl-bench-") as folder:
        found = {way: _run(kit, config, way, out=Path(folder) / way) for way in ("ours", "at_once")}
    peaks = {way: max(rank["later"]["tracked"] for rank in ranks) for way, ranks in found.items()}
    gathered = {way: {when: ranks[0][when]["gathered"] for when in ("first", "later")} for way, ranks in found.items()}
    return BenchResult(
        bench="sync",
        ratio=peaks["at_once"] / peaks["ours"],
        exactness=max(rank["difference"] for ranks in found.values() for rank in ranks),
        unit="peak growth of tensor memory on a rank while weights are published",
        baseline="all parameters gathered on every rank at once, frozen ones too",
        details={
            "ranks": config.ranks,
            "weights_bytes": found["ours"][0]["weights"],
            "bucket_bytes": config.bucket_mb * MIB,
            "gathered_bytes": gathered,
            "gathered_ratio_after_the_first": gathered["at_once"]["later"] / max(gathered["ours"]["later"], 1),
            "whole_at_once_bytes": {way: ranks[0]["later"]["at_once"] for way, ranks in found.items()},
            "memory": {way: {k: max(rank["later"][k] for rank in ranks) for k in ("tracked", "resident")} for way, ranks in found.items()},
        },
    )


def _run(kit: Kit, config: SyncConfig, way: Way, *, out: Path) -> list[dict[str, Any]]:
    """What each rank found, in processes of their own."""
    keys = (f"model.dtype={config.dtype}", f"model.freeze=[{', '.join(config.freeze)}]", "zero.persistence_threshold=0")
    spec = Spec(str(kit.folder), kit.name, way, config.bucket_mb, keys, str(out))
    file = out.with_suffix(".spec")
    file.write_text(json.dumps(asdict(spec)))
    # Large blocks come from the system and go back at once: the peak is the weights', not that of loading the model.
    own_blocks = ["env", "MALLOC_MMAP_THRESHOLD_=65536"]
    code = launch([*own_blocks, sys.executable, "-P", "-m", "vtgrl.bench.sync_parts.rank", str(file)], nproc=config.ranks)
    if code:
        raise RunError(f"bench sync: a rank ended with exit code {code}; what it said is above")
    return [json.loads(Path(f"{out}.{rank}.json").read_text()) for rank in range(config.ranks)]
