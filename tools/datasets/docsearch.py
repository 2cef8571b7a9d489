"""Make `docsearch`: known-item search over the documentation of Python's standard library.

Run ``python tools/datasets/docsearch.py`` from the root of the repository. It needs numpy and
scipy, and writes ``vcomp/data/shipped/docsearch.csv.gz``. The scores depend on the version of
Python that runs the script, whose standard library is the collection: all random numbers have a
seed, and no order depends on a hash.

Collection
    Every ``.py`` file of the standard library is parsed (never imported). The docstring of each
    module, class and function is split into its first sentence and the rest. Rests with at least
    `MIN_WORDS` words are the documents; identical docstrings are kept once. Parts of the library
    that distributors leave out or that are not meant for use (`SKIPPED`) are not read.

Topics
    The query of a topic is the first sentence of a docstring; its one relevant document is the
    rest. Candidates are public objects whose first sentence ends a paragraph or is followed by a
    capital, is unique, has 4 to 30 different content words, and shares at least one of them with
    its document (otherwise no system could find it). At most `PER_MODULE` of a top-level
    module are admitted, and `N_TOPICS` of these are drawn. The choice does not depend on scores.

Queries
    ``sentence`` is the whole first sentence; ``keywords`` are its three rarest content words among
    those that occur in the collection (largest idf; ties in alphabetical order).

Systems
    Retrieval functions from the literature with several parameters and text analyses, and some
    deliberately poor baselines. See `SYSTEMS`. A name has the function, its parameters, and the
    analysis: ``stop`` (stop words removed), ``stem`` (Porter), ``sstem`` (Harman's S-stemmer),
    ``trunc5`` (first five letters).

Score
    The reciprocal rank of the relevant document. Tied documents have the mean of their ranks;
    scores are tied if they are equal to nine significant digits, so that ties do not depend on
    rounding errors.
"""

from __future__ import annotations

import ast
import gzip
import random
import re
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

OUTPUT = Path(__file__).parents[2] / "vcomp" / "data" / "shipped" / "docsearch.csv.gz"
N_TOPICS = 150
PER_MODULE = 6
MIN_WORDS = 20
N_KEYWORDS = 3
SEED = 2007

SKIPPED = {
    "__pycache__",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtle",
    "turtledemo",
}

# a reader checks such a list better as text
STOP_TEXT = """
a about after all also an and any are as at be been before between both but by can could do
does each either for from given has have how if in into is it its may more most must new no not
of on one only or other otherwise over same shall should so some such than that the their them
then there these they this those to two under until up use used uses using was we were what
when where whether which while who will with within would you your
"""
STOP_WORDS = frozenset(STOP_TEXT.split())

# ------------------------------------------------------------------------------------ collection


@dataclass(frozen=True, slots=True)
class Doc:
    """A docstring, divided into its first sentence and the rest."""

    name: str
    sentence: str
    rest: str


def docstrings(root: Path) -> Iterator[tuple[str, str]]:
    """Yield qualified names and docstrings of all source files below `root`, in order of name."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        # _sysconfigdata... describes the machine, config-... the build
        if SKIPPED.intersection(parts) or parts[0].startswith(("_sysconfigdata", "config-")):
            continue
        module = ".".join(parts).removesuffix(".__init__")
        yield from _walk(ast.parse(path.read_bytes()), module)


def _walk(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if text := ast.get_docstring(node):
        yield name, text
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(child, f"{name}.{child.name}")


def split(text: str) -> tuple[str, str]:
    """Return the first sentence of a docstring and the rest of it."""
    end = re.search(r"[.!?](?=\s+[A-Z]|\s*\n\s*\n|\s*$)|\n\s*\n", text)
    return (text[: end.end()].strip(), text[end.end() :].strip()) if end else (text, "")


def words(text: str) -> list[str]:
    """Return the lower-case words of two letters or more; ``camelCase`` and ``a_b`` are split."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return re.findall(r"[a-z]{2,}", parted.lower())


