"""N-gram language models of ids: stored, scored and estimated, by numpy alone."""
