"""Where a language model runs: on this machine, behind a server, or in vLLM."""
