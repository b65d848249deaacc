"""What every write shares: the check of the controller epoch, its outcome, its size, and how many are under way."""
