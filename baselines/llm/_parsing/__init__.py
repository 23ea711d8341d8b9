"""Reading what a model wrote: what is thought, what is JSON, which outcome words name, and what a reply answers."""
