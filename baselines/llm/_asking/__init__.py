"""Asking a model: how on this machine, what it may take, what is kept of it, and when to stop."""