def collection() -> list[Doc]:
    """Return the documents, in order of name, without repetitions."""
    seen: set[str] = set()
    docs = []
    for name, text in sorted(docstrings(Path(sysconfig.get_path("stdlib")))):
        sentence, rest = split(text)
        if len(words(rest)) >= MIN_WORDS and rest not in seen:
            seen.add(rest)
            docs.append(Doc(name, sentence, rest))
    return docs


def choose_topics(docs: list[Doc]) -> list[int]:
    """Return the positions of the documents to be searched for, in order of name."""
    repeated = Counter(" ".join(words(doc.sentence)) for doc in docs)
    by_module = defaultdict(list)
    for i, doc in enumerate(docs):
        content = set(words(doc.sentence)) - STOP_WORDS
        public = not any(part.startswith("_") for part in doc.name.split("."))
        plain = "->" not in doc.sentence and repeated[" ".join(words(doc.sentence))] == 1
        findable = content & set(words(doc.rest))
        if public and plain and findable and 4 <= len(content) <= 30:
            by_module[doc.name.split(".")[0]].append(i)
    draw = random.Random(SEED)
    admitted = [i for m in by_module.values() for i in draw.sample(m, min(len(m), PER_MODULE))]
    return sorted(draw.sample(admitted, N_TOPICS))


# -------------------------------------------------------------------------------------- analysis


def s_stem(word: str) -> str:
    """Remove a plural ending (Harman 1991, Table 1)."""
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")):
        return word[:-1]
    return word


STEP_2 = """ational:ate tional:tion enci:ence anci:ance izer:ize abli:able alli:al entli:ent eli:e
ousli:ous ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al
iviti:ive biliti:ble"""
STEP_3 = "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:"
STEP_4 = """ement: ance: ence: able: ible: ment: sion:s tion:t ant: ent: ism: ate: iti: ous: ive:
ize: al: er: ic: ou:"""


def _measure(stem: str) -> int:
    """Return Porter's m: how often a consonant follows a vowel."""
    shape = re.sub(r"(?<![aeiou])y|[aeiou]", "V", stem)
    return len(re.findall(r"V[^V]", shape))


def _has_vowel(stem: str) -> bool:
    return re.search(r"[aeiou]|(?<=.)y", stem) is not None


def _short(stem: str) -> bool:
    """Return whether the stem ends in consonant, vowel, consonant other than w, x, y."""
    return re.search(r"[^aeiou][aeiouy][^aeiouwxy]$", stem) is not None


def _swap(word: str, rules: str, least: int) -> str:
    """Replace the longest matching ending of `rules` if the rest has a measure above `least`."""
    pairs = (rule.split(":") for rule in rules.split())
    for ending, new in sorted(pairs, key=lambda pair: -len(pair[0])):
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            kept = stem + new if new in {"s", "t"} else stem  # of "tion" only "ion" is the ending
            return stem + new if _measure(kept) > least else word
    return word


def _past_and_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        stem = word.removesuffix(ending)
        if stem != word and _has_vowel(stem):
            if stem.endswith(("at", "bl", "iz")):
                return stem + "e"
            if re.search(r"([^aeioulsz])\1$", stem):
                return stem[:-1]
            return stem + "e" if _measure(stem) == 1 and _short(stem) else stem
    return word


