from .eval_logs import EvalLogs as EvalLogs
from .eval_study import EvalStudy as EvalStudy
from .eval_study import study as study
from .reading_logs import read as read
from .repeated_runs import Repetitions as Repetitions
from .repeated_runs import repetitions as repetitions
