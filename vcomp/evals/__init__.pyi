from .eval_study import EvalStudy as EvalStudy
from .eval_study import study as study
from .judge_card import JudgeCard as JudgeCard
from .judge_card import judges as judges
from .reading_logs import EvalLogs as EvalLogs
from .reading_logs import read as read
from .repeated_runs import Repetitions as Repetitions
from .repeated_runs import repetitions as repetitions
