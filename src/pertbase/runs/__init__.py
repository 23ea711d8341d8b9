"""One baseline on one fold: plans, runs and their store, reports, published numbers."""

from pertbase.runs._execute import Outcome, execute
from pertbase.runs._names import Names
from pertbase.runs._report import Report, collect
from pertbase.runs._session import run_session
from pertbase.runs._store import Run, find_runs

__all__ = ["Names", "Outcome", "Report", "Run", "collect", "execute", "find_runs", "run_session"]
