"""Small logs of Inspect, written by itself: ``python make_inspect_logs.py FOLDER``.

It needs inspect_ai (0.3.112 and 0.3.285 were used) in an environment of its own, and no network.
The answers of the models are drawn from a hash of the request. The logs in tests/evals/logs are
made by this script.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import sys

from inspect_ai import Task, eval_retry, task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    Score,
    accuracy,
    match,
    mean,
    model_graded_qa,
    scorer,
    stderr,
)
from inspect_ai.solver import generate, solver

N_ITEMS = 9


def share(*parts: object) -> float:
    """Return a number between 0 and 1 made of a hash."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


calls = itertools.count()


@modelapi(name="drawn")
class Drawn(ModelAPI):
    """A model that adds with a probability; as a grader it answers with a grade."""

    async def generate(self, input, tools, tool_choice, config):  # noqa: A002
        """Return the sum, or 7; a grade if grades are asked for."""
        text = input[-1].text
        draw = share(self.model_name, text, next(calls))
        if "GRADE" in text:
            return ModelOutput.from_content(self.model_name, f"GRADE: {'CIP'[int(3 * draw)]}")
        k = int(text.split()[0])
        right = draw < {"small": 0.4, "large": 0.8}[self.model_name]
        return ModelOutput.from_content(self.model_name, str(2 * k) if right else "7")


@scorer(metrics={"close": [mean(), stderr()], "short": [mean(), stderr()]})
def parts(with_nan: bool = False):
    """Return two numbers; the second is not a number for some items, if wanted."""

    async def score(state, target):
        answer = float(state.output.completion)
        is_lost = with_nan and share(state.sample_id, state.epoch) < 0.3
        return Score(
            value={
                "close": 1 / (1 + abs(answer - float(target.text))),
                "short": math.nan if is_lost else float(len(state.output.completion) < 2),
            }
        )

    return score


@scorer(metrics=[accuracy(), stderr(), stderr(cluster="passage")])
def exact():
    """Return C or I."""

    async def score(state, target):
        return Score(value=CORRECT if state.output.completion == target.text else INCORRECT)

    return score


@solver
def failing():
    """Fail for an item in an epoch, as long as the environment says so."""

    async def solve(state, generate):
        if os.environ["BROKEN"] and (str(state.sample_id), state.epoch) == ("5", 2):
            raise ValueError("the tool does not answer")
        return await generate(state)

    return solve


def items():
    """Return the items, three a passage, with a long text that summaries leave out."""
    return MemoryDataset(
        [
            Sample(
                id=k,
                input=f"{k} + {k} =",
                target=str(2 * k),
                metadata={"passage": f"p{k // 3}", "long": f"p{k // 3}" + "x" * 1100},
            )
            for k in range(N_ITEMS)
        ],
        name="doubles",
    )


@task
def doubles(prompt: str = "plain"):
    """Two scorers, two epochs."""
    return Task(dataset=items(), solver=failing(), scorer=[exact(), parts()])


@task
def graded():
    """One epoch, graded by another model."""
    return Task(dataset=items()[:4], solver=generate(), scorer=[match(), model_graded_qa()])


@task
def lossy():
    """Scores that are not a number."""
    return Task(dataset=items(), solver=generate(), scorer=[parts(with_nan=True)])


def main(target: str) -> None:
    """Write the logs."""
    os.environ["BROKEN"] = "yes"
    how = {"log_dir": target, "display": "none", "max_samples": 1, "log_level": "error"}
    evaluate(doubles(), model="drawn/small", epochs=2, fail_on_error=False, **how)
    roles = {"grader": "drawn/large"}
    evaluate(graded(), model="drawn/small", model_roles=roles, log_format="json", **how)
    evaluate(lossy(), model="drawn/small", **how)
    (log,) = evaluate(doubles("other"), model="drawn/small", epochs=2, **how)
    os.environ["BROKEN"] = ""
    eval_retry(log, **how)


if __name__ == "__main__":
    main(sys.argv[1])
