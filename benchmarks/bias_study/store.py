"""Parts of a run on disk: written when complete, never mixed with those of other settings."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.bias_study.cells import COLLECTIONS, SIZES, Part
from benchmarks.bias_study.evaluate import Evaluation

VERSION = 1
"""Goes up with every change of what is simulated, measured or estimated."""


class OtherSettingsError(Exception):
    """A part on disk was made otherwise than it is asked for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the numbers of a run depend on.

    Attributes
    ----------
    seed : of all collections
    trials : collections of each cell
    sensitivities : whether these are extrapolated too
    sizes : places in :data:`SIZES` of the collections that are simulated
    collections : places in :data:`COLLECTIONS`
    version : of the settings that are no option
    """

    seed: int
    trials: int
    sensitivities: bool = False
    sizes: tuple[int, ...] = tuple(range(len(SIZES)))
    collections: tuple[int, ...] = tuple(range(len(COLLECTIONS)))
    version: int = VERSION

    def of_part(self) -> dict[str, object]:
        """Return what one part depends on: collections do not depend on each other."""
        own = asdict(self)
        del own["collections"]
        return {**own, "sizes": list(self.sizes)}


def path_of(folder: Path, part: Part) -> Path:
    """Return the file of a part."""
    return folder / f"{part.name}.npz"


def save(folder: Path, part: Part, settings: Settings, values: Evaluation) -> None:
    """Write a part under a temporary name, then rename it: a file that is there is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, part)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as file:
            np.savez(
                file,
                settings=np.array(json.dumps(settings.of_part())),
                diagnosis=values.diagnosis,
                actual=values.actual,
                estimates=values.estimates,
            )
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load(folder: Path, part: Part, settings: Settings) -> Evaluation | None:
    """Return a part, or nothing if it is not there.

    Raises
    ------
    OtherSettingsError
        If it was made with other settings: which, and what to do.
    """
    path = path_of(folder, part)
    if not path.is_file():
        return None
    with np.load(path) as file:
        made, asked = json.loads(str(file["settings"])), settings.of_part()
        different = [key for key in asked if made.get(key) != asked[key]]
        if different:
            ways = " and ".join(f"{key} {made.get(key)}, not {asked[key]}" for key in different)
            raise OtherSettingsError(
                f"{path} was made with {ways}: give another --out, or delete the folder"
            )
        return Evaluation(file["diagnosis"], file["actual"], file["estimates"])


def stacked(parts: Sequence[Evaluation], n_collections: int) -> Evaluation:
    """Return parts as arrays with an axis for collections and each assumption before the rest."""
    shape = (n_collections, 2, 2, 2, 2)

    def together(arrays: list[np.ndarray]) -> np.ndarray:
        return np.stack(arrays).reshape(shape + arrays[0].shape)

    return Evaluation(
        together([part.diagnosis for part in parts]),
        together([part.actual for part in parts]),
        together([part.estimates for part in parts]),
    )
