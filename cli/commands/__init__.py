"""The commands, one module a group. Heavy imports stand inside the functions: ``regent --help`` must be quick."""
