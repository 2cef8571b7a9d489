from .eval_logs import EvalLogs as EvalLogs
from .reading_logs import read as read
