"""Benchmarks: one for each stage of the pipeline, timed beside a peer with the same result.

``python -m benchmarks --help`` in the folder above.
"""

import os

# Before numpy is imported: two BLAS threads on a core that is shared vary a hundredfold.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
