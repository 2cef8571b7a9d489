"""Logs of HELM: per_instance_stats.json, with run_spec.json in the same folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vcomp.evals.json_records import mapping
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import NOT_SCORED, Run, SampleRows, Unscored, Wanted, within

NAME = "helm"

STATISTICS = "per_instance_stats.json"


def is_of_run(file: LogFile) -> bool:
    """Return whether a file is another one of a run; these may be large."""
    statistics = file.path.with_name(STATISTICS)
    return file.path.suffix == ".json" and file.path != statistics and statistics.exists()


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is a list of statistics of instances."""
    first = file.first_record
    return "instance_id" in first and isinstance(first.get("stats"), list)


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a folder."""
    spec = LogFile(file.path.parent / "run_spec.json", "run_spec.json").described
    model = within(spec, "adapter_spec", "model")
    name = spec.get("name") or file.path.absolute().parent.name
    task = re.sub(r"[,:]?model(_deployment)?=[^,]*", "", str(name)).rstrip(":")
    notes = []
    if model is None:
        found = re.search(r"model=([^,]*)", str(name))
        model = found[1] if found else None
        notes.append("There is no run_spec.json beside the statistics: the folder names the run.")
    constant = {"model": model, "task": task, "run": str(file.path.absolute().parent)}
    samples = _Instances(SampleRows(_Instances.NAMES, constant=constant))
    for k, instance in enumerate(file.records(), 1):
        with damage.at(f"instance {k}"):
            samples.add(mapping(instance, "an instance"))
    samples.add_missing()
    yield Run(
        file.name,
        NAME,
        samples.rows.frame(),
        identity=file.name,
        samples=len(samples.seen),
        unreadable=damage.named,
        notes=notes,
    )


class _Instances:
    """Rows of the statistics of a run."""

    NAMES = ("item", "trial", "perturbation", "metric", "split", "sub_split")

    def __init__(self, rows: SampleRows) -> None:
        self.rows = rows
        # by item, trial and perturbation: the metrics that it has
        self.seen: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}

    def add(self, instance: dict[str, Any]) -> None:
        """Add the statistics of an instance by one class of metrics; it may come again."""
        perturbation = within(instance, "perturbation", "name") or "none"
        sample = (instance["instance_id"], instance.get("train_trial_index"), perturbation)
        found = self.seen.setdefault(sample, set())
        for stat in instance.get("stats") or []:
            name = mapping(mapping(stat, "a statistic").get("name"), "its name")
            metric = (name.get("name"), name.get("split"), name.get("sub_split"))
            found.add(metric)
            count, total = stat.get("count"), stat.get("sum")
            mean = total / count if count and total is not None else None
            self.rows.add((*sample, *metric), [mean])

    def add_missing(self) -> None:
        """Add metrics that samples of the same perturbation have: HELM leaves out NaN."""
        known: dict[Any, dict[tuple[Any, ...], None]] = {}
        for (_, _, perturbation), metrics in self.seen.items():
            known.setdefault(perturbation, {}).update(dict.fromkeys(sorted(metrics, key=repr)))
        for sample, metrics in self.seen.items():
            splits = {split for _, split, _ in metrics}
            for metric in known[sample[2]]:
                if metric not in metrics and (metric[1] in splits or not splits):
                    self.rows.add((*sample, *metric), [Unscored(NOT_SCORED)])
