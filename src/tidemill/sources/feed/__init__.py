"""Message-fed reading: a log of requests, and the files that they name."""