@cache
def porter(word: str) -> str:
    """Return the stem of Porter (1980)."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    word = _past_and_gerund(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _swap(_swap(_swap(word, STEP_2, 0), STEP_3, 0), STEP_4, 1)
    if word.endswith("e"):
        m = _measure(word[:-1])
        word = word[:-1] if m > 1 or (m == 1 and not _short(word[:-1])) else word
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


Analysis = Callable[[str], list[str]]


def _without_stop_words(text: str) -> list[str]:
    return [word for word in words(text) if word not in STOP_WORDS]


def _char_grams(text: str, n: int) -> list[str]:
    padded = (f" {word} " for word in words(text))
    return [word[i : i + n] for word in padded for i in range(max(len(word) - n + 1, 1))]


def _bigrams(text: str) -> list[str]:
    stems = [porter(word) for word in _without_stop_words(text)]
    return stems + [f"{a} {b}" for a, b in pairwise(stems)]


ANALYSES: dict[str, Analysis] = {
    "": words,
    "stop": _without_stop_words,
    "stem": lambda text: [porter(word) for word in words(text)],
    "stop-stem": lambda text: [porter(word) for word in _without_stop_words(text)],
    "stop-sstem": lambda text: [s_stem(word) for word in _without_stop_words(text)],
    "stop-trunc5": lambda text: [word[:5] for word in _without_stop_words(text)],
    "stop-stem-bigrams": _bigrams,
    "char3": partial(_char_grams, n=3),
    "char4": partial(_char_grams, n=4),
    "char5": partial(_char_grams, n=5),
}

# ----------------------------------------------------------------------------------------- index


class Index:
    """Term counts of the collection under one analysis."""

    def __init__(self, texts: list[str], analysis: Analysis) -> None:
        counts = [Counter(analysis(text)) for text in texts]
        self.analysis = analysis
        self.vocabulary = {t: j for j, t in enumerate(sorted(set().union(*counts)))}
        entries = [(i, self.vocabulary[t], n) for i, c in enumerate(counts) for t, n in c.items()]
        rows, cols, values = np.array(sorted(entries)).T
        shape = (len(texts), len(self.vocabulary))
        self.tf = sparse.csc_array((values.astype(float), (rows, cols)), shape=shape)
        self.n_docs = len(texts)
        self.df = np.bincount(cols, minlength=shape[1]).astype(float)
        self.cf = np.asarray(self.tf.sum(axis=0)).ravel()
        self.length = np.asarray(self.tf.sum(axis=1)).ravel()

    @cached_property
    def relative_length(self) -> np.ndarray:
        """Length of each document over the mean length."""
        return self.length / self.length.mean()

    def view(self, query: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ids and counts of the terms of the query, and their counts in all documents."""
        known = [self.vocabulary[t] for t in self.analysis(query) if t in self.vocabulary]
        ids, counts = np.unique(np.array(known, dtype=np.intp), return_counts=True)
        return ids, counts.astype(float), self.tf[:, ids].toarray()


# --------------------------------------------------------------------------------------- systems

Scorer = Callable[[Index, str], np.ndarray]


def _bm25_weights(index: Index, tf: np.ndarray, df: np.ndarray, k: float, b: float) -> np.ndarray:
    norm = k * (1 - b + b * index.relative_length)[:, None]
    idf = np.log(1 + (index.n_docs - df + 0.5) / (df + 0.5))
    return idf * tf * (k + 1) / (tf + norm)


def bm25(index: Index, query: str, k: float, b: float) -> np.ndarray:
    """Score as Robertson & Walker (1994), with the idf that is never negative."""
    ids, qtf, tf = index.view(query)
    return _bm25_weights(index, tf, index.df[ids], k, b) @ qtf


def bm25plus(index: Index, query: str, k: float, b: float) -> np.ndarray:
    """Score as Lv & Zhai (2011a): every occurrence is worth at least 1."""
    ids, qtf, tf = index.view(query)
    norm = k * (1 - b + b * index.relative_length)[:, None]
    weight = tf * (k + 1) / (tf + norm) + (tf > 0)
    return (np.log((index.n_docs + 1) / index.df[ids]) * weight) @ qtf


def bm25l(index: Index, query: str, k: float, b: float) -> np.ndarray:
    """Score as Lv & Zhai (2011b): long documents are not over-penalised."""
    ids, qtf, tf = index.view(query)
    c = tf / (1 - b + b * index.relative_length)[:, None] + 0.5 * (tf > 0)
    return (np.log((index.n_docs + 1) / (index.df[ids] + 0.5)) * c * (k + 1) / (k + c)) @ qtf


