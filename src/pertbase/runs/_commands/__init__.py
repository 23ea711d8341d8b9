"""What `pertbase COMMAND` does: one module a command."""
