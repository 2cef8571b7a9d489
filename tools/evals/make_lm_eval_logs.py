"""Small logs of lm-evaluation-harness, written by itself: ``python make_lm_eval_logs.py FOLDER``.

It needs lm_eval (0.4.10 and 0.4.13 were used) in an environment of its own, no network and no
torch. The answers of the model are drawn from a hash of the request. The logs in tests/evals/logs
are made by this script.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

N_DOCS = 18

CHOICE = """
task: arith_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: label
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
  - {{metric: f1, aggregation: f1, higher_is_better: true}}
metadata: {{version: 1.0}}
"""

GENERATED = """
task: arith_text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], do_sample: true}}
repeats: 3
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
filter_list:
  - name: first
    filter: [{{function: take_first}}]
  - name: digits
    filter:
      - {{function: regex, regex_pattern: "(\\\\d+)"}}
      - {{function: take_first}}
metadata: {{version: 1.0}}
"""

GROUP = """
group: arith
task: [arith_choice, arith_text]
aggregate_metric_list:
  - {metric: acc, aggregation: mean, weight_by_size: true}
metadata: {version: 1.0}
"""


def share(*parts: object) -> float:
    """Return a number between 0 and 1 made of a hash."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


class Drawn(LM):
    """A model that is right with a probability; its answers depend on the request alone."""

    def __init__(self, name: str, skill: float) -> None:
        super().__init__()
        self.name, self.skill, self._calls = name, skill, 0

    def loglikelihood(self, requests, disable_tqdm=False):
        """Return a log-likelihood for each answer, the largest for the right one at times."""
        found = []
        for request in requests:
            right = request.doc["choices"][request.doc["label"]].strip() in request.args[1]
            draw = share(self.name, request.args)
            found.append((-2 - draw + right * self.skill, bool(draw > 0.8)))
        return found

    def generate_until(self, requests, disable_tqdm=False):
        """Return the right number, at times in a sentence."""
        found = []
        for request in requests:
            self._calls += 1
            draw = share(self.name, request.args[0], self._calls)
            answer = str(request.doc["answer"]) if draw < self.skill else "7"
            found.append(answer if draw * 7 % 1 < 0.5 else f"It is {answer}")
        return found

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        """Return nothing: no task asks for it."""
        raise NotImplementedError


def main(target: str) -> None:
    """Write the tasks and evaluate two models."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "docs.jsonl")
        docs = [
            {
                "question": f"{k} + {k * k} =",
                "choices": [" yes", " no"] if k % 2 else [" no", " yes"],
                "label": int(share("label", k) > 0.5),
                "answer": str(k + k * k),
                "passage": f"p{k // 3}",
            }
            for k in range(N_DOCS)
        ]
        data.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        for name, text in (("choice", CHOICE), ("text", GENERATED)):
            Path(folder, f"{name}.yaml").write_text(text.format(data=json.dumps(str(data))))
        Path(folder, "group.yaml").write_text(GROUP)
        tasks = TaskManager(include_path=folder, include_defaults=False)
        for name, skill in (("org/small", 0.4), ("org/large", 0.7)):
            tracker = EvaluationTracker(output_path=target)
            results = simple_evaluate(
                model=Drawn(name, skill),
                tasks=["arith"],
                task_manager=tasks,
                bootstrap_iters=50,
                log_samples=True,
                random_seed=1,
            )
            results["config"]["model"] = name
            tracker.general_config_tracker.log_experiment_args(
                model_source="drawn",
                model_args=f"pretrained={name}",
                system_instruction="",
                chat_template="",
                fewshot_as_multiturn=False,
            )
            samples = results.pop("samples")
            tracker.save_results_aggregated(results=results, samples=samples)
            for task in samples:
                tracker.save_results_samples(task_name=task, samples=samples[task])


if __name__ == "__main__":
    main(sys.argv[1])
