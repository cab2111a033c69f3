"""The one step loop: draw rows, let the objective step, log, validate, save, stop when asked."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from vtgrl.core.errors import Interrupted, RunError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.log import logger
from vtgrl.core.types import Sample
from vtgrl.merge.zero3 import merge_checkpoint
from vtgrl.train.ckpt import TrainState
from vtgrl.train.filter import EpochFilter
from vtgrl.train.monitor_types import Monitor, MonitorContext
from vtgrl.train.session import Session
from vtgrl.train.signals import StopFlag, stop_on_signal


@dataclass(frozen=True)
class StepReport:
    """metrics: the same on every rank. `skipped`: no update was made. `records`: rows for samples.jsonl (this rank's)."""

    metrics: dict[str, float]
    skipped: bool = False
    records: list[dict[str, Any]] = field(default_factory=list)


class Objective(Protocol):
    """What makes SFT, GRPO, ... differ."""

    def restored(self, step: int) -> None:
        """Weights are those of `step` now (after a start or a resume)."""

    def step(self, step: int, samples: Sequence[Sample]) -> StepReport:
        """One optimizer-batch step on this rank's samples (collective)."""

    def validate(self, step: int) -> dict[str, float]:
        """Metrics on the validation rows (collective)."""

    def answers(self, step: int, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Greedy answers of the weights of `step` on these rows, scored: one row each, the same on every rank (collective)."""

    def close(self) -> None:
        """Free engines."""


def run_loop(session: Session, objective: Objective, *, resume: str | None) -> dict[str, Any]:
    """Train to the end, or to the next signal. Returns a summary with the last metrics and the final model folder.

    Raises:
        Interrupted: a signal came; a checkpoint has been written.
        RunError: too many steps in a row without an update.
    """
    state = _restore(session, resume)
    objective.restored(state.step)
    rows = EpochFilter(session, objective.answers) if session.recipe.data.filter.every else None
    monitors = _monitors(session)
    try:
        with stop_on_signal() as flag:
            if rows is not None:
                rows.restore(state.step)
            state, metrics = _steps(session, objective, state, monitors, flag, rows)
        _check_trained(session, state, metrics)
        return _finish(session, state, metrics)
    finally:
        for monitor in monitors:
            monitor.close()
        objective.close()
        session.builder.close()


def _restore(session: Session, resume: str | None) -> TrainState:
    lora = session.recipe.model.lora
    scale = lora.alpha / lora.r if lora.r else 0.0
    state = TrainState(step=0, world_size=session.world.size, lora_scale=scale, zero_stage=session.engine.stage)
    found = session.checkpoints.find(resume) if resume else None
    if found is not None:
        state = session.checkpoints.load(session.engine, found)
        session.loaded.policy.invalidate()
        session.failed.update(state.left_out if session.world.main else {})
        logger.info("resumed from %s", found)
    if session.world.main:
        session.checkpoints.set_aside_after(state.step)
        for name in ("metrics.jsonl", "samples.jsonl", "skipped.jsonl"):
            session.folder.drop_rows_from(name, step=state.step + 1)
    return state


def _monitors(session: Session) -> list[Monitor]:
    if not session.world.main:
        return []
    context = MonitorContext(session.folder.path, session.recipe, session.order.total_steps)
    return [component(context) for component in session.recipe.log.monitors]


def _steps(
    session: Session, objective: Objective, state: TrainState, monitors: Sequence[Monitor], flag: StopFlag, rows: EpochFilter | None
) -> tuple[TrainState, dict[str, float]]:
    settings, order = session.recipe.train, session.order
    metrics = session.world.broadcast(_last_metrics(session) if session.world.main else {})
    skipped_in_a_row = 0
    if order.finished(state.step) and not session.world.broadcast(session.checkpoints.at(state.step).is_dir()):
        _save(session, state)
    while not order.finished(state.step):
        step, began = state.step, time.perf_counter()
        session.upcoming[:] = _rows(session, step + 1)
        report = objective.step(step, _rows(session, step))
        done = step + 1
        skipped_in_a_row = skipped_in_a_row + 1 if report.skipped else 0
        state = replace(state, step=done, skipped=state.skipped + int(report.skipped))
        metrics = {**report.metrics, "epoch": order.epoch(done), "skipped": float(state.skipped)}
        metrics["time/step_s"] = time.perf_counter() - began
        if rows is not None and not session.world.max(int(flag.stop)):
            metrics |= rows.after(done)
        last = order.finished(done)
        if session.val and settings.val_every and (done % settings.val_every == 0 or last):
            metrics |= objective.validate(done)
            state = _best(state, metrics, settings.best_metric)
        _log(session, monitors, done, metrics, report)
        stop = bool(session.world.max(int(flag.stop)))
        due = settings.save_every and done % settings.save_every == 0
        if due or stop or last or state.best_step == done:
            _save(session, state)
        if stop and not last:
            raise Interrupted(f"stopped after step {done} of {order.total_steps}; go on with --resume auto")
        if skipped_in_a_row >= settings.max_skipped:
            raise RunError(f"{skipped_in_a_row} steps in a row made no update; {_why_skipped(session, metrics)}")
    return state, metrics


def _save(session: Session, state: TrainState) -> None:
    """A checkpoint (collective)."""
    session.checkpoints.save(session.engine, replace(state, left_out=_left_out(session)), model_files=session.write_model_files)


def _left_out(session: Session) -> dict[str, str]:
    """Samples that could not be used so far, of all ranks, and why (collective)."""
    return {key: value for part in session.world.gather(dict(session.failed)) for key, value in part.items()}


def _last_metrics(session: Session) -> dict[str, float]:
    """Of the step before, for the summary of a run that was finished already; empty at a start."""
    path = session.folder.path / "metrics.jsonl"
    rows = [row for _, row in read_jsonl(path)] if path.is_file() else []
    return {key: value for key, value in rows[-1].items() if key != "step"} if rows else {}


def _check_trained(session: Session, state: TrainState, metrics: dict[str, float]) -> None:
    """A run without a single update would only copy its start model (collective)."""
    if state.skipped and state.skipped == state.step:
        raise RunError(f"none of the {state.step} steps made an update; {_why_skipped(session, metrics)}")


def _why_skipped(session: Session, metrics: dict[str, float]) -> str:
    """The likely cause, with the fix (collective)."""
    failed = list(_left_out(session).values())
    if failed and not metrics.get("rows"):
        return f"{len(failed)} rows were left out, first: {failed[0]}"
    if metrics.get("rows") and metrics.get("reward/missing") == metrics["rows"]:
        return "no answer had a reward: look at skipped.jsonl"
    return "their gradients were not finite: lower optim.lr or look at skipped.jsonl"


def _rows(session: Session, step: int) -> list[Sample]:
    """This rank's samples of a step."""
    return session.world.shard([session.train[i] for i in session.order.batch_at(step)])


def _best(state: TrainState, metrics: dict[str, float], name: str) -> TrainState:
    if state.best is None or metrics[name] > state.best:
        return replace(state, best=metrics[name], best_step=state.step)
    return state


def _log(session: Session, monitors: Sequence[Monitor], step: int, metrics: dict[str, float], report: StepReport) -> None:
    records = [r for part in session.world.gather(report.records) for r in part]
    if not session.world.main:
        return
    session.folder.append_jsonl("metrics.jsonl", {"step": step, **metrics})
    for record in records[: session.recipe.log.samples]:
        session.folder.append_jsonl("samples.jsonl", record)
    for record in records:
        if report.skipped or any(value != value for value in record.get("total", ())):  # no update, or an answer without a reward
            session.folder.append_jsonl("skipped.jsonl", record)
    for monitor in monitors:
        monitor.log(step, metrics)


def _finish(session: Session, state: TrainState, metrics: dict[str, float]) -> dict[str, Any]:
    model = session.folder.path / "model"
    if session.world.main:
        _write_model(session.checkpoints.at(state.step), model)
    summary = {"steps": state.step, "skipped_steps": state.skipped, "left_out": _left_out(session), "metrics": metrics, "model": str(model)}
    if session.world.main:
        session.folder.write_json("summary.json", summary)
    session.world.barrier()
    return summary


def _write_model(checkpoint: Path, out: Path) -> None:
    """Merge into `out`. A resumed run may have one already: it goes when the new one is whole."""
    new = out.with_name(f".{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    merge_checkpoint(checkpoint, out=new)
    shutil.rmtree(out, ignore_errors=True)
    new.rename(out)
