"""What an answer is worth: rewards, metrics, judges, preference pairs, gates."""
