"""What several test modules share: designs, scores, dense twins of what the library computes."""
