"""Lets the tests of this folder share a study."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # for prepare_study
