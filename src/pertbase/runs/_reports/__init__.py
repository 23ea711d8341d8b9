"""Reports of runs: tables, a page, and published figures beside ours."""
