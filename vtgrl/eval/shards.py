"""One benchmark over several processes: every n-th query each, joined by id at the end. No torch in here."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.jsonl import atomic_write, to_line
from vtgrl.core.types import Sample
from vtgrl.eval.run import METRICS, write_document
from vtgrl.eval.store import PREDICTIONS, load_scored, read_json
from vtgrl.eval.summary import document

if TYPE_CHECKING:
    from vtgrl.eval.vtg import VtgOptions

_SHARD = re.compile(r"(\d+)/(\d+)")
HEADER_END = "n"
"""Keys of a result document before this one are its header."""


def parse_shard(text: str) -> tuple[int, int]:
    """ "0/4" -> (0, 4); "" -> (0, 1).

    Raises:
        ConfigError: not i/n with 0 <= i < n.
    """
    if not text:
        return 0, 1
    found = _SHARD.fullmatch(text)
    index, count = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    if not 0 <= index < count:
        raise ConfigError(f"--shard {text!r}: write i/n with i from 0 to n-1, such as 0/4")
    return index, count


def shard_folder(out: Path, shard: str) -> Path:
    """Where a shard writes: `out` itself when there is only one."""
    index, count = parse_shard(shard)
    return out if count == 1 else out / f"shard_{index}_of_{count}"


def take_shard(samples: Sequence[Sample], shard: str) -> list[Sample]:
    """Every n-th query."""
    index, count = parse_shard(shard)
    return list(samples[index::count])


def answer_in_parallel(options: VtgOptions) -> dict[str, Any]:
    """`options.nproc` processes answer a shard each (on GPU i, when there are GPUs), then the shards are joined.

    Raises:
        ConfigError: no --out, or --shard beside --nproc.
        RunError: a process failed; what the others have written stays and is resumed.
    """
    if options.out is None or options.shard:
        raise ConfigError("--nproc needs --out DIR for the shards, and takes no --shard")
    spawn = multiprocessing.get_context("spawn")
    parts = [replace(options, nproc=1, shard=f"{i}/{options.nproc}") for i in range(options.nproc)]
    workers = [spawn.Process(target=_work, args=(part,), name=f"vtgrl-eval-{part.shard}") for part in parts]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
    failed = [worker.name for worker in workers if worker.exitcode != 0]
    if failed:
        raise RunError(f"{', '.join(failed)} stopped with an error (see above); start the same command again to resume")
    return join_shards(options.out)


def _work(options: VtgOptions) -> None:
    from vtgrl.core.log import setup_logging

    index, _ = parse_shard(options.shard)
    visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[index % len(visible)] if visible else str(index)
    setup_logging()
    from vtgrl.eval.model_run import answer_benchmark

    answer_benchmark(options)


def join_shards(out: Path) -> dict[str, Any]:
    """Put the shards in `out` together: predictions.jsonl in the benchmark's order, and one metrics.json.

    Raises:
        ConfigError: no shards, a missing one, shards of different runs, or a query that two shards answered.
    """
    folders = _complete_set(out)
    documents = [read_json(folder / METRICS) for folder in folders]
    headers = [_header(doc) for doc in documents]
    if any(header != headers[0] for header in headers):
        changed = sorted({k for h in headers for k in h if h.get(k) != headers[0].get(k)})
        raise ConfigError(f"{out}: the shards differ in {', '.join(changed)}: they are not parts of one run")
    parts = [load_scored(folder / PREDICTIONS)[: doc["n"]] for folder, doc in zip(folders, documents, strict=True)]
    rows = [parts[i % len(parts)][i // len(parts)] for i in range(sum(map(len, parts)))]
    if len({row["id"] for row in rows}) != len(rows):
        raise ConfigError(f"{out}: two shards answered the same query; remove the shard folders and start again")
    result = document(rows, threshold_op=headers[0]["threshold_op"], header=headers[0])
    atomic_write(out / PREDICTIONS, "".join(map(to_line, rows)))
    write_document(out / METRICS, result)
    return result


def _complete_set(out: Path) -> list[Path]:
    found = {(int(m.group(1)), int(m.group(2))): p for p in out.glob("shard_*") if (m := re.fullmatch(r"shard_(\d+)_of_(\d+)", p.name))}
    counts = {count for _, count in found}
    if len(counts) != 1:
        what = "no shard_i_of_n folders" if not counts else f"shards of {len(counts)} different splits"
        raise ConfigError(f"{out}: {what}; run every shard with the same --out")
    count = counts.pop()
    missing = [i for i in range(count) if not (found.get((i, count), Path()) / METRICS).is_file()]
    if missing:
        raise ConfigError(f"{out}: shard {', '.join(map(str, missing))} of {count} has not finished")
    return [found[i, count] for i in range(count)]


def _header(doc: dict[str, Any]) -> dict[str, Any]:
    keys = list(doc)
    header = {k: doc[k] for k in keys[: keys.index(HEADER_END)] if k != "schema_version"}
    return {k: v for k, v in header.items() if k not in ("videos_expected", "videos_missing", "shard")}
