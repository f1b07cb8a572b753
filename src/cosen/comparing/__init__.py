"""Compare methods over seeds: studies, statistics, the leaderboard and the choice of a method."""
