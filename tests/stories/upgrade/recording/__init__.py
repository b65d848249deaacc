"""Records stores of an earlier revision; runs inside of a checkout, whose own tests play the procedures."""
