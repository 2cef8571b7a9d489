"""Make `digits`: classifiers of handwritten digits, trained several times on different samples.

Run ``python tools/datasets/digits.py`` from the root of the repository. It needs scikit-learn (the
extra `make-datasets`), whose version may change a few of the scores, and writes
``vcomp/data/shipped/digits.parquet``.

Images
    The 1,797 images of ``sklearn.datasets.load_digits`` (8 by 8 pixels, ten digits) are divided
    once into halves, stratified by digit. One half is used only for testing, the other only for
    training. An image is named after its position in ``load_digits``.

Seeds
    A seed draws `N_TRAIN` images of the training half, the same for every model, and is the
    `random_state` of those models that have one. Seeds therefore vary the whole training: the
    sample and the random start.

Models
    Classifiers of scikit-learn with ordinary settings, good ones and poor ones. See `models`.
    Pixels are divided by 16 and so lie between 0 and 1.

Score
    1 if the model, trained with the seed, recognises the digit of the test image, otherwise 0.

Every model is trained with every seed and tested on every image, and an image shows one digit:
the design is model × seed × (image : digit). Digits have different numbers of images.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

OUTPUT = Path(__file__).parents[2] / "vcomp" / "data" / "shipped" / "digits.parquet"
N_SEEDS = 5
N_TRAIN = 300
SPLIT_SEED = 0


def models(seed: int) -> dict[str, ClassifierMixin]:
    """Return untrained models by name, in order of name."""
    made = {
        "bagging-tree20": BaggingClassifier(n_estimators=20, random_state=seed),
        "extra-trees100": ExtraTreesClassifier(n_estimators=100, random_state=seed),
        "gaussian-nb": GaussianNB(var_smoothing=1e-2),
        "hist-boosting": HistGradientBoostingClassifier(max_iter=50, random_state=seed),
        "knn1": KNeighborsClassifier(1),
        "knn5": KNeighborsClassifier(5),
        "knn15": KNeighborsClassifier(15),
        "lda": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "logistic-c0.01": LogisticRegression(C=0.01, max_iter=5000),
        "logistic-c1": LogisticRegression(C=1.0, max_iter=5000),
        "mlp32": MLPClassifier((32,), max_iter=2000, random_state=seed),
        "nearest-centroid": NearestCentroid(),
        "perceptron": Perceptron(random_state=seed),
        "pca15-qda": make_pipeline(
            PCA(15, svd_solver="full"), QuadraticDiscriminantAnalysis(reg_param=0.1)
        ),
        "random-forest100": RandomForestClassifier(n_estimators=100, random_state=seed),
        "ridge": RidgeClassifier(alpha=1.0),
        "sgd-hinge": SGDClassifier(random_state=seed),
        "svm-linear": SVC(kernel="linear"),
        "svm-rbf": SVC(kernel="rbf"),
        "tree-depth4": DecisionTreeClassifier(max_depth=4, random_state=seed),
        "tree-depth8": DecisionTreeClassifier(max_depth=8, random_state=seed),
        "tree-full": DecisionTreeClassifier(random_state=seed),
    }
    return dict(sorted(made.items()))


def main() -> None:
    """Train and test all models, and write their scores."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    train, test = train_test_split(
        np.arange(y.size), test_size=0.5, stratify=y, random_state=SPLIT_SEED
    )
    test = np.sort(test)
    runs = []
    # some pixels are blank in all images of a digit; centroids need no standard deviations
    warnings.filterwarnings("ignore", message="self.within_class_std_dev_")
    for seed in range(1, N_SEEDS + 1):
        sample = np.random.default_rng(seed).choice(np.sort(train), N_TRAIN, replace=False)
        for name, model in models(seed).items():
            correct = model.fit(X[sample], y[sample]).predict(X[test]) == y[test]
            runs.append((name, seed, correct))
    runs.sort(key=lambda run: run[:2])
    table = pa.table(
        {
            "model": pa.array(np.repeat([name for name, _, _ in runs], test.size), pa.string()),
            "seed": np.repeat([seed for _, seed, _ in runs], test.size),
            "digit": np.tile(y[test], len(runs)).astype(np.int64),
            "image": pa.array([f"img{i:04d}" for i in test] * len(runs), pa.string()),
            "score": np.concatenate([correct for _, _, correct in runs]).astype(np.int64),
        }
    )
    pq.write_table(table, OUTPUT, compression="zstd", compression_level=19)
    print(f"{table.num_rows} rows: {OUTPUT.name}")


if __name__ == "__main__":
    # sums in several threads may differ in the last digit, and so may a tree built on them
    with threadpool_limits(1):
        main()