def bm25_feedback(index: Index, query: str, n_docs: int, n_terms: int) -> np.ndarray:
    """Score by BM25, add terms of the first `n_docs` documents at weight .3, score again."""
    ids, qtf, tf = index.view(query)
    first = _bm25_weights(index, tf, index.df[ids], 1.2, 0.75) @ qtf
    best = np.argsort(-first, kind="stable")[:n_docs]
    share = index.tf[best].toarray() / index.length[best, None]
    gain = share.mean(axis=0) * np.log(index.n_docs / index.df)
    added = np.argsort(-gain, kind="stable")[:n_terms]
    more = _bm25_weights(index, index.tf[:, added].toarray(), index.df[added], 1.2, 0.75)
    return 0.7 * first / qtf.sum() + 0.3 * more @ (gain[added] / gain[added].sum())


def dfr_inl2(index: Index, query: str) -> np.ndarray:
    """Score as Amati & van Rijsbergen (2002), model I(n)L2 of divergence from randomness."""
    ids, qtf, tf = index.view(query)
    tfn = tf * np.log2(1 + 1 / index.relative_length)[:, None]
    idf = np.log2((index.n_docs + 1) / (index.df[ids] + 0.5))
    return (tfn / (tfn + 1) * idf) @ qtf


def ql_jm(index: Index, query: str, lam: float) -> np.ndarray:
    """Score by the query's likelihood, Jelinek-Mercer smoothing (Zhai & Lafferty 2004)."""
    ids, qtf, tf = index.view(query)
    background = index.cf[ids] / index.cf.sum()
    return np.log((1 - lam) * tf / index.length[:, None] + lam * background) @ qtf


def ql_dirichlet(index: Index, query: str, mu: float) -> np.ndarray:
    """Score by the query's likelihood, Dirichlet smoothing (Zhai & Lafferty 2004)."""
    ids, qtf, tf = index.view(query)
    background = index.cf[ids] / index.cf.sum()
    return np.log((tf + mu * background) / (index.length[:, None] + mu)) @ qtf


def _damp(tf: np.ndarray, how: str) -> np.ndarray:
    if how == "raw":
        return tf
    return np.ones_like(tf) if how == "bin" else 1 + np.log(tf)


def _idf(index: Index, *, smooth: bool) -> np.ndarray:
    n = index.n_docs
    return np.log((1 + n) / (1 + index.df)) + 1 if smooth else np.log(n / index.df)


@cache
def _tfidf_norms(index: Index, tf: str, smooth: bool) -> np.ndarray:
    weights = index.tf.copy()
    weights.data = _damp(weights.data, tf)
    return np.sqrt(weights.power(2) @ _idf(index, smooth=smooth) ** 2)


def tfidf(
    index: Index, query: str, tf: str = "log", norm: str = "cos", *, smooth: bool = False
) -> np.ndarray:
    """Score by tf-idf (Salton & Buckley 1988); the pivot of `norm` is that of Singhal (1996)."""
    ids, qtf, counts = index.view(query)
    idf = _idf(index, smooth=smooth)[ids]
    weights = np.zeros_like(counts)
    weights[counts > 0] = _damp(counts[counts > 0], tf)
    scores = (weights * idf) @ (_damp(qtf, tf) * idf)
    if norm == "none":
        return scores
    if norm == "pivot":
        return scores / (0.8 + 0.2 * index.relative_length)
    return scores / _tfidf_norms(index, tf, smooth)


