"""Make `essays`: simulated grades of essays, by 3 raters on 4 tasks in 2 genres.

Run ``python tools/datasets/essays.py`` from the root of the repository. It needs numpy, and writes
``vcomp/data/shipped/essays.csv.gz``. Nobody wrote or graded these essays: every score is drawn
with a fixed seed.

Design
    60 persons write an essay on each of 4 tasks; two tasks are narratives, two are arguments. The
    same 3 raters grade the essays: person × (task : genre) × rater. Names of tasks are unique.

Score
    A whole number from 1 to 6: a sum of effects, rounded and cut off at the ends of the scale.
    Effects of genres, tasks and raters are set (`GENRES`, `TASKS`, `RATERS`), since there are few
    of them; the others are normal with the standard deviations in `SD`.

Missing
    An essay is not handed in with probability `NO_ESSAY`; the grade of one that is handed in is
    missing with probability `NO_GRADE`. Both are drawn independently of the scores. A score that
    is missing has no row.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

OUTPUT = Path(__file__).parents[2] / "vcomp" / "data" / "shipped" / "essays.csv.gz"
SEED = 2001
N_PERSONS = 60
MEAN = 3.6
GENRES = {"narrative": 0.15, "argument": -0.15}
TASKS = {
    "a journey": ("narrative", 0.2),
    "a mistake": ("narrative", -0.2),
    "homework": ("argument", 0.25),
    "phones in class": ("argument", -0.25),
}
RATERS = {"A": -0.3, "B": 0.0, "C": 0.3}
SD = {
    "person": 0.8,
    "person:genre": 0.35,
    "person:task": 0.5,
    "person:rater": 0.25,
    "task:rater": 0.1,
    "error": 0.5,
}
LOWEST, HIGHEST = 1, 6
NO_ESSAY, NO_GRADE = 0.04, 0.02


def main(output: Path = OUTPUT) -> None:
    """Draw effects, scores and missing cells, and write the scores."""
    rng = np.random.default_rng(SEED)
    genres, n = list(GENRES), N_PERSONS
    genre = np.array([genres.index(name) for name, _ in TASKS.values()])
    person, by_genre, by_task, by_rater = (
        rng.normal(scale=SD[name], size=(n, size))
        for name, size in (
            ("person", 1),
            ("person:genre", len(GENRES)),
            ("person:task", len(TASKS)),
            ("person:rater", len(RATERS)),
        )
    )
    essay = MEAN + person + by_genre[:, genre] + by_task
    essay += np.array([GENRES[name] + effect for name, effect in TASKS.values()])
    grade = essay[:, :, None] + by_rater[:, None, :] + np.array(list(RATERS.values()))
    grade += rng.normal(scale=SD["task:rater"], size=(len(TASKS), len(RATERS)))
    grade += rng.normal(scale=SD["error"], size=grade.shape)
    score = np.clip(np.rint(grade), LOWEST, HIGHEST).astype(int)
    there = (rng.random(essay.shape) >= NO_ESSAY)[:, :, None] & (
        rng.random(grade.shape) >= NO_GRADE
    )
    lines = ["person,genre,task,rater,score"]
    for p, t, r in np.argwhere(there):
        task = list(TASKS)[t]
        lines.append(f"{p + 1},{TASKS[task][0]},{task},{list(RATERS)[r]},{score[p, t, r]}")
    output.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))
    print(f"{len(lines) - 1} scores: {output.name}")


if __name__ == "__main__":
    main()
