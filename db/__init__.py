"""State in PostgreSQL, and nowhere else: calls, submissions, jobs, results, keys. `README.md` has the drawing."""
