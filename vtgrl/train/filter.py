"""Between two epochs: the policy answers the training rows, and those it has solved or has no chance at are left out (Time-R1).

Answers come from the run's own rollout engine, greedy, shared over the ranks; what they show is written to select/epoch_N.jsonl
(N counts from 1): a header with the counts, then {"id", "p", "place"} a row. place: 0 the easiest of the kept, null left out.
A resumed run reads these files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vtgrl.core.errors import ConfigError
from vtgrl.core.jsonl import read_jsonl, to_line
from vtgrl.core.log import logger
from vtgrl.core.types import Sample
from vtgrl.data.select.rule import Kept, keep_rows
from vtgrl.eval.types import MISSING
from vtgrl.train.order import EpochOrder
from vtgrl.train.session import Session

FOLDER = "select"

Answers = Callable[[int, Sequence[Sample]], list[dict[str, Any]]]
"""(step, samples) -> one scored row each, the same on every rank (collective)."""


class EpochFilter:
    """Gives `session.order` the rows of every epoch but the first."""

    def __init__(self, session: Session, answers: Answers) -> None:
        assert isinstance(session.order, EpochOrder)
        self.session, self.answers, self.order = session, answers, session.order
        self.config = session.recipe.data.filter
        self.rows: Sequence[int] = session.order.sets[0]
        """Of the newest epoch; easy to hard, unless they are shuffled anyway."""

    def restore(self, step: int) -> None:
        """Give the epochs that had begun after `step` steps their rows again (collective). The newest one is filtered now when
        the run stopped before that.

        Raises:
            ConfigError: a file is missing, or does not fit the recipe or the training rows.
        """
        if self.session.world.main:
            self._forget_after(step)
        while (begins := self.order.known) <= step and self.order.wants_rows(begins):
            if not self._due():
                self._add()
            elif begins == step and not self.session.world.broadcast(self._path().is_file()):
                self._filter(step)
            else:
                self._take(self.session.world.broadcast(self._read(begins) if self.session.world.main else []))

    def after(self, step: int) -> dict[str, float]:
        """Rows of the next epoch when one ends with `step`; -> metrics under `select/` (collective)."""
        if not self.order.wants_rows(step):
            return {}
        if self._due():
            return self._filter(step)
        self._add()
        return {}

    def _due(self) -> bool:
        every: int = self.config.every
        return len(self.order.sets) % every == 0

    def _add(self) -> None:
        shuffle = self.config.order == "shuffled"
        self.order.add(sorted(self.rows) if shuffle else self.rows, shuffle=shuffle)

    def _filter(self, step: int) -> dict[str, float]:
        """Answer, measure, choose, write down (collective)."""
        session, before = self.session, set(self.rows)
        candidates = sorted(self.rows) if self.config.shrink else range(len(session.train))
        found = {row["id"]: row for row in self.answers(step, [session.train[i] for i in candidates])}
        answered = [i for i in candidates if found[session.train[i].id]["kind"] != MISSING]
        p = [found[session.train[i].id]["iou"] for i in answered]
        ids = [session.train[i].id for i in answered]
        rule, epoch = self.config, len(self.order.sets)
        kept = keep_rows(p, ids=ids, above=rule.above, up_to=rule.up_to, k=rule.k, seed=epoch)
        rows = [answered[place] for place in kept.rows]
        counts = _counts(kept, returned=len(set(rows) - before), failed=len(candidates) - len(answered))
        cut = sum(found[name]["finish"] == "length" for name in ids)
        if session.world.main:
            _warn_of_cut(cut, of=len(ids), limit=session.recipe.validation.max_tokens)
            self._write(step, candidates, rows, found, counts)
        self._take(rows)
        mean = sum(p) / len(p) if p else 0.0
        return {f"{FOLDER}/{key}": float(value) for key, value in {**counts, "cut": cut, "mean_p": mean}.items()}

    def _take(self, rows: Sequence[int]) -> None:
        """Train the next epoch on `rows`; on none of them, do what the recipe says."""
        epoch = len(self.order.sets) + 1
        if rows:
            self.rows = rows
            logger.info("epoch %d: %d of %d rows", epoch, len(rows), len(self.session.train))
        elif self.config.empty == "stop":
            logger.warning("epoch %d would have no rows: all are solved or hopeless; the run ends here (data.filter.empty=stop)", epoch)
            self.order.stop()
            return
        else:
            logger.warning("epoch %d would have no rows: it takes those of the epoch before (data.filter.empty=keep)", epoch)
        self._add()

    # --- files -----------------------------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path:
        return self.session.folder.path / FOLDER

    def _path(self) -> Path:
        """Of the next epoch."""
        return self._folder / f"epoch_{len(self.order.sets) + 1}.jsonl"

    def _write(
        self, step: int, candidates: Sequence[int], rows: Sequence[int], found: dict[str, dict[str, Any]], counts: dict[str, int]
    ) -> None:
        places = {row: place for place, row in enumerate(rows)}
        lines: list[dict[str, Any]] = [{"epoch": len(self.order.sets) + 1, "step": step, "candidates": len(candidates), **counts}]
        for i in candidates:
            row = found[self.session.train[i].id]
            p = None if row["kind"] == MISSING else row["iou"]
            why = {"error": row["error"]} if row["error"] else {}
            lines.append({"id": row["id"], "p": p, "place": places.get(i), **why})
        self.session.folder.write_text(f"{FOLDER}/{self._path().name}", "".join(map(to_line, lines)))

    def _read(self, begins: int) -> list[int]:
        """Row indices of the next epoch, easy to hard, as its file says."""
        path, index = self._path(), {s.id: i for i, s in enumerate(self.session.train)}
        if not path.is_file():
            raise ConfigError(f"{path}: missing, and the epoch has begun; copy the folder {FOLDER} of the run that wrote the checkpoint")
        (_, header), *lines = read_jsonl(path)
        if header.get("step") != begins:
            raise ConfigError(f"{path}: began after step {header.get('step')}, by this recipe after {begins}; resume with the old recipe")
        kept = [(row["place"], row["id"]) for _, row in lines if row["place"] is not None]
        strange = next((name for _, name in kept if name not in index), None)
        if strange is not None:
            raise ConfigError(f"{path}: row {strange!r} is not among the training rows; resume with the run's own data")
        return [index[name] for _, name in sorted(kept)]

    def _forget_after(self, step: int) -> None:
        """Files of epochs that began later belong to a branch that is left."""
        for path in self._folder.glob("epoch_*.jsonl"):
            if next(read_jsonl(path))[1].get("step", 0) > step:
                path.unlink()


def _counts(kept: Kept, *, returned: int, failed: int) -> dict[str, int]:
    return {
        "kept": len(kept.rows), "solved": kept.solved, "hopeless": kept.hopeless, "thinned": kept.thinned,
        "returned": returned, "failed": failed,
    }  # fmt: skip


def _warn_of_cut(cut: int, *, of: int, limit: int) -> None:
    """An answer that never came to its end is judged hopeless, whatever the policy can do."""
    if 2 * cut > of:
        logger.warning(
            "%d of %d answers were cut at validation.max_tokens=%d before their end: such rows count as hopeless; raise it", cut, of, limit
        )