@cache
def _lsa(index: Index, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the documents in the space, of length one, and the terms' axes."""
    weights = index.tf.copy()
    weights.data = 1 + np.log(weights.data)
    weights = weights * _idf(index, smooth=True)
    norms = np.sqrt(np.asarray(weights.power(2).sum(axis=1)).ravel())
    weights = sparse.csr_array(weights / norms[:, None])
    start = np.random.default_rng(SEED).standard_normal(min(weights.shape))
    U, s, Vt = svds(weights, k=rank, v0=start)
    docs = U * s
    return docs / np.linalg.norm(docs, axis=1, keepdims=True), Vt


def lsa(index: Index, query: str, rank: int) -> np.ndarray:
    """Score by the cosine in the space of latent semantics (Deerwester et al. 1990)."""
    ids, qtf, _ = index.view(query)
    docs, Vt = _lsa(index, rank)
    return docs @ (Vt[:, ids] @ ((1 + np.log(qtf)) * _idf(index, smooth=True)[ids]))


def overlap(index: Index, query: str) -> np.ndarray:
    """Score by the number of different words in common."""
    return (index.view(query)[2] > 0).sum(axis=1).astype(float)


def jaccard(index: Index, query: str) -> np.ndarray:
    """Score by the words in common over the words in either."""
    ids, _, tf = index.view(query)
    common = (tf > 0).sum(axis=1)
    return common / (np.diff(index.tf.tocsr().indptr) + ids.size - common)


def idf_only(index: Index, query: str) -> np.ndarray:
    """Score by the summed idf of the words in common."""
    ids, _, tf = index.view(query)
    return (tf > 0) @ _idf(index, smooth=False)[ids]


def tf_only(index: Index, query: str) -> np.ndarray:
    """Score by how often the words of the query occur, common or rare."""
    return index.view(query)[2].sum(axis=1)


def density(index: Index, query: str) -> np.ndarray:
    """Score by the share of the document that are words of the query."""
    return index.view(query)[2].sum(axis=1) / index.length


def rarest_word(index: Index, query: str) -> np.ndarray:
    """Score by the occurrences of the query's rarest word alone."""
    ids, _, tf = index.view(query)
    return tf[:, np.argmin(index.df[ids])] / np.sqrt(index.length)


def shortest_match(index: Index, query: str) -> np.ndarray:
    """Return the documents with any word of the query, the shortest first."""
    return (index.view(query)[2].sum(axis=1) > 0) / index.length


SS = "stop-stem"
SYSTEMS: dict[str, tuple[str, Scorer]] = {
    "bm25-k1.2-b0.75": ("", partial(bm25, k=1.2, b=0.75)),
    "bm25-k1.2-b0.75-stop": ("stop", partial(bm25, k=1.2, b=0.75)),
    "bm25-k1.2-b0.75-stem": ("stem", partial(bm25, k=1.2, b=0.75)),
    "bm25-k1.2-b0.75-stop-stem": (SS, partial(bm25, k=1.2, b=0.75)),
    "bm25-k1.2-b0.75-stop-sstem": ("stop-sstem", partial(bm25, k=1.2, b=0.75)),
    "bm25-k1.2-b0.75-stop-trunc5": ("stop-trunc5", partial(bm25, k=1.2, b=0.75)),
    "bm25-k1.2-b0.75-stop-stem-bigrams": ("stop-stem-bigrams", partial(bm25, k=1.2, b=0.75)),
    "bm25-k0.3-b0.75-stop-stem": (SS, partial(bm25, k=0.3, b=0.75)),
    "bm25-k3.0-b0.75-stop-stem": (SS, partial(bm25, k=3.0, b=0.75)),
    "bm25-k1.2-b0.0-stop-stem": (SS, partial(bm25, k=1.2, b=0.0)),
    "bm25-k1.2-b0.4-stop-stem": (SS, partial(bm25, k=1.2, b=0.4)),
    "bm25-k1.2-b1.0-stop-stem": (SS, partial(bm25, k=1.2, b=1.0)),
    "bm25plus-k1.2-b0.75-stop-stem": (SS, partial(bm25plus, k=1.2, b=0.75)),
    "bm25l-k1.2-b0.75-stop-stem": (SS, partial(bm25l, k=1.2, b=0.75)),
    "bm25-feedback5x10-stop-stem": (SS, partial(bm25_feedback, n_docs=5, n_terms=10)),
    "bm25-feedback10x30-stop-stem": (SS, partial(bm25_feedback, n_docs=10, n_terms=30)),
    "dfr-inl2-stop-stem": (SS, dfr_inl2),
    "ql-jm0.1": ("", partial(ql_jm, lam=0.1)),
    "ql-jm0.1-stop-stem": (SS, partial(ql_jm, lam=0.1)),
    "ql-jm0.5-stop-stem": (SS, partial(ql_jm, lam=0.5)),
    "ql-jm0.9-stop-stem": (SS, partial(ql_jm, lam=0.9)),
    "ql-dir100-stop-stem": (SS, partial(ql_dirichlet, mu=100)),
    "ql-dir1000-stop-stem": (SS, partial(ql_dirichlet, mu=1000)),
    "ql-dir3000": ("", partial(ql_dirichlet, mu=3000)),
    "tfidf-raw-cos": ("", partial(tfidf, tf="raw")),
    "tfidf-raw-cos-stop-stem": (SS, partial(tfidf, tf="raw")),
    "tfidf-log-cos-stop-stem": (SS, tfidf),
    "tfidf-log-smooth-cos-stop": ("stop", partial(tfidf, smooth=True)),
    "tfidf-bin-cos-stop-stem": (SS, partial(tfidf, tf="bin")),
    "tfidf-raw-none-stop-stem": (SS, partial(tfidf, tf="raw", norm="none")),
    "tfidf-log-pivot-stop-stem": (SS, partial(tfidf, norm="pivot")),
    "tfidf-log-cos-char3": ("char3", tfidf),
    "tfidf-log-cos-char4": ("char4", tfidf),
    "tfidf-log-cos-char5": ("char5", tfidf),
    "lsa50-stop-stem": (SS, partial(lsa, rank=50)),
    "lsa200-stop-stem": (SS, partial(lsa, rank=200)),
    "overlap": ("", overlap),
    "overlap-stop-stem": (SS, overlap),
    "jaccard-stop-stem": (SS, jaccard),
    "idf-only-stop-stem": (SS, idf_only),
    "tf-only-stop": ("stop", tf_only),
    "density-stop": ("stop", density),
    "rarest-word-stop-stem": (SS, rarest_word),
    "shortest-match-stop": ("stop", shortest_match),
}

# ------------------------------------------------------------------------------------ evaluation


def keywords(sentence: str, index: Index) -> str:
    """Return the rarest different content words of `sentence` that occur in the collection."""
    known = sorted({w for w in words(sentence) if w in index.vocabulary})
    return " ".join(sorted(known, key=lambda w: index.df[index.vocabulary[w]])[:N_KEYWORDS])


def reciprocal_rank(scores: np.ndarray, target: int) -> float:
    """Return 1 over the rank of `target`, the mean rank where scores tie."""
    scale = np.abs(scores).max() or 1.0
    rounded = np.round(scores / scale, 9)
    better = np.count_nonzero(rounded > rounded[target])
    tied = np.count_nonzero(rounded == rounded[target])
    return 1 / (better + (tied + 1) / 2)


def main() -> None:
    """Search with all systems, score the rankings and write the scores."""
    docs = collection()
    topics = choose_topics(docs)
    texts = [doc.rest for doc in docs]
    indexes = {name: Index(texts, analysis) for name, analysis in ANALYSES.items()}
    lines = ["sys,topic,query,score"]
    for name, (analysis, score) in sorted(SYSTEMS.items()):
        for target in topics:
            doc = docs[target]
            queries = {
                "keywords": keywords(doc.sentence, indexes["stop"]),
                "sentence": doc.sentence,
            }
            for query, text in queries.items():
                rr = reciprocal_rank(score(indexes[analysis], text), target)
                lines.append(f"{name},{doc.name},{query},{rr:.6f}")
    data = ("\n".join(lines) + "\n").encode()
    OUTPUT.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))
    print(f"{len(docs)} documents, {len(topics)} topics, {len(SYSTEMS)} systems: {OUTPUT.name}")


if __name__ == "__main__":
    main()
