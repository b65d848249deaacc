"""Commands, one module for each group. Heavy imports stand inside the functions: ``regent --help`` must be quick."""
