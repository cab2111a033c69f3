"""Training rows set apart for validation: models are chosen on clips that no benchmark reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vtgrl.core.errors import ConfigError
from vtgrl.core.seeds import derive_seed
from vtgrl.core.types import Sample


def hold_out(samples: Sequence[Sample], share: float) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """(training rows, validation rows). About `share` of the clips go to the second, all rows of a clip together.

    Chosen by the name of the clip's file alone: the same on every machine, in any order of rows, and as the set grows.

    Raises:
        ConfigError: one of the two would be empty.
    """
    if not share:
        return tuple(samples), ()
    apart = [_apart(sample, share) for sample in samples]
    train = tuple(s for s, held in zip(samples, apart, strict=True) if not held)
    val = tuple(s for s, held in zip(samples, apart, strict=True) if held)
    if not train or not val:
        raise ConfigError(f"data.hold_out: {share:g} of {len(samples)} rows leaves {len(train)} to train on and {len(val)} to validate on")
    return train, val


def _apart(sample: Sample, share: float) -> bool:
    name = sample.id if sample.video is None else Path(sample.video.path).name
    return derive_seed("hold_out", name) < share * 2**31
