"""Recording -> findings. Knows neither HTTP nor PostgreSQL; `process.py` is the table of contents."""
